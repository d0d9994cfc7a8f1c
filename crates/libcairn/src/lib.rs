//! # libcairn: the client, for C
//!
//! What each function does stands in `cairn.h`. Here is nothing but pointers and words: the client is `crates/client`.
//!
//! **Promises.** A NULL where an object is wanted is an error, and no crash. What went wrong is kept for the thread, in words.

mod uri;

use client::{Client, ClientError, Completion, Config, Operation, Queue, Request, Volume};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// See `cairn.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CairnCompletion {
    tag: u64,
    result: i32,
    unused: u32,
}
const _: () = assert!(size_of::<CairnCompletion>() == 16);

/// A volume, as C has it: by itself, or one that all have who opened its URI.
pub struct CairnVolume {
    volume: Arc<Volume>,
    uri: Option<String>,
}

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

fn keep(words: &str) {
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    ERROR.with_borrow_mut(|error| *error = words);
}

/// The object, or NULL and why.
fn given<T>(made: Result<T, String>) -> *mut T {
    match made {
        Ok(object) => Box::into_raw(Box::new(object)),
        Err(words) => {
            keep(&words);
            std::ptr::null_mut()
        }
    }
}

fn in_words(error: ClientError) -> String {
    error.to_string()
}

/// The text behind a pointer.
///
/// # Safety
/// It is NULL, or points to a text that ends with a zero.
unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, String> {
    if pointer.is_null() {
        return Err(format!("{what} is NULL"));
    }
    // SAFETY: as asked of the caller.
    unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| format!("{what} is no UTF-8"))
}

/// See `cairn.h`.
#[unsafe(no_mangle)]
pub extern "C" fn cairn_error() -> *const c_char {
    ERROR.with_borrow(|error| error.as_ptr())
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_connect(file: *const c_char) -> *mut Client {
    let connected = (|| {
        // SAFETY: a text, or NULL.
        let file = if file.is_null() { None } else { Some(unsafe { text(file, "the file's name") }?) };
        connect(file)
    })();
    given(connected)
}

fn connect(file: Option<&str>) -> Result<Client, String> {
    let config = Config::find(file.map(Path::new)).map_err(|error| error.to_string())?;
    Client::connect(&config).map_err(in_words)
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_disconnect(client: *mut Client) {
    if !client.is_null() {
        // SAFETY: it came from `cairn_connect`, and is not used any more.
        drop(unsafe { Box::from_raw(client) });
    }
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_open(client: *mut Client, name: *const c_char) -> *mut CairnVolume {
    let opened = (|| {
        // SAFETY: a client, or NULL.
        let client = unsafe { client.as_ref() }.ok_or("the client is NULL")?;
        // SAFETY: a text, or NULL.
        let name = unsafe { text(name, "the volume's name") }?;
        let volume = Arc::new(client.open(name).map_err(in_words)?);
        Ok(CairnVolume { volume, uri: None })
    })();
    given(opened)
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_open_uri(uri: *const c_char) -> *mut CairnVolume {
    // SAFETY: a text, or NULL.
    let uri = unsafe { text(uri, "the URI") };
    given(uri.and_then(|uri| Ok(CairnVolume { volume: uri::open(uri)?, uri: Some(uri.to_owned()) })))
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_close(volume: *mut CairnVolume) -> c_int {
    if volume.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: it came from an opening, and is not used any more.
    let CairnVolume { volume, uri } = *unsafe { Box::from_raw(volume) };
    let closed = match uri {
        Some(uri) => uri::close(&uri, volume),
        None => Arc::into_inner(volume).map_or(Ok(()), Volume::close),
    };
    match closed {
        Ok(()) => 0,
        Err(error) => {
            keep(&in_words(error));
            -libc::EIO
        }
    }
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_size(volume: *const CairnVolume) -> u64 {
    // SAFETY: a volume, or NULL.
    unsafe { volume.as_ref() }.map_or(0, |volume| volume.volume.size_bytes())
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_block_size(volume: *const CairnVolume) -> u32 {
    // SAFETY: a volume, or NULL.
    unsafe { volume.as_ref() }.map_or(0, |volume| volume.volume.block_size_bytes())
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_queue_begin(volume: *mut CairnVolume, depth: u32) -> *mut Queue {
    // SAFETY: a volume, or NULL.
    let volume = unsafe { volume.as_ref() }.ok_or_else(|| "the volume is NULL".to_owned());
    given(volume.and_then(|volume| volume.volume.queue(depth).map_err(in_words)))
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_queue_end(queue: *mut Queue) {
    if !queue.is_null() {
        // SAFETY: it came from `cairn_queue_begin`, and is not used any more.
        drop(unsafe { Box::from_raw(queue) });
    }
}

fn operation_of(number: c_int) -> Option<Operation> {
    Some(match number {
        0 => Operation::Read,
        1 => Operation::Write,
        2 => Operation::Flush,
        3 => Operation::Discard,
        4 => Operation::WriteZeroes,
        _ => return None,
    })
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_submit(
    queue: *mut Queue,
    operation: c_int,
    offset: u64,
    length: u64,
    buffer: *mut c_void,
    tag: u64,
) -> c_int {
    // SAFETY: a queue of this thread, or NULL.
    let Some(queue) = (unsafe { queue.as_mut() }) else { return -libc::EINVAL };
    let Some(operation) = operation_of(operation) else { return -libc::EINVAL };
    let is_moved = matches!(operation, Operation::Read | Operation::Write);
    if is_moved && (buffer.is_null() || length > isize::MAX as u64) {
        return -libc::EINVAL;
    }
    let request = Request { operation, offset_bytes: offset, len_bytes: length, buffer: buffer.cast(), tag };
    // SAFETY: the caller gives the buffer away until the request is completed.
    if unsafe { queue.submit(request) } { 0 } else { -libc::EAGAIN }
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_kick(queue: *mut Queue) {
    // SAFETY: a queue of this thread, or NULL.
    if let Some(queue) = unsafe { queue.as_ref() } {
        queue.kick();
    }
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_poll(queue: *mut Queue, completions: *mut CairnCompletion, max: c_int) -> c_int {
    // SAFETY: as asked of the caller.
    unsafe { cairn_wait(queue, completions, 0, max, 0) }
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_wait(
    queue: *mut Queue,
    completions: *mut CairnCompletion,
    min: c_int,
    max: c_int,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: a queue of this thread, or NULL.
    let Some(queue) = (unsafe { queue.as_mut() }) else { return -libc::EINVAL };
    if completions.is_null() && max > 0 {
        return -libc::EINVAL;
    }
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let until = timeout.filter(|_| min > 0).and_then(|timeout| Instant::now().checked_add(timeout));
    let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
    let mut found = 0;
    while found < max {
        let next = match found {
            _ if found < min => queue.wait(left()),
            0 => queue.poll(),
            _ => queue.take(),
        };
        let Some(Completion { tag, result }) = next else { break };
        // SAFETY: there is room for `max`.
        unsafe { completions.add(found as usize).write(CairnCompletion { tag, result, unused: 0 }) };
        found += 1;
    }
    found
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_fd(queue: *const Queue) -> c_int {
    // SAFETY: a queue, or NULL.
    unsafe { queue.as_ref() }.map_or(-libc::EINVAL, Queue::descriptor)
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_arm(queue: *mut Queue) -> c_int {
    // SAFETY: a queue, or NULL.
    unsafe { queue.as_ref() }.map_or(-libc::EINVAL, |queue| c_int::from(queue.arm()))
}

/// Does one request.
///
/// # Safety
/// The queue is one of this thread, or NULL; the buffer is the call's.
unsafe fn alone(queue: *mut Queue, operation: Operation, range: (u64, u64), buffer: *mut c_void) -> c_int {
    // SAFETY: as asked of the caller.
    let Some(queue) = (unsafe { queue.as_mut() }) else { return -libc::EINVAL };
    if queue.under_way() > 0 {
        return -libc::EBUSY;
    }
    let request = Request { operation, offset_bytes: range.0, len_bytes: range.1, buffer: buffer.cast(), tag: 0 };
    let is_moved = matches!(operation, Operation::Read | Operation::Write);
    if is_moved && (buffer.is_null() || range.1 > isize::MAX as u64) {
        return -libc::EINVAL;
    }
    // SAFETY: as asked of the caller: the buffer is the call's until it returns.
    if !unsafe { queue.submit(request) } {
        return -libc::EAGAIN;
    }
    queue.kick();
    queue.wait(None).map_or(-libc::EIO, |completion| completion.result)
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_read(queue: *mut Queue, offset: u64, length: u64, buffer: *mut c_void) -> c_int {
    // SAFETY: as asked of the caller.
    unsafe { alone(queue, Operation::Read, (offset, length), buffer) }
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_write(queue: *mut Queue, offset: u64, length: u64, buffer: *const c_void) -> c_int {
    // SAFETY: as asked of the caller; what is written is only read.
    unsafe { alone(queue, Operation::Write, (offset, length), buffer.cast_mut()) }
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_flush(queue: *mut Queue) -> c_int {
    // SAFETY: as asked of the caller.
    unsafe { alone(queue, Operation::Flush, (0, 0), std::ptr::null_mut()) }
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_discard(queue: *mut Queue, offset: u64, length: u64) -> c_int {
    // SAFETY: as asked of the caller.
    unsafe { alone(queue, Operation::Discard, (offset, length), std::ptr::null_mut()) }
}

/// See `cairn.h`.
///
/// # Safety
/// As it says there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cairn_write_zeroes(queue: *mut Queue, offset: u64, length: u64) -> c_int {
    // SAFETY: as asked of the caller.
    unsafe { alone(queue, Operation::WriteZeroes, (offset, length), std::ptr::null_mut()) }
}
