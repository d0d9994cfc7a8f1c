//! What a primary does with what heads ask: as `replication::Group` and `replication::access` do, with what ships deciding.

use super::{Answered, Asked, Call, FIRST_LAYER, Primary, Says, VOLUME, Wants, Work};
use crate::group::State;
use crate::node::Value;
use replication::protocol::{Asker, Claim, Entered, NotTaken, VolumeReign, may_answer, raise_in_log};
use types::{NodeId, Seq, Term, VolumeEpoch};

/// What a request comes to at its primary.
pub(super) enum Entry {
    Waits,
    /// It is answered when this is committed.
    Placed(Seq),
    Says(Says),
}

fn says_of(why: NotTaken) -> Says {
    match why {
        NotTaken::Older(seen) => Says::Older(seen),
        NotTaken::Untold | NotTaken::NotLed | NotTaken::Overtaken => Says::NotDone,
    }
}

impl State {
    pub(super) fn reach(&mut self, asked: Asked) {
        if self.nodes[asked.to].member.is_none() {
            return;
        }
        match self.admit(asked) {
            Ok(()) => self.serve(asked.to, asked),
            Err(says) => self.answer(asked, says),
        }
    }

    fn admit(&mut self, asked: Asked) -> Result<(), Says> {
        let leads_in = self.nodes[asked.to].member.as_ref().filter(|member| member.leads());
        let leads_in = leads_in.map(|member| member.record().epoch);
        let asker = Asker { node: NodeId(asked.from as u32), core: 0, life: asked.life };
        let primary = &mut self.volume.primaries[asked.to];
        primary.askers.insert(asker);
        primary.heads.admit(asker, asked.attempt, asked.relied_on, leads_in).map_err(says_of)
    }

    pub(super) fn serve(&mut self, at: usize, asked: Asked) {
        // Before it enters it is let in once more: what came meanwhile may have overtaken it.
        let entered = self.admit(asked).map_or_else(Entry::Says, |()| self.enter(at, asked));
        match entered {
            Entry::Waits => drop(self.volume.primaries[at].waiting.insert(asked)),
            Entry::Placed(seq) => {
                self.volume.primaries[at].placed.push((seq, asked));
                // It may be committed already, if it waits for what others asked.
                self.answer_committed(at);
            }
            Entry::Says(says) => self.answer(asked, says),
        }
    }

    /// As `Group::enter` and what follows it.
    pub(super) fn enter(&mut self, at: usize, asked: Asked) -> Entry {
        let Some(member) = self.nodes[at].member.as_ref() else { return Entry::Waits };
        if !member.leads() {
            return Entry::Says(Says::NotDone);
        }
        if !self.volume.primaries[at].gives_places {
            return Entry::Waits;
        }
        let committed = member.committed();
        let claim = Claim { volume: VOLUME, epoch: asked.epoch, top: Some(FIRST_LAYER), is_to_tell: false };
        let raised_at = match self.volume.primaries[at].heads.enter(claim) {
            Ok(Entered::At(raised_at)) => raised_at,
            Ok(Entered::Tell) => {
                let told_at = Seq(self.nodes[at].log.len() as u64);
                self.volume.primaries[at].heads.told(VOLUME, Some(FIRST_LAYER), told_at);
                told_at
            }
            Ok(Entered::Raise) => {
                let appended = raise_in_log(committed, || Ok::<_, ()>(self.append(at, Value::Raise(asked.epoch))));
                let Ok(Some(raised_at)) = appended else { return Entry::Waits };
                let reign = VolumeReign { epoch: asked.epoch, raised_at, top: FIRST_LAYER };
                self.volume.primaries[at].heads.raised(VOLUME, reign);
                raised_at
            }
            Err(why) => return Entry::Says(says_of(why)),
        };
        let may_read = || {
            let member = self.nodes[at].member.as_ref();
            may_answer(raised_at, committed)
                && member.is_some_and(|member| member.may_read(self.now, self.sessions_until[at]))
        };
        match asked.wants {
            Wants::Write(value) => self.append(at, Value::Put(asked.reign, value)).map_or(Entry::Waits, Entry::Placed),
            Wants::Read if may_read() => Entry::Says(Says::Read(self.read(at, committed))),
            Wants::Nothing if may_read() => Entry::Placed(Seq(self.nodes[at].log.len() as u64)),
            Wants::Read | Wants::Nothing => Entry::Waits,
        }
    }

    fn append(&mut self, at: usize, value: Value) -> Option<Seq> {
        let node = &mut self.nodes[at];
        let member = node.member.as_mut()?;
        let (term, seq) = member.next_place()?;
        member.appended();
        member.flush();
        node.log.push((term, value));
        Some(seq)
    }

    /// What the index of a primary names.
    fn read(&self, at: usize, committed: Seq) -> u8 {
        let committed = &self.nodes[at].log[..committed.0 as usize];
        let put = committed.iter().rev().find_map(|(_, value)| match value {
            Value::Put(_, value) => Some(*value),
            _ => None,
        });
        put.unwrap_or_default()
    }

    fn answer(&mut self, asked: Asked, says: Says) {
        self.note_answered(asked.reign, says);
        self.volume.answers.insert(Answered { asked, says });
        self.volume.forget_answers();
    }

    pub(super) fn note_answered(&mut self, reign: VolumeEpoch, says: Says) {
        if matches!(says, Says::Done | Says::Read(_)) {
            self.volume.answered = self.volume.answered.max(reign);
        }
    }

    /// Whether what is committed now is a write of a head, when a later one was answered before.
    pub(crate) fn is_of_older_head(&self, committed: &[(Term, Value)]) -> bool {
        committed.iter().any(|(_, value)| matches!(value, Value::Put(reign, _) if *reign < self.volume.answered))
    }

    /// A member begins to give out places, or does no more.
    pub(crate) fn note_reign(&mut self, at: usize) {
        if !self.volume.is_there() {
            return;
        }
        let places = self.nodes[at].member.as_ref().and_then(|member| member.next_place());
        if places.is_none() && self.volume.primaries[at].gives_places {
            let Primary { placed, waiting, .. } = std::mem::take(&mut self.volume.primaries[at]);
            placed.into_iter().for_each(|(_, asked)| self.answer(asked, Says::Unknown));
            waiting.into_iter().for_each(|asked| self.answer(asked, Says::NotDone));
            let is_here = |work: &Work| matches!(work.call, Call::Here(_));
            if self.volume.heads.get(at).and_then(|head| head.work.as_ref()).is_some_and(is_here) {
                self.hear(at, Says::Unknown);
            }
            self.volume.forget_answers();
        }
    }

    /// It does, from behind here on.
    pub(crate) fn begin_reign(&mut self, at: usize, last: Seq) {
        if !self.volume.is_there() || self.volume.primaries[at].gives_places {
            return;
        }
        let raises = self.nodes[at].log.iter().filter_map(|(_, value)| match value {
            Value::Raise(epoch) => Some(*epoch),
            _ => None,
        });
        let found = raises.max().map(|epoch| (VOLUME, epoch));
        let primary = &mut self.volume.primaries[at];
        primary.heads.begin(found, last);
        primary.askers.clear();
        primary.gives_places = true;
    }

    /// What waits for its commit at this primary, and has it, is answered.
    pub(crate) fn answer_committed(&mut self, at: usize) {
        if !self.volume.is_there() {
            return;
        }
        let Some(committed) = self.nodes[at].member.as_ref().map(|member| member.committed()) else { return };
        let placed = std::mem::take(&mut self.volume.primaries[at].placed);
        let (done, waits): (Vec<_>, Vec<_>) = placed.into_iter().partition(|(seq, _)| *seq <= committed);
        self.volume.primaries[at].placed = waits;
        done.into_iter().for_each(|(_, asked)| self.answer(asked, Says::Done));
        if let Some(Work { call: Call::Here(seq), reign, .. }) = self.volume.heads.get(at).and_then(|head| head.work)
            && seq <= committed
        {
            self.note_answered(reign, Says::Done);
            self.hear(at, Says::Done);
        }
    }
}
