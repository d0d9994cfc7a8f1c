//! Snapshots of several volumes at one instant (H12), whoever their heads are. One node asks, the one that was told to; every
//! head answers for its own volumes ([`party`]).
//!
//! ```text
//!   who asks ── prepare ─► heads: each in its reign, with its top            nothing has changed
//!            ── map: new tops for all, in one transaction
//!            ── stop ────► heads: nothing runs, nothing is let in
//!            ── go ──────► heads: "was still stopped", and go on over the new tops
//!            ── map: the old tops are named for all, in one transaction that compares every reign
//!            ── over ────► heads: what was named is known, what was not may end
//! ```
//!
//! All heads were stopped at the instant between the last "stopped" and the first "go", or nothing is named: what had returned before it
//! is in all the snapshots, what was called after it is in none. A head that hears nothing goes on after a second and says so
//! later; a layer that was pushed and never named is merged away, as with a snapshot of one volume. Who asks remembers
//! nothing, and may end at any moment.

mod message;
mod party;

pub(super) use party::Parties;

use super::{Assembly, Node, VolumeError};
use cluster::{CatalogError, Pushed, Reign, Served, SnapshotRecord, Wanted, find_wanted, name_snapshots, push_tops};
use message::{Answer, Asked, Question, Tops};
use replication::node::{Parcel, Service};
use runtime::channel::cross;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;
use types::{NodeId, VolumeId};

/// The epochs are raised, which may take as long as a group is away, and other changes end.
const PREPARE_PATIENCE: Duration = Duration::from_secs(13);
/// The map is read, and what runs ends.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// Who does not say by then whether it was still stopped counts as gone on. Longer than a head stands still: what it says decides.
const GO_PATIENCE: Duration = Duration::from_secs(2);
/// Cores are told of their snapshots.
const OVER_PATIENCE: Duration = Duration::from_secs(1);

/// What nodes call each other about here.
const SERVICE: Service = Service(2);

/// Volumes by their heads.
type Shares = BTreeMap<NodeId, Vec<VolumeId>>;

impl Assembly {
    /// Takes a snapshot of each of these volumes, all at one instant: whatever was written to any of them after something else
    /// had returned is not in the snapshots without that. Their heads may be any nodes. All or none are taken.
    ///
    /// # Errors
    /// Nothing is named, and I/O goes on. [`VolumeError::NoInstant`]: the same may be asked again.
    pub async fn create_snapshots(&self, wanted: &[Wanted]) -> Result<Vec<SnapshotRecord>, VolumeError> {
        let found = find_wanted(&*self.0.map, wanted).await?;
        let mut shares = Shares::new();
        for volume in &found {
            if volume.head == NodeId(0) {
                return Err(VolumeError::NoInstant(format!("no node is the head of volume {}", volume.name)));
            }
            shares.entry(volume.head).or_default().push(volume.id);
        }
        let instant = super::devices::random_u128();
        let of = found.iter().map(|volume| volume.id).zip(wanted.iter().map(|wanted| wanted.name.clone()));
        let taken = self.stop_all_and_name(instant, &shares, &of.collect()).await;
        // Whatever came of it; who does not hear it finds out by itself.
        let over = shares.keys().map(|node| (*node, Asked::Over)).collect();
        let _ = self.ask_all(instant, over, OVER_PATIENCE).await;
        let mut taken = taken?;
        let place = |snapshot: &SnapshotRecord| found.iter().position(|volume| volume.id == snapshot.volume);
        taken.sort_by_key(place);
        Ok(taken)
    }

    async fn stop_all_and_name(
        &self,
        instant: u128,
        shares: &Shares,
        names: &BTreeMap<VolumeId, String>,
    ) -> Result<Vec<SnapshotRecord>, VolumeError> {
        let prepare = shares.iter().map(|(node, volumes)| (*node, Asked::Prepare(volumes.clone()))).collect();
        let mut served = Vec::with_capacity(names.len());
        for (node, answer) in self.ask_all(instant, prepare, PREPARE_PATIENCE).await? {
            let Answer::Prepared(here) = answer else { return Err(no_answer(node)) };
            let by = |epoch| Reign { node, epoch };
            served.extend(here.iter().map(|here| Served { volume: here.volume, by: by(here.epoch), top: here.top }));
        }
        let is_each_there = names.keys().all(|id| served.iter().filter(|served| served.volume == *id).count() == 1);
        if !is_each_there || served.len() != names.len() {
            return Err(VolumeError::NoInstant("a node answers for other volumes than it was asked for".to_owned()));
        }
        let pushed = push_tops(&*self.0.map, &served).await?;
        let stop = shares.keys().map(|node| (*node, Asked::Stop(tops_of(&pushed, *node)))).collect();
        for (node, answer) in self.ask_all(instant, stop, STOP_PATIENCE).await? {
            if answer != Answer::Stopped {
                return Err(no_answer(node));
            }
        }
        // The instant: all have stopped, and none was told to go on.
        let go = shares.keys().map(|node| (*node, Asked::Go)).collect();
        for (node, answer) in self.ask_all(instant, go, GO_PATIENCE).await? {
            match answer {
                Answer::WasStillStopped => {}
                Answer::HadGoneOn => {
                    let why = format!("node {node} had gone on before all had stopped");
                    return Err(VolumeError::NoInstant(why));
                }
                _ => return Err(no_answer(node)),
            }
        }
        let with_name = |pushed: Pushed| {
            let name = names[&pushed.volume].clone();
            (pushed, name)
        };
        let named: Vec<_> = pushed.into_iter().map(with_name).collect();
        name_snapshots(&*self.0.map, &named).await.map_err(|error| match error {
            CatalogError::Deposed { .. } | CatalogError::Gone(_) | CatalogError::WentOn(_) => {
                VolumeError::NoInstant(error.to_string())
            }
            error => error.into(),
        })
    }

    /// Asks these nodes at once. The answers are in the order of the questions.
    ///
    /// # Errors
    /// One refuses, or does not answer in time. All have been asked.
    async fn ask_all(
        &self,
        instant: u128,
        asked: Vec<(NodeId, Asked)>,
        patience: Duration,
    ) -> Result<Vec<(NodeId, Answer)>, VolumeError> {
        let (told, mut answers) = cross(asked.len().max(1));
        let nodes: Vec<NodeId> = asked.iter().map(|(node, _)| *node).collect();
        for (place, (node, asked)) in asked.into_iter().enumerate() {
            let (this, told) = (self.clone(), told.clone());
            runtime::spawn(async move {
                let question = Question { instant, asked };
                let answer = runtime::timeout(patience, this.ask(node, question)).await;
                let answer = answer.unwrap_or_else(|_| Answer::refused("it does not answer"));
                let _ = told.try_send((place, answer));
            });
        }
        drop(told);
        let mut all = vec![Answer::Heard; nodes.len()];
        while let Ok((place, answer)) = answers.recv().await {
            all[place] = answer;
        }
        let all: Vec<_> = nodes.into_iter().zip(all).collect();
        for (node, answer) in &all {
            if let Answer::Refused { why, for_good } = answer {
                return Err(match for_good {
                    true => VolumeError::NotTogether(why.clone()),
                    false => VolumeError::NoInstant(format!("node {node}: {why}")),
                });
            }
        }
        Ok(all)
    }

    async fn ask(&self, node: NodeId, question: Question) -> Answer {
        if node == self.0.id {
            return self.answer_instant(question).await;
        }
        let call = self.0.groups.first_core().call(node, SERVICE, Parcel::of(question.encode()));
        match call.await {
            Ok(answer) => Answer::decode(&answer.head).unwrap_or_else(|| Answer::refused("it answers something else")),
            Err(error) => Answer::refused(error.to_string()),
        }
    }

    /// Answers other nodes from now on.
    pub(super) fn answer_instants(&self) {
        let node: Weak<Node> = Rc::downgrade(&self.0);
        self.0.groups.first_core().answer_calls(
            SERVICE,
            Rc::new(move |_, parcel| {
                let node = node.clone();
                Box::pin(async move {
                    let answer = match (node.upgrade(), Question::decode(&parcel.head)) {
                        (Some(node), Some(question)) => Assembly(node).answer_instant(question).await,
                        (None, _) => Answer::refused("it is stopping"),
                        (_, None) => Answer::refused("this node does not understand the question: is it older?"),
                    };
                    Parcel::of(answer.encode())
                })
            }),
        );
    }
}

fn tops_of(pushed: &[Pushed], node: NodeId) -> Vec<Tops> {
    let of_node = pushed.iter().filter(|pushed| pushed.by.node == node);
    of_node.map(|pushed| Tops { volume: pushed.volume, old: pushed.old_top, new: pushed.new_top }).collect()
}

fn no_answer(node: NodeId) -> VolumeError {
    VolumeError::NoInstant(format!("node {node} answers something else"))
}
