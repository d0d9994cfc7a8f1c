//! `cairn bench layers`: what each layer costs, from the device's file to three copies on the same medium, one difference at a time.

use super::clusters::{contestant, set_media};
use super::lab::{Directory, Lab, Process, Shape, device_file, make_volume, program, volume_of, wait_until};
use super::own::OwnArguments;
use crate::Failure;
use crate::bench_target::{self, Wish};
use crate::client::Client;
use measure::MeasureError;
use measure::fio::{Fio, FioResult, Flow, Latency, Times};
use measure::machine::{Processes, Use};
use measure::profile::Case;
use measure::record::Layer;
use measure::run::{Contestant, Plan};
use measure::setting::Setting;
use measure::target::Door;
use node::admin::pool_types::{ChangePool, CreatePool};
use node::admin::types::{Compression, CreateVolume, Secret, SecretKind};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

/// All of it is led from here, so that every layer but `remote head` is asked where it lies.
const HOME: &str = "node-1";
const ELSEWHERE: usize = 2;
/// A device holds all volumes, snapshots, and room to clean.
const DEVICE_SPANS: u64 = 14;
const DEVICE_BYTES_MIN: u64 = 512 << 20;
const KEY: &str = "a key that protects nothing but a benchmark";
/// How compressible the bytes are that compression is given.
const COMPRESSIBLE: &str = "buffer_compress_percentage=50";
/// What runs the store with no server around it.
const STORE_PROGRAM: &str = "cairn-bench";
/// What an earlier snapshot held is given back meanwhile.
const AFTER_SNAPSHOT: Duration = Duration::from_millis(300);

/// What lives as long as anything is measured.
pub(super) struct Layers {
    _one: Process,
    lab: Lab,
    _directory: Directory,
}

/// Makes all of it: whom to measure, from the bottom up. `told` hears of what is left out.
pub(super) fn make(
    arguments: &OwnArguments,
    plan: &Plan,
    fio: &Fio,
    told: &mut dyn FnMut(&str),
) -> Result<(Layers, Vec<Contestant>), Failure> {
    let place = arguments.place();
    let directory = Directory::new(&place)?;
    let span = plan.span_bytes;
    let shape = Shape {
        nodes: 3,
        replicas: 3,
        device_bytes: (DEVICE_SPANS * span).max(DEVICE_BYTES_MIN),
        is_allocated: !plan.quick,
    };
    let mut all = vec![device(directory.path(), plan, fio, &arguments.engine)?];
    match store(directory.path(), plan) {
        Some(_) if plan.rate.is_some() => told("the store alone is left out: its load generator has no rate"),
        Some(store) => all.push(store),
        None => told(&format!("the store alone is left out: {STORE_PROGRAM} is not beside this program")),
    }
    let under_node = all[all.len() - 1].name.clone();
    told("starting a cluster of one node");
    let (one, client) = one_node(directory.path(), shape.device_bytes, plan)?;
    let wish = Wish::of_own(span, bench_target::DEFAULT_ENGINE);
    let (mut contestant, _) = bench_target::cairn(VOLUME, None, None, &client, &wish)?;
    contestant.watch.processes = Processes::under(vec![one.id()]);
    all.push(layer(contestant, "one node", Some(&under_node)));
    told("starting a cluster of three nodes");
    let lab = Lab::new(&place, shape, false)?;
    for (pool, replicas) in [("one", 1), ("two", 2), ("lz4", 3)] {
        lab.client(1).create_pool(&pool_of(pool, replicas))?;
    }
    let change = ChangePool { compression: Some(Compression::Lz4), ..ChangePool::default() };
    lab.client(1).change_pool("lz4", &change)?;
    lab.wait_until_whole()?;
    on_three_nodes(&lab, span, &mut all)?;
    Ok((Layers { _one: one, lab, _directory: directory }, all))
}

impl Layers {
    /// Whoever is measured runs until here.
    pub(super) fn end(self) {
        drop(self.lab);
    }
}

const VOLUME: &str = "bench";

fn on_three_nodes(lab: &Lab, span: u64, all: &mut Vec<Contestant>) -> Result<(), Failure> {
    let client = Rc::new(lab.client(1));
    let mut add = |name: &str, over: &str, wanted: &CreateVolume| -> Result<usize, Failure> {
        all.push(layer(contestant(lab, &client, wanted)?, name, Some(over)));
        Ok(all.len() - 1)
    };
    let plain = |name: &str, pool: Option<&str>| volume_of(name, span, pool, Some(HOME));
    add("one copy", "one node", &plain("one", Some("one")))?;
    add("two copies", "one copy", &plain("two", Some("two")))?;
    add("three copies", "two copies", &plain("three", Some("default")))?;
    let elsewhere = add("remote head", "three copies", &plain("remote", Some("default")))?;
    let secret = Secret { kind: SecretKind::Passphrase, hex: hex(KEY).into() };
    let encrypted = CreateVolume { secret: Some(secret), ..plain("encrypted", Some("default")) };
    add("encrypted", "three copies", &encrypted)?;
    let compressed = add("lz4", "three copies", &plain("compressed", Some("lz4")))?;
    let fresh = add("fresh", "three copies", &plain("fresh", Some("default")))?;
    let snapshot = add("after a snapshot", "three copies", &plain("layered", Some("default")))?;

    let contestant = &mut all[elsewhere];
    contestant.doors = vec![Door::Nbd { uri: lab.nbd_uri(ELSEWHERE, "remote") }];
    contestant.setting.set("locality", "same-machine, by a node that does not lead it");
    contestant.about.insert("asked at".to_owned(), format!("node-{ELSEWHERE}"));

    let contestant = &mut all[compressed];
    contestant.job_lines = vec![COMPRESSIBLE.to_owned()];
    contestant.setting.set("fill", "all of the span, in order, 1 MiB each, half of each block random");

    let contestant = &mut all[fresh];
    contestant.is_filled = false;
    contestant.setting.set("fill", "nothing: each case begins with a volume that holds nothing");
    let (its, wanted) = (client.clone(), plain("fresh", Some("default")));
    contestant.before_each = Some(Box::new(move || {
        let anew = || its.delete_volume(&wanted.name).and_then(|()| make_volume(&its, &wanted));
        anew().map(drop).map_err(|failure| MeasureError::Target(failure.line().to_owned()))
    }));

    let contestant = &mut all[snapshot];
    contestant
        .setting
        .set("fill", "all of the span, in order, 1 MiB each, random bytes; then a snapshot before each case");
    let mut number = 0_u32;
    contestant.before_each = Some(Box::new(move || {
        let mut anew = || {
            if number > 0 {
                client.delete_snapshot("layered", &format!("s{number}"))?;
            }
            number += 1;
            client.create_snapshot("layered", &format!("s{number}")).map(drop)
        };
        anew().map_err(|failure| MeasureError::Target(failure.line().to_owned()))?;
        std::thread::sleep(AFTER_SNAPSHOT);
        Ok(())
    }));
    Ok(())
}

fn pool_of(name: &str, replicas: u32) -> CreatePool {
    CreatePool {
        name: name.to_owned(),
        replicas,
        min_in_sync: None,
        failure_domain: None,
        class: None,
        placement: None,
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn layer(mut contestant: Contestant, name: &str, over: Option<&str>) -> Contestant {
    name.clone_into(&mut contestant.name);
    contestant.layer = Some(Layer { name: name.to_owned(), over: over.map(str::to_owned) });
    contestant
}

/// A file beside those of the devices.
fn device(directory: &Path, plan: &Plan, fio: &Fio, engine: &str) -> Result<Contestant, Failure> {
    let path = directory.join("raw.img");
    device_file(&path, plan.span_bytes, !plan.quick)?;
    let (contestant, _) = bench_target::file(&path, &Wish::of_own(plan.span_bytes, engine), fio, None)?;
    Ok(layer(contestant, "device", None))
}

/// One node that is a process of its own: its map is a file, and nobody but itself has a copy.
fn one_node(directory: &Path, device_bytes: u64, plan: &Plan) -> Result<(Process, Rc<Client>), Failure> {
    let (home, log) = (directory.join("one"), directory.join("one.log"));
    let mut command = Command::new(program()?);
    command.arg("demo").arg("--dir").arg(&home).args(["--device-size", &device_bytes.to_string()]);
    command.args(["--volume", &format!("{VOLUME}:{}:4096", plan.span_bytes)]);
    command.args(["--nvme-port", "0", "--nbd-port", "0", "--admin-port", "0"]);
    let process = Process::start(command, &log)?;
    let mut admin = None;
    wait_until("a node of its own is ready", super::lab::START_MAX, || {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let ready = said.lines().find_map(|line| line.strip_prefix("ready "));
        admin = ready
            .and_then(|ready| Some(ready.split_whitespace().find_map(|word| word.strip_prefix("admin="))?.to_owned()));
        admin.is_some()
    })?;
    Ok((process, Rc::new(Client::new(&admin.expect("it was waited for")))))
}

/// The store with nothing around it, by the load generator that is made for it; none: that is not there.
fn store(directory: &Path, plan: &Plan) -> Option<Contestant> {
    let program = std::env::current_exe().ok()?.parent()?.join(STORE_PROGRAM);
    if !program.exists() {
        return None;
    }
    let mut setting = Setting::default();
    for (field, value) in [
        ("copies", "1"),
        ("min-in-sync", "1"),
        ("nodes", "none"),
        ("node-cores", "1, which the load shares"),
        ("placement", "none"),
        ("limits", "none"),
        ("durability", "each-write"),
        ("checksums", "crc32c"),
        ("encryption", "none"),
        ("compression", "off"),
        ("cache", "none"),
        ("locality", "same-process"),
        ("fill", "all of the span, in order, 64 KiB each, random bytes"),
        ("fio", "none: cairn-bench store"),
    ] {
        setting.set(field, value);
    }
    set_media(&mut setting, directory);
    let about = BTreeMap::from([("engine".to_owned(), format!("{STORE_PROGRAM}: the load is in the store's process"))]);
    let mut contestant = Contestant::new(String::new(), Vec::new(), setting, about, Default::default());
    contestant.is_filled = false;
    let (span, is_allocated, file) = (plan.span_bytes, !plan.quick, directory.join("store.img"));
    contestant.own_load =
        Some(Box::new(move |ask, _| load_store(&program, &file, (span, is_allocated), &ask.case, ask.times)));
    Some(layer(contestant, "store", Some("device")))
}

/// What `cairn-bench store` prints.
#[derive(Deserialize)]
struct StoreResult {
    operations: u64,
    iops: f64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    cpu: StoreCpu,
}

#[derive(Deserialize)]
struct StoreCpu {
    machine_cores: f64,
    process_cores: Vec<f64>,
}

fn load_store(
    program: &Path,
    file: &PathBuf,
    (span, is_allocated): (u64, bool),
    case: &Case,
    times: Times,
) -> Result<(FioResult, Option<Use>), MeasureError> {
    let failed = |why: String| MeasureError::Target(format!("{STORE_PROGRAM} store: {why}"));
    let _ = std::fs::remove_file(file);
    let bytes = (4 * span).max(DEVICE_BYTES_MIN);
    device_file(file, bytes, is_allocated).map_err(|failure| failed(failure.line().to_owned()))?;
    let reads = case.read_percent > 0;
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    let mut command = Command::new(program);
    command.args(["--depth", &case.depth.to_string(), "--seconds", &seconds(times.measured)]);
    command.args(["--warm-up", &seconds(times.warm_up), "--pattern", if reads { "read" } else { "write" }]);
    command.arg("store").arg(file).args(["--span", &span.to_string()]);
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let _ = std::fs::remove_file(file);
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let result: StoreResult = serde_json::from_slice(&output.stdout)
        .map_err(|error| failed(format!("its result cannot be read ({error}): build both anew")))?;
    Ok(of_store(&result, case, times))
}

fn of_store(result: &StoreResult, case: &Case, times: Times) -> (FioResult, Option<Use>) {
    let StoreResult { mean_us, p50_us, p90_us, p99_us, p999_us, max_us, .. } = *result;
    let flow = Flow {
        iops: result.iops,
        mib_per_second: result.iops * case.block_size_bytes as f64 / f64::from(1 << 20),
        ios: result.operations,
        latency: Latency { mean_us, p50_us, p90_us, p99_us, p999_us, max_us },
        histogram: Vec::new(),
    };
    let spent = Use {
        seconds: times.measured.as_secs_f64(),
        machine_cores: result.cpu.machine_cores,
        processes: Vec::new(),
        client_cores: result.cpu.process_cores.first().copied(),
        device_write_bytes_per_second: None,
        device_read_bytes_per_second: None,
        network_bytes_per_second: None,
    };
    let reads = case.read_percent > 0;
    let (read, write) = if reads { (Some(flow.clone()), None) } else { (None, Some(flow.clone())) };
    (FioResult { all: flow, read, write, sync: None }, Some(spent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::profile::Profile;

    #[test]
    fn what_the_store_says_is_a_result_like_others() {
        let said = r#"{"operations": 10, "iops": 1000.0, "mean_us": 1.0, "p50_us": 1.0, "p90_us": 2.0, "p99_us": 3.0,
            "p999_us": 4.0, "max_us": 5.0, "cpu": {"machine_cores": 1.5, "process_cores": [0.5]}, "more": 1}"#;
        let result: StoreResult = serde_json::from_str(said).unwrap();
        let times = Times { warm_up: Duration::ZERO, measured: Duration::from_secs(1) };
        let cases = Profile::named("layers").unwrap().cases(false);
        let (result, spent) = of_store(&result, &cases[0], times);
        assert!(result.write.is_none() && result.read.unwrap().ios == 10);
        assert_eq!(spent.unwrap().client_cores, Some(0.5));
        assert!((result.all.mib_per_second - 1000.0 * 4096.0 / 1_048_576.0).abs() < 1e-9);
        // A program that does not say all is none to be guessed at.
        assert!(serde_json::from_str::<StoreResult>(r#"{"operations": 10}"#).is_err());
    }
}
