//! What others ask of a core: wake this task, start that one, stop.
//!
//! A message is a push under a short lock; the core's thread takes all of them at once, in its turn. A system call
//! (one byte of an eventfd) is made only for a core that sleeps.

use super::receive::{KEPT_PART, Size};
use crate::buf::Budget;
use crate::core::{CoreKey, LocalFuture};
use crate::task::TaskKey;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Most reactors that one process may run at a time: far more than machines have cores, and few enough for a table.
const MAX_CORES: usize = 1024;

/// Makes a task on the core it is carried to.
pub(super) type MakeTask = Box<dyn FnOnce() -> LocalFuture + Send>;

pub(super) enum Message {
    Wake(TaskKey),
    Spawn(MakeTask),
    Stop,
}

/// The letters of one core. Lives for ever, and serves the next reactor that takes its number.
pub(super) struct Mailbox {
    key: CoreKey,
    letters: Mutex<Letters>,
    /// Whether there are letters: looked at without the lock.
    pending: AtomicBool,
    /// Whether the core's thread is in the kernel, or about to be, and must be told.
    sleeping: AtomicBool,
    bell: OwnedFd,
    /// Where the kernel puts what it read from the bell; here, because this outlives every ring.
    bell_count: AtomicU64,
    receive_budgets: [Budget; 2],
}

struct Letters {
    /// Whether a reactor reads them; what comes for a core that has ended is dropped.
    open: bool,
    messages: Vec<Message>,
}

static MAILBOXES: [OnceLock<Mailbox>; MAX_CORES] = [const { OnceLock::new() }; MAX_CORES];
/// Held while a reactor looks for a free number.
static TAKING: Mutex<()> = Mutex::new(());

impl Mailbox {
    /// Takes the lowest free number and its mailbox.
    pub(super) fn take() -> io::Result<&'static Self> {
        let _taking = TAKING.lock().unwrap_or_else(|poison| poison.into_inner());
        for (index, place) in MAILBOXES.iter().enumerate() {
            if place.get().is_none() {
                let fresh = Self::new(CoreKey(index as u16))?;
                assert!(place.set(fresh).is_ok(), "mailboxes are made under a lock");
            }
            let mailbox = place.get().expect("made above");
            let mut letters = mailbox.letters();
            if !letters.open {
                letters.open = true;
                return Ok(mailbox);
            }
        }
        Err(io::Error::other(format!("more than {MAX_CORES} reactors in one process")))
    }

    fn new(key: CoreKey) -> io::Result<Self> {
        // SAFETY: no pointers; the descriptor is checked and owned from here on.
        let bell = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self {
            key,
            letters: Mutex::new(Letters { open: false, messages: Vec::new() }),
            pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            bell,
            bell_count: AtomicU64::new(0),
            receive_budgets: [Size::Small, Size::Large]
                .map(|size| Budget::new(key, nudge, size.held_max() / KEPT_PART)),
        })
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Gives the number back; what still comes is dropped.
    pub(super) fn close(&self) {
        let undelivered = {
            let mut letters = self.letters();
            letters.open = false;
            self.pending.store(false, Ordering::SeqCst);
            std::mem::take(&mut letters.messages)
        };
        drop(undelivered); // outside the lock: what is carried may send letters itself
    }

    pub(super) fn key(&self) -> CoreKey {
        self.key
    }

    /// The descriptor that becomes readable when a sleeping core is told.
    pub(super) fn bell(&self) -> i32 {
        self.bell.as_raw_fd()
    }

    /// Eight bytes for the kernel to read the bell into.
    pub(super) fn bell_count(&self) -> *mut u8 {
        self.bell_count.as_ptr().cast()
    }

    /// Count the receive buffers that tasks hold: small ones, large ones.
    pub(super) fn receive_budgets(&'static self) -> &'static [Budget; 2] {
        &self.receive_budgets
    }

    /// Hands the core a message, from any thread.
    pub(super) fn post(&self, message: Message) {
        let refused = {
            let mut letters = self.letters();
            if letters.open {
                letters.messages.push(message);
                None
            } else {
                Some(message)
            }
        };
        if refused.is_none() {
            self.nudge();
        }
    }

    /// Makes the core take a turn soon.
    pub(super) fn nudge(&self) {
        self.pending.store(true, Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: the pointer and length are of `one`.
            let written = unsafe { libc::write(self.bell(), one.as_ptr().cast(), one.len()) };
            assert_eq!(written, one.len() as isize, "an eventfd below its limit takes a write");
        }
    }

    pub(super) fn has_letters(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    /// Moves all letters into `to`, which is empty and keeps its room.
    pub(super) fn collect(&self, to: &mut Vec<Message>) {
        if self.pending.load(Ordering::Relaxed) && self.pending.swap(false, Ordering::SeqCst) {
            std::mem::swap(&mut self.letters().messages, to);
        }
    }

    /// Says that the core is about to sleep; `false` if letters have come meanwhile and it must not.
    pub(super) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.pending.load(Ordering::SeqCst) {
            self.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    pub(super) fn wake_up(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
}

/// The mailbox of a core of this process, if there ever was one of that number.
pub(super) fn mailbox_of(key: CoreKey) -> Option<&'static Mailbox> {
    MAILBOXES.get(usize::from(key.0))?.get()
}

/// Makes the core take a turn: a receive buffer has come back.
fn nudge(core: CoreKey) {
    if let Some(mailbox) = mailbox_of(core) {
        mailbox.nudge();
    }
}

/// Wakes a task of a core on another thread.
pub(crate) fn wake_remote(task: TaskKey) {
    if let Some(mailbox) = mailbox_of(task.core()) {
        mailbox.post(Message::Wake(task));
    }
}
