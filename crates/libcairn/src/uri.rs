//! `cairn:VOLUME?conf=FILE`: whoever opens it once more in this process has the same volume.

use crate::{connect, in_words};
use client::{ClientError, Volume};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

const FORM: &str = "write cairn:VOLUME or cairn:VOLUME?conf=FILE";

/// What is open, by its URI.
static OPEN: Mutex<BTreeMap<String, Arc<Volume>>> = Mutex::new(BTreeMap::new());

fn all_open() -> MutexGuard<'static, BTreeMap<String, Arc<Volume>>> {
    OPEN.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// The volume, and the file that names its cluster.
fn parse(uri: &str) -> Result<(&str, Option<&str>), String> {
    let rest = uri.strip_prefix("cairn:").ok_or_else(|| format!("'{uri}' is no URI of a volume: {FORM}"))?;
    let (volume, file) = match rest.split_once('?') {
        None => (rest, None),
        Some((volume, query)) => match query.strip_prefix("conf=") {
            Some(file) if !file.is_empty() => (volume, Some(file)),
            _ => return Err(format!("'?{query}' says nothing that is known: {FORM}")),
        },
    };
    if volume.is_empty() { Err(format!("'{uri}' names no volume: {FORM}")) } else { Ok((volume, file)) }
}

pub(crate) fn open(uri: &str) -> Result<Arc<Volume>, String> {
    let (name, file) = parse(uri)?;
    // Two threads that open the same wait for each other.
    let mut open = all_open();
    if let Some(volume) = open.get(uri) {
        return Ok(volume.clone());
    }
    let volume = Arc::new(connect(file)?.open(name).map_err(in_words)?);
    open.insert(uri.to_owned(), volume.clone());
    Ok(volume)
}

/// The last one that has it gives it back.
pub(crate) fn close(uri: &str, volume: Arc<Volume>) -> Result<(), ClientError> {
    let mut open = all_open();
    let others = Arc::strong_count(&volume);
    drop(volume);
    // One is in the list.
    if others > 2 {
        return Ok(());
    }
    let last = open.remove(uri).and_then(Arc::into_inner);
    last.map_or(Ok(()), Volume::close)
}
