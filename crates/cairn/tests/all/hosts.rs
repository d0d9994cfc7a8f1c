//! Which NVMe hosts may use a volume, as people and scripts say it.

use crate::support::{Serving, TempDir, cairn, failure};
use serde_json::json;

const SMALL: [&str; 4] = ["--device-size", "512M", "--volume", "v:16M"];
const ONE: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
const TWO: &str = "nqn.2026-01.io.example:rack/7 is not a name";
const THREE: &str = "nqn.2026-01.io.example:rack/7%ä";

#[test]
fn hosts_are_allowed_denied_and_listed() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &SMALL);
    assert_eq!(demo.json(&["host", "ls"]), json!([{"volume": "v", "any_host": true, "hosts": []}]));
    let allowed = demo.json(&["host", "allow", "v", THREE]);
    assert_eq!(allowed, json!({"volume": "v", "any_host": false, "hosts": [THREE]}));
    let both = demo.json(&["host", "allow", "v", ONE]);
    assert_eq!(both["hosts"], json!([ONE, THREE]));
    assert_eq!(demo.json(&["volume", "info", "v"])["hosts"], both["hosts"]);
    assert_eq!(demo.json(&["host", "deny", "v", THREE])["hosts"], json!([ONE]));
    assert_eq!(demo.json(&["host", "deny", "v", THREE])["hosts"], json!([ONE]), "said twice, done once");
    let text = demo.run(&["host", "ls", "v"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.lines().any(|line| line.split_whitespace().eq(["v", ONE])), "{text}");

    let line = failure(&demo.run(&["host", "allow", "v", TWO]), 1);
    assert!(line.contains("nqn.YYYY-MM") && line.contains("any"), "{line}");
    let line = failure(&demo.run(&["host", "allow", "none", ONE]), 1);
    assert!(line.contains("there is no volume"), "{line}");
    assert_eq!(demo.json(&["host", "allow", "v", "any"])["any_host"], true);
    let line = failure(&demo.run(&["host", "deny", "v", ONE]), 1);
    assert!(line.contains("open to every host") && line.contains("cairn host allow"), "{line}");
    assert_eq!(demo.json(&["host", "deny", "v", "any"]), json!({"volume": "v", "any_host": false, "hosts": []}));
    demo.json(&["host", "allow", "v", ONE]);
    demo.json(&["snapshot", "create", "v@s"]);
    assert_eq!(demo.json(&["clone", "v@s", "copy"])["hosts"], json!([ONE]), "a copy is for the same hosts");
    assert_eq!(demo.end("KILL").code(), None);

    let demo = Serving::demo(temp.path(), &[]);
    assert_eq!(demo.json(&["volume", "info", "v"])["hosts"], json!([ONE]), "kept");
}

#[test]
fn a_node_lets_no_host_use_what_nobody_said_anything_of() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &SMALL);
    assert_eq!(demo.end("TERM").code(), Some(0));
    let config = temp.path().join("node-1/node.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains("any_host = true"), "{text}");
    std::fs::write(&config, text.replace("any_host = true\n", "")).unwrap();
    let mut command = cairn();
    command.args(["node", "run", "--config"]).arg(&config);
    let node = Serving::start(command);
    assert_eq!(node.json(&["volume", "info", "v"])["any_host"], false);
    let open = node.json(&["volume", "create", "open", "--size", "16M", "--any-host"]);
    assert_eq!((&open["any_host"], &open["hosts"]), (&json!(true), &json!([])));
    let closed = node.json(&["volume", "create", "closed", "--size", "16M"]);
    assert_eq!(closed["any_host"], false);
    assert_eq!(node.end("TERM").code(), Some(0));
}
