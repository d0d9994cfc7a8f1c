//! Tasks: a single-threaded executor per core.
//!
//! A task lives in memory that is recycled by size, so that spawning one per command does not allocate. Its waker is
//! a number (core, slot, generation), not a pointer: cloning and dropping wakers costs nothing, a waker that outlives
//! its task wakes nobody (or, after 16 million reuses of the slot, a stranger once too often, which futures allow),
//! and waking from another thread is a message to the core's inbox.

use crate::core::{self, Core, CoreKey};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

const SLOT_BITS: u32 = 24;
const GENERATION_BITS: u32 = 24;
/// Alignment of task memory; futures that want more are refused at compile time.
const TASK_ALIGNMENT: usize = 64;

/// Which task, on which core, in which life of its slot: 16 + 24 + 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskKey(u64);

impl TaskKey {
    fn new(core: CoreKey, slot: u32, generation: u32) -> Self {
        Self(
            u64::from(core.0) << (SLOT_BITS + GENERATION_BITS)
                | u64::from(slot) << GENERATION_BITS
                | u64::from(generation),
        )
    }
    pub(crate) fn core(self) -> CoreKey {
        CoreKey((self.0 >> (SLOT_BITS + GENERATION_BITS)) as u16)
    }
    fn slot(self) -> u32 {
        (self.0 >> GENERATION_BITS) as u32 & ((1 << SLOT_BITS) - 1)
    }
    fn generation(self) -> u32 {
        self.0 as u32 & ((1 << GENERATION_BITS) - 1)
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &VTABLE),
    |data| core::wake(TaskKey(data as usize as u64)),
    |data| core::wake(TaskKey(data as usize as u64)),
    |_| {},
);

fn waker_of(key: TaskKey) -> Waker {
    let data = std::ptr::without_provenance::<()>(key.0 as usize);
    // SAFETY: the data is a number, never dereferenced; clone and drop do nothing, wake is thread-safe.
    unsafe { Waker::new(data, &VTABLE) }
}

/// What the executor knows of a future whose type it has forgotten.
struct FutureTable {
    poll: unsafe fn(NonNull<u8>, &mut Context<'_>) -> Poll<()>,
    drop: unsafe fn(NonNull<u8>),
}

struct TableOf<F>(std::marker::PhantomData<F>);

impl<F: Future<Output = ()>> TableOf<F> {
    const TABLE: FutureTable = FutureTable {
        // SAFETY: the executor calls these only on memory that holds an F, pinned since it was placed.
        poll: |memory, cx| unsafe { Pin::new_unchecked(memory.cast::<F>().as_mut()).poll(cx) },
        // SAFETY: as above, and never again after it.
        drop: |memory| unsafe { memory.cast::<F>().drop_in_place() },
    };
}

/// A future in recycled memory.
struct Body {
    memory: NonNull<u8>,
    class: usize,
    table: &'static FutureTable,
}

enum SlotState {
    /// Nothing lives here; the next free slot.
    Free,
    /// A task that waits, or is in the ready queue.
    Idle(Body),
    /// Being polled right now; `cancel` asks for its end.
    Running { cancel: bool },
}

struct TaskSlot {
    generation: u32,
    queued: bool,
    state: SlotState,
}

/// Task memory nobody uses, by size class (powers of two from 64 bytes).
#[derive(Default)]
struct BodyPool(Vec<Vec<NonNull<u8>>>);

impl BodyPool {
    fn class_of(size: usize) -> usize {
        (size.max(TASK_ALIGNMENT).next_power_of_two() / TASK_ALIGNMENT).ilog2() as usize
    }
    fn layout(class: usize) -> Layout {
        Layout::from_size_align(TASK_ALIGNMENT << class, TASK_ALIGNMENT).expect("a power of two")
    }
    fn take(&mut self, class: usize) -> NonNull<u8> {
        if let Some(memory) = self.0.get_mut(class).and_then(Vec::pop) {
            return memory;
        }
        // SAFETY: the layout's size is not zero.
        NonNull::new(unsafe { alloc(Self::layout(class)) }).unwrap_or_else(|| handle_alloc_error(Self::layout(class)))
    }
    fn give(&mut self, class: usize, memory: NonNull<u8>) {
        if self.0.len() <= class {
            self.0.resize_with(class + 1, Vec::new);
        }
        self.0[class].push(memory);
    }
}

impl Drop for BodyPool {
    fn drop(&mut self) {
        for (class, list) in self.0.iter().enumerate() {
            for memory in list {
                // SAFETY: memory of this class, with no future in it.
                unsafe { dealloc(memory.as_ptr(), Self::layout(class)) };
            }
        }
    }
}

/// The tasks of one core.
pub(crate) struct Executor {
    core: CoreKey,
    slots: RefCell<Vec<TaskSlot>>,
    free: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<u32>>,
    turn_end: RefCell<Vec<Waker>>,
    turn: Cell<u64>,
    background: RefCell<VecDeque<Waker>>,
    /// Steps of background work that were asked for, and how many of these have begun.
    steps: Cell<(u64, u64)>,
    pool: RefCell<BodyPool>,
    /// Where the generations of this executor's slots begin.
    first_generation: u32,
}

/// Executors made on this thread. Core numbers are used again: each executor begins its generations elsewhere, so that
/// a waker or handle of an earlier one's task does not name a task of this one.
fn first_generation() -> u32 {
    thread_local! { static MADE: Cell<u32> = const { Cell::new(0) } }
    let made = MADE.get();
    MADE.set(made.wrapping_add(1));
    made.wrapping_mul(0x9E_3779) & ((1 << GENERATION_BITS) - 1)
}

impl Executor {
    pub(crate) fn new(core: CoreKey) -> Self {
        Self {
            core,
            slots: RefCell::default(),
            free: RefCell::default(),
            ready: RefCell::default(),
            turn_end: RefCell::default(),
            turn: Cell::new(0),
            background: RefCell::default(),
            steps: Cell::default(),
            pool: RefCell::default(),
            first_generation: first_generation(),
        }
    }

    fn insert(&self, body: Body) -> TaskKey {
        let mut slots = self.slots.borrow_mut();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(TaskSlot { generation: self.first_generation, queued: false, state: SlotState::Free });
            (slots.len() - 1) as u32
        });
        assert!(slot < 1 << SLOT_BITS, "more than 16 million tasks on one core");
        let place = &mut slots[slot as usize];
        place.state = SlotState::Idle(body);
        place.queued = true;
        self.ready.borrow_mut().push_back(slot);
        TaskKey::new(self.core, slot, place.generation)
    }

    /// Puts the task into the ready queue, if it still lives.
    pub(crate) fn wake(&self, key: TaskKey) {
        let mut slots = self.slots.borrow_mut();
        let Some(place) = slots.get_mut(key.slot() as usize) else { return };
        if place.generation == key.generation() && !place.queued && !matches!(place.state, SlotState::Free) {
            place.queued = true;
            self.ready.borrow_mut().push_back(key.slot());
        }
    }

    /// Puts every task into the ready queue.
    fn wake_all(&self) {
        let mut ready = self.ready.borrow_mut();
        for (slot, place) in self.slots.borrow_mut().iter_mut().enumerate() {
            if !place.queued && !matches!(place.state, SlotState::Free) {
                place.queued = true;
                ready.push_back(slot as u32);
            }
        }
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// Whether there is a task to poll, now or at the end of the turn.
    pub(crate) fn has_work(&self) -> bool {
        self.has_ready() || !self.turn_end.borrow().is_empty() || self.has_background()
    }

    /// Polls one ready task. Returns whether there was one.
    pub(crate) fn run_one(&self) -> bool {
        let Some(slot) = self.ready.borrow_mut().pop_front() else { return false };
        let (body, generation) = {
            let place = &mut self.slots.borrow_mut()[slot as usize];
            place.queued = false;
            match std::mem::replace(&mut place.state, SlotState::Running { cancel: false }) {
                SlotState::Idle(body) => (body, place.generation),
                other => {
                    place.state = other;
                    return true;
                }
            }
        };
        let waker = waker_of(TaskKey::new(self.core, slot, generation));
        // SAFETY: the body holds a live future of its table's type; it is polled by nobody else while it is out.
        let done = unsafe { (body.table.poll)(body.memory, &mut Context::from_waker(&waker)) }.is_ready();
        let cancelled = matches!(self.slots.borrow()[slot as usize].state, SlotState::Running { cancel: true });
        if done || cancelled {
            self.end(slot, body);
        } else {
            self.slots.borrow_mut()[slot as usize].state = SlotState::Idle(body);
        }
        true
    }

    /// Drops the future (which may wake and spawn) and frees its slot.
    fn end(&self, slot: u32, body: Body) {
        {
            let place = &mut self.slots.borrow_mut()[slot as usize];
            place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
            place.state = SlotState::Free;
        }
        // SAFETY: the future is alive and not being polled; nobody touches it after this.
        unsafe { (body.table.drop)(body.memory) };
        self.pool.borrow_mut().give(body.class, body.memory);
        self.free.borrow_mut().push(slot);
    }

    fn cancel(&self, key: TaskKey) {
        let body = {
            let mut slots = self.slots.borrow_mut();
            let Some(place) = slots.get_mut(key.slot() as usize) else { return };
            if place.generation != key.generation() {
                return;
            }
            match &mut place.state {
                SlotState::Running { cancel } => {
                    *cancel = true;
                    return;
                }
                SlotState::Free => return,
                SlotState::Idle(_) => match std::mem::replace(&mut place.state, SlotState::Free) {
                    SlotState::Idle(body) => body,
                    _ => unreachable!("matched just above"),
                },
            }
        };
        self.end(key.slot(), body);
    }

    /// Ends every task: what a crash does to a simulated core, and the end of a reactor.
    pub(crate) fn clear(&self) {
        let count = self.slots.borrow().len();
        for slot in 0..count {
            let key = {
                let slots = self.slots.borrow();
                TaskKey::new(self.core, slot as u32, slots[slot].generation)
            };
            self.cancel(key);
        }
        self.ready.borrow_mut().clear();
        for place in self.slots.borrow_mut().iter_mut() {
            place.queued = false;
        }
        self.turn_end.borrow_mut().clear();
        self.background.borrow_mut().clear();
        self.steps.set(Default::default());
    }

    /// Whether a step of background work waits.
    pub(crate) fn has_background(&self) -> bool {
        !self.background.borrow().is_empty()
    }

    /// Wakes the one that has waited longest for a step of background work. Returns whether there was one.
    pub(crate) fn begin_background_step(&self) -> bool {
        let Some(waker) = self.background.borrow_mut().pop_front() else { return false };
        let (asked, begun) = self.steps.get();
        self.steps.set((asked, begun + 1));
        waker.wake();
        true
    }

    /// Wakes those who wait for the end of the turn. Returns whether there was any.
    pub(crate) fn end_turn(&self) -> bool {
        self.turn.set(self.turn.get() + 1);
        let mut waiting = self.turn_end.take();
        let any = !waiting.is_empty();
        for waker in waiting.drain(..) {
            waker.wake();
        }
        let mut list = self.turn_end.borrow_mut();
        if list.is_empty() {
            *list = waiting; // keeps its room: no allocation per turn
        }
        any
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A spawned task. Dropping the handle leaves the task running.
#[derive(Clone, Copy, Debug)]
pub struct TaskHandle(TaskKey);

impl TaskHandle {
    /// Ends the task now: its future is dropped (after its current poll, if the task cancels itself).
    /// Does nothing if it has ended. Call it on the task's own core.
    pub fn cancel(self) {
        core::with_core(self.0.core(), |core: &Core| core.executor.cancel(self.0));
    }
}

/// Starts a task on the current core. Takes no memory from the system once as many tasks of its size have lived before.
///
/// # Panics
/// Outside a reactor.
#[inline]
pub fn spawn<F: Future<Output = ()> + 'static>(future: F) -> TaskHandle {
    const { assert!(align_of::<F>() <= TASK_ALIGNMENT) };
    let class = BodyPool::class_of(size_of::<F>());
    let memory = core::with_current(|core| core.executor.pool.borrow_mut().take(class));
    // Here, not further down: a future of a command is a kilobyte, and each function that takes it by value moves it.
    // SAFETY: the memory is large and aligned enough for an F, and free.
    unsafe { memory.cast::<F>().write(future) };
    let body = Body { memory, class, table: &TableOf::<F>::TABLE };
    core::with_current(|core| TaskHandle(core.executor.insert(body)))
}

/// Wakes every task of the current core: for what is too rare to keep a list of who waits for it.
pub fn wake_all_tasks() {
    core::with_current(|core| core.executor.wake_all());
}

/// Resolves at the end of this turn of the loop, when all tasks that were ready have run:
/// what gathered meanwhile can leave together.
pub fn turn_end() -> impl Future<Output = ()> {
    let mut since = None;
    std::future::poll_fn(move |cx| {
        core::with_current(|core| {
            let turn = core.executor.turn.get();
            if *since.get_or_insert(turn) < turn {
                return Poll::Ready(());
            }
            core.executor.turn_end.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
    })
}

/// Resolves when a step of background work may begin: one after the other, at the ends of turns, together not much
/// longer than what ran in the turn before them, but one in each turn at least. For work that is cut into steps of
/// about 100 µs, so that what clients wait for is not held up by many of them in a row.
pub fn background_step() -> impl Future<Output = ()> {
    let mut number = None;
    std::future::poll_fn(move |cx| {
        core::with_current(|core| {
            let executor = &core.executor;
            let (asked, begun) = executor.steps.get();
            match number {
                Some(number) if number < begun => return Poll::Ready(()),
                Some(_) => {}
                None => {
                    number = Some(asked);
                    executor.steps.set((asked + 1, begun));
                    executor.background.borrow_mut().push_back(cx.waker().clone());
                }
            }
            Poll::Pending
        })
    })
}

/// Lets the other ready tasks run first.
pub fn yield_now() -> impl Future<Output = ()> {
    let mut yielded = false;
    std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}
