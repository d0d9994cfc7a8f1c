//! The figures as a table for people and as CSV for programs.

use crate::compare::{self, Entry};
use crate::ladder::{self, Step};
use crate::record::{CaseRecord, Record, Summary};
use crate::series::Failure;

/// A figure of five digits or fewer, as people read it.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => {
            let digits = format!("{value:.0}");
            let mut grouped = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index).is_multiple_of(3) && !grouped.ends_with('-') {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// What is not known is a dash.
pub fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), figure)
}

/// The headings of [`cells`].
pub const HEADINGS: [&str; 19] = [
    "IOPS",
    "±%",
    "MiB/s",
    "mean µs",
    "±%",
    "p50",
    "p90",
    "p99",
    "±%",
    "p99.9",
    "max",
    "flush µs",
    "CPU µs/IO",
    "target µs/IO",
    "client µs/IO",
    "IOPS/core",
    "RSS MiB",
    "dev B/B",
    "net B/B",
];

/// A case's figures.
pub fn cells(measured: &CaseRecord) -> [String; 19] {
    let summary = &measured.median;
    let spread = |spread: f64| format!("{:.0}", spread * 100.0);
    let latency = &summary.latency;
    let device = summary.device_write_bytes_per_client_byte.or(summary.device_read_bytes_per_client_byte);
    [
        figure(summary.iops),
        spread(measured.iops_spread),
        figure(summary.mib_per_second),
        figure(latency.mean_us),
        spread(measured.mean_us_spread),
        figure(latency.p50_us),
        figure(latency.p90_us),
        figure(latency.p99_us),
        spread(measured.p99_us_spread),
        figure(latency.p999_us),
        figure(latency.max_us),
        maybe(summary.sync_mean_us),
        maybe(summary.machine_cpu_us_per_io),
        maybe(summary.target_cpu_us_per_io()),
        maybe(summary.client_cpu_us_per_io),
        maybe(summary.iops_per_storage_core),
        maybe(summary.resident_bytes.map(|bytes| bytes / f64::from(1 << 20))),
        maybe(device),
        maybe(summary.network_bytes_per_client_byte),
    ]
}

/// The headings of [`failure_cells`].
pub const FAILURE_HEADINGS: [&str; 12] = [
    "first read s",
    "first write s",
    "silence s",
    "longest wait s",
    "seen by status s",
    "all copies s",
    "p99 µs before",
    "meanwhile",
    "after",
    "errors",
    "unanswered",
    "IOPS before",
];

/// What a failure came to; times are from the fault on. What never came about is told as that.
pub fn failure_cells(failure: &Failure) -> [String; 12] {
    let fault = failure.times.fault_seconds;
    let watched = failure.watched_seconds - fault;
    let time = |seconds: Option<f64>| seconds.map_or_else(|| format!("never in {watched:.0}"), |s| format!("{s:.2}"));
    let noticed = failure.times.noticed_seconds.map(|at| at - fault);
    let whole = match (noticed, failure.to_whole_seconds) {
        (None, _) => "not lost".to_owned(),
        (Some(_), whole) => time(whole),
    };
    let phases = [Some(&failure.before), Some(&failure.meanwhile), failure.after.as_ref()];
    let [before, meanwhile, after] = phases.map(|phase| maybe(phase.and_then(|phase| phase.p99_us)));
    let errors: u64 = phases.iter().flatten().map(|phase| phase.errors).sum();
    [
        time(failure.first_read_seconds),
        time(failure.first_write_seconds),
        format!("{:.2}", failure.longest_silence_seconds),
        format!("{:.2}", failure.longest_wait_seconds),
        noticed.map_or_else(|| "not".to_owned(), |seconds| format!("{seconds:.2}")),
        whole,
        before,
        meanwhile,
        after,
        errors.to_string(),
        failure.unanswered.to_string(),
        figure(failure.before.iops),
    ]
}

/// The headings of [`ladder_cells`] for a case, behind its name.
pub const LADDER_HEADINGS: [&str; 6] = ["mean µs", "adds", "CPU µs/IO", "adds", "IOPS", "of those below"];

/// What a step of a ladder costs in each case, and adds.
pub fn ladder_cells(step: &Step<'_>) -> Vec<[String; 6]> {
    let cells = |figures: &ladder::Figures<'_>| {
        [
            figure(figures.mean_us),
            ladder::signed(figures.added_us),
            maybe(figures.cpu_us),
            ladder::signed(figures.added_cpu_us),
            figure(figures.iops),
            figures.iops_share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        ]
    };
    step.figures.iter().map(cells).collect()
}

/// One table per group of results that are alike; before them what each layer adds, where there are layers, and what came of failures.
pub fn text(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    let failed: Vec<_> = entries.iter().filter_map(|entry| Some((entry, entry.target.failure.as_ref()?))).collect();
    if !failed.is_empty() {
        let mut rows = vec![["fault", "result"].into_iter().chain(FAILURE_HEADINGS).map(str::to_owned).collect()];
        for (entry, failure) in failed {
            rows.push(
                [failure.fault.clone(), entry.from.to_owned()].into_iter().chain(failure_cells(failure)).collect(),
            );
        }
        text += &aligned(&rows);
    }
    let mut records: Vec<(&str, &Record)> = Vec::new();
    for entry in entries {
        if !records.iter().any(|(_, known)| std::ptr::eq(*known, entry.record)) {
            records.push((entry.from, entry.record));
        }
    }
    for (from, record) in records {
        let ladder = ladder_text(from, record);
        if !ladder.is_empty() {
            let its: Vec<_> = entries.iter().filter(|entry| std::ptr::eq(entry.record, record)).copied().collect();
            // Its steps differ: none of these figures is set in relation to the first.
            text += &format!("{ladder}\n{}", figures_text(&its, false));
        }
    }
    for group in &compare::groups(entries) {
        if !group.differences.is_empty() {
            let told: Vec<String> = group.differences.iter().map(compare::told).collect();
            text += &format!("\nnot to be compared with the first: {}\n", told.join(", "));
        }
        let cases = &group.entries[0].target.cases;
        // What stands in a ladder is told there, unless there is more than one of it.
        if cases.is_empty() || group.entries[0].target.layer.is_some() && group.entries.len() == 1 {
            continue;
        }
        text += &figures_text(&group.entries, group.entries.len() > 1);
    }
    text
}

/// All figures, of a case all entries; and, if they are alike, what each has of the first's IOPS.
fn figures_text(entries: &[Entry<'_>], are_alike: bool) -> String {
    let mut rows = vec![["case", "target"].into_iter().chain(HEADINGS).map(str::to_owned).collect::<Vec<String>>()];
    let link = entries[0].target.link_bits_per_second;
    if link.is_some() {
        rows[0].push("of the link".to_owned());
    }
    for (index, measured) in entries[0].target.cases.iter().enumerate() {
        for entry in entries {
            let measured_there = &entry.target.cases[index];
            let mut row = vec![measured.case.name.clone(), entry.target.target.clone()];
            row.extend(cells(measured_there));
            row.extend(link.map(|bits| link_share(&measured_there.median, bits)));
            if are_alike {
                row.push(format!("x{:.2}", measured_there.median.iops / measured.median.iops));
            }
            rows.push(row);
        }
    }
    aligned(&rows)
}

/// Clients' bytes in relation to what a node's link carries.
pub fn link_share(summary: &Summary, bits_per_second: u64) -> String {
    format!("{:.0} %", summary.mib_per_second * f64::from(1 << 20) * 8.0 * 100.0 / bits_per_second as f64)
}

fn ladder_text(from: &str, record: &Record) -> String {
    let steps = ladder::steps(record);
    let Some(first) = steps.first() else { return String::new() };
    let mut text = String::new();
    for (index, figures) in first.figures.iter().enumerate() {
        let heading = ["layer", "over"].into_iter().chain(LADDER_HEADINGS).map(str::to_owned).collect();
        let row = |step: &Step<'_>| {
            let words = [step.name.to_owned(), step.over.unwrap_or("-").to_owned()];
            words.into_iter().chain(ladder_cells(step)[index].clone()).collect()
        };
        let rows: Vec<Vec<String>> = std::iter::once(heading).chain(steps.iter().map(row)).collect();
        text += &format!("{} ({from})\n{}\n", figures.case, aligned(&rows));
    }
    for (step, over) in steps.iter().filter_map(|step| Some((step, step.over?))) {
        text += &format!("{}, other than {over}: {}\n", step.name, step.told());
    }
    text
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cell = |(column, cell): (usize, &String)| {
            let width = widths[column];
            if column < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let line: Vec<String> = row.iter().enumerate().map(cell).collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// One line per fault and step of time.
fn failures_csv(record: &Record) -> String {
    let mut csv = "profile,fault,number,at_seconds,ios,errors,p99_us,longest_us\n".to_owned();
    let failures = record.targets.iter().filter_map(|target| target.failure.as_ref());
    for (number, failure) in failures.enumerate() {
        for step in &failure.series {
            let figure = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
            csv += &format!(
                "{},{},{},{:.3},{},{},{},{}\n",
                quoted(&record.profile),
                quoted(&failure.fault),
                number + 1,
                step.at_seconds,
                step.ios,
                step.errors,
                figure(step.p99_us),
                figure(step.longest_us)
            );
        }
    }
    csv
}

/// One line per target, case and repeat, or per fault and step of time; docs/bench.md has the columns.
pub fn csv(record: &Record) -> String {
    if record.targets.iter().any(|target| target.failure.is_some()) {
        return failures_csv(record);
    }
    let mut csv =
        "profile,target,case,repeat,iops,mib_per_second,mean_us,p50_us,p90_us,p99_us,p999_us,max_us,sync_mean_us,\
                   machine_cpu_us_per_io,target_cpu_us_per_io,client_cpu_us_per_io,iops_per_storage_core,resident_bytes,\
                   device_write_bytes_per_client_byte,device_read_bytes_per_client_byte,network_bytes_per_client_byte,\
                   ping_pong_per_second\n"
            .to_owned();
    for target in &record.targets {
        for measured in &target.cases {
            for (repeat, sample) in measured.samples.iter().enumerate() {
                let summary = sample.summary();
                let latency = &summary.latency;
                let figures = [
                    Some(summary.iops),
                    Some(summary.mib_per_second),
                    Some(latency.mean_us),
                    Some(latency.p50_us),
                    Some(latency.p90_us),
                    Some(latency.p99_us),
                    Some(latency.p999_us),
                    Some(latency.max_us),
                    summary.sync_mean_us,
                    summary.machine_cpu_us_per_io,
                    summary.target_cpu_us_per_io(),
                    summary.client_cpu_us_per_io,
                    summary.iops_per_storage_core,
                    summary.resident_bytes,
                    summary.device_write_bytes_per_client_byte,
                    summary.device_read_bytes_per_client_byte,
                    summary.network_bytes_per_client_byte,
                    Some(sample.ping_pong_per_second),
                ];
                let words = [&record.profile, &target.target, &measured.case.name].map(|word| quoted(word));
                let figures = figures.map(|figure| figure.map_or_else(String::new, |figure| format!("{figure:.3}")));
                csv += &format!("{},{},{}\n", words.join(","), repeat + 1, figures.join(","));
            }
        }
    }
    csv
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_at_a_glance() {
        assert_eq!(
            [0.5, 12.34, 999.6, 1_234_567.0, -1_234.0].map(figure),
            ["0.50", "12.3", "1,000", "1,234,567", "-1,234"]
        );
    }
}
