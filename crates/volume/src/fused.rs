//! Compare-and-write: what hosts build their locks on.
//!
//! It is admitted as a write, so nothing that overlaps runs from before its compare until after its write. In two
//! chunks it holds its place in both, compares both, and only then writes.

use crate::admission::Access;
use crate::api::{CompareAndWriteError, IoError, Payload, Volume, check_len};
use crate::command::{Command, Finished};
use crate::part::{Done, Work};
use std::future::Future;
use types::{Mutant, mutant};

pub(crate) fn compare_and_write(
    volume: &Volume,
    offset_bytes: u64,
    expected: Payload,
    payload: Payload,
) -> impl Future<Output = Result<(), CompareAndWriteError>> + use<> {
    assert_eq!(expected.bytes.len(), payload.bytes.len(), "what is compared and what is written");
    check_len(payload.bytes.len());
    let split = mutant(Mutant::CompareAndWriteSplit).then(|| volume.clone());
    let command = split.is_none().then(|| begin(volume, offset_bytes, &expected, &payload));
    async move {
        if let Some(volume) = split {
            volume.compare(offset_bytes, expected).await.map_err(CompareAndWriteError::Compare)?;
            return volume.write(offset_bytes, payload).await.map_err(CompareAndWriteError::Write);
        }
        let (command, first_len) = command.expect("begun at the call").map_err(CompareAndWriteError::Compare)?;
        let differs = |at| Err(CompareAndWriteError::Compare(IoError::CompareFailed(offset_bytes + u64::from(at))));
        match command.finish().await.map_err(CompareAndWriteError::Write)? {
            Finished(Done::NotCompared(error), _) | Finished(_, Some(Done::NotCompared(error))) => {
                Err(CompareAndWriteError::Compare(error))
            }
            Finished(Done::Differs(at), _) => differs(at),
            Finished(_, Some(Done::Differs(at))) => differs(first_len + at),
            _ => Ok(()),
        }
    }
}

/// The command, and how many of its bytes lie in its first chunk.
fn begin(volume: &Volume, offset_bytes: u64, expected: &Payload, payload: &Payload) -> Result<(Command, u32), IoError> {
    let mut first_len = 0;
    let work = |at: u32, len: u32| {
        first_len = if at == 0 { len } else { first_len };
        let range = at as usize..(at + len) as usize;
        Work::CompareAndWrite(expected.bytes.slice(range.clone()), payload.bytes.slice(range))
    };
    let command = Command::begin(volume, offset_bytes, payload.bytes.len() as u32, Access::Write, work)?;
    Ok((command, first_len))
}
