//! At the primary: what heads on other cores ask for is done, and answered.

use super::{Sent, meet, zero};
use crate::error::GroupError;
use crate::group::{Group, Place, Placed, Reader, Sought, Stamp};
use crate::node::{CoreGroups, Link};
use crate::protocol::Asker;
use crate::wire::{Answer, AnsweredBlock, Envelope, HeadMessage, Piece, Refusal, Request, Wants};
use runtime::IoBuf;
use std::rc::Rc;
use store::format::{Crc32c, LayerRecord, StoredLength};
use store::{Content, Want, ZERO_BLOCK_CHECKSUM};
use types::{BLOCK_BYTES, BlockRange, ChunkId, Epoch, LayerId, Mutant, VolumeEpoch, VolumeId, mutant};

/// A request has come.
pub(crate) fn request(core: &Rc<CoreGroups>, link: &Rc<Link>, envelope: Envelope, request: Request) {
    let Some(group) = core.group(envelope.receiver, envelope.group) else {
        return refuse(link, envelope, Refusal::NotPrimary { primary: None, epoch: Epoch(0) });
    };
    let sent = Sent {
        asker: Asker { node: link.node, core: link.core, life: envelope.incarnation },
        attempt: envelope.attempt,
        epoch: request.group_epoch,
    };
    if let Err(error) = group.admit(&sent) {
        return refuse(link, envelope, refusal_of(&group, error));
    }
    let Some(served) = core.begin_serving(bytes_of(&request.wants)) else {
        return refuse(link, envelope, Refusal::Busy);
    };
    let (core, its) = (core.clone(), link.clone());
    // It ends with the connection: who asked asks again then, elsewhere.
    link.serve(envelope.request.0, async move {
        let answer = match check(&core, &group, &request) {
            Ok(()) => answer(&group, sent, request).await,
            Err(error) => Err(error),
        };
        respond(&its, &envelope, answer.unwrap_or_else(|error| Answer::Refused(refusal_of(&group, error)))).await;
        drop(served);
    });
}

/// Bytes that are kept for a request until its answer has left.
fn bytes_of(wants: &Wants) -> usize {
    match wants {
        Wants::Write { bytes, .. } => bytes.len(),
        Wants::WriteAll { pieces, .. } => pieces.iter().map(|piece| piece.bytes.len()).sum(),
        Wants::Read { range, .. } => range.bytes(),
        _ => 0,
    }
}

/// Answers at once, in the few words that a refusal takes.
fn refuse(link: &Rc<Link>, envelope: Envelope, refusal: Refusal) {
    let its = link.clone();
    link.serve(envelope.request.0, async move { respond(&its, &envelope, Answer::Refused(refusal)).await });
}

/// No answer is lost as long as the connection lives: whoever asked waits for it.
async fn respond(link: &Rc<Link>, envelope: &Envelope, answer: Answer) {
    let Envelope { receiver, group, request, .. } = *envelope;
    let back = Envelope { sender: receiver, group, request, ..Envelope::default() };
    link.room_for_heads().await;
    if link.is_closed() {
        return;
    }
    if !link.push_head(&back, &HeadMessage::Answer(answer)) {
        link.push_head(&back, &HeadMessage::Answer(Answer::Refused(Refusal::Unknown)));
    }
}

/// A group that has stopped says so, and refuses what is another group's (H10).
fn check(core: &CoreGroups, group: &Group, request: &Request) -> Result<(), GroupError> {
    if let Some(reason) = group.stopped() {
        return Err(GroupError::Stopped { group: group.id(), reason: reason.to_owned() });
    }
    let (layer, chunk) = match &request.wants {
        Wants::Write { layer, chunk, .. } | Wants::WriteAll { layer, chunk, .. } => (*layer, *chunk),
        Wants::Zero { layers, chunk, .. } | Wants::Read { layers, chunk, .. } | Wants::Status { layers, chunk, .. } => {
            (layers[0], *chunk)
        }
        Wants::Nothing | Wants::End(_) | Wants::Forget { .. } => return Ok(()),
    };
    let told = request.told.iter().find(|record| record.layer == layer).map(|record| record.family);
    let family = told.or_else(|| Some(group.its_shard().ok()?.store().layer(layer)?.family));
    match family.and_then(|family| core.owner()(family, chunk)) {
        Some(owner) if owner != group.id() && !mutant(Mutant::OtherTableTaken) => {
            Err(GroupError::NotHeld { group: group.id() })
        }
        // Of a family that this node has not heard of yet the head knows more.
        _ => Ok(()),
    }
}

async fn answer(group: &Group, sent: Sent, request: Request) -> Result<Answer, GroupError> {
    let Request { volume, epoch, told, wants, .. } = request;
    let stamp = Stamp::of_another(volume, epoch, &told, sent);
    match wants {
        Wants::Write { layer, chunk, range, bytes, coding } => {
            let placed = group.write(stamp, Place { layer, chunk, range }, bytes, coding).await?;
            group.wait_committed(placed).await?;
            Ok(Answer::Done)
        }
        Wants::Read { layers, chunk, range } => read(group, stamp, &layers, chunk, range).await,
        // Boxed: a request's task is as large as its largest case.
        wants => Box::pin(answer_rarer(group, (volume, epoch), sent, &told, wants)).await,
    }
}

async fn answer_rarer(
    group: &Group,
    (volume, epoch): (VolumeId, VolumeEpoch),
    sent: Sent,
    told: &[LayerRecord],
    wants: Wants,
) -> Result<Answer, GroupError> {
    let stamp = Stamp::of_another(volume, epoch, told, sent);
    match wants {
        Wants::Nothing => meet(group, stamp).await?,
        Wants::WriteAll { layer, chunk, pieces } => write_all(group, stamp, (layer, chunk), pieces).await?,
        Wants::Zero { layers, chunk, range } => {
            if let Some(placed) = zero(group, stamp, &layers, chunk, range).await? {
                group.wait_committed(placed).await?;
            }
        }
        Wants::Status { layers, chunk, range } => {
            let mut known = Vec::new();
            let sought = Sought { layers: &layers, chunk, range, want: Want::Stored };
            let_in(group, stamp).await?.known_blocks(sought, &mut known)?;
            return Ok(Answer::Known(known));
        }
        Wants::End(end) => group.end_layer(Stamp::of_another(volume, epoch, &[], sent), told, end).await?,
        Wants::Forget { layer } => group.forget_layer(stamp, layer).await?,
        Wants::Write { .. } | Wants::Read { .. } => unreachable!("these are answered above"),
    }
    Ok(Answer::Done)
}

/// All of them get their places; whatever comes of one, what becomes of those before it is known at the end.
async fn write_all(
    group: &Group,
    stamp: Stamp<'_>,
    (layer, chunk): (LayerId, ChunkId),
    pieces: Vec<Piece>,
) -> Result<(), GroupError> {
    let (mut placed, mut refused) = (None::<Placed>, Ok(()));
    for Piece { range, bytes, coding } in pieces {
        match group.write(stamp, Place { layer, chunk, range }, bytes, coding).await {
            // Who led in between is not known: what becomes of the first, becomes of all.
            Ok(last) => placed = Some(placed.filter(|first| !last.is_of_reign_of(*first)).unwrap_or(last)),
            Err(error) => {
                refused = Err(error);
                break;
            }
        }
    }
    if let Some(placed) = placed.filter(|_| !mutant(Mutant::PiecesAnsweredEarly)) {
        group.wait_committed(placed).await?;
    }
    refused
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
        GroupError::NotHeld { .. } => Refusal::NotHeld,
        // It got no place, and whoever sent it has begun another attempt already.
        GroupError::Overtaken { .. } => Refusal::Busy,
        GroupError::Unknown { .. } => Refusal::Unknown,
    }
}
