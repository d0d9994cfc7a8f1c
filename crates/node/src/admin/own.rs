//! What the nodes of this process know of themselves and no record of the map says: each thing with what it puts at risk, what is being
//! done, until when, and what to run.

use super::health::{is_of_failed, now_ns};
use super::view::Found;
use cluster::health::{End, Finding, Harm, Loss, Severity, WATCH, Work, WorkKind};
use volume::{DeviceStatus, NodeStatus, PoolInfo};

/// What is to be done about damage of which there is another copy.
const COMPARE: &str = "what is missing is copied from others; nothing is lost if all copies agree:";
/// And where it has no room for that: what is damaged is kept until all is there.
const REPLACE: &str = "too full for what it lacks to be copied to it, so it stays damaged until it is made anew, from a device that holds nothing:";
/// Damaged places of a device that stand among the reasons; `damaged` of the device lists more.
const DAMAGED_NAMED_MAX: usize = 3;

/// What one of a node's reasons means, by how it begins: what is at risk or out of service, what is being done, until when, and what
/// to run, with what leads up to that.
struct Meaning {
    begins: &'static str,
    has: &'static str,
    risk: &'static str,
    doing: &'static str,
    until: &'static str,
    run: (&'static str, &'static str),
}

const LOG: &str = "if it stays, see this node's log:";

/// Of a copy of the map that does not count.
const UNCOPIED: &str =
    "if etcd is lost with all that is in it, the map can only be made anew of the copies that other nodes keep";

const MEANINGS: [Meaning; 8] = [
    Meaning {
        begins: "volume ",
        has: "serves nobody",
        risk: "what lies in that group is out of service: its commands wait",
        doing: "it is asked again and again, and serves as soon as enough copies are there",
        until: "enough copies are there",
        run: ("see who is away:", WATCH),
    },
    Meaning {
        begins: "volume ",
        has: "is not as the map says",
        risk: "this volume is served here as it was, or not at all",
        doing: "it is tried again",
        until: "that is done",
        run: (LOG, WATCH),
    },
    Meaning {
        begins: "host ",
        has: "reaches volume",
        risk: "that host does without the volume; nothing is lost",
        doing: "nothing by itself: one node serves a volume, and others use it there",
        until: "the host is connected there, or the others are gone",
        run: ("connect it there; who serves what:", "cairn volume ls"),
    },
    Meaning {
        begins: "no connection with node-",
        has: "",
        risk: "groups that have copies on both nodes have one less as long as that lasts",
        doing: "it is tried again and again",
        until: "both run releases that speak with each other",
        run: ("which release each of them runs:", "cairn upgrade"),
    },
    Meaning {
        begins: "node-",
        has: " keeps no copy of the cluster map: ",
        risk: UNCOPIED,
        doing: "it is tried again, after 30 s at most; changes are answered by the copies of others",
        until: "it can be written",
        run: ("make room where node.toml is, or put that disk right; whether it is over:", WATCH),
    },
    Meaning {
        begins: "node-",
        has: " keeps no copy of the cluster map any more",
        risk: UNCOPIED,
        doing: "nothing: changes are answered by the copies of others",
        until: "the node is started again",
        run: ("see this node's log, and start it again; whether it is over:", WATCH),
    },
    Meaning {
        begins: "node-",
        has: " has a copy of the cluster map that is behind",
        risk: UNCOPIED,
        doing: "it goes on copying, and the node goes on without it",
        until: "its copy holds what the map says",
        run: ("if it stays, see this node's log and start it again; whether it is over:", WATCH),
    },
    Meaning {
        begins: "",
        has: "that this node was not started with",
        risk: "these groups have a copy less, or are out of service where there is no other",
        doing: "nothing: the others serve where enough of them are there",
        until: "the node is started with these devices",
        run: ("start it with them; which there are:", "cairn device ls"),
    },
];

/// Of any other: groups that have stopped, for the reason that is told.
const STOPPED: Meaning = Meaning {
    begins: "",
    has: "",
    risk: "groups that stopped here for this have a copy less, or are out of service where it was needed",
    doing: "others serve where enough of them are there; here it waits",
    until: "the node is started again, or somebody says whose copy counts",
    run: ("see this node's log, and which groups need you:", "cairn group ls"),
};

/// All of it. Nothing is known of pools while the map does not answer.
pub(super) fn findings(node: &NodeStatus, pools: &[PoolInfo], of_map: &Found) -> Vec<Finding> {
    let copies = match pools {
        [] => Copies::Unknown,
        all if all.iter().any(|pool| pool.record.replicas > 1) => Copies::Several,
        _ => Copies::One,
    };
    let at_risk = |device: &DeviceStatus, finding: Finding| match of_map.damage.get(&device.store) {
        _ if copies == Copies::One => {
            finding.with(Loss::plain(Harm::Told("what is damaged is lost: there is no other copy")))
        }
        None if copies == Copies::Unknown => finding.with(Loss::plain(Harm::Told(UNKNOWN_COPIES))),
        found => finding.with(found.cloned()).or_no_risk(),
    };
    let said = node.reasons.iter().filter(|reason| !is_of_failed(reason, node));
    let see = |reason: &String| {
        let finding = Finding::new(Severity::Degraded, reason);
        let is_its = |device: &&DeviceStatus| reason.starts_with(&format!("{}: ", device.path.display()));
        match node.devices.iter().find(is_its) {
            Some(device) => mended(at_risk(device, finding), copies).advise(LOG, WATCH),
            None => explained(finding),
        }
    };
    let mut found: Vec<Finding> = said.map(see).collect();
    let damaged = node.devices.iter().filter(|device| device.damage > 0 && device.failed.is_none());
    found.extend(damaged.map(|device| at_risk(device, of_damage(device, copies))));
    found.extend(node.relocations.iter().map(|(name, relocation)| relocating(name, relocation)));
    if node.groups_serving < node.groups_total {
        let silent = node.groups_total - node.groups_serving;
        found.push(not_serving(silent, node.groups_total, silent <= of_map.orders));
    }
    found
}

/// Copies that there are of what lies on a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    One,
    Several,
    Unknown,
}

const UNKNOWN_COPIES: &str =
    "what is damaged has a copy less; of which volumes it is the cluster map says, which does not answer";

fn explained(finding: Finding) -> Finding {
    let is_it = |one: &&Meaning| finding.cause.starts_with(one.begins) && finding.cause.contains(one.has);
    let Meaning { risk, doing, until, run, .. } = MEANINGS.iter().find(is_it).unwrap_or(&STOPPED);
    finding.with(Loss::plain(Harm::Told(risk))).waits("", *doing, *until).advise(run.0, run.1)
}

/// With what is done about damage.
fn mended(finding: Finding, copies: Copies) -> Finding {
    match copies {
        Copies::One => finding.waits("", "nothing: there is no other copy to mend it from", "it is written over"),
        _ => finding.waits("", "what is damaged is copied from others", "all of it has been"),
    }
}

fn of_damage(device: &DeviceStatus, copies: Copies) -> Finding {
    let alone = if copies == Copies::One { " and there is no other copy" } else { "" };
    let cause = format!("{}: {} places are damaged{alone}", device.path.display(), device.damage);
    let finding = Finding::new(Severity::Stopped, cause);
    let mut advice: Vec<&str> = device.damaged.iter().take(DAMAGED_NAMED_MAX).map(String::as_str).collect();
    let is_full = device.has_no_room_to_mend || device.fill() == volume::Fill::Full;
    let (finding, what, command) = match (copies, is_full) {
        (Copies::One, _) => {
            let what = "what lies there is lost, unless there is a backup of it:";
            (mended(finding, copies), what, "cairn volume ls".to_owned())
        }
        (_, false) => (mended(finding, copies), COMPARE, "cairn check".to_owned()),
        (_, true) => {
            let finding = finding.waits("", "nothing: it has no room for a copy", "another device has taken its place");
            (finding, REPLACE, format!("cairn device replace {} PATH", device.store))
        }
    };
    advice.push(what);
    finding.advise(advice.join("; "), command)
}

/// A volume that moves to other groups; when that ends follows from how fast it went so far.
fn relocating(name: &str, relocation: &volume::Relocation) -> Finding {
    let left = relocation.total_bytes.saturating_sub(relocation.copied_bytes);
    let now_ns = now_ns();
    let passed_ns = now_ns.saturating_sub(relocation.began_at_ns);
    let end = match relocation.copied_bytes {
        0 => End::When("all of it is copied: in how long is told when the first of it is".to_owned()),
        copied => {
            let left_ns = u128::from(passed_ns) * u128::from(left) / u128::from(copied);
            End::AtNs(now_ns.saturating_add(u64::try_from(left_ns).unwrap_or(u64::MAX)))
        }
    };
    let work = Work::plain(WorkKind::Copy, name, "what it holds is copied, and hosts use it meanwhile", end);
    let finding = Finding::new(Severity::Ok, format!("volume {name} is being moved, to lie {}", relocation.to));
    let advice = "to have it stay where it is:";
    finding.doing(Work { bytes_left: left, ..work }).advise(advice, format!("cairn volume move {name} --give-up"))
}

/// Groups that serve nobody just now. Each that moves `by_order` does so for some 100 ms, twice; one that stays so is told by
/// those who wait for it.
fn not_serving(silent: usize, of: usize, by_order: bool) -> Finding {
    let (severity, harm, what, doing, end) = match by_order {
        true => (
            Severity::Degraded,
            Harm::Nothing,
            "change hands, and serve again in a moment",
            "the lead goes to another copy: commands wait, and nothing is at risk",
            "the last of them is led again",
        ),
        false => (
            Severity::Stopped,
            Harm::Told("what lies there is out of service: its commands wait"),
            "do not serve",
            "commands wait: one of the copies takes the lead by itself as soon as enough of them are there",
            "enough copies are there",
        ),
    };
    let work = Work::plain(WorkKind::Wait, "", doing, End::When(end.to_owned()));
    let finding = Finding::new(severity, format!("{silent} of {of} placement groups {what}")).with(Loss::plain(harm));
    finding.doing(Work { groups_left: silent, ..work }).advise("if it stays so, see who is away:", WATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nodes say of themselves (`volume::assembly::status`), one of each kind.
    const SAID: [&str; 10] = [
        "volume v: group 7 serves nobody, and hosts are told to wait",
        "volume 7 is not as the map says: its layer is not known",
        "host nqn.2014-08.org.example:a reaches volume v only through node 2, and node 1 serves it for other clients: connect it there too",
        "no connection with node-3: it speaks versions 1 to 2 of the protocol, and this one 3 to 4",
        "3 groups are on devices that this node was not started with: start it with them",
        "node-3 keeps no copy of the cluster map: cannot write /etc/cairn/map-copy.new (No space left on device)",
        "node-3 keeps no copy of the cluster map any more: what does so has ended",
        "node-3 has a copy of the cluster map that is behind: for more than 30 s it has not held what the map says",
        "an append failed",
        "/d/device-1.img: shard 1: group 9 lacks committed entries",
    ];

    #[test]
    fn all_that_a_node_says_of_itself_is_explained() {
        let device =
            DeviceStatus { path: "/d/device-1.img".into(), capacity_bytes: 1000, damage: 2, ..DeviceStatus::default() };
        let mut node = NodeStatus {
            reasons: SAID.map(str::to_owned).into(),
            devices: vec![device],
            groups_total: 10,
            groups_serving: 9,
            ..NodeStatus::default()
        };
        for live_bytes in [0, 950] {
            node.devices[0].live_bytes = live_bytes;
            for orders in [0, 1] {
                let found = findings(&node, &[], &Found { orders, ..Found::default() });
                assert_eq!(found.len(), SAID.len() + 2);
                found.iter().for_each(|one| assert_eq!(one.lacks(), [""; 0], "{one:?}"));
            }
        }
        let is_told = |reason: &str, risk: &str| {
            let found = findings(&node, &[], &Found::default());
            let one = found.iter().find(|one| one.cause == reason).expect("it is told");
            assert!(one.at_risk[0].text().contains(risk), "{one:?}");
        };
        is_told(SAID[0], "out of service");
        is_told(SAID[2], "nothing is lost");
        SAID[5..8].iter().for_each(|said| is_told(said, "if etcd is lost with all that is in it"));
        is_told(SAID[8], "groups that stopped here");
        is_told(SAID[9], "has a copy less");
    }

    /// What is damaged there is mended when the device is used again, and neither is said of another in its place.
    #[test]
    fn of_a_device_that_has_failed_nothing_is_said_but_that() {
        let path = std::path::PathBuf::from("/d/device-1.img");
        let damaged = DeviceStatus { path, damage: 2, ..DeviceStatus::default() };
        let failed = DeviceStatus { failed: Some("the device has failed: flush".to_owned()), ..damaged.clone() };
        let reasons = vec![SAID[SAID.len() - 1].to_owned()];
        let mut node = NodeStatus { reasons, devices: vec![failed], ..NodeStatus::default() };
        assert_eq!(findings(&node, &[], &Found::default()), []);
        node.devices.push(damaged);
        assert_eq!(findings(&node, &[], &Found::default()).len(), 2);
    }

    #[test]
    fn damage_without_another_copy_says_that_it_is_lost() {
        let device = DeviceStatus { damage: 1, ..DeviceStatus::default() };
        let found = of_damage(&device, Copies::One);
        assert!(found.cause.ends_with("there is no other copy") && found.command == "cairn volume ls", "{found:?}");
        assert!(found.doing.is_some_and(|work| work.text.starts_with("nothing: ")));
    }

    #[test]
    fn damage_that_has_no_room_to_be_mended_needs_another_device() {
        let device = DeviceStatus { damage: 1, has_no_room_to_mend: true, ..DeviceStatus::default() };
        let found = of_damage(&device, Copies::Several);
        assert!(found.command.starts_with("cairn device replace "), "{found:?}");
        assert!(found.doing.is_some_and(|work| work.text.starts_with("nothing: ")));
    }
}
