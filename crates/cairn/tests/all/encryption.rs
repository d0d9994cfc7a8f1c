//! Encrypted volumes and compression, as scripts use them, against the real binary.

use crate::support::{Serving, TempDir, cairn, failure};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const SMALL: [&str; 2] = ["--device-size", "512M"];

struct Secrets(TempDir);

impl Secrets {
    fn new() -> Self {
        Self(TempDir::new())
    }

    /// A file with these bytes.
    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn key(&self, byte: u8) -> String {
        self.file(&format!("key-{byte}"), &[byte; 32])
    }
}

fn is_locked(demo: &Serving, name: &str) -> bool {
    let info = demo.json(&["volume", "info", name]);
    assert_eq!(info["encrypted"], json!(true));
    info["locked"].as_bool().unwrap()
}

fn create(demo: &Serving, name: &str, key: &str) {
    let made = demo.json(&["volume", "create", name, "--size", "16M", "--encrypt", "--key-file", key]);
    assert_eq!((&made["encrypted"], &made["locked"]), (&json!(true), &json!(false)));
}

#[test]
fn an_encrypted_volume_is_locked_after_a_start_and_its_key_file_unlocks_it() {
    let (temp, secrets) = (TempDir::new(), Secrets::new());
    let (key, other) = (secrets.key(b'k'), secrets.key(b'o'));
    let demo = Serving::demo(temp.path(), &SMALL);
    create(&demo, "v", &key);
    demo.json(&["snapshot", "create", "v@s"]);
    demo.json(&["clone", "v@s", "copy"]);
    assert_eq!(demo.json(&["volume", "info", "demo"])["encrypted"], json!(false));
    assert_eq!(demo.end("TERM").code(), Some(0));

    let demo = Serving::demo(temp.path(), &[]);
    assert!(is_locked(&demo, "v") && is_locked(&demo, "copy"));
    assert_eq!(demo.json(&["status"])["volumes_locked"], json!(["copy", "v"]));
    let status = String::from_utf8(demo.run(&["status"]).stdout).unwrap();
    assert!(status.contains("2 locked (copy, v)"), "{status}");
    let line = failure(&demo.run(&["volume", "unlock", "v", "--key-file", &other]), 1);
    assert!(line.contains("not the one that opens this volume"), "{line}");
    assert!(is_locked(&demo, "v"));
    demo.json(&["volume", "unlock", "copy", "--key-file", &key]);
    assert!(!is_locked(&demo, "v") && !is_locked(&demo, "copy"), "a family has one key");
    demo.json(&["volume", "lock", "v"]);
    assert!(is_locked(&demo, "v") && is_locked(&demo, "copy"));
    let line = failure(&demo.run(&["volume", "lock", "demo"]), 1);
    assert!(line.contains("'demo' is not encrypted"), "{line}");
    assert_ne!(demo.end("KILL").code(), Some(0));

    let demo = Serving::demo(temp.path(), &["--key-file", &other, "--key-file", "/nowhere/key", "--key-file", &key]);
    assert!(!is_locked(&demo, "v") && !is_locked(&demo, "copy"), "one of three key files opens them");
    assert_eq!(demo.end("TERM").code(), Some(0));
    let demo = Serving::demo(temp.path(), &[]);
    assert!(is_locked(&demo, "v"), "where the key file is was not written down");
}

#[test]
fn the_configuration_of_a_node_names_its_key_files() {
    let (temp, secrets) = (TempDir::new(), Secrets::new());
    let demo = Serving::demo(temp.path(), &SMALL);
    create(&demo, "v", &secrets.key(b'k'));
    assert_eq!(demo.end("TERM").code(), Some(0));
    let config = temp.path().join("node-1/node.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("key_files = [\"the.key\"]\n{text}")).unwrap();
    let start = || {
        let mut command = cairn();
        command.arg("node").arg("run").arg("--config").arg(&config);
        Serving::start(command)
    };
    let node = start();
    assert!(is_locked(&node, "v"), "it starts without the file, too");
    assert_eq!(node.end("TERM").code(), Some(0));
    std::fs::copy(secrets.key(b'k'), temp.path().join("node-1/the.key")).unwrap();
    assert!(!is_locked(&start(), "v"));
}

#[test]
fn what_opens_a_volume_can_be_changed_by_who_knows_it() {
    let (temp, secrets) = (TempDir::new(), Secrets::new());
    let (old, new) = (secrets.key(b'1'), secrets.key(b'2'));
    let phrase = secrets.file("phrase", b"open sesame\n");
    let demo = Serving::demo(temp.path(), &SMALL);
    create(&demo, "v", &old);
    let opens = |flag: &str, secret: &str| demo.run(&["volume", "unlock", "v", flag, secret]);
    let rekey = |arguments: &[&str]| demo.run(&[&["volume", "rekey", "v"], arguments].concat());

    assert!(rekey(&["--key-file", &old, "--new-key-file", &new]).status.success());
    let line = failure(&opens("--key-file", &old), 1);
    assert!(line.contains("key file is not the one"), "{line}");
    assert!(opens("--key-file", &new).status.success());
    failure(&rekey(&["--key-file", &old, "--new-key-file", &old]), 1);

    let line = failure(&opens("--passphrase-file", &phrase), 1);
    assert!(line.contains("opens with a key file, not with a passphrase"), "{line}");
    assert!(rekey(&["--key-file", &new, "--new-passphrase-file", &phrase, "--add"]).status.success());
    assert!(opens("--key-file", &new).status.success() && opens("--passphrase-file", &phrase).status.success());
    assert!(rekey(&["--key-file", &new, "--remove"]).status.success());
    failure(&opens("--key-file", &new), 1);
    let line = failure(&rekey(&["--passphrase-file", &phrase, "--remove"]), 1);
    assert!(line.contains("only secret"), "{line}");
    let line = failure(&rekey(&["--passphrase-file", &phrase, "--new-passphrase-file", &phrase]), 1);
    assert!(line.contains("already"), "{line}");

    let mut piped = cairn();
    piped.env("CAIRN_ADMIN", &demo.admin).args(["volume", "unlock", "v", "--passphrase-file", "-"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"open sesame").unwrap();
    assert!(child.wait().unwrap().success(), "a passphrase from standard input");
    assert_eq!(demo.end("TERM").code(), Some(0));

    let demo = Serving::demo(temp.path(), &[]);
    failure(&demo.run(&["volume", "unlock", "v", "--key-file", &old]), 1);
    demo.json(&["volume", "unlock", "v", "--passphrase-file", &phrase]);
    assert!(!is_locked(&demo, "v"));
}

#[test]
fn a_secret_that_cannot_be_is_refused_before_anything_is_made() {
    let (temp, secrets) = (TempDir::new(), Secrets::new());
    let demo = Serving::demo(temp.path(), &SMALL);
    for (flag, path, named) in [
        ("--key-file", secrets.file("short", &[1; 31]), "32 to 65536"),
        ("--key-file", secrets.file("long", &[1; 65_537]), "more than 65536 bytes"),
        ("--passphrase-file", secrets.file("word", b"sesame\n"), "8 to 1024"),
        ("--key-file", "/nowhere/key".to_owned(), "nothing is there"),
    ] {
        let line = failure(&demo.run(&["volume", "create", "v", "--size", "16M", "--encrypt", flag, &path]), 1);
        assert!(line.contains(named), "{line}");
    }
    assert_eq!(demo.names(), ["demo"]);
    let largest = secrets.file("largest", &[7; 65_536]);
    create(&demo, "v", &largest);
    demo.json(&["volume", "rekey", "v", "--key-file", &largest, "--new-key-file", &secrets.key(b'2')]);
}

#[test]
fn the_cryptographic_library_is_part_of_the_binary() {
    let listed = std::process::Command::new("ldd").arg(cairn().get_program()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("libc.so") && !listed.contains("libcrypto") && !listed.contains("libssl"), "{listed}");
}

#[test]
fn a_pool_is_told_how_to_compress_and_remembers() {
    let temp = TempDir::new();
    let demo = Serving::demo(temp.path(), &[&SMALL[..], &["--compression", "lz4"]].concat());
    let compression = |demo: &Serving| {
        let pools = demo.json(&["pool", "ls"]);
        assert_eq!(demo.json(&["pool", "info", "default"]), pools[0]);
        assert_eq!(demo.json(&["status"])["pools"], pools);
        assert_eq!(demo.json(&["volume", "info", "demo"])["compression"], pools[0]["compression"]);
        pools[0]["compression"].as_str().unwrap().to_owned()
    };
    assert_eq!(compression(&demo), "lz4");
    assert_eq!(demo.json(&["pool", "set", "default", "--compression", "zstd"])["compression"], json!("zstd"));
    assert_eq!(compression(&demo), "zstd");
    let line = failure(&demo.run(&["pool", "set", "none", "--compression", "off"]), 1);
    assert!(line.contains("'none'") && line.contains("pool ls"), "{line}");
    assert_eq!(demo.end("KILL").code(), None);
    assert_eq!(compression(&Serving::demo(temp.path(), &[])), "zstd");
    assert!(Path::new(temp.path()).join("map.redb").is_file());
}
