//! Cores: threads that run a reactor each, and `block_on` for tools and tests.

use super::busy_poll::BUSY_POLL;
use super::mailbox::{Mailbox, MakeTask, Message, mailbox_of};
use super::reactor::Reactor;
use super::record::Recorder;
use super::turn::Loop;
use crate::core::{Backend, Core, CoreHandle, CoreKey};
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the end of a reactor waits for what the kernel still holds; then that memory is given up, not freed.
const DRAIN_PATIENCE: Duration = Duration::from_secs(2);

/// How cores are started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Record every device write and sync into this file (made, or emptied): see [`super::record`].
    pub record: Option<PathBuf>,
    /// How long a core looks for requests before it sleeps, where it expects some as soon; zero: it always sleeps.
    pub busy_poll: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { record: None, busy_poll: BUSY_POLL }
    }
}

/// A core of this process.
#[derive(Clone, Debug)]
pub struct UringCoreHandle {
    pub(super) key: CoreKey,
}

impl UringCoreHandle {
    pub(crate) fn spawn_boxed(&self, make: MakeTask) {
        mailbox_of(self.key).expect("a handle is made for a mailbox").post(Message::Spawn(make));
    }
    pub(crate) fn key(&self) -> CoreKey {
        self.key
    }
}

/// Threads with a reactor each. A panic on one of them ends the process: its tasks' state is gone, and what other
/// cores wait for would never come.
#[derive(Debug)]
pub struct Cores {
    handles: Vec<CoreHandle>,
    threads: Vec<JoinHandle<()>>,
}

impl Cores {
    /// Starts `count` cores.
    ///
    /// # Errors
    /// Where io_uring is off or too old, the record can not be made, or the system gives no thread.
    ///
    /// # Panics
    /// If `count` is zero.
    pub fn start(count: usize, options: &Options) -> io::Result<Self> {
        assert!(count > 0, "a process has at least one core");
        let recorder = make_recorder(options)?;
        let mut cores = Self { handles: Vec::new(), threads: Vec::new() };
        for index in 0..count {
            let (recorder, busy_poll) = (recorder.clone(), options.busy_poll);
            let (tell, told) = mpsc::channel();
            let thread = std::thread::Builder::new()
                .name(format!("cairn-core-{index}"))
                .spawn(move || end_process_on_panic(|| run_core(recorder, busy_poll, &tell)))?;
            cores.threads.push(thread);
            let key = told.recv().map_err(|_| io::Error::other("a core's thread ended at once"))??;
            cores.handles.push(CoreHandle::Uring(UringCoreHandle { key }));
        }
        Ok(cores)
    }

    /// The cores, in order.
    pub fn handles(&self) -> &[CoreHandle] {
        &self.handles
    }

    /// Ends all tasks, waits for what is with the kernel, and ends the threads.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        for handle in &self.handles {
            if let Some(mailbox) = mailbox_of(handle.key()) {
                mailbox.post(Message::Stop);
            }
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic there has ended the process already
        }
    }
}

fn make_recorder(options: &Options) -> io::Result<Option<Arc<Recorder>>> {
    options.record.as_deref().map(|path| Recorder::create(path).map(Arc::new)).transpose()
}

/// Runs `body`; if it panics, the hook has said why and the process ends here.
pub(super) fn end_process_on_panic(body: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
        let name = std::thread::current().name().unwrap_or("a core").to_owned();
        eprintln!("{name} has panicked (see above): the process ends, nothing unfinished is acknowledged");
        std::process::abort();
    }
}

fn run_core(recorder: Option<Arc<Recorder>>, busy_poll: Duration, tell: &mpsc::Sender<io::Result<CoreKey>>) {
    let running = match Running::start(recorder) {
        Ok(running) => running,
        Err(error) => {
            let _ = tell.send(Err(error)); // nobody listens only if `start` has panicked
            return;
        }
    };
    let _ = tell.send(Ok(running.core.key));
    running.core.enter(|| running.turns(busy_poll).run(None, || false));
}

/// Runs a reactor on this thread until `future` ends; its other tasks end with it.
///
/// # Errors
/// Where io_uring is off or too old.
pub fn block_on<F: Future + 'static>(future: F) -> io::Result<F::Output>
where
    F::Output: 'static,
{
    block_on_with(&Options::default(), future)
}

/// As [`block_on`], with options.
///
/// # Errors
/// Where io_uring is off or too old, or the record can not be made.
pub fn block_on_with<F: Future + 'static>(options: &Options, future: F) -> io::Result<F::Output>
where
    F::Output: 'static,
{
    let running = Running::start(make_recorder(options)?)?;
    let output = Rc::new(RefCell::new(None));
    let place = output.clone();
    running.core.enter(|| {
        crate::task::spawn(async move {
            let value = future.await;
            *place.borrow_mut() = Some(value);
        });
        running.turns(options.busy_poll).run(None, || output.borrow().is_some());
    });
    drop(running);
    let value = output.take();
    value.ok_or_else(|| io::Error::other("the reactor was told to stop before the future ended"))
}

/// A core with its reactor; dropping it ends the tasks, then the operations, then the ring.
pub(super) struct Running {
    pub(super) core: Rc<Core>,
    pub(super) reactor: Reactor,
}

impl Running {
    fn start(recorder: Option<Arc<Recorder>>) -> io::Result<Self> {
        Self::with(|mailbox| Reactor::by_ring(mailbox, recorder))
    }

    pub(super) fn with(make: impl FnOnce(&'static Mailbox) -> io::Result<Reactor>) -> io::Result<Self> {
        let mailbox = Mailbox::take()?;
        let reactor = make(mailbox).inspect_err(|_| mailbox.close())?;
        let core = Core::new(mailbox.key(), Backend::Uring(reactor.clone()));
        Ok(Self { core, reactor })
    }

    pub(super) fn turns(&self, busy_poll: Duration) -> Loop {
        Loop::new(self.core.clone(), self.reactor.clone(), busy_poll)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.core.enter(|| {
            self.core.executor.clear();
            self.core.timers.borrow_mut().clear();
        });
        if !self.reactor.drain(DRAIN_PATIENCE) {
            eprintln!("a device or connection did not answer within {DRAIN_PATIENCE:?} at the end of a core");
        }
        self.core.forget();
        self.reactor.mailbox().close();
    }
}
