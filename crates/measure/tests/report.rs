//! Results as files, side by side and drawn: through the public surface, from what fio really said.

use measure::compare;
use measure::fio::{self, FioResult};
use measure::machine::{ProcessUse, Use};
use measure::profile::Profile;
use measure::record::{CaseRecord, FORMAT, Layer, Moment, Record, Sample, TargetRecord, VERSION};
use measure::series::{Failure, HostLoad, Io, Log, Mark, Times};
use measure::setting::{FIELDS, Setting};
use measure::{report, table};
use std::collections::BTreeMap;

const MIXED: &str = include_str!("mixed.json");

/// A record of the profile, every case of which is what fio said of a mix, `speed` times as fast.
fn record(profile: &str, target: &str, speed: f64) -> Record {
    let sample = || {
        let FioResult { mut all, read, write, sync } = fio::parse(MIXED).unwrap();
        all.iops *= speed;
        let process = ProcessUse { name: "cairn".to_owned(), count: 3, cores: 0.5, resident_bytes: 3 << 20 };
        let spent = Use {
            seconds: 1.0,
            machine_cores: 1.0,
            processes: vec![process],
            client_cores: Some(0.25),
            device_write_bytes_per_second: Some(write.as_ref().unwrap().mib_per_second * 3.0 * f64::from(1 << 20)),
            device_read_bytes_per_second: None,
            network_bytes_per_second: None,
        };
        Sample { all, read, write, sync, spent: Some(spent), ping_pong_per_second: 20_000.0, moments: Vec::new() }
    };
    let cases = Profile::named(profile).unwrap().cases(false);
    let mut setting = Setting::default();
    for (field, _) in FIELDS {
        setting.set(field, "3");
    }
    let cases = cases.into_iter().map(|case| CaseRecord::new(case, vec![sample(), sample()])).collect();
    let about = BTreeMap::from([("engine".to_owned(), "nbd".to_owned())]);
    Record {
        format: FORMAT.to_owned(),
        version: VERSION,
        profile: profile.to_owned(),
        quick: false,
        started_unix_seconds: 1_795_610_781,
        repeats: 2,
        targets: vec![TargetRecord {
            target: target.to_owned(),
            setting,
            about,
            cases,
            layer: None,
            failure: None,
            link_bits_per_second: None,
        }],
    }
}

fn page(records: &[(String, Record)]) -> String {
    report::html(&compare::entries(records))
}

/// Panics unless every element that opens closes, in order, attributes are quoted and entities are known.
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("an HTML page");
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "a stray '>' in {}", &rest[..at]);
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes what is open");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?} stay open");
    for (at, _) in page.match_indices('&') {
        let entity = page[at..].split(';').next().unwrap();
        assert!(["&amp", "&lt", "&gt", "&quot", "&apos"].contains(&entity) || entity.starts_with("&#"), "{entity}");
    }
}

#[test]
fn the_report_is_one_well_formed_file_without_anything_outside() {
    let records = [
        ("a.json".to_owned(), record("depth", "cairn:data", 2.0)),
        ("b.json".to_owned(), record("depth", "<&\"", 1.0)),
    ];
    let page = page(&records);
    assert_well_formed(&page);
    let outside = ["src=", "href=", "url(", "@import", "<script", "<link", "<img", "<iframe", "<object"];
    for word in outside {
        assert!(!page.contains(word), "the page has {word}");
    }
    // The name of SVG's namespace is no address that anything asks.
    let addresses = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!addresses.contains("http://") && !addresses.contains("https://"));
    assert!(page.contains("<svg") && page.contains("mean latency") && page.contains("71,021"), "charts and figures");
    assert!(page.contains("Published elsewhere"));
    assert!(!page.contains("Apart"));
}

/// What stands between two words, the first time.
fn part<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    page.split_once(begin).expect(begin).1.split_once(end).expect(end).0
}

#[test]
fn the_report_is_readable_on_a_phone_and_in_print() {
    let page = page(&[("a.json".to_owned(), record("eight", "cairn:data", 1.0))]);
    let head = part(&page, "<head>", "</head>");
    assert!(head.contains(r#"<meta name="viewport" content="width=device-width, initial-scale=1"/>"#), "{head}");
    let print = part(head, "@media print{", "</style>");
    // What a screen scrolls paper must show whole, and no chart is cut in two.
    assert!(
        print.contains(".wide{overflow:visible}") && head.contains("figure{margin:0;break-inside:avoid}"),
        "{head}"
    );
    assert!(head.contains("svg{max-width:100%;height:auto}") && head.contains(".wide{overflow-x:auto}"), "{head}");
    // Every wide table is in what scrolls, and every chart in what shrinks.
    assert_eq!(page.matches("<table>").count(), page.matches("<div class=\"wide\"><table>").count());
    assert_eq!(page.matches("<svg").count(), page.replace('\n', "").matches("</svg></figure>").count());
}

#[test]
fn a_histogram_shows_where_latencies_lie() {
    let mut record = record("eight", "cairn:data", 1.0);
    // Half of them fast, half of them a hundred times slower, in each repeat of the first case.
    let bucket = |up_to_us, ios| measure::fio::Bucket { up_to_us, ios };
    for sample in &mut record.targets[0].cases[0].samples {
        sample.all.histogram = vec![bucket(100.0, 500), bucket(1_000.0, 0), bucket(10_000.0, 500)];
    }
    let page = page(&[("a.json".to_owned(), record)]);
    let drawn = part(&page, "How latencies are spread", "All figures");
    let first = part(drawn, "4k random write, depth 1, fsync</figcaption>", "</figure>");
    // Both have the same share, a hundred times apart; the empty bucket is none. A mark more is the legend's.
    let centre = |circle: &str| (number(circle, "cx"), number(circle, "cy"));
    let marks: Vec<(f64, f64)> = first.split("<circle").skip(1).map(centre).collect();
    assert_eq!(marks.len(), 3, "{first}");
    assert!((marks[0].1 - marks[1].1).abs() < 1.0 && marks[1].0 - marks[0].0 > 150.0, "{marks:?}");
    assert!(first.contains("latency, µs") && first.contains("% of I/Os"), "{first}");
}

/// A figure among the attributes of an element.
fn number(element: &str, attribute: &str) -> f64 {
    part(element, &format!("{attribute}=\""), "\"").parse().expect("a number")
}

#[test]
fn each_fault_is_marked_where_it_was() {
    let marked = page(&[("a.json".to_owned(), failure(Some(6.0)))]);
    let mut without = failure(Some(6.0));
    without.targets[0].failure.as_mut().unwrap().marks.clear();
    let without = page(&[("a.json".to_owned(), without)]);
    let charts = |page: &str| part(page, "I/Os a second</figcaption>", "<ol>").to_owned();
    let (marked, without) = (charts(&marked), charts(&without));
    // The mark's line in both charts, and its number.
    assert_eq!(marked.matches("<polyline").count(), without.matches("<polyline").count() + 2);
    assert_eq!(marked.matches(">\n1\n<").count(), without.matches(">\n1\n<").count() + 2);
    // It stands upright, 2 s of 9 from the left.
    let is_upright = |line: &str| {
        let points: Vec<&str> = part(line, "points=\"", "\"").split_whitespace().collect();
        let x = |point: &str| point.split(',').next().unwrap().to_owned();
        (points.len() == 2 && x(points[0]) == x(points[1])).then(|| x(points[0]).parse::<f64>().unwrap())
    };
    // The plot begins 74 pixels from the left and ends 8 from the right of 440; an axis may have a tick there, too.
    let wanted = 74.0 + (440.0 - 74.0 - 8.0) * 2.0 / 9.0;
    let there = |charts: &str| {
        let upright = charts.split("<polyline").skip(1).filter_map(is_upright);
        upright.filter(|x| (x - wanted).abs() < 3.0).count()
    };
    assert_eq!(there(&marked), there(&without) + 2);
}

#[test]
fn a_ladder_has_all_figures_of_all_its_steps_and_no_ratio_but_to_the_step_below() {
    let mut both = record("depth", "plain", 1.0);
    let mut striped = record("depth", "striped", 2.0).targets.remove(0);
    striped.setting.set("placement", "spread");
    let layer = |name: &str, over: Option<&str>| Some(Layer { name: name.to_owned(), over: over.map(str::to_owned) });
    (both.targets[0].layer, striped.layer) = (layer("plain", None), layer("striped", Some("plain")));
    both.targets.push(striped);
    let records = [("a.json".to_owned(), both)];
    let (text, page) = (table::text(&compare::entries(&records)), page(&records));
    assert!(text.contains("striped, other than plain: placement: 3 → spread"), "{text}");
    assert!(text.contains("200 %") && text.contains("p99.9") && !text.contains("x2.00"), "{text}");
    assert!(!text.contains("not to be compared") && !page.contains("Apart"), "{text}");
    // Both curves in one chart.
    let curves = part(&page, "4k random write: latency</figcaption>", "</figure>");
    assert!(curves.contains("plain") && curves.contains("striped"));
    assert_well_formed(&page);
}

#[test]
fn every_profile_is_drawn() {
    for profile in measure::profile::PROFILES {
        assert_well_formed(&page(&[("a.json".to_owned(), record(profile.name, "cairn:data", 1.0))]));
    }
}

fn failure(whole_seconds: Option<f64>) -> Record {
    let io = |at: u32| Io { at_us: at * 10_000, latency_us: 700, writes: at.is_multiple_of(2), failed: at % 100 == 3 };
    let answered = (0..200).chain(400..if whole_seconds.is_some() { 900 } else { 400 });
    let log = Log { ios: answered.map(io).collect(), seconds: 9.0, unanswered: vec![5.0; 4] };
    let times = Times { fault_seconds: 2.0, noticed_seconds: Some(2.5), mended_seconds: Some(4.0), whole_seconds };
    let marks = vec![Mark { at_seconds: 2.0, what: "a <node> is killed".to_owned() }];
    let load = HostLoad { generator: "x".to_owned(), block_size_bytes: 4096, read_percent: 50, depth: 4 };
    let mut record = record("failure", "node-killed", 1.0);
    record.targets[0].failure = Some(Failure::new("node-killed", load, times, marks, &log));
    record
}

#[test]
fn a_failure_that_never_ends_is_told_as_that() {
    let records = [("a.json".to_owned(), failure(None))];
    let entries = compare::entries(&records);
    let (text, page) = (table::text(&entries), page(&records));
    for told in [&text, &page] {
        // First read, first write, all copies.
        assert_eq!(told.matches("never in 7").count(), 3, "{told}");
    }
    assert_well_formed(&page);
    assert!(page.contains("2.00 s: a &lt;node&gt; is killed") && page.contains("<svg"));
    let ended = [("a.json".to_owned(), failure(Some(6.0)))];
    let text = table::text(&compare::entries(&ended));
    assert!(!text.contains("never") && text.contains("4.00"), "{text}");
}

#[test]
fn a_failure_is_kept_as_it_was_and_its_csv_has_every_step() {
    let kept = failure(None);
    let read: Record = serde_json::from_str(&kept.to_json()).unwrap();
    assert_eq!(read, kept);
    assert_eq!(table::csv(&kept).lines().count(), 1 + 90);
    // Nothing was answered then, and so took no time that could be told.
    assert!(table::csv(&kept).lines().any(|line| line.ends_with(",3.000,0,0,,")), "{}", table::csv(&kept));
}

#[test]
fn only_the_same_fault_or_layer_is_held_against_another() {
    let mut other = failure(Some(6.0));
    other.targets[0].failure.as_mut().unwrap().fault = "link-cut".to_owned();
    other.targets[0].setting.set("locality", "elsewhere");
    let records = [("a.json".to_owned(), failure(Some(6.0))), ("b.json".to_owned(), other)];
    compare::refuse_unlike(&compare::entries(&records)).unwrap();
    assert!(!table::text(&compare::entries(&records)).contains("not to be compared"));
    let mut deeper = failure(Some(6.0));
    deeper.targets[0].failure.as_mut().unwrap().load.depth = 8;
    let records = [("a.json".to_owned(), failure(Some(6.0))), ("b.json".to_owned(), deeper)];
    assert!(compare::refuse_unlike(&compare::entries(&records)).unwrap_err().to_string().contains("outstanding I/O"));
    let layers = |copies: &str| {
        let mut record = record("layers", "three copies", 1.0);
        record.targets[0].layer = Some(Layer { name: "three copies".to_owned(), over: None });
        record.targets[0].setting.set("copies", copies);
        record
    };
    let records = [("a.json".to_owned(), layers("3")), ("b.json".to_owned(), layers("2"))];
    assert!(compare::refuse_unlike(&compare::entries(&records)).is_err());
    assert!(page(&records).contains("Apart: another setting"));
    assert_well_formed(&page(&records));
}

#[test]
fn cpu_and_memory_over_time_are_drawn() {
    let mut with = record("stress", "cairn:data", 1.0);
    let moment = |at_seconds| Moment {
        at_seconds,
        machine_cores: 1.5,
        target_cores: Some(0.5),
        client_cores: None,
        resident_bytes: Some(9 << 20),
    };
    with.targets[0].cases[0].samples[0].moments = (0..10).map(|at| moment(f64::from(at))).collect();
    let page = page(&[("a.json".to_owned(), with.clone())]);
    assert_well_formed(&page);
    assert!(page.contains("CPU and memory over time"));
    assert_eq!(
        serde_json::from_str::<Record>(&with.to_json()).unwrap().targets[0].cases[0].samples[0].moments.len(),
        10
    );
}

#[test]
fn what_a_slow_link_carries_is_told() {
    let mut slow = record("network", "gathered", 1.0);
    slow.targets[0].link_bits_per_second = Some(8 << 20);
    let text = table::text(&compare::entries(&[("a.json".to_owned(), slow)]));
    assert!(text.contains("of the link") && text.contains(" %"), "{text}");
}

#[test]
fn alike_runs_are_compared() {
    let records = [
        ("a.json".to_owned(), record("eight", "cairn:data", 1.0)),
        ("b.json".to_owned(), record("eight", "rbd:p/i", 0.5)),
    ];
    let entries = compare::entries(&records);
    compare::refuse_unlike(&entries).unwrap();
    let text = table::text(&entries);
    assert!(text.contains("x1.00") && text.contains("x0.50") && !text.contains("not to be compared"), "{text}");
}

#[test]
fn unlike_runs_are_refused_and_the_field_is_named() {
    for (field, _) in FIELDS {
        let mut other = record("eight", "file:x", 1.0);
        other.targets[0].setting.set(field, "1");
        let records = [("a.json".to_owned(), record("eight", "cairn:data", 1.0)), ("b.json".to_owned(), other)];
        let entries = compare::entries(&records);
        let refused = compare::refuse_unlike(&entries).unwrap_err().to_string();
        assert!(refused.contains(&format!("{field} is '3' and '1'")), "{refused}");
        assert!(refused.contains("--context") && refused.contains("a.json") && refused.contains("b.json"), "{refused}");
        // Apart, no figure of one is set in relation to the other.
        let text = table::text(&entries);
        assert!(text.contains("not to be compared") && !text.contains("x1.00"), "{text}");
        assert!(page(&records).contains("Apart: another setting"));
    }
}

#[test]
fn another_profile_quick_runs_and_other_cases_are_unlike() {
    let first = || ("a.json".to_owned(), record("eight", "cairn:data", 1.0));
    let refused = |other: Record| {
        let records = [first(), ("b.json".to_owned(), other)];
        compare::refuse_unlike(&compare::entries(&records)).unwrap_err().to_string()
    };
    assert!(refused(record("mix", "cairn:data", 1.0)).contains("profile is 'eight' and 'mix'"));
    let mut quick = record("eight", "cairn:data", 1.0);
    quick.quick = true;
    assert!(refused(quick).contains("quick is 'false' and 'true'"));
    let mut fewer = record("eight", "cairn:data", 1.0);
    fewer.targets[0].cases.pop();
    assert!(refused(fewer).contains("outstanding I/O"));
}

#[test]
fn figures_per_io_and_per_byte_follow_from_what_was_measured() {
    let record = record("mix", "cairn:data", 1.0);
    let median = &record.targets[0].cases[0].median;
    let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() <= b * 0.001, "{a:?} is not {b}");
    near(median.machine_cpu_us_per_io, 1e6 / 35_510.49);
    near(median.process_cpu_us_per_io.get("cairn").copied(), 5e5 / 35_510.49);
    near(median.iops_per_storage_core, 35_510.49 / 0.5);
    near(median.device_write_bytes_per_client_byte, 3.0);
    near(median.resident_bytes, f64::from(3 << 20));
    assert_eq!(median.network_bytes_per_client_byte, None);
}

#[test]
fn a_file_holds_what_was_measured_and_what_is_none_is_refused() {
    let directory = std::env::temp_dir().join(format!("cairn-measure-report-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("a.json");
    let kept = record("eight", "cairn:data", 1.0);
    std::fs::write(&path, kept.to_json()).unwrap();
    let read = Record::read(&path).unwrap();
    assert_eq!(read.targets[0].setting, kept.targets[0].setting);
    // To a thousandth: the last digit of a binary fraction may be another after it was text.
    assert_eq!(table::csv(&read), table::csv(&kept));
    for (text, why) in [
        ("x", "is not JSON"),
        ("{}", "is no result"),
        (r#"{"format": "cairn-bench", "version": 99}"#, "version 99"),
        (r#"{"format": "cairn-bench", "version": 1}"#, "version 1"),
        (r#"{"format": "cairn-bench", "version": 2}"#, "is damaged"),
    ] {
        std::fs::write(&path, text).unwrap();
        let refused = Record::read(&path).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
    let lines = table::csv(&kept).lines().count();
    assert_eq!(lines, 1 + 8 * 2);
    // Commas outside of quotes.
    let columns = |line: &str| line.split('"').step_by(2).map(|part| part.matches(',').count()).sum::<usize>();
    let csv = table::csv(&kept);
    assert!(csv.lines().all(|line| columns(line) == 21), "{csv}");
}
