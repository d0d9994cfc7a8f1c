//! Deliberate bugs.
//!
//! A checker that has never caught anything proves nothing. Each variant breaks one rule at the one
//! place that keeps it; a test turns it on and demands that a checker notices. The code is there only
//! with the feature `mutants`; without it [`mutant`] is the constant `false`.

/// A bug that a checker must catch; the name says which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Mutant {
    /// Store: an append is reported durable before the device said so.
    AcknowledgeBeforeDurable = 1,
    /// Store: a record missing at or below a seen `durable_through` is taken for a hole.
    DamageTakenForHole,
    /// Store: a gap that an earlier opening accepted is reported as damage.
    AcceptedHoleCalledDamage,
    /// Store: a record header is accepted whatever its keyed hash.
    WrongKeyAccepted,
    /// Replication: after a restart the primary goes on in the epoch it had.
    OldEpochAfterRestart,
    /// Store: opening replays from the start of the last pass, not from its replay start.
    ReplayFromPassStart,
    /// Store: a freed segment is reused before the entry that freed it is behind a complete pass.
    SegmentReusedTooEarly,
    /// Store: a block read is returned without comparing its checksum.
    ChecksumSkipped,
    /// Store: replay applies an entry that the loaded leaf already holds.
    EntryAppliedTwice,
    /// Store: an assertion fails when a write to chunk 13 is applied. Not a bug that a checker must find, but a way to
    /// see what comes of one.
    AssertionFails,
    /// Runtime: a flush returns without asking the device.
    FlushRemoved,
    /// Replication: what is written down of a member that is to be made whole is overwritten by what was so before.
    NoteOverwritten,
    /// Replication: what a member is to skip to is said in one part, however long that is.
    SkipsOnce,
    /// Store: what cannot be read ahead of a record is taken for all that is there.
    ReadAheadTakenForAll,
    /// Store: a record in which an epoch begins leaves beside another one.
    EpochBesideRecord,
    /// NVMe target: what comes for a controller that ends is refused for good.
    EndIsFinal,
    /// NVMe target: an admin queue is read however much of its answers its host has not taken.
    AnswersPileUp,
    /// NVMe target: one connection is asked for as much data as there is room for.
    GrantedAlone,
    /// NVMe target: after a long wait, what is left unread of a connection is executed without asking whether it lives.
    GhostExecuted,
    /// Store: replay merges a chunk when it reads the entry, not in the group's order.
    MergeNotOrdered,
    /// Store: a merge moves blocks into a layer that does not count them.
    MergedBlocksNotCounted,
    /// Store: a merge drops zeroes that hide what lies in a layer below.
    MergeLosesZeroes,
    /// Store: a merged leaf is not written into the pass that is under way, which was at its slot already.
    MergedLeafNotInPass,
    /// Store: replay loads leaves of passes before the last complete one, of layers that have ended since too.
    StaleLeafLoaded,
    /// Store: a pass is written without what is known of layers.
    LayerStateLost,
    /// Store: a move takes effect whatever the index says of the block by then.
    MoveAppliedBlindly,
    /// Store: a move takes effect when it is queued, not when it is durable.
    MoveAppliedBeforeDurable,
    /// Store: a pass leaves out the leaves in which no block is stored, those too whose zeroes hide what lies below.
    TombstoneLost,
    /// Store: a segment is freed that ends behind the replay start of the last complete pass.
    YoungSegmentFreed,
    /// Store: a segment is freed that died while the pass was written, whose leaves may name it.
    FreedBeforePassForgot,
    /// Store: a cleaned segment is used again before the moves out of it are durable.
    SegmentReusedBeforeMovesDurable,
    /// Store: a segment is used again while a read is under way in it.
    ReadPinIgnored,
    /// Store: a pass leaves out layers that have no leaf: a new top is forgotten with the segment it was told in.
    LayerRecordLostByCleaning,
    /// Store: who took a layer's blocks is forgotten while segments still hold records that name it.
    EndingForgottenTooEarly,
    /// Store: a move counts its blocks in the new segment and leaves them counted in the old one.
    MoveCountedTwice,
    /// Store: records are written beside the opening of their incarnation, which may get lost alone.
    RecordBesideOpening,
    /// Store: a write that a power loss tore is replayed.
    TornWriteReplayed,
    /// Store: new blocks may take the segments that are kept for deletes.
    ReserveOpenToNewBlocks,
    /// Store: a discard takes the block behind its range along.
    DiscardDropsNeighbour,
    /// Store: a read falls through zeroes that hide what lies below.
    ReadFallsThroughZeroes,
    /// Store: replay leaves out that chunks of a layer were deleted.
    LayerDeleteNotReplayed,
    /// Store: appends go on in a segment behind the last record that was found there, although others lie behind
    /// damage.
    TailTakenUnseen,
    /// Volume: a snapshot does not wait for commands that began before the volume's layers were last changed.
    EarlierTermNotAwaited,
    /// Volume: a snapshot is taken on each core as soon as that one is quiet, not on all at one instant.
    SnapshotCoreByCore,
    /// Volume: a write that must be all or nothing becomes an entry for each block, one after the other.
    UntornSplit,
    /// Volume: a compare-and-write is a compare and then a write, and others may come in between.
    CompareAndWriteSplit,
    /// Volume: what was compared before a rollback is written after it.
    ComparedBeforeRollback,
    /// Volume: a new top of a snapshot counts as a rollback for what was compared before it.
    SnapshotTakesBack,
    /// Volume: a head that has gone on by itself says that it was still stopped when it hears "go".
    InstantOfHeadGoneOn,
    /// Volume: the layers of a group snapshot are named although a volume has another head by now.
    InstantOfReplacedHead,
    /// Volume: the layer of a group snapshot is named although its head has left it, and it may be ending.
    InstantOfLayerLeft,
    /// Volume: a head takes the new top of a group snapshot from the map before it is told to stop.
    InstantTopTakenEarly,
    /// Volume: who locks a volume takes it away from the first core only.
    LockedOnOneCore,
    /// Volume: what is discarded in a layer does not hide what lies in those below.
    DiscardRevealsBelow,
    /// Store: block status asks the newest layer only: what a snapshot below holds is told as a hole.
    StatusOfTopOnly,
    /// Volume: status counts a group among those that serve whose leader may answer nobody.
    SilentGroupsCounted,
    /// Volume: a snapshot is deleted while it is read: its layer may end under the reader.
    SnapshotReadersNotAwaited,
    /// Volume: a command that waits obeys the limit that the volume had when it began to wait.
    OldLimitObeyed,
    /// Map: a rollback leaves what was written since the snapshot.
    RollbackKeepsNewer,
    /// Map: a clone is written to in the layer of its snapshot.
    CloneSharesTop,
    /// Map: a volume's new size is told and not kept.
    GrowthForgotten,
    /// Replication: a record names its primary, and not which of its lives.
    LifeNotNamed,
    /// Replication: a primary whose device answers no read is not seen to be slow, and leads on.
    SlowReadsUnseen,
    /// Scrub: a client that only reads is not heard: what no client waits for goes on beside it as if it were not there.
    ReadsNotHeard,
    /// Scrub: a member does not look whether it has what its primary has.
    DigestsNotCompared,
    /// Replication: whoever is stopped by an entry does not say so, and the next one takes over.
    PoisonNotTold,
    /// Replication: a member that starts anew does not know of an entry that nobody can apply.
    PoisonForgotten,
    /// Catch-up: of what changed while a member was away, one block is left out.
    ChangeForgotten,
    /// Replication: a primary with a damaged block goes on, and nobody mends it.
    DamagedGoesOn,
    /// Replication: a read that meets damage when its member leads no more says that nobody has what it sought.
    DamageSaidFinal,
    /// Catch-up: a member does not write down that it is not whole.
    FillNotNoted,
    /// Catch-up: a chunk that only the member has is not emptied.
    DeletedChunkNotSent,
    /// Replication: a node that hears no other keeps its session in the map, and nobody takes over what it leads.
    CutOffStays,
    /// Replication: a primary that no other node answers removes all who do not, though they may go on without it.
    CutOffRemoves,
    /// Replication: who is silent is removed before others can have taken the lead: too few are left, or this node is of the part that
    /// is to leave the others to go on.
    SoonRemoved,
    /// Replication: a member that no other answers takes the lead from those who hear each other, and they from it.
    CutOffCampaigns,
    /// Catch-up: of a chunk all is sent, whatever is known of what changed in it.
    WholeChunksSent,
    /// Catch-up: one of the chunks that differ is not sent.
    CatchUpMissesChunk,
    /// Replication: a new primary counts as told what was told to an earlier one.
    OldAnswerCounts,
    /// Replication: histories are compared by their lengths, not by their epochs.
    NumberWithoutEpoch,
    /// Replication: a new primary goes on from its own log, whatever the others hold.
    OwnHistoryWins,
    /// Replication: a new primary begins its epoch before enough others have told what they hold.
    BeginsAlone,
    /// Replication: a member takes entries and questions of an epoch that is over.
    FenceIgnored,
    /// Replication: a primary tells that what it has sent is committed.
    CommitNumberAhead,
    /// Replication: a member acknowledges what is not durable yet.
    PreparedBeforeDurable,
    /// Replication: what an earlier life of a member acknowledged goes on counting.
    IncarnationIgnored,
    /// Replication: who is being added counts only once the map has answered.
    AddedCountsLate,
    /// Replication: who is being removed counts no more, before the map has answered.
    RemovedCountsNoMore,
    /// Replication: members that are catching up count towards the least number in sync.
    JoiningCounts,
    /// Replication: a primary commits alone, however few are in sync.
    LastOneStanding,
    /// Replication: a change of the record without an answer is taken for one that was not made.
    UnknownTakenForNo,
    /// Replication: a member asks for the lead while what it granted to the primary lasts.
    LeaseNotAwaited,
    /// Replication: a store that starts has granted nothing.
    GrantForgottenByRestart,
    /// Replication: a primary reads although its lease is over.
    ReadPastLease,
    /// Replication: a primary beside which others are eligible reads without its session in the map.
    SessionIgnored,
    /// Replication: who held everything when too few were in sync stays eligible when others commit again.
    EligibleForEver,
    /// Replication: a store that starts goes by the record in its log, and forgets a later one that it was told.
    StartedWithoutLook,
    /// Replication: a member grants a primary of an earlier epoch what it needs to read.
    DeposedGranted,
    /// Replication: a new primary cuts its log after it has sent it in the same epoch.
    LogShrinksInEpoch,
    /// Replication: what a member holds alike goes on counting where the new primary has fetched something else.
    AgreementOutlivesFetch,
    /// Replication: entries of one epoch are taken for the same, whoever led in it: two may have, by a map that was restored.
    TermUnmarked,
    /// Replication: a member that starts anew has forgotten a record that it heard of and has no entry of.
    HeardForgotten,
    /// Replication: a member that has stopped does not say that it knows a newer record.
    StoppedSaysNothing,
    /// Store: prepared entries that are cut stay in their group's order.
    CutForgotten,
    /// Store: a leaf that is being installed is to be trusted from the begin.
    InstallEndTrustedEarly,
    /// Store: a pass writes a leaf without what is on its way to it.
    InstallMissedByPass,
    /// Store: an entry that is left out of a leaf under an install is not noted.
    LeftOutForgotten,
    /// Store: replay applies the entries that a member had skipped.
    SkippedEntriesApplied,
    /// Store: a pass begins replay behind entries that are prepared and not applied.
    PreparedForgottenByPass,
    /// Store: an entry that is written again at the log's end waits there before it is durable.
    CarriedBeforeDurable,
    /// Store: an entry is written again at the log's end though it was cut while it was read.
    CarriedThoughCut,
    /// Store: replay takes an entry that was written again for a new one, and drops what came behind its first.
    CarriedTakenForNew,
    /// Replication: a group takes what carries a lower volume epoch than it has seen.
    OlderHeadTaken,
    /// Replication: a volume's epoch is raised in the primary's memory alone.
    RaisedInMemory,
    /// Replication: a read of a new head is served before the raise of its volume's epoch is committed.
    RaiseNotAwaited,
    /// Replication: what a head sent to a primary of an earlier epoch is done in a later one.
    OldRequestTaken,
    /// Replication: what a head has asked again since is done all the same.
    OvertakenDone,
    /// Replication: a write of several pieces is answered before they are committed.
    PiecesAnsweredEarly,
    /// Replication: a head that a group refused goes on, under the epoch that it was refused for.
    RefusedHeadGoesOn,
    /// Replication: a head does a write at a group that does not know of it yet, for a client that may have gone meanwhile.
    DoneBeforeRaise,
    /// Control: who another has followed goes on writing orders.
    OlderControlWrites,
    /// Control: what groups hold is taken for an even share of their devices, whatever was counted.
    GroupsTakenForEven,
    /// Replication: what is left of a group on a store that it left refuses leases for its member on another store of the node.
    RefusedForNeighbour,
    /// Control: a reign goes on although the map's record of it is another.
    ReignOutlivesRecord,
    /// Control: a device that is away for long is given up, whoever else is away.
    GivenUpAlone,
    /// Control: a member is taken out before all that are wanted are in sync.
    TakenOutTooEarly,
    /// Control: a device is taken out of the map whatever was said of it since it was looked at.
    RemovedUnseen,
    /// Volume: a head that another has followed decides on in the map.
    DeposedHeadDecides,
    /// Volume: which layer may end is decided by records of different moments.
    EndingsReadApart,
    /// Volume: a clone or a rollback takes layers of which one has ended since they were read.
    EndedChainTaken,
    /// Volume: a clone or a rollback takes layers, and the keeper that ends one of them is not told.
    ChainTakenUnsaid,
    /// Volume: a move goes by the names of snapshots, whatever they name by now.
    MovedByName,
    /// Control: whose copy of a group counts is put to whatever the group has become.
    ForcedUnseen,
    /// Volume: the layer that a snapshot leaves behind may end at once, whoever still writes to it.
    LeavingForgotten,
    /// Volume: a head says that nobody acts on a layer any more, without its epoch being raised at every group.
    LeftWithoutRaise,
    /// Volume: a snapshot of a new head is taken without its epoch being raised at every group.
    SnapshotWithoutRaise,
    /// Replication: what ends a layer is taken of a keeper that another has followed.
    OlderKeeperTaken,
    /// A group takes what a head wants of a chunk that is another group's.
    OtherTableTaken,
    /// Volume: a volume is served by an older slot table of its pool than the one that its record names.
    OlderTableTaken,
    /// Volume: two writes of parts of one block are let in at once, as if only the sectors counted that they name.
    SectorsAdmitted,
    /// Volume: a write of a part of a block leaves the order when it is on its way, and the next one reads the rest of the block
    /// as it was before.
    PartLeavesEarly,
    /// Volume: a snapshot is read through the layers that it had where its volume lay before.
    OldPlaceRead,
    /// Volume: a part of unknown outcome stands in nobody's way any more.
    UnknownBlocksNothing,
    /// Volume: a compare-and-write that is sent again is compared again, perhaps with what it has written itself.
    ComparedAgain,
    /// Volume: a command over two chunks does its part in the first one before its turn in the second has come.
    PartBeforeAll,
    /// Volume: a snapshot is taken, and the cores go on with the layer that is the snapshot's.
    SnapshotOldLayer,
    /// Replication: a primary's index takes in what is durable on itself, before the others have it.
    ReadBeforeCommitted,
    /// Replication: a member that drops entries keeps the first of those that its primary has otherwise.
    CutTooFarBehind,
    /// Replication: what is durable is told by its number alone, and an entry that was cut speaks for its successor.
    DurableWithoutEpoch,
    /// Replication: a member goes by what the map says also where that is older than what it knows.
    OldMapFollowed,
    /// Replication: a slow primary goes on.
    SlowPrimaryStays,
    /// Replication: slow members are removed however few remain.
    SlowRemovedAlways,
    /// Replication: a primary takes new blocks whatever room the other members have.
    FullMemberIgnored,
    /// Replication: that a member is full is told with its next beat.
    FullToldByTheClock,
    /// Replication: a beat between two of the clock speaks for those cores alone that have moved since the last.
    EarlyBeatTakesLeases,
    /// Replication: an entry that finds no room on a full member stands before those of all other groups.
    NobodyPassesFull,
    /// Replication: a member waits for ever for the room for its next entry, which those behind that one would make.
    OrderStandsWhileFull,
    /// Replication: beats and their answers speak for all cores, also for those that hang.
    HungCoreSpokenFor,
    /// Replication: that one life of a store is over is believed of its others, too.
    OtherLifeDead,
    /// Replication: who connects is listened to, whether it knows the cluster's key or not.
    StrangerHeard,
    /// Replication: the proofs at the begin of a connection leave out what a node speaks, so that who is on the way can change it.
    DowngradeUnseen,
    /// Replication: of two connections between the same cores each goes on over the one that it has made.
    EachSaysItOverItsOwn,
    /// Replication: a kind of frame that needs a feature is sent to who does not have it.
    KindSentUnasked,
    /// Catch-up: leaves that both sides have are taken for equal, whatever was written to them last.
    LastSeqIgnored,
    /// Catch-up: units are sent in the order of their chunks' numbers, however much each brings.
    UnitsByNumber,
    /// Catch-up: what a unit brought is not read back.
    UnitNotReadBack,
    /// Catch-up: blocks that the primary cannot read are left out of their unit.
    UnreadableLeftOut,
    /// Catch-up: a member tells of a damaged leaf as if it had it.
    DamageNotTold,
    /// Catch-up: a unit is taken while entries about its chunk are on their way.
    UnitTakenTooEarly,
    /// Catch-up: entries behind the moment of a unit are applied before it is installed.
    AppliedBeforeUnit,
    /// Catch-up: an attempt goes on over another connection when parts of it were lost with one.
    LostPartMissed,
    /// Catch-up: a unit brings all leaves of its chunk's number, also those of other groups.
    UnitOfOtherGroups,
    /// Catch-up: a member that was made whole takes what came as no-ops for known, and leaves it out for the next.
    NoopsTakenForKnown,
    /// Catch-up: what a group of one writes is not noted for whoever comes back.
    AloneNotNoted,
    /// Catch-up: of a chunk with damage only the layer is told that was asked for first.
    DamageOfTopLayer,
    /// Catch-up: a leaf is believed by its last entry, though one before it was in a record that is damaged.
    TornOutTakenForWhole,
    /// Store: the first entry that is found of a group behind records that are lost is taken for its first.
    BeginningTakenForWhole,
    /// Store: what a pass says of a group takes the place of entries that are lost.
    StateTakenForEntries,
    /// Store: what is prepared when records are lost is taken for what the group committed, whatever epoch follows them.
    CutTakenForCommitted,
    /// Store: a leaf that took over what was in a lost one is taken for whole, for it was found itself.
    MergeHidesLostLeaf,
    /// Store: a segment that one shard's index names and another shard uses is given away when the first lacks nothing.
    OthersSegmentGiven,
    /// Store: a segment whose header is lost is judged by what the last pass says of it, though it may be in use anew.
    HeaderOfNextUseIgnored,
    /// Store: where more is damaged than two records are long, the log ends for whoever opens.
    LogEndsInDamage,
    /// Replication: an operator says whose copy counts, which goes on waiting for who can apply an entry that nobody can.
    PoisonOutlivesForce,
    /// Replication: an operator says whose copy counts, and the others go on believing theirs.
    ForceHeardByOneOnly,
    /// Replication: who has lost the beginning of an epoch takes what it has of it for another reign's, and stops.
    TornLogBelieved,
    /// Replication: who has left a group, and dropped what it had, comes back as one that has everything.
    LeftTakenForWhole,
    /// Replication: a store that has left a group drops what it has before all members have everything.
    LeftDroppedEarly,
    /// Catch-up: what is left of a family that has ended is waited for, until somebody says whose it is.
    UnknownFamilyWaitedFor,
    /// Catch-up: who has dropped what it held is sent what has changed since.
    DroppedTakenForKept,
    /// Store: what was lost is called mended while leaves are still lost.
    LossesForgotten,
    /// Replication: a store that stops poisons all its groups.
    AllGroupsPoisoned,
    /// Replication: a member that is being made whole counts as if it were.
    FilledCounts,
    /// Replication: what a member told earlier, and comes later, counts.
    ToldOutOfOrder,
    /// Heads: the host of a controller that has ended counts as one that is there.
    EndedControllerCounts,
    /// Heads: a forwarder sends what waited for room for a client that is gone.
    SentForGone,
    /// Heads: the first request of a new session is done before all others have said that what was sent before has come.
    SessionUnasked,
    /// Heads: a session that did not say in time that all of it has come is listened to all the same.
    EndedSessionHeard,
    /// Placement: a pool can be used before all of its groups are there.
    PoolBeforeGroups,
    /// Placement: new groups are put on a device whatever was said of it since they were dealt.
    DealtUnseen,
    /// Placement: numbers of groups and tables are taken from what is there, not used up.
    NumbersUsedAgain,
    /// Map: a machine that joins takes the number that was free when it looked, whoever has it by now.
    JoinsWithoutLooking,
    /// Map: an upgrade is finished while a node is away, by what the others speak.
    AwayCountsAsUpgraded,
    /// Map: an upgrade is finished by what nodes had said when it was looked, whatever they say by now.
    FinishedWithoutLooking,
    /// Placement: a node set is made by what was seen before another one was.
    SetsShareGroups,
    /// Placement: a volume is made in a table whose node set nobody has looked for.
    TableWithoutSet,
    /// Volume: snapshots that cores could not be told of, as the map did not answer, are not told later.
    UntoldForgotten,
    /// Heads: a node takes over an encrypted volume without its key, though another one has it.
    LockedTakesOver,
    /// Volume: a snapshot is taken while nobody knows what becomes of a command that was given up.
    InstantOverOrphans,
    /// Volume: a command that waits for a group that does not serve is never answered.
    StoppedNotSaid,
    /// Replication: a primary takes no write while its node's session in the map may be over.
    WriteWaitsForMap,
    /// Replication: a session that is gone from the map while its node lives is not said again.
    SessionSaidOnce,
    /// Placement: an order is decided by what was there before another one.
    DutiesApart,
    /// Placement: who controls writes over a record that it cannot read.
    UnreadableOverwritten,
    /// Catch-up: whose chunks of a layer are that is gone is not known any more while a member has some.
    GoneLayerForgotten,
    /// Store: a layer that is gone and holds nothing is forgotten at once, though a group that is behind may still bring a chunk of it.
    LateLeafHasNoFamily,
    /// Check: copies that differ are told as if they agreed.
    CopiesNotCompared,
    /// Heads: a host is told to be denied before an earlier head can write nothing more for it.
    DeniedWithoutRaise,
    /// Heads: a member that a head takes for the primary answers it, whoever leads by now.
    HintTrusted,
    /// Replication: a group is told of the layer on top alone, and not of those below it.
    ParentUntold,
    /// Volume: a layer that two are built on is merged into one of them.
    SharedLayerMerged,
    /// Volume: a snapshot goes on with its new layer though the map did not say that it has it.
    SnapshotNewLayer,
    /// Cluster: a change of names and layers is answered before nodes hold copies of it.
    AnsweredBeforeCopied,
    /// Cluster: a map is made anew although devices hold data of layers that no copy names.
    UnnamedLayersLeft,
    /// Cluster: a map is made anew although devices know groups that no copy names.
    UnnamedGroupsLeft,
    /// Volume: a new top of which the map's answer is lost is taken for refused, and the cores go on with the old layer.
    LostAnswerRefused,
    /// Volume: a volume that moves to other groups leaves behind what was written since the last snapshot of it.
    LastChangesLeft,
    /// Volume: a volume changes places with its draft while commands run.
    MovedWhileUsed,
    /// Volume: a change of one volume waits for those of all others.
    OneChangeAtATime,
    /// Volume: what waits for a group that does not serve waits on when its volume, or its snapshot, is gone.
    GoneWaitedFor,
    /// Head: what waits here for groups is not given up when another node has taken the volume.
    ElsewhereWaitedFor,
    /// Head: a node that no other answers takes a volume from its head, which is silent to it as all are.
    UnheardTakes,
    /// Volume: a volume stays with a head that does not hear who leads a group of it, though another node hears all.
    UnreachedStays,
    /// Heads: a volume that nobody uses stays where it is, though its home is up.
    HomeForgotten,
    /// Client: a program takes a volume that others use.
    UsedVolumeTaken,
    /// Client: nodes take the volumes of a program over as if it had no session.
    ClientTakenForGone,
    /// Client: what was opened in one reign goes on in the next.
    OldOpeningServes,
}

#[cfg(feature = "mutants")]
mod active {
    use core::ops::Range;
    use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};
    use std::any::Any;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Mutex, PoisonError};

    /// So much of what a failed check says is told.
    const TOLD_CHARS: usize = 100;

    /// The first line of what a failed check said.
    fn message_of(panic: &(dyn Any + Send)) -> String {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        text.unwrap_or_default().lines().next().unwrap_or_default().chars().take(TOLD_CHARS).collect()
    }

    static ACTIVE: AtomicU16 = AtomicU16::new(0);
    /// One check at a time has its bug: the bug is on for the whole process.
    static ALONE: Mutex<()> = Mutex::new(());
    /// Whether [`AssertionFails`](super::Mutant::AssertionFails) is on: it may be so beside a bug that shows only then.
    static ASSERTION_FAILS: AtomicBool = AtomicBool::new(false);

    /// Whether this deliberate bug is switched on. Constant `false` without the feature `mutants`.
    pub fn mutant(which: super::Mutant) -> bool {
        match which {
            super::Mutant::AssertionFails => ASSERTION_FAILS.load(Ordering::Relaxed),
            _ => ACTIVE.load(Ordering::Relaxed) == which as u16,
        }
    }

    impl super::Mutant {
        /// Switches this bug on for the whole process (`None`: all off).
        pub fn activate(which: Option<Self>) {
            if which != Some(Self::AssertionFails) {
                ACTIVE.store(which.map_or(0, |m| m as u16), Ordering::Relaxed);
            }
            match which {
                Some(Self::AssertionFails) => ASSERTION_FAILS.store(true, Ordering::Relaxed),
                None => ASSERTION_FAILS.store(false, Ordering::Relaxed),
                Some(_) => {}
            }
        }

        /// Runs a check with this bug, for one seed after the other until it fails, and then with that seed without the
        /// bug: only if it passes there has it caught anything. Says so in a line that `tools/mutants.sh` counts. The bug
        /// is on for the whole process meanwhile; other checks by this wait.
        pub fn is_caught(self, check: &str, seeds: Range<u64>, run: impl Fn(u64)) -> bool {
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            let failure = |seed| {
                let failed = catch_unwind(AssertUnwindSafe(|| run(seed))).err();
                Self::activate(None);
                failed
            };
            let most = seeds.end - seeds.start;
            let with_it = |seed| {
                Self::activate(Some(self));
                Some((seed, failure(seed)?))
            };
            let failed = seeds.into_iter().find_map(with_it);
            let caught = match failed {
                None => Err(format!("passes with it, {most} times")),
                Some((seed, _)) if failure(seed).is_some() => Err(format!("seed {seed} fails without it, too")),
                Some((seed, panic)) => Ok(format!("seed {seed}: {}", message_of(&*panic))),
            };
            self.tell(check, caught.as_deref())
        }

        /// Prints the line that `tools/mutants.sh` counts; returns whether the bug was caught.
        pub fn tell(self, check: &str, caught: Result<&str, &String>) -> bool {
            match caught {
                Ok(how) => println!("mutant {self:?} caught by {check}: {how}"),
                Err(why) => println!("mutant {self:?} NOT CAUGHT by {check}: {why}"),
            }
            caught.is_ok()
        }
    }
}
#[cfg(feature = "mutants")]
pub use active::mutant;

/// Whether this deliberate bug is switched on. Constant `false` without the feature `mutants`.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn mutant(_which: Mutant) -> bool {
    false
}
