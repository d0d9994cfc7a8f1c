//! `cairn why`: where the time of a volume's I/O goes.

use crate::Failure;
use crate::client::Client;
use crate::output::{Format, show, table};
use node::admin::types::{OperationLatency, SlowIo, StageTimes, VolumeLatency};
use node::size::ByteSize;

pub(crate) fn run(client: &Client, volume: &str, format: Format) -> Result<(), Failure> {
    show(format, &client.latency(volume)?, text)
}

/// The stages in their order: name, what took long, what to look at.
const STAGES: [(&str, &str, &str); 5] = [
    (
        "receive",
        "the volume's limit held commands back, or the data of writes came slowly, or the core had taken on all it may",
        "`cairn volume info` shows the limits; look at the network, and at the CPU of this node (`--cores`)",
    ),
    (
        "admit",
        "commands waited for others that overlap them, for a snapshot, or for another core",
        "a guest that writes the same blocks over and over waits for itself",
    ),
    (
        "queue",
        "writes waited for the record before theirs, or for space to be cleaned",
        "`cairn status` says whether a device is slow, full or being cleaned",
    ),
    ("device", "the device took its time", "`cairn status` says whether it is slow; look at what else uses it"),
    (
        "send",
        "the host did not take its answers, or this node's CPU had much else to do",
        "look at the host and the network, and at the CPU of this node",
    ),
];

fn by_stage(times: &StageTimes) -> [u64; 5] {
    [times.receive_ns, times.admit_ns, times.queue_ns, times.device_ns, times.send_ns]
}

fn total(times: &StageTimes) -> u64 {
    by_stage(times).iter().sum()
}

/// A duration in three digits or so.
fn duration(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        1..10_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000..1_000_000 => format!("{} µs", ns / 1000),
        1_000_000..10_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

fn text(latency: &VolumeLatency) -> String {
    let VolumeLatency { volume, seconds, operations, slowest } = latency;
    let used: Vec<&OperationLatency> = operations.iter().filter(|of| of.count > 0).collect();
    if used.is_empty() {
        return format!("{volume}: no command was answered in the last {seconds} s\n");
    }
    let means: Vec<[String; 9]> = used.iter().map(|of| mean_row(of)).collect();
    let headings = ["OPERATION", "COUNT", "FAILED", "MEAN", "RECEIVE", "ADMIT", "QUEUE", "DEVICE", "SEND"];
    let rows: Vec<[String; 9]> = slowest.iter().map(slow_row).collect();
    let slow_headings = ["ENDED", "WHAT", "CORE", "TOOK", "RECEIVE", "ADMIT", "QUEUE", "DEVICE", "SEND"];
    format!(
        "{volume}: the last {seconds} s\n\n{}\nThe slowest:\n\n{}\n{}",
        table(headings, &means),
        table(slow_headings, &rows),
        verdict(slowest)
    )
}

fn mean_row(of: &OperationLatency) -> [String; 9] {
    let mean = |ns: u64| duration(ns / of.count);
    let [receive, admit, queue, device, send] = by_stage(&of.stages).map(mean);
    let counts = [of.operation.clone(), of.count.to_string(), of.failed.to_string()];
    let [operation, count, failed] = counts;
    [operation, count, failed, mean(total(&of.stages)), receive, admit, queue, device, send]
}

fn slow_row(io: &SlowIo) -> [String; 9] {
    let [receive, admit, queue, device, send] = by_stage(&io.stages).map(duration);
    let failed = if io.failed { ", failed" } else { "" };
    let what = format!("{} {} {} at {}{failed}", io.door, io.operation, ByteSize(io.length_bytes), io.offset_bytes);
    [io.ended_at.clone(), what, io.core.to_string(), duration(total(&io.stages)), receive, admit, queue, device, send]
}

/// Which stage the slowest commands were in for most of their time, and what that means.
fn verdict(slowest: &[SlowIo]) -> String {
    let mut sums = [0; 5];
    for io in slowest {
        sums.iter_mut().zip(by_stage(&io.stages)).for_each(|(sum, ns)| *sum += ns);
    }
    let all: u64 = sums.iter().sum();
    let Some((stage, most)) = sums.iter().enumerate().max_by_key(|(_, ns)| **ns) else { return String::new() };
    let percent = most.saturating_mul(100).checked_div(all).unwrap_or(0);
    let (name, why, advice) = STAGES[stage];
    format!("{percent} % of the time of the slowest went into '{name}': {why}.\n{advice}.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(stages: StageTimes) -> SlowIo {
        SlowIo {
            door: "nvme".into(),
            operation: "write".into(),
            offset_bytes: 8192,
            length_bytes: 4096,
            failed: true,
            core: 1,
            ended_at: "2026-05-04T12:00:00.000Z".into(),
            stages,
        }
    }

    #[test]
    fn the_stage_that_took_longest_is_named_with_what_to_do() {
        let stages = StageTimes { queue_ns: 9_000_000, device_ns: 1_000_000, ..StageTimes::default() };
        let of = OperationLatency { operation: "write".into(), count: 2, failed: 1, bytes: 8192, stages };
        let idle = OperationLatency { operation: "read".into(), count: 0, failed: 0, bytes: 0, stages };
        let latency =
            VolumeLatency { volume: "v".into(), seconds: 61, operations: vec![idle, of], slowest: vec![io(stages)] };
        let told = text(&latency);
        assert!(told.contains("90 % of the time of the slowest went into 'queue'"), "{told}");
        assert!(told.contains("nvme write 4K at 8192, failed"), "{told}");
        let mean = told.lines().find(|line| line.starts_with("write ")).expect("a line for writes");
        assert!(mean.contains("5.00 ms") && mean.contains("4.50 ms") && mean.contains("500 µs"), "{mean}");
        assert!(!told.contains("\nread "), "nothing of what was not asked");
    }

    #[test]
    fn a_volume_that_rests_has_nothing_to_tell() {
        let latency = VolumeLatency { volume: "v".into(), seconds: 7, operations: vec![], slowest: vec![] };
        assert_eq!(text(&latency), "v: no command was answered in the last 7 s\n");
    }

    #[test]
    fn durations_have_three_digits_or_so() {
        let told = [0, 900, 9_999, 10_000, 999_999, 1_000_000, 12_345_678, 2_000_000_000].map(duration);
        assert_eq!(told, ["-", "0.9 µs", "10.0 µs", "10 µs", "999 µs", "1.00 ms", "12.3 ms", "2.00 s"]);
    }
}
