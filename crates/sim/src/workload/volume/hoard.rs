//! A volume that fills the device: written from its beginning until new blocks are refused or enough is stored, then
//! overwritten and discarded here and there, so that segments have to be cleaned, then deleted; and again. What it
//! holds is judged like everything else.

use super::client::{Clients, Ledger};
use super::door::{Door, Trouble};
use super::machine::{Serving, TIGHT_NEW_BLOCKS_BYTES, new_volume};
use super::model::Subject;
use super::profile;
use checker::history::ATOMIC_BYTES;
use runtime::random_u64;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use types::{BLOCK_BYTES, CHUNK_BYTES};
use volume::{Assembly, NewVolume, VolumeError};

const NAME: &str = "hoard";
/// A piece is written and discarded as a whole, and all or nothing.
const PIECE_BLOCKS: u64 = ATOMIC_BYTES / BLOCK_BYTES as u64;
const PIECES_PER_CHUNK: u64 = CHUNK_BYTES / ATOMIC_BYTES;
/// It is larger than the device.
const VOLUME_BYTES: u64 = 1 << 30;
/// What all others may have stored: the layers of what clients use, and volumes that come and go.
const OTHERS_BYTES: u64 = 24 << 20;
/// What may be on its way to the device while the fill is looked at.
const SLACK_BYTES: u64 = 8 << 20;
/// Changes between two looks at the fill.
const CHANGES: u64 = 64;

/// What there is of it.
#[derive(Default)]
pub struct Hoard {
    volume: Option<Subject>,
    /// Pieces that are stored.
    present: BTreeSet<u64>,
    /// Pieces that may be stored.
    possible: BTreeSet<u64>,
    /// What earlier ones held, whose space may not be back.
    leaving_bytes: u64,
    /// Fill it to this.
    until_bytes: u64,
    /// It was filled once.
    pub filled: bool,
}

impl Hoard {
    /// Whether so much may be stored that new blocks are refused.
    pub fn may_fill_the_device(&self) -> bool {
        let possible_bytes = self.possible.len() as u64 * ATOMIC_BYTES + self.leaving_bytes;
        possible_bytes + OTHERS_BYTES >= TIGHT_NEW_BLOCKS_BYTES
    }

    /// Whether so much is stored that new blocks must be refused.
    fn fills_the_device(&self) -> bool {
        self.present.len() as u64 * ATOMIC_BYTES > TIGHT_NEW_BLOCKS_BYTES + SLACK_BYTES
    }

    fn is_there(&self, piece: u64) -> bool {
        self.present.contains(&piece)
    }

    /// Nothing of it can be relied on, and all of it may be stored.
    fn forget(&mut self) {
        self.leaving_bytes += self.possible.len() as u64 * ATOMIC_BYTES;
        self.present.clear();
        self.possible.clear();
        self.volume = None;
    }
}

/// One who fills the device of a node that serves.
pub struct Hoarder {
    assembly: Assembly,
    clients: Arc<Clients>,
}

/// It is refused, or the node is at its end: for this start it is over.
struct Over;

impl Hoarder {
    pub fn new(serving: &Serving, clients: &Arc<Clients>) -> Self {
        Self { assembly: serving.assembly.clone(), clients: clients.clone() }
    }

    /// Goes on until clients are stopped.
    pub async fn run(self) {
        if self.clear_away().await.is_err() {
            return self.clients.end();
        }
        while !self.clients.stopped() {
            let Ok((door, subject)) = self.open().await else { break };
            if self.fill(&door, &subject).await.is_err() || self.change(&door, &subject).await.is_err() {
                break;
            }
            self.clients.ledger().hoard.filled = true;
            let is_full = self.clients.ledger().hoard.may_fill_the_device();
            if is_full && random_u64().is_multiple_of(4) && self.give_back(&subject).await.is_err() {
                break;
            }
        }
        self.clients.end();
    }

    fn hoard<T>(&self, with: impl FnOnce(&mut Hoard) -> T) -> T {
        with(&mut self.clients.ledger().hoard)
    }

    /// Deletes what was to be deleted when the node ended.
    async fn clear_away(&self) -> Result<(), Over> {
        let present = self.hoard(|hoard| hoard.volume.clone());
        let is_old = |name: &str| name.starts_with(NAME) && present.as_ref().is_none_or(|there| there.name != name);
        for volume in self.assembly.volumes().into_iter().filter(|volume| is_old(&volume.name)) {
            self.assembly.delete_volume(&volume.name).await.map_err(|error| self.refused(error))?;
        }
        for trashed in self.assembly.trash().into_iter().filter(|trashed| is_old(&trashed.info.name)) {
            self.assembly.empty_trash(trashed.info.id).await.map_err(|error| self.refused(error))?;
        }
        Ok(())
    }

    async fn open(&self) -> Result<(Door, Subject), Over> {
        let known = self.hoard(|hoard| hoard.volume.clone());
        let subject = known.unwrap_or_else(|| {
            let Ledger { model, hoard, .. } = &mut *self.clients.ledger();
            let name = model.new_name(NAME);
            model.passing.insert(name.clone());
            let subject = model.new_subject(&name);
            hoard.volume = Some(subject.clone());
            // Mostly until nothing more is taken.
            hoard.until_bytes = match random_u64() % 3 {
                0 => TIGHT_NEW_BLOCKS_BYTES / 10 * 8,
                _ => u64::MAX,
            };
            subject
        });
        let new = NewVolume { size_bytes: VOLUME_BYTES, ..new_volume(&subject.name, 4096) };
        match self.assembly.create_volume(new).await {
            Ok(_) | Err(VolumeError::Exists(_)) => {}
            Err(error) => return Err(self.refused(error)),
        }
        let door = Door::core(&self.assembly.directory(), &subject.name, self.clients.lock()).ok_or(Over)?;
        Ok((door, subject))
    }

    fn refused(&self, error: VolumeError) -> Over {
        let disk_fails = self.clients.profile.trouble == profile::Trouble::Disk;
        if !disk_fails && !self.clients.is_closing() && !self.clients.ledger().rotten {
            self.clients.fail("error", error);
        }
        Over
    }

    /// Writes new pieces, a chunk at a time, as long as they are taken and wanted.
    async fn fill(&self, door: &Door, subject: &Subject) -> Result<(), Over> {
        while !self.clients.stopped() {
            let next = self.hoard(|hoard| {
                let stored_bytes = hoard.possible.len() as u64 * ATOMIC_BYTES;
                let next = hoard.possible.last().map_or(0, |last| last / PIECES_PER_CHUNK + 1);
                (stored_bytes < hoard.until_bytes && next < VOLUME_BYTES / CHUNK_BYTES).then_some(next)
            });
            let Some(chunk) = next else { return Ok(()) };
            let pieces = chunk * PIECES_PER_CHUNK..(chunk + 1) * PIECES_PER_CHUNK;
            let must_be_refused = self.hoard(|hoard| hoard.fills_the_device());
            self.hoard(|hoard| hoard.possible.extend(pieces.clone()));
            let (first, count) = (pieces.start * PIECE_BLOCKS, PIECES_PER_CHUNK * PIECE_BLOCKS);
            match self.clients.write(door, subject, first, count).await {
                Ok(()) if must_be_refused => self.clients.fail("space", "a device that is full took new blocks"),
                Ok(()) => self.hoard(|hoard| hoard.present.extend(pieces)),
                Err(Trouble::NoSpace) => {
                    self.clients.judge(subject, &Trouble::NoSpace);
                    return Ok(());
                }
                Err(trouble) => return Err(self.over(subject, &trouble)),
            }
        }
        Err(Over)
    }

    fn over(&self, subject: &Subject, trouble: &Trouble) -> Over {
        self.clients.judge(subject, trouble);
        Over
    }

    /// Overwrites, discards and reads what is stored, here and there: that is done however full the device is.
    async fn change(&self, door: &Door, subject: &Subject) -> Result<(), Over> {
        for _ in 0..CHANGES {
            let picked = self.hoard(|hoard| {
                let most = hoard.possible.last().map_or(1, |last| last + 1);
                let from = random_u64() % most;
                hoard.present.range(from..).next().or(hoard.present.first()).copied()
            });
            let (Some(piece), false) = (picked, self.clients.stopped()) else { return Ok(()) };
            let (first, count) = (piece * PIECE_BLOCKS, PIECE_BLOCKS);
            let done = match random_u64() % 16 {
                0 => {
                    self.hoard(|hoard| hoard.present.remove(&piece));
                    let zeroed = self.clients.zero(door, subject, first, count).await;
                    if zeroed.is_ok() {
                        self.hoard(|hoard| hoard.possible.remove(&piece));
                    }
                    zeroed
                }
                1..4 => self.clients.read(door, subject, first, count).await.map(drop),
                4..10 => self.clients.write(door, subject, first + random_u64() % PIECE_BLOCKS, 1).await,
                _ => self.clients.write(door, subject, first, count).await,
            };
            match done {
                Ok(()) => {}
                Err(Trouble::NoSpace) if self.hoard(|hoard| hoard.is_there(piece)) => {
                    self.clients.fail("space", format!("piece {piece} is stored and an overwrite of it was refused"));
                }
                Err(trouble) => return Err(self.over(subject, &trouble)),
            }
        }
        Ok(())
    }

    /// Deletes it, at once or through the trash, and waits until its space is back.
    async fn give_back(&self, subject: &Subject) -> Result<(), Over> {
        self.hoard(Hoard::forget);
        let deleted = async {
            if random_u64().is_multiple_of(2) {
                return self.assembly.delete_volume(&subject.name).await;
            }
            let trashed = self.assembly.trash_volume(&subject.name).await?;
            self.assembly.empty_trash(trashed.info.id).await
        };
        deleted.await.map_err(|error| self.refused(error))?;
        self.clients.ledger().counts.deletions += 1;
        while !self.clients.stopped() {
            if self.assembly.status().await.deleting_volumes == 0 {
                self.hoard(|hoard| hoard.leaving_bytes = 0);
                return Ok(());
            }
            runtime::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Reads what is stored: a part of it, or all.
    pub async fn read(self, most_pieces: usize) {
        let known = self.hoard(|hoard| hoard.volume.clone());
        let (directory, lock) = (self.assembly.directory(), self.clients.lock());
        let door = known.as_ref().and_then(|subject| Door::core(&directory, &subject.name, lock));
        if let (Some(subject), Some(door)) = (known, door) {
            let pieces: Vec<u64> = self.hoard(|hoard| hoard.possible.iter().copied().collect());
            let from = random_u64() as usize % pieces.len().max(1);
            for piece in pieces.iter().cycle().skip(from).take(most_pieces.min(pieces.len())) {
                if let Err(trouble) = self.clients.read(&door, &subject, piece * PIECE_BLOCKS, PIECE_BLOCKS).await {
                    self.clients.judge(&subject, &trouble);
                }
            }
        }
        self.clients.end();
    }
}
