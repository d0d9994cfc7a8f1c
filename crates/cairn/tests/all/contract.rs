//! What scripts rely on, each sentence of it, against the real binary.

use crate::support::{Serving, TempDir, cairn, failure, refused, run};
use serde_json::json;
use std::net::TcpListener;

/// Small devices: the contract does not depend on the size.
const SMALL: [&str; 2] = ["--device-size", "512M"];

#[test]
fn a_new_directory_serves_one_volume_and_says_how_to_reach_it() {
    let temp = TempDir::new();
    let directory = temp.path().join("d");
    let demo = Serving::demo(&directory, &SMALL);
    assert!(demo.ready.contains(" admin=http://127.0.0.1:"), "{}", demo.ready);

    let info = demo.json(&["volume", "info", "demo"]);
    assert_eq!((&info["name"], &info["size_bytes"]), (&json!("demo"), &json!(1_u64 << 30)));
    assert_eq!(info["block_size_bytes"], 512);
    assert!(info["nqn"].as_str().unwrap().starts_with("nqn."), "{info}");
    assert!(info["nsid"].as_u64().unwrap() > 0);
    let nguid = info["nguid"].as_str().unwrap();
    assert!(nguid.len() == 32 && nguid.bytes().any(|digit| digit != b'0'), "{nguid}");
    let nvme = info["nvme_addresses"][0].as_str().unwrap();
    assert!(nvme.starts_with("127.0.0.1:") && !nvme.ends_with(":0"), "{nvme}");
    let nbd_uri = info["nbd_uri"].as_str().unwrap();
    assert!(nbd_uri.starts_with("nbd://127.0.0.1:") && nbd_uri.ends_with("/demo"), "{nbd_uri}");
    assert_eq!(info["nbd_uris"], json!([nbd_uri]));
    assert_eq!(demo.json(&["volume", "ls"]), json!([info]));

    let status = demo.json(&["status"]);
    assert_eq!((&status["health"], &status["reasons"]), (&json!("healthy"), &json!([])));
    for part in ["demo.toml", "lock", "map.redb", "node-1/node.toml", "node-1/device-1.img"] {
        assert!(directory.join(part).is_file(), "{part}");
    }
    assert_eq!(demo.end("TERM").code(), Some(0));
}

#[test]
fn volumes_live_as_long_as_they_are_not_deleted() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &SMALL);
    let made = demo.json(&["volume", "create", "data", "--size", "64M", "--block-size", "4096"]);
    assert_eq!((&made["size_bytes"], &made["block_size_bytes"]), (&json!(64 << 20), &json!(4096)));
    assert_eq!(demo.names(), ["data", "demo"]);
    demo.json(&["volume", "delete", "demo", "--now"]);
    assert_eq!(demo.names(), ["data"]);
    assert_eq!(demo.end("INT").code(), Some(0));

    let demo = Serving::demo(temp.path(), &[]);
    assert_eq!(demo.names(), ["data"], "what was deleted stays deleted, what was made is there");
    let again = demo.json(&["volume", "info", "data"]);
    assert_eq!((&again["nguid"], &again["nsid"], &again["nqn"]), (&made["nguid"], &made["nsid"], &made["nqn"]));
    assert_ne!(demo.end("KILL").code(), Some(0));

    let demo = Serving::demo(temp.path(), &["--cores", "2"]);
    assert_eq!(demo.names(), ["data"], "also after a kill, and on another number of cores");
}

#[test]
fn a_deleted_volume_lies_in_the_trash_until_it_is_restored_or_emptied() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &SMALL);
    let before = demo.json(&["volume", "info", "demo"]);
    let trashed = demo.json(&["volume", "delete", "demo"]);
    assert_eq!((&trashed["name"], &trashed["size_bytes"]), (&json!("demo"), &json!(1_u64 << 30)));
    assert_eq!((demo.names(), demo.json(&["trash", "ls"])), (Vec::<String>::new(), json!([trashed])));
    assert_eq!(demo.json(&["status"])["trash"], json!([trashed]));
    demo.json(&["volume", "create", "demo", "--size", "16M"]);
    assert_ne!(demo.end("KILL").code(), Some(0));

    let demo = Serving::demo(temp.path(), &[]);
    assert_eq!((demo.names(), demo.json(&["trash", "ls"])), (vec!["demo".to_owned()], json!([trashed])));
    let line = failure(&demo.run(&["trash", "restore", "demo"]), 1);
    assert!(line.contains("--as"), "{line}");
    let restored = demo.json(&["trash", "restore", "demo", "--as", "old"]);
    assert_eq!((&restored["nguid"], &restored["nsid"]), (&before["nguid"], &before["nsid"]));
    assert_eq!((demo.names(), demo.json(&["trash", "ls"])), (vec!["demo".to_owned(), "old".to_owned()], json!([])));

    for name in ["demo", "old"] {
        demo.json(&["volume", "delete", name]);
    }
    assert_eq!(demo.json(&["trash", "empty", "old"]).as_array().unwrap().len(), 1);
    assert_eq!(demo.json(&["trash", "empty"]).as_array().unwrap().len(), 1);
    assert_eq!(demo.json(&["trash", "ls"]), json!([]));
    assert_eq!(demo.end("TERM").code(), Some(0));
    let demo = Serving::demo(temp.path(), &[]);
    assert_eq!((demo.names(), demo.json(&["trash", "ls"])), (Vec::<String>::new(), json!([])));
}

#[test]
fn snapshots_clones_and_growth_outlive_a_kill() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &SMALL);
    let taken = demo.json(&["snapshot", "create", "demo@monday"]);
    assert_eq!((&taken["volume"], &taken["name"]), (&json!("demo"), &json!("monday")));
    assert_eq!(taken["size_bytes"], json!(1_u64 << 30));
    let line = failure(&demo.run(&["snapshot", "create", "demo@monday"]), 1);
    assert!(line.contains("'monday'") && line.contains("already"), "{line}");
    demo.json(&["snapshot", "create", "demo@tuesday"]);
    assert_eq!(demo.json(&["snapshot", "changes", "demo@monday", "--to", "tuesday"]), json!([]));
    let cloned = demo.json(&["clone", "demo@monday", "copy"]);
    assert_eq!((&cloned["name"], &cloned["size_bytes"]), (&json!("copy"), &json!(1_u64 << 30)));
    let larger = demo.json(&["volume", "resize", "copy", "--size", "2G"]);
    assert_eq!(larger["size_bytes"], json!(2_u64 << 30));
    let line = failure(&demo.run(&["volume", "resize", "copy", "--size", "1G"]), 1);
    assert!(line.contains("smaller"), "{line}");
    demo.json(&["snapshot", "rollback", "demo@monday"]);
    for deleted in [&["volume", "delete", "demo"][..], &["volume", "delete", "demo", "--now"]] {
        let line = failure(&demo.run(deleted), 1);
        assert!(line.contains("monday, tuesday"), "{line}");
    }
    assert_ne!(demo.end("KILL").code(), Some(0));

    let demo = Serving::demo(temp.path(), &[]);
    assert_eq!(demo.names(), ["copy", "demo"]);
    let snapshots = demo.json(&["snapshot", "ls", "demo"]);
    assert_eq!(snapshots[0], taken);
    assert_eq!((snapshots.as_array().unwrap().len(), &snapshots[1]["name"]), (2, &json!("tuesday")));
    let copy = demo.json(&["volume", "info", "copy"]);
    assert_eq!((&copy["size_bytes"], &copy["usage"]["logical_bytes"]), (&json!(2_u64 << 30), &json!(2_u64 << 30)));
    for name in ["demo@monday", "demo@tuesday"] {
        demo.json(&["snapshot", "delete", name]);
    }
    let line = failure(&demo.run(&["snapshot", "delete", "demo@monday"]), 1);
    assert!(line.contains("'monday'"), "{line}");
    demo.json(&["volume", "delete", "demo", "--now"]);
    assert_eq!(demo.names(), ["copy"]);
    assert_eq!(demo.end("TERM").code(), Some(0));
}

#[test]
fn named_volumes_are_made_once_and_must_be_what_is_there() {
    let temp = TempDir::new();
    let volumes = ["--volume", "a:64M", "--volume", "b:32M:4096"];
    let demo = Serving::demo(temp.path(), &[&SMALL[..], &volumes].concat());
    assert_eq!(demo.names(), ["a", "b"], "no other volume");
    let nguid = demo.json(&["volume", "info", "a"])["nguid"].clone();
    assert_eq!(demo.end("TERM").code(), Some(0));

    let demo = Serving::demo(temp.path(), &[&SMALL[..], &volumes, &["--volume", "c:16M"]].concat());
    assert_eq!(demo.names(), ["a", "b", "c"]);
    assert_eq!(demo.json(&["volume", "info", "a"])["nguid"], nguid);
    assert_eq!(demo.end("TERM").code(), Some(0));

    for (flags, named) in [
        (["--volume", "a:65M"], ["64M", "65M"]),
        (["--volume", "b:32M"], ["4096", "512"]),
        (["--device-size", "1G"], ["512M", "1G"]),
    ] {
        let mut command = crate::support::demo(temp.path(), &flags);
        command.env("CAIRN_LOG", "off");
        let output = refused(command);
        let line = failure(&output, 1);
        assert!(named.iter().all(|name| line.contains(name)), "{flags:?}: {line}");
    }
    let demo = Serving::demo(temp.path(), &[]);
    assert_eq!(demo.names(), ["a", "b", "c"], "a refused start changes nothing");
}

#[test]
fn a_second_process_on_the_directory_is_refused() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &SMALL);
    let second = refused(crate::support::demo(temp.path(), &[]));
    assert!(failure(&second, 1).contains("held by another process"));
    let config = temp.path().join("node-1/node.toml");
    let mut command = cairn();
    command.args(["node", "run", "--config"]).arg(&config);
    let second = refused(command);
    assert!(failure(&second, 1).contains("held by another process"));
    assert_eq!(demo.names(), ["demo"]);
}

#[test]
fn a_node_opens_the_directory_of_the_demo() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &[&SMALL[..], &["--volume", "v:16M"]].concat());
    let nguid = demo.json(&["volume", "info", "v"])["nguid"].clone();
    assert_eq!(demo.end("TERM").code(), Some(0));

    let mut command = cairn();
    command.args(["node", "run", "--config"]).arg(temp.path().join("node-1/node.toml"));
    let node = Serving::start(command);
    assert_eq!(node.json(&["volume", "info", "v"])["nguid"], nguid);
    assert_eq!(node.end("TERM").code(), Some(0));
}

#[test]
fn a_port_in_use_is_named() {
    let temp = TempDir::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for flag in ["--nvme-port", "--nbd-port", "--admin-port"] {
        let mut command = crate::support::demo(temp.path(), &[&SMALL[..], &[flag, &port]].concat());
        command.env("CAIRN_LOG", "off");
        let line = failure(&refused(command), 1);
        assert!(line.contains(&port) && line.contains("choose another port") && line.contains(flag), "{flag}: {line}");
    }
}

#[test]
fn failures_are_one_line_and_a_status() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &SMALL);
    for (arguments, status, named) in [
        (&["volume", "info", "none"][..], 1, "no volume 'none'"),
        (&["volume", "delete", "none"], 1, "no volume 'none'"),
        (&["trash", "restore", "none"], 1, "no volume 'none' in the trash"),
        (&["volume", "create", "demo", "--size", "1G"], 1, "there already"),
        (&["snapshot", "create", "demo"], 2, "VOLUME@NAME"),
        (&["snapshot", "create", "demo@A"], 2, "'A' is not a snapshot name"),
        (&["snapshot", "delete", "none@a"], 1, "no volume 'none'"),
        (&["clone", "demo@none", "x"], 1, "no snapshot 'none'"),
        (&["volume", "create", "x", "--size", "5K"], 2, "1M to 64T"),
        (&["volume", "create", "x", "--size", "1048577"], 2, "multiple of 4096"),
        (&["volume", "create", "x", "--size", "65T"], 2, "1M to 64T"),
        (&["volume", "create", "X", "--size", "1G"], 2, "not a volume name"),
        (&["volume", "create", "x"], 2, "--size"),
        (&["nonsense"], 2, "nonsense"),
        (&["--admin", "http://127.0.0.1:1", "volume", "ls"], 1, "http://127.0.0.1:1"),
    ] {
        let line = failure(&demo.run(arguments), status);
        assert!(line.contains(named), "{arguments:?}: {line}");
    }
    assert_eq!(demo.names(), ["demo"]);
}

#[test]
fn a_command_gives_up_where_nobody_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = format!("http://{}", silent.local_addr().unwrap());
    let line = failure(&run(&["--admin", &admin, "volume", "ls"]), 1);
    assert!(line.contains("within 5 s") && line.contains(&admin), "{line}");
}
