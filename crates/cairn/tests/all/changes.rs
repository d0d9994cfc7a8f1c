//! What of a volume changes while it is served, and what the command line says where it may not.

use crate::support::{Serving, TempDir, failure, refused, run};
use serde_json::json;

const DEMO: [&str; 6] = ["--device-size", "512M", "--volume", "a:16M", "--volume", "b:16M"];

#[test]
fn a_volume_is_renamed_and_the_next_start_knows_it() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &DEMO);
    let before = demo.json(&["volume", "info", "a"]);
    let after = demo.json(&["volume", "rename", "a", "z"]);
    assert_eq!((&after["name"], &after["nsid"], &after["nguid"]), (&json!("z"), &before["nsid"], &before["nguid"]));
    assert!(after["nbd_uri"].as_str().is_some_and(|uri| uri.ends_with("/z")), "{after}");
    assert_eq!(demo.names(), ["b", "z"]);
    let line = failure(&demo.run(&["volume", "info", "a"]), 1);
    assert!(line.contains("there is no volume 'a'"), "{line}");
    let line = failure(&demo.run(&["volume", "rename", "z", "b"]), 1);
    assert!(line.contains("a volume 'b' is there already") && line.contains("another name"), "{line}");
    demo.json(&["volume", "resize", "z", "--size", "32M"]);
    assert_eq!(demo.end("TERM").code(), Some(0));

    // With the volumes of the first call: one has another name and size by now, and none is made again.
    let demo = Serving::demo(temp.path(), &DEMO);
    assert_eq!(demo.names(), ["b", "z"]);
    assert_eq!(demo.json(&["volume", "info", "z"])["nguid"], before["nguid"]);
    demo.json(&["volume", "create", "a", "--size", "16M"]);
    let trashed = demo.json(&["volume", "delete", "z"]);
    assert_eq!(trashed["name"], "z");
    assert_eq!(demo.json(&["trash", "restore", "z"])["name"], "z");
    assert_eq!(demo.names(), ["a", "b", "z"]);
    assert_eq!(demo.end("TERM").code(), Some(0));
}

#[test]
fn limits_are_set_told_kept_and_taken_away() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &DEMO);
    let of = |demo: &Serving, name: &str| demo.json(&["volume", "info", name])["limits"].clone();
    let none = json!({"iops": null, "bytes_per_second": null, "burst_ms": null});
    assert_eq!(of(&demo, "a"), none);
    demo.json(&["volume", "create", "c", "--size", "16M", "--iops", "500", "--bandwidth", "20M/s", "--burst", "2s"]);
    let all = json!({"iops": 500, "bytes_per_second": 20 << 20, "burst_ms": 2000});
    assert_eq!(of(&demo, "c"), all);
    let told = demo.run(&["volume", "set", "a", "--iops", "100"]);
    assert_eq!(String::from_utf8_lossy(&told.stdout), "a: 100 IOPS, bursts of 100ms\n");
    assert_eq!(of(&demo, "a"), json!({"iops": 100, "bytes_per_second": null, "burst_ms": 100}));
    let info = demo.run(&["volume", "info", "c"]);
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(info.contains("limits      500 IOPS and 20M/s, bursts of 2s\n") && !info.contains('\u{1b}'), "{info}");
    let line = failure(&demo.run(&["volume", "set", "b", "--burst", "1s"]), 1);
    assert!(line.contains("a burst needs a limit"), "{line}");
    assert_eq!(demo.end("TERM").code(), Some(0));

    let demo = Serving::demo(temp.path(), &[]);
    assert_eq!(of(&demo, "c"), all);
    demo.json(&["volume", "set", "c", "--iops", "none", "--bandwidth", "none"]);
    assert_eq!(of(&demo, "c"), none, "the burst goes with the last limit");
    let told = demo.run(&["volume", "set", "a", "--iops", "none"]);
    assert_eq!(String::from_utf8_lossy(&told.stdout), "a: none\n");
}

#[test]
fn an_error_says_what_is_wrong_in_units_and_names() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &DEMO);
    demo.json(&["volume", "delete", "b"]);
    demo.json(&["volume", "create", "b", "--size", "16MiB"]);
    let long = "x".repeat(1000);
    for (arguments, told, untold) in [
        (&["volume", "resize", "a", "--size", "8M"][..], "'a' has 16M and cannot become smaller (8M)", "make room"),
        (&["volume", "create", "a", "--size", "16M"], "give that one another with `cairn volume rename`", "--as"),
        (&["trash", "restore", "b"], "--as NEW", "volume rename"),
        (&["snapshot", "delete", "a@monday"], "`cairn snapshot ls a`", "VOLUME"),
        (&["snapshot", "changes", "a@monday"], "`cairn snapshot ls a`", "VOLUME"),
        (&["clone", "a@monday", "c"], "`cairn snapshot ls a`", "VOLUME"),
    ] {
        let line = failure(&demo.run(arguments), 1);
        assert!(line.contains(told) && !line.contains(untold), "{arguments:?}: {line}");
    }
    let two = refused(crate::support::demo(&temp.path().join("two"), &["--nvme-port", "5000", "--nbd-port", "5000"]));
    let line = failure(&two, 1);
    assert!(line.contains("nvme_port and nbd_port are both 5000: give each server a port of its own"), "{line}");
    let line = failure(&demo.run(&["volume", "info", &long]), 2);
    assert!(line.len() < 400, "{line}");
    let status = demo.run(&["status"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("1 copy of each block") && !status.contains('\u{1b}'), "{status}");
}

#[test]
fn a_device_that_cannot_be_checked_is_named_once_with_advice() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &DEMO);
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    for (path, told) in [
        (path("node-1/device-1.img"), "stop the node that serves it"),
        (path("node-1"), "neither a block device nor a regular file"),
        (path("nothing"), "there is nothing at"),
    ] {
        let line = failure(&run(&["device", "check", &path]), 1);
        assert!(line.contains(told) && line.matches(&path).count() == 1, "{line}");
    }
    drop(demo);
}

#[test]
fn a_locked_volume_is_told_as_locked() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &DEMO);
    let key = temp.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let key = key.to_str().unwrap();
    demo.json(&["volume", "create", "s", "--size", "16M", "--encrypt", "--key-file", key]);
    let info = |demo: &Serving| String::from_utf8_lossy(&demo.run(&["volume", "info", "s"]).stdout).into_owned();
    assert!(info(&demo).contains("nvme connect"));
    demo.json(&["volume", "lock", "s"]);
    let told = info(&demo);
    assert!(told.contains("cairn volume unlock s") && !told.contains("nvme connect"), "{told}");
    let list = String::from_utf8_lossy(&demo.run(&["volume", "ls"]).stdout).into_owned();
    let of = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(of("s ").contains(" locked ") && of("a ").contains(" no "), "{list}");
}
