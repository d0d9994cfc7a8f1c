//! A command: admitted when it is called, then done part by part.
//!
//! ```text
//!   one chunk, this core     ticket at the call ─► its turn ─► run the part ─► commit ─► leave
//!   one chunk, another core  one message there, one answer back; there it is the same
//!   two chunks               the lower ticket, its turn, the higher ticket, its turn; then both parts at once
//!   first write of a reign   its turn, then the group is told of the head (`raised`), then the part
//! ```
//!
//! A call moves at most 1 MiB, so it touches at most two chunks.

use crate::admission::{Access, TicketId};
use crate::api::{IoError, Volume};
use crate::gate::Entered;
use crate::head::{Call, Head, Orphan, Running, VolumeState};
use crate::latency::{self, Moments};
use crate::message::{Outcome, Reply, Request};
use crate::part::{self, Done, Part, blocks_around, local_group};
use crate::patience::{self, TooLong, Who};
use crate::raised::raised_first;
use crate::session::Session;
use crate::spec::VolumeSpec;
use replication::{Access as GroupAccess, GroupError, OnItsWay};
use runtime::{Instant, now};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use store::AppendTimes;
use types::{BLOCK_BYTES, CHUNK_BYTES, ChunkId, Mutant, VolumeId, mutant};

/// A ticket on this core. Given up when dropped; if an entry of the command is still on its way then, only once that
/// is committed: nothing that overlaps may start before.
pub(crate) struct Admitted {
    head: Rc<Head>,
    /// `None`: handed to another core.
    ticket: Option<TicketId>,
    /// What was asked of the chunk's group.
    on_its_way: Option<(Rc<GroupAccess>, OnItsWay)>,
    /// Something was asked of it before that may be done all the same.
    unknown: Option<Rc<GroupAccess>>,
    volume: VolumeId,
    moments: Moments,
}

/// Parts of blocks have their blocks for themselves, as all that is written (H7).
fn access_of(part: &Part, access: Access) -> Access {
    let is_partial = !(part.offset | part.len).is_multiple_of(BLOCK_BYTES as u32);
    if mutant(Mutant::SectorsAdmitted) && is_partial { Access::Read } else { access }
}

impl Admitted {
    fn enter(head: &Rc<Head>, volume: VolumeId, part: &Part, access: Access) -> Self {
        let access = access_of(part, access);
        let range = blocks_around(part.offset, part.len);
        Self::with(head, volume, Some(head.admission.enter((volume, part.chunk), range, access)))
    }

    fn with(head: &Rc<Head>, volume: VolumeId, ticket: Option<TicketId>) -> Self {
        Self { head: head.clone(), ticket, on_its_way: None, unknown: None, volume, moments: Moments::default() }
    }

    /// For a part that changes nothing, beside the ticket that its command holds and goes on holding.
    fn onlooker(head: &Rc<Head>, volume: VolumeId) -> Self {
        Self::with(head, volume, None)
    }

    fn is_granted(&self) -> bool {
        self.ticket.is_some_and(|ticket| self.head.admission.is_granted(ticket))
    }

    /// Resolves when it is the command's turn.
    async fn granted(&mut self) {
        let Some(ticket) = self.ticket else { return };
        if !self.is_granted() {
            poll_fn(|cx| self.head.admission.poll_granted(ticket, cx.waker())).await;
            self.moments.admitted(now());
        }
    }

    /// The device was asked for what is read, and when it was there.
    pub(crate) fn read_at(&mut self, (asked, done): (Instant, Instant)) {
        self.moments.device(asked, done);
    }

    /// Somebody else gives the ticket up.
    fn hand_over(mut self) -> TicketId {
        self.ticket.take().expect("handed over once")
    }

    /// The head of this core.
    pub(crate) fn head(&self) -> &Rc<Head> {
        &self.head
    }

    /// Something was asked of the chunk's group.
    pub(crate) fn on_its_way(&mut self, group: &Rc<GroupAccess>, change: OnItsWay) {
        self.on_its_way = Some(match self.on_its_way.take() {
            Some((group, before)) => (group, before.and(change)),
            None => (group.clone(), change),
        });
    }

    /// An entry of which a part was read and not written is on its way: it stays in the way of others like any other (H7).
    pub(crate) fn filled_up(&mut self) {
        if mutant(Mutant::PartLeavesEarly) {
            self.leave();
        }
    }

    /// What was asked of the group may be done, whatever becomes of the command.
    pub(crate) fn outcome_unknown(&mut self, group: &Rc<GroupAccess>) {
        self.unknown = Some(group.clone());
        if mutant(Mutant::UnknownBlocksNothing) {
            self.leave();
        }
    }

    /// Gives the ticket up before the command has ended: nothing that is right does so.
    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.head.admission.leave(ticket);
        }
    }

    /// Resolves when all that was asked is committed, or has another outcome.
    pub(crate) async fn wait_committed(&mut self) -> Result<(), GroupError> {
        let Some((group, change)) = &mut self.on_its_way else { return Ok(()) };
        let result = group.wait(change).await;
        self.on_its_way = None;
        if result.is_ok() {
            // What was asked before is void by that.
            self.unknown = None;
        }
        result.map(|AppendTimes { issued, durable }| self.moments.device(issued, durable))
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let volume = self.volume;
        match (self.unknown.take(), self.on_its_way.take()) {
            (None, None) => self.head.admission.leave(ticket),
            (Some(group), _) => self.head.adopt(Orphan { ticket, group, change: OnItsWay::lost(), volume }),
            (None, Some((group, change))) => self.head.adopt(Orphan { ticket, group, change, volume }),
        }
    }
}

/// A place in the order of a chunk on another core, granted. Given up when dropped.
struct FarHold {
    head: Rc<Head>,
    core: u16,
    /// `None`: handed to the core it is of.
    ticket: Option<TicketId>,
}

impl Drop for FarHold {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.head.release(self.core, ticket);
        }
    }
}

/// Where a part's group is.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) core: u16,
    /// In the volume's table.
    pub(crate) place: usize,
}

impl Target {
    fn of(spec: &VolumeSpec, chunk: ChunkId) -> Self {
        let place = spec.place_of(chunk);
        Self { core: spec.table.cores[place], place }
    }
}

/// A command that was called.
pub(crate) struct Command {
    head: Rc<Head>,
    running: Running,
    called: Instant,
    /// Where its parts are.
    targets: [Option<Target>; 2],
    /// See [`Session::that_waits`].
    waits: bool,
    stage: Stage,
}

// Made where it stays, once per command: to box the common case would cost an allocation.
#[allow(clippy::large_enum_variant)]
enum Stage {
    Here(Admitted, Target, Part),
    There(Call),
    /// Two chunks, or the first write of a reign at its group. Boxed: rare, and large.
    Boxed(Pin<Box<dyn Future<Output = Ended>>>),
}

/// What a command came to, and how it got on.
type Ended = (Result<Finished, IoError>, Moments);

/// What a command came to: one part or two.
pub(crate) struct Finished(pub(crate) Done, pub(crate) Option<Done>);

impl Command {
    /// Begins a command on bytes `offset..offset + len` of the volume. `work` says what is to be done with so many
    /// bytes, beginning with which byte of the command.
    pub(crate) fn begin(
        volume: &Volume,
        offset: u64,
        len: u32,
        access: Access,
        mut work: impl FnMut(u32, u32) -> part::Work,
    ) -> Result<Self, IoError> {
        let Volume { state: volume, session, snapshot } = volume;
        session.may_be_admitted()?;
        let (head, running) = volume.let_in(snapshot.as_ref(), offset, u64::from(len), session.moves())?;
        if access == Access::Write && snapshot.is_some() {
            return Err(IoError::ReadOnly);
        }
        let snapshot = || snapshot.as_ref().map(|snapshot| snapshot.info.layers.clone());
        let chunk = ChunkId((offset / CHUNK_BYTES) as u32);
        let within = (offset % CHUNK_BYTES) as u32;
        let first_len = len.min(CHUNK_BYTES as u32 - within);
        let term = volume.gate.term();
        if !session.is_of(term.spec.epoch) {
            return Err(volume.elsewhere());
        }
        let first = Part {
            chunk,
            offset: within,
            len: first_len,
            snapshot: snapshot(),
            compared: None,
            waits: session.waits(),
            epoch: term.spec.epoch,
            work: work(0, first_len),
        };
        let called = now();
        let target = Target::of(&term.spec, chunk);
        let mut targets = [Some(target), None];
        let is_raised = |target: Target| access == Access::Read || volume.raised.at(term.spec.epoch, target.place);
        let stage = if first_len < len {
            let rest = len - first_len;
            let (chunk, work) = (ChunkId(chunk.0 + 1), work(first_len, rest));
            let second = Part {
                chunk,
                offset: 0,
                len: rest,
                snapshot: snapshot(),
                compared: None,
                waits: session.waits(),
                epoch: term.spec.epoch,
                work,
            };
            let other = Target::of(&term.spec, chunk);
            targets[1] = Some(other);
            let waits_since = (!is_raised(target) || !is_raised(other)).then_some(called);
            let pair = Pair::begin(head.clone(), volume.clone(), access, (first, target), (second, other));
            Stage::Boxed(Box::pin(pair.finish(session.clone(), waits_since)))
        } else if !is_raised(target) {
            let write = First::begin(head.clone(), volume.clone(), access, (first, target));
            Stage::Boxed(Box::pin(write.finish(session.clone(), called)))
        } else if target.core == head.index {
            Stage::Here(Admitted::enter(&head, volume.info.id, &first, access), target, first)
        } else {
            let request = Request::AdmitAndRun { spec: term.spec.clone(), place: target.place, access, part: first };
            Stage::There(Call::send(&head, target.core, request))
        };
        Ok(Self { head, running, called, targets, waits: session.waits(), stage })
    }

    /// Does it.
    // Not an `async fn`: that one keeps its arguments twice, and each command's task would carry both.
    pub(crate) fn finish(self) -> impl Future<Output = Result<Finished, IoError>> {
        let Self { head, running, called, targets, waits, stage } = self;
        async move {
            let volume = running.volume();
            let work = pin!(async {
                match stage {
                    Stage::Here(mut hold, target, part) => {
                        hold.granted().await;
                        let result = run_here(volume, target, part, &mut hold).await;
                        (result.map(|done| Finished(done, None)), hold.moments)
                    }
                    Stage::There(call) => {
                        let Outcome { result, moments } = call.answer().await.done();
                        (result.map(|done| Finished(done, None)), moments)
                    }
                    Stage::Boxed(boxed) => boxed.await,
                }
            });
            let who = || Who {
                volume: volume.info.id,
                snapshot: running.snapshot().cloned(),
                since: called,
                is_patient: waits,
            };
            let (finished, moments) = match head.patience.wait(who, work).await {
                Ok(ended) => ended,
                Err(TooLong) => (Err(given_up(&head, &running, &targets)), Moments::default()),
            };
            latency::note(Moments::called(called).with(moments));
            finished.map_err(|error| running.volume().explain(error))
        }
    }
}

/// What a command comes to that was given up. Of parts on other cores those tell what they find.
#[cold]
fn given_up(head: &Rc<Head>, running: &Running, targets: &[Option<Target>]) -> IoError {
    let volume = running.volume();
    if let Some(snapshot) = running.snapshot().filter(|snapshot| snapshot.is_gone()) {
        return snapshot.gone(&volume.name());
    }
    // Not when the node stops: the volume is there, and a host that was told otherwise would not look for it elsewhere.
    if head.is_given_up(volume.info.id) {
        return volume.gone();
    }
    if volume.is_left() {
        return volume.elsewhere();
    }
    let spec = volume.gate.term().spec.clone();
    for target in targets.iter().flatten().filter(|target| target.core == head.index) {
        if let Ok(group) = volume.group_at(target.place) {
            patience::note_stopped(head, &spec, &group);
        }
    }
    volume.serves_nobody()
}

fn run_here<'a>(
    volume: &'a VolumeState,
    target: Target,
    part: Part,
    hold: &'a mut Admitted,
) -> impl Future<Output = Result<Done, IoError>> + 'a {
    let group = volume.group_at(target.place);
    async move {
        let entered = enter_gate(volume, hold).await;
        part::run(entered.spec(), &group?, part, hold).await
    }
}

/// Waits for the volume's gate as for a turn.
async fn enter_gate(volume: &VolumeState, hold: &mut Admitted) -> Entered {
    let had_to_wait = volume.gate.is_closed();
    let entered = volume.gate.enter().await;
    if had_to_wait {
        hold.moments.admitted(now());
    }
    entered
}

/// On its way into the order of a chunk.
enum Entering {
    Here(Admitted),
    There(Call, u16),
}

/// In the order of a chunk, and its turn.
enum Hold {
    Here(Admitted),
    There(FarHold),
}

/// The first write of a reign at its group: in its place of the order it waits until the group knows of the head.
struct First {
    head: Rc<Head>,
    volume: Rc<VolumeState>,
    part: Part,
    target: Target,
    entering: Entering,
}

impl First {
    fn begin(head: Rc<Head>, volume: Rc<VolumeState>, access: Access, part: (Part, Target)) -> Self {
        let entering = Entering::begin(&head, &volume, access, &part);
        Self { head, volume, part: part.0, target: part.1, entering }
    }

    async fn finish(self, session: Session, called: Instant) -> Ended {
        let Self { head, volume, part, target, entering } = self;
        let hold = entering.turn(&head).await;
        let mut moments = Moments::default();
        if let Err(error) = raised_first(&head, &volume, &session, called, &[target]).await {
            return (Err(error), moments);
        }
        moments.admitted(now());
        let Outcome { result, moments: its } = hold.run(&volume, target, part).await;
        (result.map(|done| Finished(done, None)), moments.with(its))
    }
}

/// A command that touches two chunks.
struct Pair {
    head: Rc<Head>,
    volume: Rc<VolumeState>,
    access: Access,
    parts: [(Part, Target); 2],
    first: Entering,
    /// Entered only when the first one's turn has come.
    second: Option<Entering>,
}

impl Pair {
    fn begin(
        head: Rc<Head>,
        volume: Rc<VolumeState>,
        access: Access,
        first: (Part, Target),
        second: (Part, Target),
    ) -> Self {
        let parts = [first, second];
        let entering = Entering::begin(&head, &volume, access, &parts[0]);
        // Two free chunks of this core: admitted at the call, like a command on one chunk.
        let now = matches!(&entering, Entering::Here(hold) if hold.is_granted()) && parts[1].1.core == head.index;
        let second = now.then(|| Entering::begin(&head, &volume, access, &parts[1]));
        Self { head, volume, access, parts, first: entering, second }
    }

    /// `waits_since`: when it was called, if one of its groups may not know of the head.
    async fn finish(self, session: Session, waits_since: Option<Instant>) -> Ended {
        let mut moments = Moments::default();
        let result = self.run(session, waits_since, &mut moments).await;
        (result, moments)
    }

    async fn run(
        self,
        session: Session,
        waits_since: Option<Instant>,
        moments: &mut Moments,
    ) -> Result<Finished, IoError> {
        let Self { head, volume, access, parts, first, second } = self;
        let first = first.turn(&head).await;
        if mutant(Mutant::PartBeforeAll) {
            let [(first_part, first_target), second_part] = parts;
            let first = first.run(&volume, first_target, first_part).await.result?;
            if let Done::Differs(_) | Done::NotCompared(_) = first {
                return Ok(Finished(first, None));
            }
            let second = second.unwrap_or_else(|| Entering::begin(&head, &volume, access, &second_part));
            let second = second.turn(&head).await.run(&volume, second_part.1, second_part.0).await;
            return Ok(Finished(first, Some(second.result?)));
        }
        let second = second.unwrap_or_else(|| Entering::begin(&head, &volume, access, &parts[1]));
        let second = second.turn(&head).await;
        if let Some(called) = waits_since {
            raised_first(&head, &volume, &session, called, &[parts[0].1, parts[1].1]).await?;
        }
        moments.admitted(now());
        // If not, newer commands may have been done on the second chunk meanwhile.
        session.may_be_admitted()?;
        let [(mut first_part, first_target), (mut second_part, second_target)] = parts;
        // Both chunks are compared before either is written.
        if let (Some(looks), Some(more)) = (first_part.take_compare(), second_part.take_compare()) {
            let looked =
                join(first.look(&volume, first_target, looks), second.look(&volume, second_target, more)).await;
            match looked {
                // One half was compared before a rollback and the other behind it: at no instant it held both. Nothing was written.
                (Ok(Done::Same(first)), Ok(Done::Same(second))) if first != second => {
                    let why = format!("volume {} was rolled back while it was compared", volume.info.name);
                    return Ok(Finished(Done::NotCompared(IoError::Unavailable(why)), None));
                }
                (Ok(Done::Same(first)), Ok(Done::Same(second))) => {
                    (first_part.compared, second_part.compared) = (Some(first), Some(second));
                }
                (Ok(done @ Done::Differs(_)), _) => return Ok(Finished(done, None)),
                (Ok(same), Ok(done)) => return Ok(Finished(same, Some(done))),
                (Err(error), _) | (_, Err(error)) => return Ok(Finished(Done::NotCompared(error), None)),
            }
        }
        let first = first.run(&volume, first_target, first_part);
        let second = second.run(&volume, second_target, second_part);
        let (first, second) = join(first, second).await;
        *moments = moments.with(first.moments).with(second.moments);
        Ok(Finished(first.result?, Some(second.result?)))
    }
}

impl Entering {
    fn begin(head: &Rc<Head>, volume: &VolumeState, access: Access, (part, target): &(Part, Target)) -> Self {
        let volume = volume.info.id;
        if target.core == head.index {
            return Self::Here(Admitted::enter(head, volume, part, access));
        }
        let (range, access) = (blocks_around(part.offset, part.len), access_of(part, access));
        let request = Request::Admit { volume, chunk: part.chunk, range, access };
        Self::There(Call::send(head, target.core, request), target.core)
    }

    async fn turn(self, head: &Rc<Head>) -> Hold {
        match self {
            Self::Here(mut hold) => {
                hold.granted().await;
                Hold::Here(hold)
            }
            Self::There(call, core) => {
                let ticket = call.answer().await.granted();
                Hold::There(FarHold { head: head.clone(), core, ticket: Some(ticket) })
            }
        }
    }
}

impl Hold {
    /// Does what changes nothing; the place in the order stays.
    async fn look(&self, volume: &VolumeState, target: Target, part: Part) -> Result<Done, IoError> {
        match self {
            Self::Here(hold) => run_here(volume, target, part, &mut Admitted::onlooker(&hold.head, hold.volume)).await,
            Self::There(hold) => {
                let spec = volume.gate.term().spec.clone();
                let request = Request::Look { spec, place: target.place, part };
                Call::send(&hold.head, target.core, request).answer().await.done().result
            }
        }
    }

    async fn run(self, volume: &VolumeState, target: Target, part: Part) -> Outcome {
        match self {
            Self::Here(mut hold) => {
                let result = run_here(volume, target, part, &mut hold).await;
                Outcome { result, moments: hold.moments }
            }
            Self::There(mut hold) => {
                // The other core gives the ticket up when it has done its part.
                let ticket = hold.ticket.take().expect("handed over once");
                let spec = volume.gate.term().spec.clone();
                let request = Request::Run { spec, place: target.place, ticket, part };
                Call::send(&hold.head, target.core, request).answer().await.done()
            }
        }
    }
}

/// Both at once.
async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(cx)
        {
            first = Some(output);
        }
        if second.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(cx)
        {
            second = Some(output);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (first.expect("ready"), second.expect("ready"))
}

/// What this core does for another one.
pub(crate) async fn serve(head: Rc<Head>, request: Request) -> Reply {
    match request {
        Request::Admit { volume, chunk, range, access } => {
            let mut hold = Admitted::with(&head, volume, Some(head.admission.enter((volume, chunk), range, access)));
            hold.granted().await;
            Reply::Granted(hold.hand_over())
        }
        Request::AdmitAndRun { spec, place, access, part } => {
            let (mut hold, waits) = (Admitted::enter(&head, spec.info.id, &part, access), part.waits);
            let done = async {
                hold.granted().await;
                hold.moments.admitted(now()); // also the way here was a wait
                run_for_another(&head, &spec, place, part, hold).await
            };
            Reply::Done(unless_it_takes_too_long(&head, &spec, place, waits, done).await)
        }
        Request::Look { spec, place, part } => {
            let (hold, waits) = (Admitted::onlooker(&head, spec.info.id), part.waits);
            let done = run_for_another(&head, &spec, place, part, hold);
            Reply::Done(unless_it_takes_too_long(&head, &spec, place, waits, done).await)
        }
        Request::Run { spec, place, ticket, part } => {
            let (hold, waits) = (Admitted::with(&head, spec.info.id, Some(ticket)), part.waits);
            let done = run_for_another(&head, &spec, place, part, hold);
            Reply::Done(unless_it_takes_too_long(&head, &spec, place, waits, done).await)
        }
        Request::Raise { spec, place, waits } => {
            let raised = async {
                let result = raise_for_another(&head, &spec, place, waits).await;
                Outcome { result: result.map(|()| Done::Plain), moments: Moments::default() }
            };
            Reply::Done(unless_it_takes_too_long(&head, &spec, place, waits, raised).await)
        }
    }
}

async fn raise_for_another(head: &Rc<Head>, spec: &VolumeSpec, place: usize, waits: bool) -> Result<(), IoError> {
    let table = head.table(spec.table.id);
    part::raise(head, spec, local_group(table.as_ref().map_or(&[], |table| &table.groups), place)?, waits).await
}

async fn run_for_another(head: &Head, spec: &VolumeSpec, place: usize, part: Part, mut hold: Admitted) -> Outcome {
    let table = head.table(spec.table.id);
    let group = local_group(table.as_ref().map_or(&[], |table| &table.groups), place);
    let result = match (group, head.volume_of(&spec.info)) {
        (Err(error), _) => Err(error),
        // What the volume is here and now: on the asking core it may have been something else.
        (Ok(group), Some(volume)) => {
            let entered = enter_gate(&volume, &mut hold).await;
            part::run(entered.spec(), group, part, &mut hold).await
        }
        // It is being added: until that is over nothing else of it changes. What changes it then waits for this part,
        // as it waits for those inside the gate.
        (Ok(group), None) => {
            let _stray = head.strays.enter(spec);
            part::run(spec, group, part, &mut hold).await
        }
    };
    Outcome { result, moments: hold.moments }
}

/// The same for whoever asked from another core: its answer says that the volume waits.
async fn unless_it_takes_too_long(
    head: &Rc<Head>,
    spec: &VolumeSpec,
    place: usize,
    waits: bool,
    done: impl Future<Output = Outcome>,
) -> Outcome {
    let since = now();
    let who = || Who { volume: spec.info.id, snapshot: None, since, is_patient: waits };
    match head.patience.wait(who, pin!(done)).await {
        Ok(outcome) => outcome,
        Err(TooLong) if head.is_given_up(spec.info.id) => {
            let why = format!("volume {} was deleted or locked", spec.info.name);
            Outcome { result: Err(IoError::Gone(why)), moments: Moments::default() }
        }
        Err(TooLong) => {
            if let Some(left) = head.volume_of(&spec.info).filter(|volume| volume.is_left()) {
                return Outcome { result: Err(left.elsewhere()), moments: Moments::default() };
            }
            let table = head.table(spec.table.id);
            if let Ok(group) = local_group(table.as_ref().map_or(&[], |table| &table.groups), place) {
                patience::note_stopped(head, spec, group);
            }
            let why = format!("a group of volume {} serves nobody for now", spec.info.name);
            Outcome { result: Err(IoError::Stopped(why)), moments: Moments::default() }
        }
    }
}
