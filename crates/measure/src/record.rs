//! What is kept of a measurement. docs/bench.md describes the format; a change of meaning is a new version.

use crate::MeasureError;
use crate::fio::{Flow, Latency};
use crate::machine::Use;
use crate::profile::Case;
use crate::series::Failure;
use crate::setting::Setting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What the file says that it is.
pub const FORMAT: &str = "cairn-bench";
/// Of the format. 2: more fields in the setting, spreads of latencies, network bytes only of a network that leads to the storage.
pub const VERSION: u32 = 2;

/// One command's measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// `cairn-bench`.
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The profile.
    pub profile: String,
    /// Whether times and sizes were shortened: such figures only show that it works.
    pub quick: bool,
    /// When it began, seconds since 1970.
    pub started_unix_seconds: u64,
    /// Times each case was measured.
    pub repeats: usize,
    /// What was measured, each on its own.
    pub targets: Vec<TargetRecord>,
}

/// One target's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetRecord {
    /// As the command line names it.
    pub target: String,
    /// What must be alike to be compared.
    pub setting: Setting,
    /// What may differ: versions, engine, placement.
    pub about: BTreeMap<String, String>,
    /// What was measured, in order.
    pub cases: Vec<CaseRecord>,
    /// Which step of a ladder it is: set in relation to the step that it stands on, and compared with the same step alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    /// What came of a failure, in place of cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Bits per second of each node's link, each way, if it was limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bits_per_second: Option<u64>,
}

/// A step of a ladder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// What it is called.
    pub name: String,
    /// The step that it stands on; none: the first.
    pub over: Option<String>,
}

/// What the machine spent over one moment of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// When it ended, seconds since the warm-up was over.
    pub at_seconds: f64,
    /// CPU cores busy on the whole machine.
    pub machine_cores: f64,
    /// CPU cores of the target's processes, if they are known.
    pub target_cores: Option<f64>,
    /// CPU cores of the load generator.
    pub client_cores: Option<f64>,
    /// Memory of the target's processes, if they are known.
    pub resident_bytes: Option<u64>,
}

impl Moment {
    /// Of what was spent until then.
    pub fn new(at_seconds: f64, spent: &Use) -> Self {
        let is_known = !spent.processes.is_empty();
        Self {
            at_seconds,
            machine_cores: spent.machine_cores,
            target_cores: is_known.then(|| spent.processes.iter().map(|process| process.cores).sum()),
            client_cores: spent.client_cores,
            resident_bytes: is_known.then(|| spent.processes.iter().map(|process| process.resident_bytes).sum()),
        }
    }
}

/// One case's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseRecord {
    /// What fio did.
    pub case: Case,
    /// Medians over the samples, each figure on its own.
    pub median: Summary,
    /// (largest − smallest) ÷ median of the samples' IOPS.
    pub iops_spread: f64,
    /// The same of their mean latencies.
    pub mean_us_spread: f64,
    /// The same of the 99th percentiles.
    pub p99_us_spread: f64,
    /// Each repeat.
    pub samples: Vec<Sample>,
}

/// One repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// All I/Os.
    pub all: Flow,
    /// Reads, if any.
    pub read: Option<Flow>,
    /// Writes, if any.
    pub write: Option<Flow>,
    /// Flushes after writes, if any; they are not in the writes' latency.
    pub sync: Option<Latency>,
    /// What the machine spent, if it was measured for long enough.
    pub spent: Option<Use>,
    /// Loopback round trips per second just before: how fast the machine was.
    pub ping_pong_per_second: f64,
    /// What was spent moment by moment, of profiles that look at it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
}

/// The figures that are compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// I/Os per second.
    pub iops: f64,
    /// MiB per second.
    pub mib_per_second: f64,
    /// Latencies of all I/Os.
    pub latency: Latency,
    /// Mean of the flushes, if any, µs.
    pub sync_mean_us: Option<f64>,
    /// CPU of the whole machine, client included, per I/O.
    pub machine_cpu_us_per_io: Option<f64>,
    /// CPU of the target's processes per I/O, by name.
    pub process_cpu_us_per_io: BTreeMap<String, f64>,
    /// CPU of the load generator per I/O.
    #[serde(default)]
    pub client_cpu_us_per_io: Option<f64>,
    /// I/Os per second and core that the target's processes kept busy.
    pub iops_per_storage_core: Option<f64>,
    /// Memory of the target's processes.
    pub resident_bytes: Option<f64>,
    /// Bytes written to devices per byte that clients wrote, all copies.
    pub device_write_bytes_per_client_byte: Option<f64>,
    /// Bytes read from devices per byte that clients read.
    pub device_read_bytes_per_client_byte: Option<f64>,
    /// Bytes over the network that is looked at per client byte.
    pub network_bytes_per_client_byte: Option<f64>,
}

impl Summary {
    /// CPU of the target's processes per I/O, if they are known.
    pub fn target_cpu_us_per_io(&self) -> Option<f64> {
        let processes = &self.process_cpu_us_per_io;
        (!processes.is_empty()).then(|| processes.values().sum())
    }

    /// CPU of load generator and target per I/O: what others did meanwhile is not in it.
    pub fn both_cpu_us_per_io(&self) -> Option<f64> {
        Some(self.client_cpu_us_per_io? + self.target_cpu_us_per_io().unwrap_or(0.0))
    }
}

impl Sample {
    /// Its figures.
    pub fn summary(&self) -> Summary {
        let bytes = |flow: &Flow| flow.mib_per_second * f64::from(1 << 20);
        let per = |spent: Option<f64>, flow: Option<&Flow>| Some(spent? / bytes(flow?));
        let spent = self.spent.as_ref();
        let processes = spent.map(|spent| spent.processes.as_slice()).unwrap_or_default();
        let storage_cores: f64 = processes.iter().map(|process| process.cores).sum();
        let resident: u64 = processes.iter().map(|process| process.resident_bytes).sum();
        let us_per_io = |cores: f64| cores * 1e6 / self.all.iops;
        Summary {
            iops: self.all.iops,
            mib_per_second: self.all.mib_per_second,
            latency: self.all.latency,
            sync_mean_us: self.sync.map(|sync| sync.mean_us),
            machine_cpu_us_per_io: spent.map(|spent| us_per_io(spent.machine_cores)),
            process_cpu_us_per_io: processes.iter().map(|p| (p.name.clone(), us_per_io(p.cores))).collect(),
            client_cpu_us_per_io: spent.and_then(|spent| spent.client_cores).map(us_per_io),
            iops_per_storage_core: (storage_cores > 0.0).then(|| self.all.iops / storage_cores),
            resident_bytes: (!processes.is_empty()).then_some(resident as f64),
            device_write_bytes_per_client_byte: per(
                spent.and_then(|spent| spent.device_write_bytes_per_second),
                self.write.as_ref(),
            ),
            device_read_bytes_per_client_byte: per(
                spent.and_then(|spent| spent.device_read_bytes_per_second),
                self.read.as_ref(),
            ),
            network_bytes_per_client_byte: per(spent.and_then(|spent| spent.network_bytes_per_second), Some(&self.all)),
        }
    }
}

impl CaseRecord {
    /// What came of the repeats of a case.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(case: Case, samples: Vec<Sample>) -> Self {
        assert!(!samples.is_empty(), "a case is measured at least once");
        let summaries: Vec<Summary> = samples.iter().map(Sample::summary).collect();
        let of = |figure: fn(&Summary) -> f64| median(summaries.iter().map(figure).collect()).unwrap_or_default();
        let maybe = |figure: fn(&Summary) -> Option<f64>| median(summaries.iter().filter_map(figure).collect());
        let names: Vec<&String> = summaries.iter().flat_map(|summary| summary.process_cpu_us_per_io.keys()).collect();
        let process = |name: &String| {
            let of_name = summaries.iter().filter_map(|summary| summary.process_cpu_us_per_io.get(name).copied());
            Some((name.clone(), median(of_name.collect())?))
        };
        let median = Summary {
            iops: of(|s| s.iops),
            mib_per_second: of(|s| s.mib_per_second),
            latency: Latency {
                mean_us: of(|s| s.latency.mean_us),
                p50_us: of(|s| s.latency.p50_us),
                p90_us: of(|s| s.latency.p90_us),
                p99_us: of(|s| s.latency.p99_us),
                p999_us: of(|s| s.latency.p999_us),
                max_us: of(|s| s.latency.max_us),
            },
            sync_mean_us: maybe(|s| s.sync_mean_us),
            machine_cpu_us_per_io: maybe(|s| s.machine_cpu_us_per_io),
            process_cpu_us_per_io: names.into_iter().filter_map(process).collect(),
            client_cpu_us_per_io: maybe(|s| s.client_cpu_us_per_io),
            iops_per_storage_core: maybe(|s| s.iops_per_storage_core),
            resident_bytes: maybe(|s| s.resident_bytes),
            device_write_bytes_per_client_byte: maybe(|s| s.device_write_bytes_per_client_byte),
            device_read_bytes_per_client_byte: maybe(|s| s.device_read_bytes_per_client_byte),
            network_bytes_per_client_byte: maybe(|s| s.network_bytes_per_client_byte),
        };
        let spread = |figure: fn(&Summary) -> f64| spread(&summaries.iter().map(figure).collect::<Vec<_>>());
        Self {
            case,
            iops_spread: spread(|summary| summary.iops),
            mean_us_spread: spread(|summary| summary.latency.mean_us),
            p99_us_spread: spread(|summary| summary.latency.p99_us),
            median,
            samples,
        }
    }
}

/// (largest − smallest) ÷ median; of nothing but zeroes 0.
fn spread(values: &[f64]) -> f64 {
    let range = values.iter().fold(0.0, |most: f64, value| most.max(*value))
        - values.iter().fold(f64::INFINITY, |least, value| least.min(*value));
    median(values.to_vec()).filter(|median| *median > 0.0).map_or(0.0, |median| range / median)
}

/// The middle one; of an even number the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

impl Record {
    /// Reads a file of results.
    ///
    /// # Errors
    /// If it is none, or one of a later version.
    pub fn read(path: &Path) -> Result<Self, MeasureError> {
        let wrong = |why: String| MeasureError::Record { path: path.display().to_string(), why };
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let json: serde_json::Value = serde_json::from_str(&text)
            .map_err(|error| wrong(format!("is not JSON ({error}): name a result of `cairn bench`")))?;
        if json["format"] != FORMAT {
            return Err(wrong("is no result of `cairn bench`: name one, as `cairn bench ls` lists them".to_owned()));
        }
        if json["version"] != VERSION {
            return Err(wrong(format!(
                "is of version {}, this is {VERSION}: use the cairn that wrote it",
                json["version"]
            )));
        }
        serde_json::from_value(json).map_err(|error| wrong(format!("is damaged ({error}): measure again")))
    }

    /// As a file holds it.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a record has text for keys and no number that is none") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_spread_is_the_range_in_relation_to_the_median() {
        assert!((spread(&[90.0, 120.0, 100.0]) - 0.3).abs() < 1e-9);
        assert_eq!((spread(&[5.0]), spread(&[0.0, 0.0])), (0.0, 0.0));
    }
}
