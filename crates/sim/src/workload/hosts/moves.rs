//! Moves of heads by order, and of what volumes hold to other groups, while hosts write, and pause, and go away; and going
//! home, when nobody uses a volume any more.

use super::administrator::{Administrator, NotDone, head_said};
use super::id_of;
use super::ledger::Subject;
use crate::workload::cluster::story::tell;
use runtime::{random_u64, sleep};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use types::NodeId;
use volume::{VolumePlacement, WantedPlace};

/// How often it is looked whether a volume lies elsewhere.
const LOOK: Duration = Duration::from_millis(20);
/// Between two of his orders, on average.
const PAUSE_MS: u64 = 600;

/// Where a volume may be at home, by what was ordered.
#[derive(Default)]
pub struct Homes {
    /// An order that was answered.
    sure: Option<NodeId>,
    /// Orders that were not: each may have been carried out, or may be yet.
    asked: BTreeSet<NodeId>,
}

impl Homes {
    /// If anything was ordered and answered, the node that it was, or one of those that were ordered and not.
    fn may_be(&self, node: NodeId) -> bool {
        self.sure.is_none_or(|sure| sure == node) || self.asked.contains(&node)
    }
}

impl Administrator {
    /// Sends volumes from node to node until clients are stopped, as one of machine number `machine`.
    pub async fn move_about(self: Rc<Self>, machine: usize) {
        while !self.ledger.stop.get() {
            let number = random_u64() as usize % self.known.borrow().len();
            if let Err(why) = self.move_one(number).await {
                tell(format_args!("mover: {why:?}"));
            }
            sleep(Duration::from_millis(random_u64() % (2 * PAUSE_MS))).await;
        }
        self.ledger.end(machine);
    }

    async fn move_one(&self, number: usize) -> Result<(), NotDone> {
        let machines = self.machines();
        let to = id_of(&machines[random_u64() as usize % machines.len()]);
        match random_u64() % 8 {
            0 => self.relocate(number, to).await,
            _ => self.send(number, to).await,
        }
    }

    /// Has what a volume holds come to lie elsewhere, to be led from a node or from all.
    async fn relocate(&self, number: usize, to: NodeId) -> Result<(), NotDone> {
        let subject = self.subject(number);
        let placement = match random_u64().is_multiple_of(2) {
            true => VolumePlacement::Gathered,
            false => VolumePlacement::Spread,
        };
        let wanted = WantedPlace { placement: Some(placement), home: Some(to), ..WantedPlace::default() };
        self.at_home(&subject, |homes| {
            homes.asked.insert(to);
        });
        let relocated = self.ask(&subject.name, move |assembly, volume| {
            let wanted = wanted.clone();
            async move {
                assembly.relocate_volume(&volume, &wanted).await?;
                while assembly.relocations().iter().any(|(name, _)| *name == volume) {
                    sleep(LOOK).await;
                }
                Ok(assembly.last_relocation(&volume)?.is_ok())
            }
        });
        if relocated.await? {
            // It goes home when nobody uses it, or its hosts are there.
            self.at_home(&subject, |homes| homes.sure = Some(to));
            self.ledger.counts.borrow_mut().relocations += 1;
            tell(format_args!("mover: {} lies {placement:?} from now on, at home at node {to}", subject.name));
        }
        Ok(())
    }

    /// It may have been deleted meanwhile.
    fn at_home(&self, subject: &Rc<Subject>, change: impl Fn(&mut Homes)) {
        let mut known = self.known.borrow_mut();
        known.iter_mut().filter(|known| Rc::ptr_eq(&known.subject, subject)).for_each(|known| change(&mut known.homes));
    }

    /// Sends a volume to a node, where it is at home from then on.
    pub(super) async fn send(&self, number: usize, to: NodeId) -> Result<(), NotDone> {
        let subject = self.subject(number);
        let was_asked = self.known.borrow()[number].homes.asked.contains(&to);
        self.at_home(&subject, |homes| {
            homes.asked.insert(to);
        });
        self.ask(&subject.name, move |assembly, volume| async move { assembly.move_volume(&volume, to).await }).await?;
        self.at_home(&subject, |homes| {
            homes.sure = Some(to);
            if !was_asked {
                homes.asked.remove(&to);
            }
        });
        self.ledger.counts.borrow_mut().moves += 1;
        tell(format_args!("mover: {} goes to node {to}", subject.name));
        Ok(())
    }

    /// A volume that is not at home, though nobody has used it for long.
    pub fn is_not_at_home(&self) -> Option<String> {
        let known = self.known.borrow();
        known.iter().find_map(|known| {
            let name = &known.subject.name;
            let head = self.machines().iter().find_map(|machine| head_said(machine, name))?;
            let Homes { sure, asked } = &known.homes;
            (!known.homes.may_be(head))
                .then(|| format!("{name} is at node {head} and was sent to {sure:?} (and perhaps {asked:?})"))
        })
    }
}
