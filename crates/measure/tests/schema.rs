//! docs/bench.md describes the JSON: every field that there is, and none that is not.

use measure::fio::{Bucket, Flow, Latency};
use measure::machine::{ProcessUse, Use};
use measure::profile::Profile;
use measure::record::{CaseRecord, FORMAT, Layer, Moment, Record, Sample, TargetRecord, VERSION};
use measure::series::{Failure, HostLoad, Io, Log, Mark, Times};
use measure::setting::{FIELDS, Setting};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const DOCS: &str = include_str!("../../../docs/bench.md");

/// A record that has everything.
fn record() -> Record {
    let latency = Latency { mean_us: 1.0, p50_us: 1.0, p90_us: 1.0, p99_us: 1.0, p999_us: 1.0, max_us: 1.0 };
    let histogram = vec![Bucket { up_to_us: 1.0, ios: 1 }];
    let flow = || Flow { iops: 1.0, mib_per_second: 1.0, ios: 1, latency, histogram: histogram.clone() };
    let spent = Use {
        seconds: 1.0,
        machine_cores: 1.0,
        processes: vec![ProcessUse { name: "x".to_owned(), count: 1, cores: 1.0, resident_bytes: 1 }],
        client_cores: Some(1.0),
        device_write_bytes_per_second: Some(1.0),
        device_read_bytes_per_second: Some(1.0),
        network_bytes_per_second: Some(1.0),
    };
    let sample = Sample {
        all: flow(),
        read: Some(flow()),
        write: Some(flow()),
        sync: Some(latency),
        moments: vec![Moment::new(1.0, &spent)],
        spent: Some(spent),
        ping_pong_per_second: 1.0,
    };
    let io = Io { at_us: 10, latency_us: 10, writes: true, failed: false };
    let log = Log { ios: vec![io], seconds: 1.0, unanswered: Vec::new() };
    let times =
        Times { fault_seconds: 0.1, noticed_seconds: Some(0.2), mended_seconds: Some(0.3), whole_seconds: Some(0.5) };
    let load = HostLoad { generator: "x".to_owned(), block_size_bytes: 4096, read_percent: 50, depth: 1 };
    let marks = vec![Mark { at_seconds: 0.1, what: "x".to_owned() }];
    let case = Profile::named("eight").unwrap().cases(false)[0].clone();
    Record {
        format: FORMAT.to_owned(),
        version: VERSION,
        profile: "eight".to_owned(),
        quick: false,
        started_unix_seconds: 1,
        repeats: 1,
        targets: vec![TargetRecord {
            target: "x".to_owned(),
            setting: Setting::default(),
            about: BTreeMap::new(),
            cases: vec![CaseRecord::new(case, vec![sample])],
            layer: Some(Layer { name: "x".to_owned(), over: Some("y".to_owned()) }),
            failure: Some(Failure::new("x", load, times, marks, &log)),
            link_bits_per_second: Some(1),
        }],
    }
}

fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            into.insert(key.clone());
            // Its keys are names of processes.
            if key != "process_cpu_us_per_io" {
                keys(value, into);
            }
        }),
        Value::Array(all) => all.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

/// What stands between these, without the first.
fn part<'a>(begin: &str, end: &str) -> &'a str {
    let (_, rest) = DOCS.split_once(begin).unwrap_or_else(|| panic!("docs/bench.md has no '{begin}'"));
    rest.split_once(end).unwrap_or_else(|| panic!("docs/bench.md has no '{end}' behind it")).0
}

/// Words that are set as code.
fn words(text: &str) -> BTreeSet<&str> {
    let code = text.split('`').skip(1).step_by(2);
    code.flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-')).collect()
}

#[test]
fn every_field_is_described_and_none_that_is_not_there() {
    let mut there = BTreeSet::new();
    keys(&serde_json::to_value(record()).unwrap(), &mut there);
    let described = part("The JSON has", "## The setting");
    let told = words(described);
    let silent: Vec<&String> = there.iter().filter(|key| !told.contains(key.as_str())).collect();
    assert!(silent.is_empty(), "docs/bench.md says nothing of {silent:?}");
    let rows = described.lines().filter(|line| line.starts_with("| `") || line.starts_with("| …"));
    let names: BTreeSet<&str> = rows.flat_map(|row| words(row.split('|').nth(1).unwrap())).collect();
    let none: Vec<&&str> = names.iter().filter(|name| !name.is_empty() && !there.contains(**name)).collect();
    assert!(none.is_empty(), "docs/bench.md describes {none:?}, which no record has");
    assert!(names.len() > 30, "the tables are read: {names:?}");
}

#[test]
fn the_version_and_every_field_of_the_setting_are_described() {
    let described = words(part("## The setting", "Published figures stand"));
    let silent: Vec<&str> = FIELDS.iter().map(|(field, _)| *field).filter(|field| !described.contains(field)).collect();
    assert!(silent.is_empty(), "docs/bench.md says nothing of {silent:?}");
    assert!(DOCS.contains(&format!("`format` = `{FORMAT}` and `version` = {VERSION}")));
}

#[test]
fn every_profile_is_described() {
    let rows = part("## Profiles\n", "## Profiles with clusters");
    for profile in measure::profile::PROFILES {
        assert!(rows.contains(&format!("| `{}` |", profile.name)), "docs/bench.md says nothing of {}", profile.name);
    }
}
