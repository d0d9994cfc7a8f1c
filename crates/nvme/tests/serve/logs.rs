//! What the target logs, kept for the test that runs: the simulator runs each world on its test's own thread.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Kept;

impl log::Log for Kept {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        let _ = LINES.try_with(|lines| lines.borrow_mut().push(record.args().to_string()));
    }
    fn flush(&self) {}
}

/// Keeps what is logged from now on.
pub fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Kept).expect("nobody else logs here");
        log::set_max_level(log::LevelFilter::Warn);
    });
    LINES.take();
}

/// Asserts that a line with all of these words was logged.
pub fn assert_logged(words: &[&str]) {
    LINES.with_borrow(|lines| {
        let found = lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "no line has {words:?} in it: {lines:#?}");
    });
}

/// Lines that were logged with this in them.
pub fn count(text: &str) -> usize {
    LINES.with_borrow(|lines| lines.iter().filter(|line| line.contains(text)).count())
}
