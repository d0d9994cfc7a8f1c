//! At the primary: what heads on other cores ask for is done, and answered.

use super::{Sent, meet, zero};
use crate::error::GroupError;
use crate::group::{Group, Place, Reader, Sought, Stamp};
use crate::node::{CoreGroups, Link};
use crate::wire::{Answer, AnsweredBlock, Envelope, HeadMessage, Refusal, Request, Wants};
use runtime::IoBuf;
use std::rc::Rc;
use std::time::Duration;
use store::format::{Crc32c, StoredLength};
use store::{Content, Want, ZERO_BLOCK_CHECKSUM};
use types::{BLOCK_BYTES, BlockRange, ChunkId, Epoch, LayerId};

/// An answer that finds no room on its connection is offered again after this.
const ROOM_WAIT: Duration = Duration::from_millis(5);
/// Requests that a core does at once.
const SERVED_MAX: usize = 16_384;

/// A request has come.
pub(crate) fn request(core: &Rc<CoreGroups>, link: &Rc<Link>, envelope: Envelope, request: Request) {
    let Some(group) = core.group(envelope.receiver, envelope.group) else {
        return respond(link, envelope, Answer::Refused(Refusal::NotPrimary { primary: None, epoch: Epoch(0) }));
    };
    let sent = Sent {
        node: link.node,
        core: link.core,
        life: envelope.incarnation,
        attempt: envelope.attempt,
        epoch: request.group_epoch,
    };
    if let Err(error) = group.admit(&sent) {
        return respond(link, envelope, Answer::Refused(refusal_of(&group, error)));
    }
    let Some(served) = core.begin_serving(SERVED_MAX) else {
        return respond(link, envelope, Answer::Refused(Refusal::Busy));
    };
    let link = link.clone();
    runtime::spawn(async move {
        let answer = answer(&group, sent, request).await;
        respond(&link, envelope, answer.unwrap_or_else(|error| Answer::Refused(refusal_of(&group, error))));
        drop(served);
    });
}

/// No answer is lost as long as the connection lives: whoever asked waits for it.
fn respond(link: &Rc<Link>, envelope: Envelope, answer: Answer) {
    let Envelope { receiver, group, request, .. } = envelope;
    let back = Envelope { sender: receiver, group, request, ..Envelope::default() };
    let push = move |link: &Link, answer| {
        if !link.push_head(&back, &HeadMessage::Answer(answer)) {
            link.push_head(&back, &HeadMessage::Answer(Answer::Refused(Refusal::Unknown)));
        }
    };
    if link.has_room_for_heads() {
        return push(link, answer);
    }
    let link = link.clone();
    runtime::spawn(async move {
        while !link.is_closed() && !link.has_room_for_heads() {
            runtime::sleep(ROOM_WAIT).await;
        }
        push(&link, answer);
    });
}

async fn answer(group: &Group, sent: Sent, request: Request) -> Result<Answer, GroupError> {
    let Request { volume, epoch, told, wants, .. } = request;
    let stamp = Stamp::of_another(volume, epoch, &told, sent);
    match wants {
        Wants::Nothing => meet(group, stamp).await?,
        Wants::Write { layer, chunk, range, bytes, coding } => {
            let placed = group.write(stamp, Place { layer, chunk, range }, bytes, coding).await?;
            group.wait_committed(placed).await?;
        }
        Wants::Zero { layers, chunk, range } => {
            if let Some(placed) = zero(group, stamp, &layers, chunk, range).await? {
                group.wait_committed(placed).await?;
            }
        }
        Wants::Read { layers, chunk, range } => return read(group, stamp, &layers, chunk, range).await,
        Wants::Status { layers, chunk, range } => {
            let mut known = Vec::new();
            let sought = Sought { layers: &layers, chunk, range, want: Want::Stored };
            let_in(group, stamp).await?.known_blocks(sought, &mut known)?;
            return Ok(Answer::Known(known));
        }
        Wants::Merge { from, into, chunks, hides_below } => {
            let placed = group.merge(from, into, chunks, hides_below).await?;
            group.wait_committed(placed).await?;
        }
        Wants::Delete { layer, chunks } => {
            let placed = group.delete_layer(layer, chunks).await?;
            group.wait_committed(placed).await?;
        }
    }
    Ok(Answer::Done)
}

async fn let_in<'a>(group: &'a Group, stamp: Stamp<'_>) -> Result<Reader<'a>, GroupError> {
    group.reader(stamp).await.map(|(reader, _)| reader)
}

async fn read(
    group: &Group,
    stamp: Stamp<'_>,
    layers: &[LayerId],
    chunk: ChunkId,
    range: BlockRange,
) -> Result<Answer, GroupError> {
    let sought = Sought { layers, chunk, range, want: Want::Plain };
    let mut checksums = Vec::with_capacity(range.count.into());
    let reader = let_in(group, stamp).await?;
    let (content, buf) = reader.read(sought, IoBuf::new(range.bytes()), &mut checksums).await;
    Ok(match content? {
        Content::Plain => plain(buf, &checksums),
        Content::Stored(mut stored) => {
            let (mut blocks, mut bytes) = (Vec::with_capacity(range.count.into()), Vec::new());
            stored.for_each(|block| {
                blocks.push(block.map(|(length, sum, stored)| {
                    bytes.extend_from_slice(stored);
                    (sum, length)
                }));
            });
            Answer::Read(blocks, IoBuf::copy_of(&bytes).freeze())
        }
    })
}

/// Blocks of nothing but zeroes do not travel.
fn plain(mut buf: IoBuf, checksums: &[u32]) -> Answer {
    let mut end = 0;
    let mut blocks: Vec<AnsweredBlock> = Vec::with_capacity(checksums.len());
    for (number, sum) in checksums.iter().enumerate() {
        let at = number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES;
        if *sum == ZERO_BLOCK_CHECKSUM && buf[at.clone()].iter().all(|byte| *byte == 0) {
            blocks.push(None);
            continue;
        }
        if end < at.start {
            buf.copy_within(at, end);
        }
        end += BLOCK_BYTES;
        blocks.push(Some((Crc32c(*sum), StoredLength::RAW)));
    }
    Answer::Read(blocks, buf.freeze().slice(0..end))
}

fn refusal_of(group: &Group, error: GroupError) -> Refusal {
    let reason = |error: GroupError| error.to_string().into();
    match error {
        GroupError::NotPrimary { .. } => {
            let (primary, epoch) = group.led_by();
            Refusal::NotPrimary { primary, epoch }
        }
        GroupError::OldHead { seen, .. } => Refusal::OldHead { seen },
        GroupError::NoSpace(_) | GroupError::MemberFull { .. } | GroupError::NoSpaceThere { .. } => {
            Refusal::NoSpace { reason: reason(error) }
        }
        GroupError::Damaged { .. } | GroupError::DamagedThere { .. } => Refusal::Damaged { reason: reason(error) },
        GroupError::Stopped { reason, .. } => Refusal::Stopped { reason: reason.into() },
        GroupError::Untold { .. } => Refusal::Untold,
        // It got no place, and whoever sent it has begun another attempt already.
        GroupError::Overtaken { .. } => Refusal::Busy,
        GroupError::Unknown { .. } => Refusal::Unknown,
    }
}
