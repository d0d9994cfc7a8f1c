//! What each layer costs: targets that stand on each other, one difference at a time.

use crate::record::{CaseRecord, Record, TargetRecord};
use crate::setting::{FIELDS, UNKNOWN};

/// One step, and what it adds to the one below.
pub struct Step<'a> {
    /// Its name.
    pub name: &'a str,
    /// The step that it stands on.
    pub over: Option<&'a str>,
    /// What differs from it: `copies 1 → 2`.
    pub differs: Vec<String>,
    /// For each case.
    pub figures: Vec<Figures<'a>>,
}

impl Step<'_> {
    /// What differs from the step below.
    pub fn told(&self) -> String {
        if self.differs.is_empty() {
            "nothing that the setting has a field for".to_owned()
        } else {
            self.differs.join("; ")
        }
    }
}

/// A case's figures, and what this step adds to them; what cannot be told is none.
pub struct Figures<'a> {
    /// Its case.
    pub case: &'a str,
    /// Mean latency, µs.
    pub mean_us: f64,
    /// More than the step below.
    pub added_us: Option<f64>,
    /// CPU of load generator and target, µs for each I/O.
    pub cpu_us: Option<f64>,
    /// More than the step below.
    pub added_cpu_us: Option<f64>,
    /// I/Os per second.
    pub iops: f64,
    /// To those of the step below.
    pub iops_share: Option<f64>,
}

/// The steps of a record, in order; none: it has no ladder.
pub fn steps(record: &Record) -> Vec<Step<'_>> {
    record.targets.iter().filter_map(|target| step(record, target)).collect()
}

fn step<'a>(record: &'a Record, target: &'a TargetRecord) -> Option<Step<'a>> {
    let layer = target.layer.as_ref()?;
    let is_below = |other: &&TargetRecord| other.layer.as_ref().map(|other| &other.name) == layer.over.as_ref();
    let below = layer.over.as_ref().and_then(|_| record.targets.iter().find(is_below));
    Some(Step {
        name: &layer.name,
        over: layer.over.as_deref(),
        differs: below.map(|below| differences(below, target)).unwrap_or_default(),
        figures: target.cases.iter().map(|measured| figures(measured, below)).collect(),
    })
}

fn differences(below: &TargetRecord, target: &TargetRecord) -> Vec<String> {
    let (before, after) = (&below.setting, &target.setting);
    let fields = FIELDS.iter().map(|(field, _)| *field);
    let differ = fields.filter(|field| before.get(field) != after.get(field));
    let known = differ.filter(|field| ![before.get(field), after.get(field)].contains(&UNKNOWN));
    known.map(|field| format!("{field}: {} → {}", before.get(field), after.get(field))).collect()
}

fn figures<'a>(measured: &'a CaseRecord, below: Option<&TargetRecord>) -> Figures<'a> {
    let below = below.and_then(|below| below.cases.iter().find(|other| other.case == measured.case));
    let (own, cpu_us) = (&measured.median, measured.median.both_cpu_us_per_io());
    Figures {
        case: &measured.case.name,
        mean_us: own.latency.mean_us,
        added_us: below.map(|below| own.latency.mean_us - below.median.latency.mean_us),
        cpu_us,
        added_cpu_us: below.and_then(|below| Some(cpu_us? - below.median.both_cpu_us_per_io()?)),
        iops: own.iops,
        iops_share: below.map(|below| own.iops / below.median.iops),
    }
}

/// `+12.3`, `-4.00`.
pub fn signed(value: Option<f64>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |value| format!("{}{}", if value < 0.0 { "" } else { "+" }, crate::table::figure(value)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::{FioResult, parse};
    use crate::machine::Use;
    use crate::profile::Profile;
    use crate::record::{FORMAT, Layer, Sample, VERSION};
    use crate::setting::Setting;
    use std::collections::BTreeMap;

    /// A layer whose I/Os take so many µs, and so much CPU of the load generator; none: nobody looked.
    fn target(name: &str, over: Option<&str>, copies: &str, mean_us: f64, client_cores: Option<f64>) -> TargetRecord {
        let FioResult { mut all, read, write, sync } = parse(include_str!("../tests/mixed.json")).unwrap();
        (all.latency.mean_us, all.iops) = (mean_us, 1e6 / mean_us);
        let spent = Use {
            seconds: 1.0,
            machine_cores: 2.0,
            processes: Vec::new(),
            client_cores,
            device_write_bytes_per_second: None,
            device_read_bytes_per_second: None,
            network_bytes_per_second: None,
        };
        let sample =
            Sample { all, read, write, sync, spent: Some(spent), ping_pong_per_second: 1.0, moments: Vec::new() };
        let mut setting = Setting::default();
        FIELDS.iter().for_each(|(field, _)| setting.set(field, "x"));
        setting.set("copies", copies);
        let case = Profile::named("layers").unwrap().cases(true)[0].clone();
        TargetRecord {
            target: name.to_owned(),
            setting,
            about: BTreeMap::new(),
            cases: vec![CaseRecord::new(case, vec![sample])],
            layer: Some(Layer { name: name.to_owned(), over: over.map(str::to_owned) }),
            failure: None,
            link_bits_per_second: None,
        }
    }

    fn record(targets: Vec<TargetRecord>) -> Record {
        Record {
            format: FORMAT.to_owned(),
            version: VERSION,
            profile: "layers".to_owned(),
            quick: false,
            started_unix_seconds: 0,
            repeats: 1,
            targets,
        }
    }

    #[test]
    fn a_step_is_held_against_the_one_it_stands_on() {
        let device = target("device", None, "1", 10.0, Some(0.5));
        let node = target("node", Some("device"), "1", 50.0, Some(0.4));
        let copies = target("copies", Some("node"), "3", 40.0, None);
        let record = record(vec![device, node, copies]);
        let steps = steps(&record);
        let added: Vec<Option<f64>> = steps.iter().map(|step| step.figures[0].added_us).collect();
        assert_eq!(added, [None, Some(40.0), Some(-10.0)]);
        assert!((steps[1].figures[0].added_cpu_us.unwrap() - (20.0 - 5.0)).abs() < 1e-9);
        // Nobody looked at what the third spent: that is not nothing.
        assert_eq!((steps[2].figures[0].cpu_us, steps[2].figures[0].added_cpu_us), (None, None));
        assert_eq!(signed(steps[2].figures[0].added_cpu_us), "-");
        assert_eq!(
            (steps[1].told().as_str(), steps[2].told().as_str()),
            ("nothing that the setting has a field for", "copies: 1 → 3")
        );
    }

    #[test]
    fn a_step_without_one_below_adds_nothing_that_could_be_told() {
        let record = record(vec![target("node", Some("device"), "1", 50.0, None)]);
        assert_eq!(steps(&record)[0].figures[0].added_us, None);
        assert_eq!(signed(Some(-0.5)), "-0.50");
        assert_eq!(signed(Some(12.34)), "+12.3");
    }
}
