//! `cairn device check`, as scripts and people use it.

use crate::support::{Serving, TempDir, failure, run};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Output;

const DEMO: [&str; 4] = ["--device-size", "512M", "--volume", "v:16M"];
/// Slot S1 of the superblock.
const SLOT_AT: u64 = 64 << 10;

fn flip(device: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(device).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
}

fn check(device: &Path, more: &[&str]) -> (Value, Output) {
    let output = run(&[&["device", "check", device.to_str().unwrap(), "-o", "json"], more].concat());
    (serde_json::from_slice(&output.stdout).unwrap_or_default(), output)
}

#[test]
fn a_device_is_checked_repaired_and_said_to_be_damaged() {
    let temp = TempDir::new();
    let device = temp.path().join("node-1/device-1.img");
    let demo = Serving::demo(temp.path(), &DEMO);
    let path = device.to_str().unwrap();
    let line = failure(&run(&["device", "check", path]), 1);
    assert!(line.contains("in use"), "{line}");
    assert_eq!(demo.end("TERM").code(), Some(0));

    let (report, output) = check(&device, &[]);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!((&report["damaged"], &report["findings"]), (&json!(0), &json!([])));
    assert!(report["records"].as_u64() > Some(0), "{report}");
    let text = String::from_utf8(run(&["device", "check", path]).stdout).unwrap();
    assert!(text.ends_with("no damage\n"), "{text}");

    flip(&device, SLOT_AT + 200);
    let (report, output) = check(&device, &[]);
    assert_eq!((output.status.code(), &report["damaged"], &report["lost"]), (Some(1), &json!(1), &json!(0)));
    assert_eq!(report["findings"][0]["device_offset_bytes"], SLOT_AT);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--repair"), "{output:?}");

    let (report, output) = check(&device, &["--repair"]);
    assert_eq!((output.status.code(), &report["damaged"], &report["repaired"]), (Some(0), &json!(0), &json!(1)));
    assert_eq!(check(&device, &[]).0["findings"], json!([]), "it is good again");

    // The first record of the first segment that is in use: a loss, which --repair leaves alone.
    let segment = (1..512).map(|mib| mib << 20).find(|at| in_use(&device, *at)).unwrap();
    let record = segment + std::fs::metadata(&device).unwrap().blksize();
    flip(&device, record + 30);
    for more in [&[][..], &["--repair"]] {
        let (report, output) = check(&device, more);
        assert_eq!((output.status.code(), &report["findings"][0]["severity"]), (Some(1), &json!("loss")), "{report}");
        assert_eq!(report["findings"][0]["device_offset_bytes"], json!(record));
    }
    let text = run(&["device", "check", path]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("loss: segment ") && text.contains("acknowledged may be lost"), "{text}");
}

fn in_use(device: &Path, segment_at: u64) -> bool {
    let mut magic = [0; 8];
    std::fs::File::open(device).unwrap().read_exact_at(&mut magic, segment_at).unwrap();
    magic == *b"CairnSeg"
}

#[test]
fn what_is_no_device_is_refused() {
    let temp = TempDir::new();
    let path = temp.path().join("no-device");
    std::fs::write(&path, vec![7; 8 << 20]).unwrap();
    let line = failure(&run(&["device", "check", path.to_str().unwrap()]), 1);
    assert!(line.contains("not a Cairn device"), "{line}");
    let missing = temp.path().join("missing");
    failure(&run(&["device", "check", missing.to_str().unwrap()]), 1);
    failure(&run(&["device", "check"]), 2);
}
