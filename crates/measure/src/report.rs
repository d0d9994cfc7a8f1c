//! One HTML file with charts and nothing outside it: no script, no font, no image, no style from elsewhere.

use crate::charts::{self, Course, Line};
use crate::compare::{self, Entry, Likes};
use crate::ladder;
use crate::published;
use crate::record::{CaseRecord, Moment, Record};
use crate::series::Failure;
use crate::setting::FIELDS;
use crate::table;
use std::fmt::Write;

/// Readable on paper and on a phone.
const STYLE: &str = "\
body{font:15px/1.45 sans-serif;color:#111;background:#fff;margin:1rem auto;max-width:72rem;padding:0 .8rem}\
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid #bbb}h3{font-size:1rem;margin:.8rem 0 .2rem}\
svg{max-width:100%;height:auto}.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr));gap:.6rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.82rem}td,th{padding:.15rem .45rem;text-align:right;\
border-bottom:1px solid #ddd;white-space:nowrap}td.word,th.word{text-align:left}figure{margin:0;break-inside:avoid}\
table.told td,table.told th{white-space:normal;overflow-wrap:anywhere}\
.note{background:#f3f3ee;border-left:4px solid #999;padding:.4rem .7rem}\
@media print{body{max-width:none;font-size:10pt}.wide{overflow:visible}table{font-size:6.5pt}}";

/// What the report says of all entries; those that are not alike stand in groups of their own.
pub fn html(entries: &[Entry<'_>]) -> String {
    let groups = compare::groups(entries);
    let mut page = String::new();
    let profile = entries.first().map_or("", |entry| entry.record.profile.as_str());
    let title = format!("cairn bench {profile}");
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><title>{0}</title><style>{STYLE}</style></head>\
         <body><h1>{0}</h1>",
        escaped(&title)
    );
    page += &measured_when(entries);
    if entries.iter().any(|entry| entry.record.quick) {
        page += "<p class=\"note\">Quick: times and sizes were shortened. These figures show that it works, not how fast it is.</p>";
    }
    draw_ladders(&mut page, entries);
    for group in &groups {
        // What stands in a ladder is drawn there, unless there is more than one of it.
        if group.entries[0].target.layer.is_some() && group.entries.len() == 1 && group.differences.is_empty() {
            continue;
        }
        if !group.differences.is_empty() {
            let told: Vec<String> = group.differences.iter().map(compare::told).collect();
            let _ = write!(
                page,
                "<h2>Apart: another setting</h2><p class=\"note\">Not to be compared with the first: {}.</p>",
                escaped(&told.join(", "))
            );
        }
        match group.entries[0].target.failure {
            Some(_) => draw_failures(&mut page, group),
            None => draw_group(&mut page, group),
        }
        draw_setting(&mut page, group, &names(group));
    }
    draw_published(&mut page, entries);
    page += "</body></html>\n";
    page
}

fn measured_when(entries: &[Entry<'_>]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for entry in entries {
        let Record { started_unix_seconds, repeats, .. } = entry.record;
        let line = format!("{}: {} UTC, median of {repeats}", entry.from, utc(*started_unix_seconds));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    format!("<p>{}</p>", escaped(&lines.join("; ")))
}

/// Names of a group's targets; of several files, with the file.
fn names(group: &Likes<'_>) -> Vec<String> {
    let is_one_file = group.entries.iter().all(|entry| entry.from == group.entries[0].from);
    let name = |entry: &Entry<'_>| match is_one_file {
        true => entry.target.target.clone(),
        false => format!("{} ({})", entry.target.target, entry.from),
    };
    group.entries.iter().map(name).collect()
}

fn draw_group(page: &mut String, group: &Likes<'_>) {
    let names = names(group);
    let cases = &group.entries[0].target.cases;
    let at = |index: usize| group.entries.iter().map(move |entry| &entry.target.cases[index]);
    let _ = write!(page, "<h2>{}</h2>", escaped(&names.join(" · ")));
    if group.entries.iter().any(|entry| entry.target.cases.iter().any(|measured| measured.iops_spread > 0.3)) {
        *page += "<p class=\"note\">Repeats of some cases differ by more than 30 % in IOPS (columns ±%): the machine was not quiet.</p>";
    }
    *page += "<h3>I/Os per second</h3><div class=\"charts\">";
    for (index, measured) in cases.iter().enumerate() {
        let bars: Vec<(String, f64)> =
            names.iter().cloned().zip(at(index).map(|measured| measured.median.iops)).collect();
        let _ = write!(
            page,
            "<figure><figcaption>{}</figcaption>{}</figure>",
            escaped(&measured.case.name),
            charts::bars(&bars)
        );
    }
    *page += "</div>";
    draw_curves(page, group, &names);
    *page += "<h3>How latencies are spread</h3><div class=\"charts\">";
    for (index, measured) in cases.iter().enumerate() {
        // Of the repeat whose IOPS are nearest to the median.
        let middle = |measured: &'_ CaseRecord| {
            let off = |iops: f64| (iops - measured.median.iops).abs();
            let nearest = measured.samples.iter().min_by(|a, b| off(a.all.iops).total_cmp(&off(b.all.iops)));
            nearest.map(|sample| sample.all.histogram.clone()).unwrap_or_default()
        };
        let histograms: Vec<_> = at(index).map(middle).collect();
        let named: Vec<_> = names.iter().cloned().zip(histograms.iter().map(Vec::as_slice)).collect();
        let chart = charts::histogram(&named);
        let _ = write!(page, "<figure><figcaption>{}</figcaption>{chart}</figure>", escaped(&measured.case.name));
    }
    *page += "</div>";
    draw_moments(page, group, &names);
    *page += "<h3>All figures (medians)</h3>";
    draw_table(page, group, &names);
}

/// What each layer adds, of each record that has layers.
fn draw_ladders(page: &mut String, entries: &[Entry<'_>]) {
    let mut drawn: Vec<&Record> = Vec::new();
    for entry in entries {
        if drawn.iter().any(|known| std::ptr::eq(*known, entry.record)) {
            continue;
        }
        drawn.push(entry.record);
        let steps = ladder::steps(entry.record);
        let Some(first) = steps.first() else { continue };
        let _ = write!(page, "<h2>What each layer adds: {}</h2>", escaped(entry.from));
        *page += "<p>Each layer stands on the one that is named beside it; what differs between the two is below. CPU is that of load \
                  generator and target, for each I/O.</p>";
        for (index, figures) in first.figures.iter().enumerate() {
            let bars = |of: fn(&ladder::Figures<'_>) -> Option<f64>| {
                let bar = |step: &ladder::Step<'_>| Some((step.name.to_owned(), of(&step.figures[index])?));
                charts::bars(&steps.iter().filter_map(bar).collect::<Vec<_>>())
            };
            let _ = write!(
                page,
                "<h3>{}</h3><div class=\"charts\"><figure><figcaption>mean latency, µs</figcaption>{}</figure><figure><figcaption>CPU \
                 of an I/O, µs</figcaption>{}</figure></div>",
                escaped(figures.case),
                bars(|figures| Some(figures.mean_us)),
                bars(|figures| figures.cpu_us)
            );
            *page += "<div class=\"wide\"><table><tr><th class=\"word\">layer</th><th class=\"word\">over</th>";
            table::LADDER_HEADINGS.iter().for_each(|heading| *page += &format!("<th>{}</th>", escaped(heading)));
            *page += "</tr>";
            for step in &steps {
                let over = step.over.unwrap_or("-");
                let _ = write!(
                    page,
                    "<tr><td class=\"word\">{}</td><td class=\"word\">{}</td>",
                    escaped(step.name),
                    escaped(over)
                );
                table::ladder_cells(step)[index].iter().for_each(|cell| *page += &format!("<td>{cell}</td>"));
                *page += "</tr>";
            }
            *page += "</table></div>";
        }
        *page += "<h3>What differs</h3><ul>";
        for (step, over) in steps.iter().filter_map(|step| Some((step, step.over?))) {
            let words = [step.name, over, &step.told()].map(escaped);
            let _ = write!(page, "<li><b>{}</b>, other than {}: {}</li>", words[0], words[1], words[2]);
        }
        *page += "</ul>";
        let its: Vec<Entry<'_>> = entries.iter().filter(|of| std::ptr::eq(of.record, entry.record)).copied().collect();
        let all = Likes { entries: its, differences: Vec::new() };
        let names = names(&all);
        draw_curves(page, &all, &names);
        draw_moments(page, &all, &names);
        *page += "<h3>All figures (medians)</h3>";
        draw_table(page, &all, &names);
        draw_setting(page, &Likes { entries: vec![all.entries[0]], differences: Vec::new() }, &names);
    }
}

/// A failure, or several alike: figures, and their course with what was done.
fn draw_failures(page: &mut String, group: &Likes<'_>) {
    let names = names(group);
    let failures = || group.entries.iter().filter_map(|entry| entry.target.failure.as_ref());
    let all: Vec<[String; table::FAILURE_HEADINGS.len()]> = failures().map(table::failure_cells).collect();
    let _ = write!(page, "<h2>{}</h2><div class=\"wide\"><table>", escaped(&names[0]));
    for (index, heading) in table::FAILURE_HEADINGS.iter().enumerate() {
        let _ = write!(page, "<tr><th class=\"word\">{}</th>", escaped(heading));
        all.iter().for_each(|cells| *page += &format!("<td>{}</td>", escaped(&cells[index])));
        *page += "</tr>";
    }
    *page += "</table></div>";
    for (name, failure) in names.iter().zip(failures()) {
        if names.len() > 1 {
            *page += &format!("<h3>{}</h3>", escaped(name));
        }
        draw_course(page, failure);
    }
}

fn draw_course(page: &mut String, failure: &Failure) {
    let course = |name: &str, of: &dyn Fn(&crate::series::Step) -> Option<f64>| Course {
        name: name.to_owned(),
        points: failure.series.iter().map(|step| (step.at_seconds, of(step))).collect(),
    };
    let marks: Vec<f64> = failure.marks.iter().map(|mark| mark.at_seconds).collect();
    let rate = |ios: u64| Some(ios as f64 / failure.step_seconds);
    let mut rates = vec![course("IOPS", &|step| rate(step.ios))];
    if failure.series.iter().any(|step| step.errors > 0) {
        rates.push(course("errors a second", &|step| rate(step.errors)));
    }
    let latencies = [course("p99", &|step| step.p99_us), course("longest", &|step| step.longest_us)];
    let _ = write!(
        page,
        "<div class=\"charts\"><figure><figcaption>I/Os a second</figcaption>{}</figure><figure><figcaption>Latency of what was answered, \
         µs: nothing where nothing was</figcaption>{}</figure></div><ol>",
        charts::over_time("IOPS", &rates, &marks, false),
        charts::over_time("µs", &latencies, &marks, true)
    );
    for mark in &failure.marks {
        let _ = write!(page, "<li>{:.2} s: {}</li>", mark.at_seconds, escaped(&mark.what));
    }
    *page += "</ol>";
}

/// CPU and memory over time, of the first repeat, where they were looked at.
fn draw_moments(page: &mut String, group: &Likes<'_>, names: &[String]) {
    let cases = &group.entries[0].target.cases;
    let moments = |entry: &Entry<'_>, index: usize| -> Vec<Moment> {
        entry.target.cases[index].samples.first().map(|sample| sample.moments.clone()).unwrap_or_default()
    };
    if !group.entries.iter().any(|entry| (0..cases.len()).any(|index| !moments(entry, index).is_empty())) {
        return;
    }
    *page += "<h3>CPU and memory over time (first repeat)</h3><div class=\"charts\">";
    for (index, measured) in cases.iter().enumerate() {
        let courses = |of: fn(&Moment) -> Option<f64>| -> Vec<Course> {
            let course = |(name, entry): (&String, &Entry<'_>)| Course {
                name: name.clone(),
                points: moments(entry, index).iter().map(|moment| (moment.at_seconds, of(moment))).collect(),
            };
            names.iter().zip(&group.entries).map(course).collect()
        };
        let cores = charts::over_time("cores", &courses(|moment| moment.target_cores), &[], false);
        let memory = courses(|moment| moment.resident_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20)));
        let memory = charts::over_time("MiB", &memory, &[], false);
        let _ = write!(
            page,
            "<figure><figcaption>{0}: cores of the target</figcaption>{cores}</figure><figure><figcaption>{0}: its \
             memory</figcaption>{memory}</figure>",
            escaped(&measured.case.name)
        );
    }
    *page += "</div>";
}

/// Mean latency and IOPS over the outstanding I/Os, for each kind that was measured with several.
fn draw_curves(page: &mut String, group: &Likes<'_>, names: &[String]) {
    let cases = &group.entries[0].target.cases;
    let mut kinds: Vec<String> = Vec::new();
    for measured in cases {
        let kind = measured.case.kind();
        let of_kind = cases.iter().filter(|other| other.case.kind() == kind).count();
        if of_kind > 2 && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    if kinds.is_empty() {
        return;
    }
    *page += "<h3>Over outstanding I/Os (depth × clients)</h3><div class=\"charts\">";
    for kind in kinds {
        let curve = |figure: fn(&CaseRecord) -> f64| -> Vec<Line> {
            let line = |(name, entry): (&String, &Entry<'_>)| {
                let of_kind = entry.target.cases.iter().filter(|measured| measured.case.kind() == kind);
                let outstanding = |measured: &CaseRecord| f64::from(measured.case.depth * measured.case.jobs);
                let mut points: Vec<(f64, f64)> = of_kind.map(|m| (outstanding(m), figure(m))).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                Line { name: name.clone(), points }
            };
            names.iter().zip(&group.entries).map(line).collect()
        };
        let mean = charts::lines("outstanding", "mean latency, µs", &curve(|measured| measured.median.latency.mean_us));
        let iops = charts::lines("outstanding", "IOPS", &curve(|measured| measured.median.iops));
        let _ = write!(
            page,
            "<figure><figcaption>{0}: latency</figcaption>{mean}</figure><figure><figcaption>{0}: \
            IOPS</figcaption>{iops}</figure>",
            escaped(&kind)
        );
    }
    *page += "</div>";
}

fn draw_table(page: &mut String, group: &Likes<'_>, names: &[String]) {
    *page += "<div class=\"wide\"><table><tr><th class=\"word\">case</th><th class=\"word\">target</th>";
    for heading in table::HEADINGS {
        let _ = write!(page, "<th>{}</th>", escaped(heading));
    }
    let link = group.entries[0].target.link_bits_per_second;
    if link.is_some() {
        *page += "<th>of the link</th>";
    }
    *page += "<th>to the first</th></tr>";
    for (index, first) in group.entries[0].target.cases.iter().enumerate() {
        for (name, entry) in names.iter().zip(&group.entries) {
            let measured = &entry.target.cases[index];
            let _ = write!(
                page,
                "<tr><td class=\"word\">{}</td><td class=\"word\">{}</td>",
                escaped(&measured.case.name),
                escaped(name)
            );
            for cell in table::cells(measured) {
                let _ = write!(page, "<td>{}</td>", escaped(&cell));
            }
            if let Some(bits) = link {
                let _ = write!(page, "<td>{}</td>", table::link_share(&measured.median, bits));
            }
            let _ = write!(page, "<td>×{:.2}</td></tr>", measured.median.iops / first.median.iops);
        }
    }
    *page += "</table></div>";
}

fn draw_setting(page: &mut String, group: &Likes<'_>, names: &[String]) {
    *page += "<h3>The setting</h3><table class=\"told\">";
    let mut row = |name: &str, value: &str| {
        let _ = write!(
            page,
            "<tr><th class=\"word\">{}</th><td class=\"word\">{}</td></tr>",
            escaped(name),
            escaped(value)
        );
    };
    for (field, _) in FIELDS {
        row(field, group.entries[0].target.setting.get(field));
    }
    for (name, entry) in names.iter().zip(&group.entries) {
        for (what, value) in &entry.target.about {
            row(&format!("{name}: {what}"), value);
        }
    }
    *page += "</table>";
}

/// What others have published of loads like these.
fn draw_published(page: &mut String, entries: &[Entry<'_>]) {
    let Some(first) = entries.first() else { return };
    let mut rows = String::new();
    for measured in &first.target.cases {
        for figure in published::near(&measured.case) {
            let version = figure.version.as_deref().unwrap_or("");
            let told = |count: Option<u32>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
            let load = &figure.workload;
            let words = [
                measured.case.kind(),
                format!("{} {version}", figure.system),
                format!("{} {}", table::figure(figure.value), figure.unit),
                format!(
                    "depth {}, jobs {}, clients {}, volumes {}",
                    told(load.queue_depth),
                    told(load.jobs),
                    told(load.clients),
                    told(load.volumes)
                ),
                format!("{} nodes, {} copies", told(figure.nodes), told(figure.replicas)),
                figure.hardware,
                format!("{}, {}", figure.source, figure.year),
            ];
            let mut row = "<tr>".to_owned();
            for word in words {
                let _ = write!(row, "<td class=\"word\">{}</td>", escaped(&word));
            }
            row += "</tr>";
            if !rows.contains(&row) {
                rows += &row;
            }
        }
    }
    if rows.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<h2>Published elsewhere</h2><p class=\"note\">Context, not opponents: other machines, other settings. A figure here \
         says nothing about which system is faster.</p><div class=\"wide\"><table>\
         <tr><th class=\"word\">load</th><th class=\"word\">system</th><th class=\"word\">figure</th><th class=\"word\">how</th>\
         <th class=\"word\">cluster</th><th class=\"word\">hardware</th><th class=\"word\">source</th></tr>{rows}</table></div>"
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `2026-11-25 13:00:00`, of seconds since 1970 (days to date as in Howard Hinnant's `civil_from_days`).
pub fn utc(unix_seconds: u64) -> String {
    let (days, of_day) = ((unix_seconds / 86_400) as i64, unix_seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(utc(1_795_610_781), "2026-11-25 12:46:21");
    }
}
