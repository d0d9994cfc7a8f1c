//! What is told of clusters that are not as they should be, word by word.

use super::*;
use crate::map::{KeyValue, Listing, Revision};
use crate::records::{
    ClientsRecord, Compression, ControlRecord, DeviceDuty, DevicePlaceRecord, DeviceRecord, DeviceState, DeviceTrouble,
    GroupRecord, NodeDuty, NodePlaceRecord, NodeRecord, Policy, PoolRecord, Record, SessionRecord, SlotTablePiece,
    StoreUsageRecord, VolumeRecord, WantedRecord,
};
use crate::records::{ClusterRecord, DoorsRecord, NodeRelease, Versions};
use crate::typed::{decode, encode};
use std::sync::Arc;
use types::{Epoch, GroupId, Incarnation};

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_000 * SECOND;
const MIB: u64 = 1 << 20;

fn looks() -> Looks {
    Looks { now_ns: NOW, ..Looks::default() }
}

/// A map of nodes that have one device each, as big as the next.
struct Scene(BTreeMap<String, Vec<u8>>);

impl Scene {
    /// `replicas` copies of each of 12 groups, dealt to the nodes in turn; volumes a, b and c lie in four of them each.
    fn of(nodes: u32, replicas: u32, min_in_sync: u32) -> Self {
        let mut scene = Self(BTreeMap::new());
        for id in 1..=nodes {
            let (store, node, path) = (StoreId(id.into()), NodeId(id), "/dev/nvme0n1".to_owned());
            scene.put(&NodeRecord { id: node, address: format!("10.0.0.{id}:1") });
            scene.put(&DeviceRecord { store, node, path, size_bytes: 1 << 30, state: DeviceState::Active });
            scene.put(&SessionRecord { store, life: Incarnation(1), node });
            scene.used(id, 120 * MIB, None);
        }
        scene.put(&PoolRecord {
            name: "fast".to_owned(),
            policy: Policy::Replicated,
            replicas,
            min_in_sync,
            table: 1,
            write_cache: false,
            compression: Compression::Off,
        });
        for id in 1..=12u32 {
            let members = (0..replicas).map(|at| StoreId(u128::from((id + at) % nodes) + 1)).collect();
            scene.put(&GroupRecord::begun_with(GroupId(id), (1, "fast".to_owned()), members, min_in_sync));
        }
        for (table, name) in [(1u32, "a"), (2, "b"), (3, "c")] {
            let runs = (0..4u16).map(|at| (at * 16_384, at * 16_384 + 16_383, table * 4 - 3 + u32::from(at))).collect();
            scene.put(&SlotTablePiece { table, piece: 0, pieces: 1, runs });
            scene.volume(table, name, "");
            let at = NodeId(table.min(nodes));
            scene.change_volume(table, |volume| VolumeRecord { head: at, home: at, ..volume });
            scene.0.insert(format!("layers/{table:016x}"), b"{}".to_vec());
        }
        scene
    }

    fn put(&mut self, record: &impl Record) {
        self.0.insert(record.key(), encode(record));
    }

    fn volume(&mut self, id: u32, name: &str, more: &str) {
        let text = format!(
            r#"{{"schema":7,"id":{id},"name":"{name}","pool":"fast","table":{id},"size_bytes":1048576,"block_size_bytes":512,
            "subsystem":"default","nsid":{id},"nguid":"01","family":{id},"family_seed":7,"layers":[{id}],
            "volume_epoch":1,"created_at_ns":1,"project":"default",{more}
            "head":{id},"home":{id},"state":"online"}}"#
        );
        let record = decode::<VolumeRecord>("volumes/1", text.as_bytes()).expect("a volume");
        self.put(&record);
    }

    fn change_volume(&mut self, id: u32, change: impl Fn(VolumeRecord) -> VolumeRecord) {
        let key = format!("volumes/{id:016x}");
        let record = decode::<VolumeRecord>(&key, &self.0[&key]).expect("a volume");
        self.put(&change(record));
    }

    fn change_groups(&mut self, change: impl Fn(GroupRecord) -> GroupRecord) {
        for id in 1..=12u32 {
            let key = format!("groups/{id:08x}");
            let record = decode::<GroupRecord>(&key, &self.0[&key]).expect("a group");
            self.put(&change(record));
        }
    }

    /// The node's session has ended, and its members were taken out of the sets in sync where enough are left.
    fn away(&mut self, node: u32) {
        let store = StoreId(node.into());
        self.0.remove(&format!("sessions/{store}"));
        self.change_groups(|group| {
            let is_in = group.in_sync.contains(&store);
            let in_sync: Vec<StoreId> = group.in_sync.iter().copied().filter(|member| *member != store).collect();
            // The last one is never taken out; who was one too many by then holds everything still.
            if !is_in || in_sync.is_empty() {
                return group;
            }
            let is_short = in_sync.len() < group.min_in_sync as usize;
            let eligible = if is_short { vec![store] } else { group.eligible.clone() };
            let primary = if group.primary == store { in_sync[0] } else { group.primary };
            GroupRecord { in_sync, eligible, primary, epoch: Epoch(group.epoch.0 + 1), ..group }
        });
    }

    fn back(&mut self, node: u32) {
        self.put(&SessionRecord { store: StoreId(node.into()), life: Incarnation(2), node: NodeId(node) });
    }

    fn used(&mut self, node: u32, live_bytes: u64, trouble: Option<DeviceTrouble>) {
        self.put(&StoreUsageRecord {
            store: StoreId(node.into()),
            live_bytes,
            usable_bytes: 900 * MIB,
            trouble,
            of_groups: None,
        });
    }

    fn node_duty(&mut self, node: u32, duty: NodeDuty) {
        self.put(&NodePlaceRecord { duty, ..NodePlaceRecord::unset(NodeId(node)) });
    }

    fn device_duty(&mut self, node: u32, duty: DeviceDuty) {
        self.put(&DevicePlaceRecord { duty, ..DevicePlaceRecord::unset(StoreId(node.into())) });
    }

    fn known(&self) -> Known {
        let item = |(key, value): (&String, &Vec<u8>)| {
            Arc::new(KeyValue { key: key.clone(), value: value.clone(), modified: Revision(1), lease: None })
        };
        Known::of(&Listing { revision: Revision(1), items: self.0.iter().map(item).collect() }, [])
    }

    /// All that is found; each that is not as it should be says all of it.
    fn findings(&self, looks: &Looks) -> Vec<Finding> {
        let found = findings(&self.known(), looks);
        found.iter().for_each(|one| assert_eq!(one.lacks(), [""; 0], "{one:?}"));
        found
    }

    /// All that is told, one line each.
    fn told(&self, looks: &Looks) -> Vec<String> {
        let lines = |finding: &Finding| {
            let mut lines = vec![format!("{:?}: {}", finding.severity, finding.cause)];
            lines.extend(finding.at_risk.iter().map(|loss| format!("  risk: {}", loss.text())));
            if let Some(work) = &finding.doing {
                lines.push(format!("  doing: {}", work.text));
                lines.push(format!("  ends: {}", work.end.text(looks.now_ns)));
            }
            lines.extend((!finding.remedy().is_empty()).then(|| format!("  run: {}", finding.remedy())));
            lines
        };
        self.findings(looks).iter().flat_map(lines).collect()
    }
}

#[track_caller]
fn assert_told(scene: &Scene, looks: &Looks, expected: &[&str]) {
    let told = scene.told(looks);
    assert_eq!(told, expected, "told:\n{}", told.join("\n"));
}

#[test]
fn of_a_cluster_that_is_as_it_should_be_nothing_is_told() {
    for (nodes, replicas, min_in_sync) in [(1, 1, 1), (3, 1, 1), (3, 2, 1), (3, 3, 2), (5, 3, 2)] {
        assert_told(&Scene::of(nodes, replicas, min_in_sync), &looks(), &[]);
    }
    assert!(findings(&Known::default(), &looks()).is_empty(), "an empty map");
}

#[test]
fn a_node_that_is_away_puts_what_it_shares_at_risk() {
    let mut scene = Scene::of(3, 3, 2);
    scene.away(2);
    // Its volume has gone elsewhere.
    scene.change_volume(2, |volume| VolumeRecord { head: NodeId(3), ..volume });
    let looks = Looks { away_since: BTreeMap::from([(StoreId(2), NOW - 40 * SECOND)]), ..looks() };
    assert_told(
        &scene,
        &looks,
        &[
            "AtRisk: node-2 has not been heard of for 40 s: 12 placement groups have 2 of 3 copies",
            "  risk: one more loss of node-1 or node-3 stops 3 volumes (a, b, c)",
            "  doing: nothing can be copied elsewhere: 3 copies need 3 nodes, and devices are in 2: add more, take fewer copies, \
             or a smaller failure domain",
            "  ends: when node-2 is back",
            "  run: start it again, on that machine: `cairn node run --config /etc/cairn/node.toml`",
            "Ok: volume b is served by node-3 and not by its home node-2: each command may cost a hop",
            "  doing: it stays there while node-2 is away",
            "  ends: when node-2 is back",
        ],
    );
}

#[test]
fn a_node_that_has_only_joined_is_no_fault() {
    let mut scene = Scene::of(3, 3, 2);
    scene.put(&NodeRecord { id: NodeId(4), address: "10.0.0.4:1".to_owned() });
    let (store, node, path) = (StoreId(4), NodeId(4), "/dev/4".to_owned());
    scene.put(&DeviceRecord { store, node, path, size_bytes: 1 << 30, state: DeviceState::New });
    let told = [
        "Ok: node-4 has joined and was not started yet",
        "  run: on that machine: `cairn node run --config /etc/cairn/node.toml`",
    ];
    assert_told(&scene, &looks(), &told);
}

#[test]
fn where_there_is_room_it_is_said_when_what_is_away_is_given_up() {
    let mut scene = Scene::of(5, 3, 2);
    scene.away(4);
    let mut looks = looks();
    let waits = |looks: &Looks| {
        let found = scene.findings(looks).remove(0);
        (found.doing.expect("something is done").text, found.command, found.cause)
    };
    let (text, command, cause) = waits(&looks);
    assert_eq!(text, "nothing is copied yet: what is away for 15 min is given up, and copied from others");
    assert_eq!((&command[..], &cause[..30]), ("cairn node rm node-4 --lost", "node-4 is not heard of: 8 plac"));
    looks.away_since.insert(StoreId(4), NOW - 60 * SECOND);
    assert_eq!(waits(&looks).0, "nothing is copied yet: in 14 min it is given up, and copied from others");
}

#[test]
fn two_that_are_away_stop_what_has_too_few_copies_and_others_are_not_told_as_stopped() {
    let mut scene = Scene::of(3, 3, 2);
    scene.away(2);
    scene.away(3);
    scene.change_volume(2, |volume| VolumeRecord { head: NodeId(1), home: NodeId(1), ..volume });
    scene.change_volume(3, |volume| VolumeRecord { head: NodeId(1), home: NodeId(1), ..volume });
    let told = scene.findings(&looks());
    assert_eq!(
        told[0].cause,
        "node-2 is not heard of: 12 placement groups have 1 of 3 copies; 12 of them have too few to serve (3 volumes (a, b, c))"
    );
    assert_eq!((told.len(), told[0].severity, told[1].severity), (2, Severity::Stopped, Severity::Stopped));
    // Node 3 left when two were left: it still holds all of it.
    let risks: Vec<String> = told[0].at_risk.iter().map(Loss::text).collect();
    assert_eq!(risks, ["out of service: 3 volumes (a, b, c)"]);
    let doing = told[0].doing.as_ref().expect("something is done");
    assert!(doing.text.starts_with("nothing can be copied elsewhere: "), "{}", doing.text);
}

#[test]
fn a_last_copy_is_told_before_what_would_only_stop() {
    let mut scene = Scene::of(4, 2, 1);
    scene.away(2);
    scene.change_volume(2, |volume| VolumeRecord { head: NodeId(1), home: NodeId(1), ..volume });
    let told = scene.findings(&looks());
    assert_eq!(told[0].severity, Severity::AtRisk);
    let risks: Vec<String> = told[0].at_risk.iter().map(Loss::text).collect();
    assert_eq!(risks, ["one more loss of node-1 or node-3 loses data of 3 volumes (a, b, c)"]);
    // Of volumes that have no group there nothing is told.
    scene.0.remove("volumes/0000000000000001");
    let told = scene.findings(&looks());
    assert_eq!(told[0].at_risk[0].volumes, ["b", "c"]);
    scene.change_volume(3, |volume| VolumeRecord {
        state: crate::records::VolumeState::Trashed(crate::records::TrashTerm { deleted_at_ns: 1, keep_until_ns: 2 }),
        ..volume
    });
    assert_eq!(scene.findings(&looks())[0].at_risk[0].volumes, ["b", "c in the trash"]);
}

#[test]
fn copies_kept_apart_by_device_are_lost_by_device() {
    let mut scene = Scene::of(1, 1, 1);
    // A second device on the same node: two copies, one on each.
    let device = DeviceRecord {
        store: StoreId(2),
        node: NodeId(1),
        path: "/dev/nvme1n1".to_owned(),
        size_bytes: 1 << 30,
        state: DeviceState::Active,
    };
    scene.put(&device);
    let pool = decode::<PoolRecord>("pools/fast", &scene.0["pools/fast"]).expect("a pool");
    scene.put(&PoolRecord { replicas: 2, ..pool });
    scene.change_groups(|group| GroupRecord { members: vec![StoreId(1), StoreId(2)], ..group });
    let looks = Looks { away_since: BTreeMap::from([(StoreId(2), NOW - 300 * SECOND)]), ..looks() };
    let told = scene.told(&looks);
    let first = "AtRisk: device /dev/nvme1n1 of node-1 has been away for 5 min, and its node is there: 12 placement groups \
                 have 1 of 2 copies";
    assert_eq!(told[0], first);
    assert_eq!(told[1], "  risk: one more loss of device /dev/nvme0n1 of node-1 loses data of 3 volumes (a, b, c)");
}

#[test]
fn who_catches_up_is_named_with_what_is_left_and_no_end_is_promised_that_nobody_knows() {
    let mut scene = Scene::of(3, 3, 2);
    scene.away(2);
    scene.back(2);
    let said = |speed: &str, ends: &str| {
        vec![
            "AtRisk: pool fast: 12 placement groups have 2 of 3 copies until node-2 has caught up".to_owned(),
            "  risk: one more loss of node-1 or node-3 stops 3 volumes (a, b, c)".to_owned(),
            format!("  doing: what they lack is copied: 12 placement groups left, about 120 MiB, {speed}"),
            format!("  ends: {ends}"),
            "  run: nothing to do: they catch up by themselves; how far they are: `cairn status --watch`".to_owned(),
        ]
    };
    let unknown = "when all of it is copied: in how long is told when the first of it is";
    assert_eq!(scene.told(&looks()), said("how fast is not known yet", unknown));
    let looks = Looks { rate: Some(Rate { copies: 0.5, bytes: 5 * MIB }), ..looks() };
    assert_eq!(scene.told(&looks), said("5 MiB a second", "in about 24 s"));
}

#[test]
fn maintenance_is_no_fault_and_ends() {
    let mut scene = Scene::of(3, 3, 2);
    scene.node_duty(2, NodeDuty::Maintenance { until_ns: NOW + 600 * SECOND });
    let told = scene.told(&looks());
    assert_eq!(
        told,
        [
            "Ok: node-2 is in maintenance: it may be away",
            "  doing: 4 placement groups are still led from there",
            "  ends: in about 10 min",
            "  run: when it is to work again: `cairn node undrain node-2`"
        ]
    );
    scene.away(2);
    scene.change_volume(2, |volume| VolumeRecord { head: NodeId(1), home: NodeId(1), ..volume });
    assert_told(
        &scene,
        &looks(),
        &[
            "AtRisk: node-2 is away for maintenance: 12 placement groups have 2 of 3 copies",
            "  risk: one more loss of node-1 or node-3 stops 3 volumes (a, b, c)",
            "  doing: nothing is copied meanwhile",
            "  ends: in about 10 min",
            "  run: when it is back: `cairn node undrain node-2`",
        ],
    );
}

#[test]
fn a_drain_says_what_is_left_then_what_to_run_and_why_it_is_stuck() {
    let mut scene = Scene::of(4, 3, 2);
    scene.node_duty(4, NodeDuty::Draining);
    let looks = Looks { rate: Some(Rate { copies: 0.1, bytes: 2 * MIB }), ..looks() };
    assert_told(
        &scene,
        &looks,
        &[
            "Ok: node-4 is being drained",
            "  doing: what is on it is copied elsewhere: 9 placement groups left, about 119 MiB, 1.3 MiB a second",
            "  ends: in about 90 s",
            "  run: to leave it as it is: `cairn node undrain node-4`",
        ],
    );
    let mut stuck = Scene(scene.0.clone());
    stuck.device_duty(1, DeviceDuty::Out);
    let told = stuck.told(&looks);
    let at = told.iter().position(|line| line.contains("node-4 is to be")).expect("it is told");
    assert_eq!(told[at], "Degraded: node-4 is to be drained, and cannot be");
    assert_eq!(told[at + 1], "  risk: no volume: because of this, one more loss stops nothing and loses nothing");
    assert!(told[at + 2].starts_with("  doing: nothing: pool fast: 3 copies need 3 nodes, and devices are in 2"));
    assert_eq!(told[at + 3], "  ends: when nothing is in the way any more, and all of it is copied");
    scene.change_groups(|group| {
        let members: Vec<StoreId> = (1..=3).map(StoreId).collect();
        GroupRecord { in_sync: members.clone(), primary: members[0], members, ..group }
    });
    assert_told(
        &scene,
        &looks,
        &[
            "Ok: node-4 is drained",
            "  doing: nothing is on it any more",
            "  ends: when it is removed, or taken back",
            "  run: it may leave: `cairn node rm node-4`",
        ],
    );
}

#[test]
fn a_device_is_drained_and_given_up_by_its_own_name() {
    let mut scene = Scene::of(4, 3, 2);
    scene.device_duty(4, DeviceDuty::Draining { into: None });
    let told = scene.told(&looks());
    assert_eq!(told[0], "Ok: device /dev/nvme0n1 of node-4 is being drained");
    let store = StoreId(4);
    assert_eq!(told[3], format!("  run: to leave it as it is: `cairn device undrain {store}`"));
    assert_eq!(scene.findings(&looks())[0].doing.as_ref().expect("it is").subject, "/dev/nvme0n1");
    scene.device_duty(4, DeviceDuty::Out);
    scene.away(4);
    let told = scene.told(&looks());
    let at = told.iter().position(|line| line.contains("of node-4 is given up")).expect("it is told");
    assert!(told.iter().any(|line| line.starts_with("  doing: what was on it is copied from others: 9 ")), "{told:#?}");
    assert_eq!(told[at], "AtRisk: device /dev/nvme0n1 of node-4 is given up: 9 placement groups have 2 of 3 copies");
}

#[test]
fn a_device_that_failed_stops_only_what_has_no_other_copy() {
    let failed = || Some(DeviceTrouble::Failed("a flush failed".to_owned()));
    let mut scene = Scene::of(3, 3, 2);
    scene.used(2, 120 * MIB, failed());
    let found = scene.findings(&looks());
    let said = (found.len(), found[0].severity, &found[0].cause[..]);
    assert_eq!(said, (1, Severity::Degraded, "device /dev/nvme0n1 of node-2 has failed: a flush failed"));
    // Three copies need three devices: nobody can stand in for it.
    assert_eq!(found[0].command, format!("cairn device replace {} PATH", StoreId(2)));
    let mut scene = Scene::of(5, 3, 2);
    scene.used(2, 120 * MIB, failed());
    assert_eq!(scene.findings(&looks())[0].command, format!("cairn device rm {} --lost", StoreId(2)));
    let mut scene = Scene::of(3, 1, 1);
    scene.used(2, 120 * MIB, failed());
    assert_told(
        &scene,
        &looks(),
        &[
            "Stopped: device /dev/nvme0n1 of node-2 has failed: a flush failed; 4 of them have too few to serve \
             (3 volumes (a, b, c))",
            "  risk: out of service: 3 volumes (a, b, c)",
            "  doing: nothing: nobody reads or writes there any more",
            "  ends: when it is put right and its node started again, or another device has taken its place",
            "  run: put the device right and start the node again; how it stands: `cairn device ls`",
        ],
    );
}

#[test]
fn slow_and_full_devices_are_told_by_what_nodes_say_or_by_a_closer_look() {
    let mut scene = Scene::of(3, 3, 2);
    scene.used(1, 760 * MIB, Some(DeviceTrouble::Slow("an append took 3.0 s".to_owned())));
    scene.used(3, 900 * MIB, None);
    scene.change_volume(2, |volume| VolumeRecord {
        state: crate::records::VolumeState::Trashed(crate::records::TrashTerm { deleted_at_ns: 1, keep_until_ns: 2 }),
        ..volume
    });
    assert_told(
        &scene,
        &looks(),
        &[
            "AtRisk: device /dev/nvme0n1 of node-3 is 90 % full, new blocks are refused",
            "  risk: new blocks of 2 volumes (a, c) are refused; what is written already can be written over",
            "  doing: what is discarded or deleted there is cleaned, and its space used again",
            "  ends: when less than 75 % of it is used",
            "  run: b lies in the trash, and still takes space: `cairn trash empty`",
            "Degraded: device /dev/nvme0n1 of node-1 is slow (an append took 3.0 s)",
            "  risk: writes of 2 volumes (a, c) wait for it while it is slow",
            "  doing: writes wait for it; where enough others have a copy they go on without it if it stays slow",
            "  ends: when it answers in time again, and has caught up",
            &format!(
                "  run: look at the device and what else uses it; if it stays slow, have another device take its place: \
                 `cairn device replace {} PATH`",
                StoreId(1)
            ),
            "Degraded: device /dev/nvme0n1 of node-1 is 76 % full",
            "  risk: when it is full, new blocks of 2 volumes (a, c) are refused",
            "  doing: what is discarded or deleted there is cleaned, and its space used again",
            "  ends: when less than 75 % of it is used",
            "  run: b lies in the trash, and still takes space: `cairn trash empty`",
        ],
    );
    let mut without = Scene::of(3, 3, 2);
    without.used(1, MIB, Some(DeviceTrouble::Slow("an append took 3.0 s".to_owned())));
    without.change_groups(|group| GroupRecord {
        in_sync: group.in_sync.iter().copied().filter(|store| *store != StoreId(1)).collect(),
        ..group
    });
    let told = without.findings(&looks());
    let slow = told.iter().find(|one| one.cause.contains("is slow")).expect("it is told");
    assert_eq!((slow.severity, slow.at_risk[0].harm), (Severity::AtRisk, Harm::Stops));
    assert!(slow.doing.as_ref().is_some_and(|work| work.text == "12 placement groups go on without it"), "{slow:?}");
    let look = DeviceLook { used_percent: 89, is_throttling: true, ..DeviceLook::default() };
    let looks = Looks { devices: BTreeMap::from([(StoreId(3), look)]), ..looks() };
    let told = scene.told(&looks);
    let full = "Degraded: device /dev/nvme0n1 of node-3 is 89 % full, writes wait for space to be cleaned";
    assert!(told.iter().any(|line| line == full), "{told:#?}");
}

#[test]
fn devices_that_fill_up_say_who_is_refused_and_of_whose_loss_no_copy_could_be_made() {
    let mut scene = Scene::of(5, 3, 2);
    // Volume c has nothing on node 2.
    let of_c = [StoreId(1), StoreId(4), StoreId(5)];
    scene.change_groups(|group| match group.id.0 {
        9.. => GroupRecord { members: of_c.into(), in_sync: of_c.into(), primary: of_c[0], ..group },
        _ => group,
    });
    let risks = |scene: &Scene| -> Vec<Vec<String>> {
        let found = scene.findings(&looks());
        found.iter().map(|finding| finding.at_risk.iter().map(Loss::text).collect()).collect()
    };
    // The others have room for all that one node holds.
    scene.used(2, 760 * MIB, None);
    assert_eq!(risks(&scene), [["when it is full, new blocks of 2 volumes (a, b) are refused"]]);
    scene.used(2, 900 * MIB, None);
    let refused = "new blocks of 2 volumes (a, b) are refused; what is written already can be written over";
    let of_one = "one more loss of node-1 or node-3 or node-4 or node-5 leaves 3 volumes (a, b, c) a copy short: no device has \
                  room for what was there";
    assert_eq!(risks(&scene), [[refused, of_one]], "what of a lost node comes to a device that is full finds no room");
    // Where no volume lies nobody is refused.
    let mut empty = Scene(scene.0.clone());
    (1..=2).for_each(|id| drop(empty.0.remove(&format!("volumes/{id:016x}"))));
    let found = empty.findings(&looks());
    let of_c = "one more loss of node-1 or node-3 or node-4 or node-5 leaves volume c a copy short: no device has room for what was there";
    assert_eq!((found[0].severity, risks(&empty)), (Severity::Degraded, vec![vec![of_c.to_owned()]]));
    // It is said once, where it is worst, and names nobody who is to leave.
    (1..=5).for_each(|node| scene.used(node, 780 * MIB + u64::from(node / 5) * 120 * MIB, None));
    scene.node_duty(1, NodeDuty::Draining);
    let told = risks(&scene);
    let with_room: Vec<&String> = told.iter().flatten().filter(|text| text.contains("a copy short")).collect();
    assert_eq!((told.len(), with_room.len()), (6, 1), "{told:#?}");
    assert!(
        told[0][1].starts_with("one more loss of node-2 or node-3 or node-4 or node-5 leaves 3 volumes"),
        "{told:#?}"
    );
    assert_eq!(scene.findings(&looks())[0].severity, Severity::AtRisk);
}

#[test]
fn volumes_say_what_keeps_them_from_being_used() {
    let mut scene = Scene::of(3, 3, 2);
    scene.volume(2, "b", r#""key":9,"#);
    scene.change_volume(1, |volume| VolumeRecord { head: NodeId(3), ..volume });
    scene.0.remove("layers/0000000000000003");
    assert_told(
        &scene,
        &looks(),
        &[
            "Stopped: volume c: its layer 3 is not in the map, so nobody can serve it",
            "  risk: out of service: volume c",
            "  doing: nothing: no map that lacks it is believed",
            "  ends: when a map has it",
            "  run: delete nothing, and put a map back that has it: the blocks are on the devices; how: `cairn map --help`",
            "Ok: volume b is locked: nobody can use it",
            "  run: `cairn volume unlock b`",
            "Ok: volume a is served by node-3 and not by its home node-1: each command may cost a hop",
            "  doing: it follows its hosts",
            "  ends: when a host of it has been at node-1 for 5 s",
            "  run: to have it there now: `cairn volume move a node-1`",
        ],
    );
    scene.put(&ClientsRecord { node: NodeId(2), keys: vec![types::KeyId(9)], ..ClientsRecord::default() });
    assert!(!scene.told(&looks()).iter().any(|line| line.contains("locked")));
}

#[test]
fn who_controls_and_serves_is_missed() {
    let mut scene = Scene::of(3, 3, 2);
    scene.put(&ControlRecord { node: NodeId(2), epoch: 4 });
    scene.away(2);
    let told = scene.told(&looks());
    assert_eq!(told[0], "Stopped: volume b has nobody who serves: node-2 did, and is away");
    let control = "Degraded: nobody carries out orders: node-2 did, and is away";
    assert!(told.iter().any(|line| line == control), "{told:#?}");
    // One whose only device has left the map may be there.
    scene.back(2);
    scene.change_groups(|group| {
        let members: Vec<StoreId> = [1, 3].map(StoreId).into();
        GroupRecord { in_sync: members.clone(), primary: members[0], members, ..group }
    });
    let pool = decode::<PoolRecord>("pools/fast", &scene.0["pools/fast"]).expect("a pool");
    scene.put(&PoolRecord { replicas: 2, ..pool });
    scene.0.remove(&format!("devices/{}", StoreId(2)));
    assert_told(&scene, &looks(), &[]);
}

#[test]
fn moves_for_balance_are_no_fault_and_records_that_cannot_be_read_are() {
    let mut scene = Scene::of(4, 3, 2);
    let key = "groups/00000001";
    let group = decode::<GroupRecord>(key, &scene.0[key]).expect("a group");
    let absent = (1..=4).map(StoreId).find(|store| !group.members.contains(store)).expect("one is");
    scene.put(&WantedRecord { group: group.id, members: vec![group.members[0], group.members[1], absent] });
    let told = scene.told(&looks());
    assert_eq!(told[0], "Ok: placement groups move to other devices");
    assert_eq!(told[2], "  ends: when all of it is copied: in how long is told when the first of it is");
    scene.0.insert("groups/00000001".to_owned(), br#"{"schema":99}"#.to_vec());
    let told = scene.told(&looks());
    assert!(told[0].starts_with("Degraded: nothing is moved: "), "{told:#?}");
    assert!(told[1].starts_with("  risk: one more loss is not made good meanwhile"), "{told:#?}");
    assert_eq!(told[4], "  run: start a newer program on this node; which one the others run: `cairn upgrade`");
}

// ---- releases ----------------------------------------------------------------------------------------------------------

#[test]
fn what_nodes_run_is_told_while_it_differs_and_until_it_is_finished() {
    let mut scene = Scene::of(3, 3, 2);
    let id = types::ClusterId(7);
    scene.put(&ClusterRecord { id, cluster_version: 1, finished: None, created_at_ns: 1, replicas: None });
    let runs = |scene: &mut Scene, node: u32, highest: u32| {
        let release = NodeRelease {
            name: format!("0.{highest}.0"),
            cluster_versions: Versions { lowest: 1, highest },
            ..NodeRelease::default()
        };
        let at = String::new;
        scene.put(&DoorsRecord { node: NodeId(node), nvme: at(), nbd: at(), admin: at(), pid: 1, release });
    };
    (1..=3).for_each(|node| runs(&mut scene, node, 1));
    let told = |scene: &Scene| -> Vec<String> {
        let found = scene.findings(&looks());
        found.iter().map(|finding| format!("{}: {}", finding.cause, finding.remedy())).collect()
    };
    assert_eq!(told(&scene), [""; 0]);
    runs(&mut scene, 2, 2);
    let mixed = "nodes are of several releases: node-1 and node-3 0.1.0, node-2 0.2.0: what is in the way of one for all: `cairn upgrade`";
    assert_eq!(told(&scene), [mixed]);
    [1, 3].into_iter().for_each(|node| runs(&mut scene, node, 2));
    let unfinished = "an upgrade is not finished: the cluster writes what cluster version 1 reads, and all nodes speak 2: when nothing \
                      is to be taken back any more: `cairn upgrade finish`";
    assert_eq!(told(&scene), [unfinished]);
    scene.put(&ClusterRecord { id, cluster_version: 2, finished: None, created_at_ns: 1, replicas: None });
    assert_eq!(told(&scene), [""; 0]);
}

#[test]
fn what_fails_by_itself_is_explained_without_a_map_too() {
    for look in [
        DeviceLook { trouble: Some(DeviceTrouble::Failed("a flush failed".to_owned())), ..DeviceLook::default() },
        DeviceLook { trouble: Some(DeviceTrouble::Slow("an append took 3.0 s".to_owned())), ..DeviceLook::default() },
        DeviceLook { used_percent: 76, ..DeviceLook::default() },
        DeviceLook { used_percent: 95, ..DeviceLook::default() },
    ] {
        let found = of_device("/dev/nvme0n1", &look, &Trash::new());
        assert_eq!((found.len(), found[0].lacks()), (1, Vec::new()), "{found:?}");
    }
}

#[test]
fn of_what_lies_nowhere_it_is_said_that_nothing_is_at_risk() {
    let mut scene = Scene::of(3, 3, 2);
    (1..=3).for_each(|id| drop(scene.0.remove(&format!("volumes/{id:016x}"))));
    scene.used(1, 800 * MIB, None);
    scene.away(2);
    let found = scene.findings(&looks());
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|one| one.at_risk.iter().map(|loss| loss.harm).eq([Harm::Nothing])), "{found:?}");
    assert!(found.iter().all(|one| one.severity == Severity::Degraded), "{found:?}");
}
