//! A member that is given leaves of another one while its group's order goes on, and the lights that go out meanwhile.

use super::members::*;
use super::*;
use store::{AppendError, ImageBlock, LeafCursor};

/// Chunks of a storm.
const CHUNKS: u32 = 6;
/// Steps of one round of a storm.
const STEPS: u32 = 250;
/// Installs that may be under way at once.
const AT_ONCE: usize = 2;
const WHOLE: BlockRange = BlockRange { first: 0, count: 256 };

/// An entry of the order on a chunk.
#[derive(Clone, Copy, Debug)]
enum Change {
    Start,
    Write(u32, BlockRange),
    Zero(u32, BlockRange, bool),
}

/// What a chunk holds: the version of each block that was ever written; 0 is zeroes.
type Held = BTreeMap<u16, u64>;

/// What is known of a leaf of the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    /// It must be trusted.
    Whole,
    /// An install of it was begun, and is not known to have ended well.
    InDoubt,
}

/// The group, as its primary has it: all that the member was ever sent. Sequences are one more than places in it.
#[derive(Clone)]
pub struct Primary {
    changes: Vec<Change>,
    leaves: BTreeMap<u32, Leaf>,
    acknowledged: u64,
    /// Installs that ended well, and those after which an entry was found to be left out.
    ended: [u64; 2],
    /// Entries that the member has gone on behind without them.
    skipped: u64,
}

impl Primary {
    fn new() -> Self {
        let leaves = (0..CHUNKS).map(|chunk| (chunk, Leaf::Whole)).collect();
        Self { changes: vec![Change::Start], leaves, acknowledged: 0, ended: [0; 2], skipped: 0 }
    }

    fn entry(&self, seq: u64) -> Entry {
        match self.changes[seq as usize - 1] {
            Change::Start => start(1, seq),
            Change::Write(chunk, range) => {
                let chunk = ChunkId(chunk);
                entry(1, seq, chunk, EntryKind::write(range, bytes_of(chunk, range, seq)))
            }
            Change::Zero(chunk, range, hides_below) => {
                entry(1, seq, ChunkId(chunk), EntryKind::Zero { range, hides_below })
            }
        }
    }

    fn held(&self, chunk: u32) -> Held {
        let mut held = Held::new();
        for (seq, change) in (1..).zip(&self.changes) {
            match change {
                Change::Write(of, range) if *of == chunk => {
                    held.extend((range.first..range.end() as u16).map(|block| (block, seq)));
                }
                Change::Zero(of, range, _) if *of == chunk => {
                    held.extend((range.first..range.end() as u16).map(|block| (block, 0)));
                }
                _ => {}
            }
        }
        held
    }

    /// The last entry on the chunk; 0 if there is none.
    fn last_on(&self, chunk: u32) -> u64 {
        let is_on = |change: &Change| matches!(change, Change::Write(of, _) | Change::Zero(of, _, _) if *of == chunk);
        (1..).zip(&self.changes).filter(|(_, change)| is_on(change)).map(|(seq, _)| seq).last().unwrap_or(0)
    }
}

/// What installs a chunk's contents: begin, pieces in some order, each block in one of them.
fn steps_of(chunk: u32, held: &Held, random: &Random) -> Vec<EntryKind> {
    let of_chunk = ChunkId(chunk);
    let blocks: Vec<(u16, u64)> = held.iter().map(|(block, version)| (*block, *version)).collect();
    let follows = |a: &(u16, u64), b: &(u16, u64)| a.0 + 1 == b.0 && a.1 == b.1;
    let mut pieces = Vec::new();
    for run in blocks.chunk_by(follows).flat_map(|run| run.chunks(32)) {
        let (range, version) = (BlockRange::new(run[0].0.into(), run.len() as u32), run[0].1);
        pieces.push(match version {
            0 => EntryKind::InstallZero { range, hides_below: random.one_in(2) },
            _ => EntryKind::Install { range, bytes: bytes_of(of_chunk, range, version), coding: Default::default() },
        });
    }
    for i in (1..pieces.len()).rev() {
        pieces.swap(i, random.below(i as u64 + 1) as usize);
    }
    pieces.insert(0, EntryKind::InstallBegin { keeps: false });
    pieces
}

/// An install under way.
struct Installing {
    chunk: u32,
    /// What is left to be sent, the next one last.
    steps: Vec<EntryKind>,
    /// The image holds all up to here.
    reaches: u64,
    last_seq: u64,
    position: LogPosition,
    /// It will be broken off.
    is_vain: bool,
}

type SharedPrimary = Rc<RefCell<Primary>>;

struct Storm {
    shard: Rc<Shard>,
    primary: SharedPrimary,
    waiting: RefCell<std::collections::VecDeque<(LogPosition, u64)>>,
}

impl Storm {
    /// Opens a member, commits what it holds, and sends it what it lacks.
    async fn join(primary: &SharedPrimary) -> Self {
        let (shard, recovery) = open_whole().await;
        let through = recovery.groups.first().map_or(Seq(0), |found| found.prepared_through);
        assert!(through.0 >= primary.borrow().acknowledged, "it holds what it acknowledged");
        shard.commit(GROUP, through);
        let storm = Self { shard, primary: primary.clone(), waiting: RefCell::default() };
        for (chunk, leaf) in storm.primary.borrow().leaves.clone() {
            assert!(leaf == Leaf::InDoubt || storm.image(chunk).is_trusted(), "chunk {chunk} is not trusted any more");
        }
        for seq in through.0 + 1..=primary.borrow().changes.len() as u64 {
            storm.send(seq);
        }
        storm.settle().await;
        storm
    }

    fn image(&self, chunk: u32) -> store::LeafImage {
        self.shard.image(LAYER, ChunkId(chunk)).expect("it is not lost")
    }

    fn send(&self, seq: u64) {
        let entry = self.primary.borrow().entry(seq);
        let position = self.shard.prepare(entry).expect("there is room");
        self.waiting.borrow_mut().push_back((position, seq));
    }

    /// Commits what is durable, through `most` at most.
    fn commit(&self, most: u64) {
        let durable = self.shard.durable_through();
        loop {
            let first = self.waiting.borrow().front().copied();
            let Some((_, seq)) = first.filter(|(position, seq)| *position <= durable && *seq <= most) else { return };
            self.waiting.borrow_mut().pop_front();
            assert!(self.shard.commit(GROUP, Seq(seq)).is_done());
            self.primary.borrow_mut().acknowledged = seq;
        }
    }

    async fn settle(&self) {
        let last = self.waiting.borrow().back().map(|(position, _)| *position);
        durable(&self.shard, last.unwrap_or_default()).await;
        self.commit(u64::MAX);
    }

    async fn round(&self, random: &Random) {
        let (shard, after) = (self.shard.clone(), Duration::from_micros(random.below(4000)));
        spawn(async move {
            for _ in 0..4 {
                runtime::sleep(after).await;
                if shard.pass_now().await.is_err() {
                    return;
                }
            }
        });
        let mut installing: Vec<Installing> = Vec::new();
        for _ in 0..STEPS {
            if random.one_in(100) {
                self.skip(random, &mut installing).await;
            }
            match random.below(10) {
                0..4 => self.change(random),
                4 if installing.len() < AT_ONCE => self.begin(random, &mut installing),
                _ if !installing.is_empty() => {
                    let which = random.below(installing.len() as u64) as usize;
                    if self.go_on(&mut installing[which]).await {
                        installing.swap_remove(which);
                    }
                }
                _ => {}
            }
            let reaches = installing.iter().map(|one| one.reaches).min().unwrap_or(u64::MAX);
            // Who commits beyond an image that is being installed may have to begin again.
            self.commit(if random.one_in(40) { u64::MAX } else { reaches });
            if random.one_in(12) {
                let seen = self.shard.durable_through();
                if seen < self.waiting.borrow().back().map_or(seen, |(position, _)| *position) {
                    self.shard.durable_changed(seen).await.expect("an open shard");
                }
            }
        }
        self.settle().await;
    }

    fn change(&self, random: &Random) {
        self.make(random);
        self.send(self.primary.borrow().changes.len() as u64);
    }

    /// The primary changes something.
    fn make(&self, random: &Random) {
        let (chunk, first) = (random.below(u64::from(CHUNKS)) as u32, random.below(256) as u32);
        let count = (1 + random.below(if random.one_in(8) { 32 } else { 4 }) as u32).min(256 - first);
        let range = BlockRange::new(first, count);
        let change = match random.below(6) {
            0 => Change::Zero(chunk, range, random.one_in(2)),
            _ => Change::Write(chunk, range),
        };
        self.primary.borrow_mut().changes.push(change);
    }

    /// The member is not sent what comes now, and goes on behind some of it: what it concerns is to be installed anew.
    async fn skip(&self, random: &Random, installing: &mut Vec<Installing>) {
        let known = self.primary.borrow().changes.len() as u64;
        for _ in 0..random.below(20) {
            self.make(random);
        }
        let committed = self.shard.committed_through(GROUP).0;
        let made = self.primary.borrow().changes.len() as u64;
        // All of what it was sent or more, for the next that it is sent it was not sent before.
        let through = known + random.below(made - known + 1);
        let concerned: std::collections::BTreeSet<u32> = {
            let chunk_of = |change: &Change| match change {
                Change::Write(chunk, _) | Change::Zero(chunk, _, _) => Some(*chunk),
                Change::Start => None,
            };
            let primary = self.primary.borrow();
            primary.changes[committed as usize..through as usize].iter().filter_map(chunk_of).collect()
        };
        installing.retain(|one| !concerned.contains(&one.chunk));
        self.primary.borrow_mut().leaves.extend(concerned.iter().map(|chunk| (*chunk, Leaf::InDoubt)));
        let begins =
            concerned.into_iter().map(|chunk| entry(0, 0, ChunkId(chunk), EntryKind::InstallBegin { keeps: false }));
        prepare(&self.shard, begins).await;
        self.waiting.borrow_mut().clear();
        prepare(&self.shard, [super::skips::skip(through, &[(1, 1)], "")]).await;
        {
            let mut primary = self.primary.borrow_mut();
            primary.acknowledged = through;
            primary.skipped += through - committed;
        }
        assert_eq!(self.shard.committed_through(GROUP), Seq(through));
        (through + 1..=made).for_each(|seq| self.send(seq));
    }

    /// Takes an image of the primary as it is.
    fn begin(&self, random: &Random, installing: &mut Vec<Installing>) {
        let chunk = random.below(u64::from(CHUNKS)) as u32;
        if installing.iter().any(|one| one.chunk == chunk) {
            return;
        }
        let mut primary = self.primary.borrow_mut();
        let mut steps = steps_of(chunk, &primary.held(chunk), random);
        steps.reverse();
        installing.push(Installing {
            chunk,
            steps,
            reaches: primary.changes.len() as u64,
            last_seq: primary.last_on(chunk),
            position: LogPosition(0),
            is_vain: random.one_in(5),
        });
        primary.leaves.insert(chunk, Leaf::InDoubt);
    }

    /// The next step of an install; true if that was its last.
    async fn go_on(&self, one: &mut Installing) -> bool {
        let prepare = |kind| self.shard.prepare(entry(0, 0, ChunkId(one.chunk), kind)).expect("there is room");
        if let Some(kind) = one.steps.pop() {
            one.position = prepare(kind);
            return one.is_vain && one.steps.len() < 4;
        }
        durable(&self.shard, one.position).await;
        let end = prepare(EntryKind::InstallEnd { last_seq: Seq(one.last_seq) });
        durable(&self.shard, end).await;
        let image = self.image(one.chunk);
        let mut primary = self.primary.borrow_mut();
        primary.ended[usize::from(!image.is_trusted())] += 1;
        if image.is_trusted() {
            assert!(image.last_seq().0 >= one.last_seq);
            primary.leaves.insert(one.chunk, Leaf::Whole);
        }
        true
    }

    /// Everything is committed: what is trusted is as the primary has it, in each block.
    async fn verify(&self) {
        self.verify_counts();
        for chunk in 0..CHUNKS {
            let (image, held) = (self.image(chunk), self.primary.borrow().held(chunk));
            let (read, bytes) =
                self.shard.read(&[LAYER], ChunkId(chunk), WHOLE, IoBuf::new(WHOLE.bytes()), &mut Vec::new()).await;
            if !image.is_trusted() {
                assert!(matches!(read, Err(store::ReadError::Untrusted { .. })), "chunk {chunk} is read");
                continue;
            }
            read.unwrap_or_else(|error| panic!("{error}"));
            let mut expected = vec![0; BLOCK_BYTES];
            for (number, block) in (0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                let version = held.get(&number).copied().unwrap_or(0);
                fill_block(&mut expected, ChunkId(chunk), number, version);
                let found = version_of(block, ChunkId(chunk), number);
                assert!(block == expected, "chunk {chunk} block {number} is version {found} and not {version}");
            }
            assert_eq!(image.last_seq(), Seq(self.primary.borrow().last_on(chunk)), "chunk {chunk}");
        }
        self.verify_walk();
    }

    /// What lives is counted exactly.
    fn verify_counts(&self) {
        let stored = |chunk| {
            let image = self.image(chunk);
            let blocks = image.runs().filter(|run| run.1 == ImageBlock::Stored).map(|run| u64::from(run.0.count));
            blocks.sum::<u64>() * BLOCK_BYTES as u64
        };
        assert_eq!(self.shard.statistics().live_bytes, (0..CHUNKS).map(stored).sum::<u64>(), "bytes that live");
    }

    /// A walk tells of the same leaves, in steps of any length.
    fn verify_walk(&self) {
        let (mut cursor, mut found) = (LeafCursor::default(), Vec::new());
        while self.shard.walk_leaves(&mut cursor, 2, &mut found) {}
        found.sort_unstable();
        found.dedup();
        for (layer, chunk, last_seq) in &found {
            let image = self.shard.image(*layer, *chunk).expect("it is not lost");
            assert_eq!(image.last_seq(), *last_seq, "chunk {chunk}");
        }
        for chunk in (0..CHUNKS).filter(|chunk| self.image(*chunk).last_seq() > Seq(0)) {
            assert!(found.iter().any(|leaf| leaf.1 == ChunkId(chunk)), "chunk {chunk} is not told of");
        }
    }
}

/// Writes, zeroes and installs on the same chunks, entries that the member goes on behind without them, passes at any
/// time, a cleaner that never rests: at one of `every` moments, and at the end of each round, the power goes. What the
/// member trusts is what the primary has. Returns how many losses of power there were, installs that ended well,
/// installs that were not enough, and entries that were skipped.
pub fn install_storm(seed: u64, rounds: u32, every: u64) -> [u64; 4] {
    let rig = rig_for(seed);
    let primary: SharedPrimary = Rc::new(RefCell::new(Primary::new()));
    let mut losses = 0;
    for _ in 0..rounds {
        let storm = {
            let primary = primary.clone();
            Rc::new(rig.run(async move {
                let storm = Storm::join(&primary).await;
                storm.verify().await;
                storm
            }))
        };
        storm.shard.store().clean_below(u32::MAX);
        let (storming, random) = (storm.clone(), Random::new(rig.random.next_u64()));
        let judge = |image: &Rig| {
            let of_image = Rc::new(RefCell::new(primary.borrow().clone()));
            image.run(async move {
                let storm = Storm::join(&of_image).await;
                storm.verify().await;
            });
        };
        losses += rig.at_every_moment(every, async move { storming.round(&random).await }, judge);
        let verifying = storm.clone();
        rig.run(async move { verifying.verify().await });
        drop(storm);
        end(&rig, 1);
        let checked = check(&rig, CheckOptions::default());
        let is_slot = |finding: &&store::check::Finding| {
            matches!(finding.what, store::check::What::Damage(store::Damage::Superblock { .. }))
        };
        let damage =
            checked.findings.iter().filter(|one| one.severity() > store::check::Severity::Trace && !is_slot(one));
        assert_eq!(damage.collect::<Vec<_>>(), [] as [&store::check::Finding; 0], "seed {seed}");
    }
    the_reader_sees_what_the_store_does(&rig);
    let primary = primary.borrow();
    let [well, in_vain] = primary.ended;
    [losses, well, in_vain, primary.skipped]
}

/// What `tools/read-device.py` extracts is what the store reads, where it trusts what it has.
fn the_reader_sees_what_the_store_does(rig: &Rig) {
    let extracted = reader::DiskCopy::of(&rig.disk, rig.size_bytes).extract(LAYER, u64::from(CHUNKS) * MIB);
    rig.run(async move {
        let (shard, recovery) = open_whole().await;
        shard.commit(GROUP, recovery.groups[0].prepared_through);
        for (chunk, seen) in (0..).map(ChunkId).zip(extracted.chunks_exact(MIB as usize)) {
            if !shard.image(LAYER, chunk).expect("it is not lost").is_trusted() {
                continue;
            }
            let buf = IoBuf::new(WHOLE.bytes());
            let (read, bytes) = shard.read(&[LAYER], chunk, WHOLE, buf, &mut Vec::new()).await;
            read.unwrap_or_else(|error| panic!("{error}"));
            for (number, (block, seen)) in
                (0..).zip(bytes.chunks_exact(BLOCK_BYTES).zip(seen.chunks_exact(BLOCK_BYTES)))
            {
                let (found, due) = (version_of(seen, chunk, number), version_of(block, chunk, number));
                assert!(block == seen, "chunk {chunk} block {number}: the reader has version {found}, the store {due}");
            }
        }
    });
}

/// What a leaf is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Old,
    Untrusted,
    New,
}

/// How far an install is known to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    #[default]
    NotAsked,
    BeginAsked,
    BeginDurable,
    EndAsked,
    EndDurable,
}

/// The installed leaf's last sequence; entries up to it came to the leaf by themselves too.
const LAST_SEQ: u64 = 12;
const OLD_BLOCKS: BlockRange = BlockRange { first: 0, count: 64 };
const NEW_BLOCKS: BlockRange = BlockRange { first: 32, count: 64 };
const ZEROES: BlockRange = BlockRange { first: 96, count: 8 };
/// Overwritten by each entry of the order.
const BUSY_BLOCK: u32 = 150;

/// One leaf is installed, with passes and entries of the order beside it. Each loss of power leaves it as it was, or
/// not to be trusted, or as it shall be. Returns how many of each there were.
pub fn an_install_at_every_moment(seed: u64) -> [u64; 3] {
    let rig = rig_for(seed);
    let shard = rig.run(async {
        let (shard, _) = open_whole().await;
        let old = |range| EntryKind::write(range, bytes_of(ChunkId(0), range, 2));
        let halves = [BlockRange::new(0, 32), BlockRange::new(32, 32)];
        let asked = halves.map(old).into_iter().zip(2..).map(|(kind, seq)| entry(1, seq, ChunkId(0), kind));
        prepare(&shard, [start(1, 1)].into_iter().chain(asked).chain([write(1, 4, 1, 0)])).await;
        shard.commit(GROUP, Seq(4));
        shard
    });
    let known = Rc::new(std::cell::Cell::new(Known::default()));
    let (installing, told) = (shard.clone(), known.clone());
    let task = async move { install_beside_all(&installing, &told, seed).await };
    let mut met = [0; 3];
    rig.at_every_moment(1, task, |image| {
        let known = known.get();
        let found = image.run(judge(known));
        met[found as usize] += 1;
    });
    rig.node.crash();
    rig.node.start();
    assert_eq!(rig.run(judge(Known::EndDurable)), Found::New);
    met
}

async fn install_beside_all(shard: &Rc<Shard>, known: &std::cell::Cell<Known>, seed: u64) {
    let passing = shard.clone();
    spawn(async move { while passing.pass_now().await.is_ok() {} });
    let chunk = ChunkId(0);
    let install = |range, version| {
        let (bytes, coding) = (bytes_of(chunk, range, version), Default::default());
        EntryKind::Install { range, bytes, coding }
    };
    let steps = [
        EntryKind::InstallBegin { keeps: false },
        install(BlockRange::new(NEW_BLOCKS.first.into(), 32), LAST_SEQ),
        EntryKind::InstallZero { range: ZEROES, hides_below: true },
        install(BlockRange::new(u32::from(NEW_BLOCKS.first) + 32, 32), LAST_SEQ),
        install(BlockRange::new(BUSY_BLOCK, 1), LAST_SEQ),
    ];
    let (mut seq, mut last) = (5, LogPosition(0));
    for kind in steps {
        if matches!(kind, EntryKind::InstallBegin { .. }) {
            known.set(Known::BeginAsked);
        }
        last = shard.prepare(entry(0, 0, chunk, kind)).expect("there is room");
        // The order goes on: committed as soon as it may be, or later.
        if seq <= LAST_SEQ {
            shard.prepare(write(1, seq, 0, BUSY_BLOCK)).expect("there is room");
            seq += 1;
        }
        if seed.is_multiple_of(2) || seq == 6 {
            durable(shard, last).await;
            known.set(Known::BeginDurable);
            shard.commit(GROUP, Seq(seq - 2));
        }
    }
    durable(shard, last).await;
    known.set(Known::BeginDurable);
    while seq <= LAST_SEQ {
        prepare(shard, [write(1, seq, 0, BUSY_BLOCK)]).await;
        shard.commit(GROUP, Seq(seq));
        seq += 1;
    }
    known.set(Known::EndAsked);
    let end = EntryKind::InstallEnd { last_seq: Seq(LAST_SEQ) };
    durable(shard, shard.prepare(entry(0, 0, chunk, end)).expect("there is room")).await;
    known.set(Known::EndDurable);
    prepare(shard, [write(1, seq, 0, BUSY_BLOCK + 1)]).await;
    shard.commit(GROUP, Seq(seq));
    runtime::sleep(Duration::from_millis(5)).await;
}

async fn judge(known: Known) -> Found {
    let (shard, recovery) = open_whole().await;
    let through = recovery.groups[0].prepared_through;
    shard.commit(GROUP, through);
    let image = shard.image(LAYER, ChunkId(0)).expect("it is not lost");
    let found = match (image.is_trusted(), image.last_seq().0 >= LAST_SEQ && known >= Known::EndAsked) {
        (false, _) => Found::Untrusted,
        (true, false) => Found::Old,
        (true, true) => Found::New,
    };
    match found {
        Found::Untrusted => {
            assert!((Known::BeginAsked..Known::EndDurable).contains(&known), "{known:?}");
            assert_eq!(image.last_seq(), Seq(0));
        }
        Found::Old => {
            assert!(known <= Known::BeginAsked, "{known:?}: the leaf is the old one");
            let seen = versions(&shard, 0, 256).await;
            for (block, version) in (0..).zip(seen) {
                let due = if block < u32::from(OLD_BLOCKS.count) { 2 } else { 0 };
                let is_busy = block == BUSY_BLOCK && (version == 0 || version <= through.0);
                assert!(version == due || is_busy, "block {block} is version {version}: it is neither old nor new");
            }
        }
        Found::New => {
            let seen = versions(&shard, 0, 256).await;
            let new = |block: u32| block >= NEW_BLOCKS.first.into() && block < NEW_BLOCKS.end() || block == BUSY_BLOCK;
            for (block, version) in (0..).zip(seen) {
                let due = if new(block) { LAST_SEQ } else { 0 };
                let is_later = block == BUSY_BLOCK + 1 && version == through.0;
                assert!(version == due || is_later, "block {block} is version {version} of the new leaf");
            }
            let zeroes = image.runs().filter(|run| run.1 == ImageBlock::Zero).map(|run| run.0).collect::<Vec<_>>();
            assert_eq!(zeroes, [ZEROES]);
        }
    }
    // Whatever there is, it can be installed again.
    let again = [EntryKind::InstallBegin { keeps: false }, EntryKind::InstallZero { range: WHOLE, hides_below: true }];
    prepare(&shard, again.map(|kind| entry(0, 0, ChunkId(0), kind))).await;
    prepare(&shard, [entry(0, 0, ChunkId(0), EntryKind::InstallEnd { last_seq: Seq(20) })]).await;
    let image = shard.image(LAYER, ChunkId(0)).expect("it is not lost");
    assert_eq!((image.is_trusted(), image.last_seq()), (true, Seq(20)));
    assert_eq!(image.runs().collect::<Vec<_>>(), [(WHOLE, ImageBlock::Zero)]);
    found
}

/// What a full device refuses of clients it takes from another member; and what it takes lives.
pub fn an_install_has_room_where_new_blocks_have_none() {
    let rig = rig(61);
    rig.run(async {
        let (shard, recovery) = open_whole().await;
        let writer = moments::Writer::begin(&shard, &recovery, GROUP).await;
        let range = |part: u32| BlockRange::new(32 * (part % 8), 32);
        let mut part = 0;
        loop {
            let (chunk, range) = (ChunkId(part / 8), range(part));
            match writer.try_ask(LAYER, chunk, EntryKind::write(range, bytes_of(chunk, range, 1))) {
                Ok(_) => part += 1,
                Err(AppendError::Busy) => {
                    writer.settle().await;
                    shard.room().await.expect("an open shard");
                }
                Err(error) => break assert!(matches!(error, AppendError::NoSpace { .. }), "{error}"),
            }
            if part % 8 == 0 {
                writer.settle().await;
            }
        }
        writer.settle().await;
        let before = shard.statistics().live_bytes;
        let chunk = ChunkId(5000);
        let ask = |kind| loop_until_room(&shard, chunk, kind);
        let mut last = ask(EntryKind::InstallBegin { keeps: false }).await;
        for part in 0..8 {
            let (range, coding) = (range(part), Default::default());
            last = ask(EntryKind::Install { range, bytes: bytes_of(chunk, range, 9), coding }).await;
        }
        durable(&shard, last).await;
        let end = ask(EntryKind::InstallEnd { last_seq: Seq(9) }).await;
        durable(&shard, end).await;
        assert_eq!(shard.statistics().live_bytes, before + MIB);
        assert_eq!(versions(&shard, 5000, 256).await, [9; 256]);
    });
}

async fn loop_until_room(shard: &Rc<Shard>, chunk: ChunkId, kind: EntryKind) -> LogPosition {
    loop {
        match shard.prepare(entry(0, 0, chunk, kind.clone())) {
            Err(AppendError::Busy) => shard.room().await.expect("an open shard"),
            queued => return queued.expect("it is not refused"),
        }
    }
}
