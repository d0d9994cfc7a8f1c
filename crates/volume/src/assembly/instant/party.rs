//! A node's share of a snapshot over several volumes: it stops those whose head it is, and says truthfully whether they were
//! still stopped when it heard "go".
//!
//! ```text
//!   prepare ─► epochs raised everywhere, nothing else changes these volumes ─► prepared
//!   stop    ─► map read back, gates of all cores closed, nothing runs       ─► stopped        at most 1 s, else refused
//!   go      ─► gates open, with the new tops                                ─► was still stopped
//!   1 s without go: the gates open all the same; whoever says go then hears "had gone on"
//!   over    ─► the old tops may be left, the cores know the snapshots
//! ```
//!
//! Whoever asks may end at any moment: each wait has its end, and what the map says by then is followed like any other change.

use super::super::raise::Raised;
use super::super::snapshots::{QUIET_WAIT, close, open};
use super::super::{Assembly, VolumeError};
use super::message::{Answer, Asked, Here, Question, Tops};
use crate::api::{Encryption, Standing};
use crate::spec::VolumeSpec;
use cluster::{VolumeRecord, VolumeState, get, keys};
use runtime::channel::{CrossReceiver, CrossSender, cross};
use runtime::{Instant, now};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::{Mutant, VolumeId, mutant};

/// Instants that a node has a share in at once.
const PARTIES_MAX: usize = 16;
/// Questions of one instant that may wait: there is one at a time, unless somebody gave up on one before.
const QUESTIONS_MAX: usize = 8;
/// Another change of a volume gets so long to end.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Who has prepared waits so long for *stop*: longer than a transaction of a healthy map, and no change of the node's volumes
/// waits for more.
const PREPARED_WAIT: Duration = Duration::from_secs(5);
/// The map gets so long to say what it holds; commands go on meanwhile.
const MAP_WAIT: Duration = Duration::from_secs(2);
/// Who has stopped goes on after this, whoever is silent.
const STOPPED_WAIT: Duration = Duration::from_secs(1);
/// The old tops are kept for a name so long.
const NAMING_WAIT: Duration = Duration::from_secs(10);

/// A question, and where its answer goes.
pub(super) type Asking = (Question, CrossSender<Answer>);

/// What a node has a share in.
#[derive(Default)]
pub(in super::super) struct Parties {
    asked: BTreeMap<u128, CrossSender<Asking>>,
    /// Volumes whose old tops may be about to be named, by instant, and until when they are not left.
    naming: Vec<(u128, VolumeId, Instant)>,
}

impl Assembly {
    /// Does what is asked of this node's volumes.
    pub(super) async fn answer_instant(&self, question: Question) -> Answer {
        let (told, mut answer) = cross(1);
        let line = match &question.asked {
            Asked::Prepare(_) => {
                let mut parties = self.0.parties.borrow_mut();
                if parties.asked.len() >= PARTIES_MAX || parties.asked.contains_key(&question.instant) {
                    return Answer::refused("too many snapshots over several volumes are being taken");
                }
                let (line, asked) = cross(QUESTIONS_MAX);
                parties.asked.insert(question.instant, line.clone());
                let (this, instant) = (self.clone(), question.instant);
                runtime::spawn(async move {
                    this.take_part(asked).await;
                    this.0.parties.borrow_mut().asked.remove(&instant);
                });
                line
            }
            _ => match self.0.parties.borrow().asked.get(&question.instant) {
                Some(line) => line.clone(),
                None => return Answer::refused("it has gone on by itself"),
            },
        };
        if line.try_send((question, told)).is_err() {
            return Answer::refused("it has gone on by itself");
        }
        drop(line);
        answer.recv().await.unwrap_or_else(|_| Answer::refused("it has gone on by itself"))
    }

    /// Whether the layer that the volume wrote to last may be about to be named.
    pub(in super::super) fn is_being_named(&self, id: VolumeId) -> bool {
        let mut parties = self.0.parties.borrow_mut();
        parties.naming.retain(|(_, _, until)| *until > now());
        parties.naming.iter().any(|(_, volume, _)| *volume == id)
    }

    async fn take_part(&self, mut asked: CrossReceiver<Asking>) {
        let Ok((Question { instant, asked: Asked::Prepare(volumes) }, told)) = asked.recv().await else { return };
        let heard = match self.stop_and_go(instant, &volumes, &mut asked, told).await {
            Ok(heard) => heard,
            Err((told, refused)) => {
                let _ = told.try_send(refused);
                None
            }
        };
        // No other change of what cores know of snapshots may come between the map's list and their hearing of it.
        let alone = self.0.changing.all(&volumes).await;
        self.0.parties.borrow_mut().naming.retain(|(of, ..)| *of != instant);
        for id in &volumes {
            if heard.is_none() {
                // They may be named yet.
                self.0.heads.is_unsure_of_snapshots(*id);
            }
            if let Err(error) = self.tell_snapshots(*id, None).await {
                log::warn!("snapshots of volume {id} cannot be read before the map answers: {error}");
            }
        }
        drop(alone);
        // What was not named ends.
        volumes.into_iter().for_each(|id| self.leave_in_background(id));
        if let Some(heard) = heard {
            let _ = heard.try_send(Answer::Heard);
        }
    }

    /// From *prepare* to *over*; returns where to say that it was heard, if it was.
    ///
    /// # Errors
    /// What the question is to be answered that led nowhere.
    async fn stop_and_go(
        &self,
        instant: u128,
        volumes: &[VolumeId],
        asked: &mut CrossReceiver<Asking>,
        told: CrossSender<Answer>,
    ) -> Result<Option<CrossSender<Answer>>, (CrossSender<Answer>, Answer)> {
        // Outside of the lock, as it may take long.
        for id in volumes {
            if let Err(error) = self.raise_everywhere(*id).await {
                return Err((told, Answer::refused(error.to_string())));
            }
        }
        let Ok(alone) = runtime::timeout(LOCK_WAIT, self.0.changing.all(volumes)).await else {
            return Err((told, Answer::refused("its volumes are being changed")));
        };
        match volumes.iter().map(|id| self.here(*id)).collect() {
            Ok(here) => drop(told.try_send(Answer::Prepared(here))),
            Err(refused) => return Err((told, refused)),
        }
        let alone = (!mutant(Mutant::InstantTopTakenEarly)).then_some(alone);
        let (tops, told) = match next_before(asked, now() + PREPARED_WAIT).await {
            Some((Question { asked: Asked::Stop(tops), .. }, told)) => (tops, told),
            Some((Question { asked: Asked::Over, .. }, told)) => return Ok(Some(told)),
            Some((_, told)) => return Err((told, Answer::refused("it has not stopped"))),
            None => return Ok(None),
        };
        let is_about = |id: &VolumeId| tops.iter().filter(|tops| tops.volume == *id).count() == 1;
        if tops.len() != volumes.len() || !volumes.iter().all(is_about) {
            return Err((told, Answer::refused("it was not prepared for these volumes")));
        }
        let specs = match runtime::timeout(MAP_WAIT, self.specs(&tops)).await {
            Ok(Ok(specs)) => specs,
            Ok(Err(error)) => return Err((told, Answer::refused(error.to_string()))),
            Err(_) => return Err((told, Answer::refused("the map does not answer"))),
        };
        // What is left of a layer cannot be named.
        let until = now() + NAMING_WAIT;
        self.0.parties.borrow_mut().naming.extend(volumes.iter().map(|id| (instant, *id, until)));
        for spec in &specs {
            self.0.volumes.borrow_mut().insert(spec.info.name.clone(), spec.info.clone());
        }
        // Nobody waits for longer, be it for what runs or for a word of who asks.
        let stopped_until = now() + STOPPED_WAIT;
        if !self.close_all(volumes).await {
            self.open_all_of(&specs).await;
            let why = format!("commands did not end within {} s", QUIET_WAIT.as_secs());
            return Err((told, Answer::refused(why)));
        }
        let _ = told.try_send(Answer::Stopped);
        let go = runtime::timeout(Duration::from_nanos(stopped_until.0.saturating_sub(now().0)), asked.recv()).await;
        let is_go = matches!(&go, Ok(Ok((Question { asked: Asked::Go, .. }, _))));
        // From the moment at which the gates may be open it is over.
        let is_still_stopped = is_go && now() < stopped_until;
        self.open_all_of(&specs).await;
        drop(alone);
        let mut next = match go {
            Ok(go) => go.ok(),
            Err(_) => next_before(asked, until).await,
        };
        // A later *go*, and the end.
        while let Some((question, told)) = next {
            if question.asked == Asked::Over {
                return Ok(Some(told));
            }
            let was_stopped = is_still_stopped || mutant(Mutant::InstantOfHeadGoneOn);
            let _ = told.try_send(match question.asked {
                Asked::Go if was_stopped => Answer::WasStillStopped,
                Asked::Go => Answer::HadGoneOn,
                _ => Answer::refused("it has gone on"),
            });
            next = next_before(asked, until).await;
        }
        Ok(None)
    }

    /// The volume as it is served here.
    fn here(&self, id: VolumeId) -> Result<Here, Answer> {
        let info = self.0.volumes.borrow().values().find(|info| info.id == id).cloned();
        let (Some(info), Some(by)) = (info, self.reign(id)) else {
            return Err(Answer::refused(format!("node {} is not the head of volume {id}", self.0.id)));
        };
        if info.encryption == Encryption::Locked {
            let why = format!("volume {} is locked: give its key first, with `cairn volume unlock`", info.name);
            return Err(Answer::Refused { why, for_good: true });
        }
        let volume = self.0.head.directory.by_id(id).filter(|volume| volume.standing() == Standing::Here);
        let Some(volume) = volume else {
            return Err(Answer::refused(format!("volume {} is not served now", info.name)));
        };
        if self.0.heads.raised(id, by.epoch) != Raised::Everywhere {
            // It has become its head anew since.
            return Err(Answer::refused(format!("volume {} has just changed its head", info.name)));
        }
        let top = volume.state.gate.term().spec.top();
        Ok(Here { volume: id, epoch: by.epoch, top })
    }

    /// The volumes with their new tops, read back from the map (H11).
    async fn specs(&self, tops: &[Tops]) -> Result<Vec<Arc<VolumeSpec>>, VolumeError> {
        let mut specs = Vec::with_capacity(tops.len());
        for Tops { volume: id, old, new } in tops {
            let other = || VolumeError::NoInstant(format!("volume {id} was changed meanwhile"));
            let found = get::<VolumeRecord>(&*self.0.map, &keys::volume(*id)).await?.ok_or_else(other)?.record;
            let is_so = found.layers.ends_with(&[*old, *new]) && found.state == VolumeState::Online;
            let term = self.0.head.directory.by_id(*id).ok_or_else(other)?.state.gate.term();
            let is_before = term.spec.top() == *old || mutant(Mutant::InstantTopTakenEarly);
            if !is_so || !is_before || found.head != self.0.id || !self.0.heads.is_mine(&found) {
                return Err(other());
            }
            specs.push(self.spec(&found).await?);
        }
        Ok(specs)
    }

    /// Lets nothing of these volumes in on any core; false if something runs still after [`QUIET_WAIT`].
    async fn close_all(&self, volumes: &[VolumeId]) -> bool {
        let volumes: Arc<[VolumeId]> = volumes.into();
        let ended = self.on_all_cores(move |head| {
            let volumes = volumes.clone();
            Box::pin(async move { close(&head, &volumes).await })
        });
        runtime::timeout(QUIET_WAIT, ended).await.is_ok()
    }

    /// All cores go on with these volumes.
    async fn open_all_of(&self, specs: &[Arc<VolumeSpec>]) {
        let specs: Arc<[Arc<VolumeSpec>]> = specs.into();
        self.on_all_cores(move |head| {
            let specs = specs.clone();
            Box::pin(async move { specs.iter().for_each(|spec| open(&head, spec.info.id, spec.clone())) })
        })
        .await;
    }
}

async fn next_before(asked: &mut CrossReceiver<Asking>, until: Instant) -> Option<Asking> {
    let left = Duration::from_nanos(until.0.saturating_sub(now().0));
    runtime::timeout(left, asked.recv()).await.ok()?.ok()
}
