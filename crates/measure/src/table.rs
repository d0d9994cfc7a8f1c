//! The figures as a table for people and as CSV for programs.

use crate::compare::{self, Entry};
use crate::record::{Record, Summary};

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
pub const HEADINGS: [&str; 16] = [
    "IOPS",
    "±%",
    "MiB/s",
    "mean µs",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "flush µs",
    "CPU µs/IO",
    "target µs/IO",
    "IOPS/core",
    "RSS MiB",
    "dev B/B",
    "net B/B",
];

/// A case's figures.
pub fn cells(summary: &Summary, spread: f64) -> [String; 16] {
    let latency = &summary.latency;
    let processes = &summary.process_cpu_us_per_io;
    let target = (!processes.is_empty()).then(|| processes.values().sum());
    let device = summary.device_write_bytes_per_client_byte.or(summary.device_read_bytes_per_client_byte);
    [
        figure(summary.iops),
        format!("{:.0}", spread * 100.0),
        figure(summary.mib_per_second),
        figure(latency.mean_us),
        figure(latency.p50_us),
        figure(latency.p90_us),
        figure(latency.p99_us),
        figure(latency.p999_us),
        figure(latency.max_us),
        maybe(summary.sync_mean_us),
        maybe(summary.machine_cpu_us_per_io),
        maybe(target),
        maybe(summary.iops_per_storage_core),
        maybe(summary.resident_bytes.map(|bytes| bytes / f64::from(1 << 20))),
        maybe(device),
        maybe(summary.network_bytes_per_client_byte),
    ]
}

/// One table per group of results that are alike.
pub fn text(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    for (number, group) in compare::groups(entries).iter().enumerate() {
        if number > 0 {
            let told: Vec<String> = group.differences.iter().map(compare::told).collect();
            text += &format!("\nnot to be compared with the first: {}\n", told.join(", "));
        }
        let mut rows = vec![["case", "target"].into_iter().chain(HEADINGS).map(str::to_owned).collect::<Vec<String>>()];
        let cases = &group.entries[0].target.cases;
        for (index, measured) in cases.iter().enumerate() {
            for entry in &group.entries {
                let measured_there = &entry.target.cases[index];
                let mut row = vec![measured.case.name.clone(), entry.target.target.clone()];
                row.extend(cells(&measured_there.median, measured_there.iops_spread));
                if group.entries.len() > 1 {
                    row.push(format!("x{:.2}", measured_there.median.iops / measured.median.iops));
                }
                rows.push(row);
            }
        }
        text += &aligned(&rows);
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

/// One line per target, case and repeat; docs/bench.md has the columns.
pub fn csv(record: &Record) -> String {
    let mut csv =
        "profile,target,case,repeat,iops,mib_per_second,mean_us,p50_us,p90_us,p99_us,p999_us,max_us,sync_mean_us,\
                   machine_cpu_us_per_io,target_cpu_us_per_io,iops_per_storage_core,resident_bytes,\
                   device_write_bytes_per_client_byte,device_read_bytes_per_client_byte,network_bytes_per_client_byte,\
                   ping_pong_per_second\n"
            .to_owned();
    for target in &record.targets {
        for measured in &target.cases {
            for (repeat, sample) in measured.samples.iter().enumerate() {
                let summary = sample.summary();
                let latency = &summary.latency;
                let processes = &summary.process_cpu_us_per_io;
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
                    (!processes.is_empty()).then(|| processes.values().sum()),
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
