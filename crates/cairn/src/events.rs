//! `cairn events`: what happened in the cluster.

use crate::Failure;
use crate::client::Client;
use crate::output::{Format, print_on, show};
use clap::Args;
use node::admin::event_types::{Event, EventSeverity, Events};
use node::log::{ns_of_utc, utc_of_ns};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Events that are shown if nobody says how many.
const LAST_DEFAULT: usize = 100;
/// Between two looks of `--follow`.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// Who follows asks again for what is that old: a node that did not answer meanwhile may have seen something.
const FOLLOW_BACK: Duration = Duration::from_secs(60);
/// What nodes saw of the same is at most so far apart.
const SAME_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(crate) struct EventsArguments {
    /// From this moment on: a time in UTC, as 2026-05-04T12:00:00Z, or how long ago, as 90s, 15m, 2h, 3d
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Since>,
    /// The newest so many [default: 100, or all since --since]
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = number)]
    pub(crate) last: Option<usize>,
    /// Go on with each as it comes, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// From when on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// Ns since 1970.
    At(u64),
    /// Before now.
    Ago(Duration),
}

fn since(text: &str) -> Result<Since, String> {
    if let Some(at_ns) = ns_of_utc(text) {
        return Ok(Since::At(at_ns));
    }
    let wanted = || "write a time in UTC, as 2026-05-04T12:00:00Z, or how long ago, as 90s, 15m, 2h or 3d".to_owned();
    let unit_seconds = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => return Err(wanted()),
    };
    let count: u32 = text[..text.len() - 1].parse().map_err(|_| wanted())?;
    Ok(Since::Ago(Duration::from_secs(u64::from(count) * unit_seconds)))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "write how many, 1 or more".to_owned())
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// What the API is asked for.
fn query(asked: &EventsArguments, now_ns: u64) -> String {
    let since = asked.since.map(|since| match since {
        Since::At(at_ns) => at_ns,
        Since::Ago(ago) => now_ns.saturating_sub(ago.as_nanos() as u64),
    });
    let last = asked.last.or(if since.is_none() { Some(LAST_DEFAULT) } else { None });
    let parts = [since.map(|since| format!("since={}", utc_of_ns(since))), last.map(|last| format!("last={last}"))];
    format!("?{}", parts.into_iter().flatten().collect::<Vec<_>>().join("&"))
}

pub(crate) fn run(client: &Client, asked: &EventsArguments, format: Format) -> Result<(), Failure> {
    let began_ns = now_ns();
    let events = client.events(&query(asked, began_ns))?;
    if asked.follow {
        let earlier =
            client.events(&format!("?since={}", utc_of_ns(began_ns.saturating_sub(FOLLOW_BACK.as_nanos() as u64))))?;
        return follow(client, events, &earlier.events, began_ns, format);
    }
    show(format, &events, text)?;
    if format == Format::Text {
        tell_missing(&events.missing);
    }
    Ok(())
}

fn text(events: &Events) -> String {
    events.events.iter().map(line).collect()
}

fn line(event: &Event) -> String {
    let severity = match event.severity {
        EventSeverity::Info => "info",
        EventSeverity::Warning => "warning",
        EventSeverity::Error => "error",
    };
    format!("{}  {severity:<7}  {:<7}  {:<18}  {}\n", event.time, event.node, event.kind, event.text)
}

fn tell_missing(missing: &[String]) {
    if !missing.is_empty() {
        let does = if missing.len() == 1 { "does" } else { "do" };
        eprintln!("cairn: {} {does} not answer: what was seen there alone is missing here", missing.join(", "));
    }
}

/// Until nobody reads any more or the process is ended. A cluster that does not answer is no reason to end. What is in
/// `earlier` and older than all of `first` was not asked for.
fn follow(client: &Client, first: Events, earlier: &[Event], began_ns: u64, format: Format) -> Result<(), Failure> {
    let mut shown = Shown::new(began_ns, &first.events, earlier);
    let (mut missing, mut failed) = (Vec::new(), String::new());
    let mut next: Result<Events, Failure> = Ok(first);
    let mut is_first = true;
    loop {
        match next {
            Ok(events) => {
                let new = if std::mem::take(&mut is_first) { events.events } else { shown.new_of(events.events) };
                for event in &new {
                    let told = match format {
                        Format::Text => line(event),
                        Format::Json => serde_json::to_string(event).map_err(Failure::of)? + "\n",
                    };
                    if !print_on(&told)? {
                        return Ok(());
                    }
                }
                if events.missing != missing {
                    tell_missing(&events.missing);
                    missing = events.missing;
                }
                failed.clear();
            }
            Err(failure) => {
                // Said once, and not each second.
                if failed != failure.line() {
                    failed = failure.line().to_owned();
                    eprintln!("cairn: {failed}");
                }
            }
        }
        std::thread::sleep(FOLLOW_EVERY);
        next = client.events(&format!("?since={}", utc_of_ns(shown.since_ns())));
    }
}

/// What one event is, whoever saw it first: of several that are alike the time says which is which, and that may still become
/// another one, as another node answers that saw it earlier. So each that was shown stands for one that is near.
type Alike = (String, Vec<String>, String);

fn alike(event: &Event) -> Alike {
    // What several nodes saw is put together whatever the words are; what one did may be done by another in the same words.
    let text = if event.subjects.is_empty() { event.text.clone() } else { String::new() };
    (event.kind.clone(), event.subjects.clone(), text)
}

/// What was shown already.
struct Shown {
    /// The newest, or when this began.
    newest_ns: u64,
    events: Vec<(u64, Alike)>,
}

impl Shown {
    fn new(began_ns: u64, first: &[Event], earlier: &[Event]) -> Self {
        let mut this = Self { newest_ns: began_ns, events: Vec::new() };
        this.add(first);
        let at = |event: &Event| ns_of_utc(&event.time).unwrap_or(0);
        let oldest_ns = first.iter().map(at).min().unwrap_or(began_ns);
        this.add(earlier.iter().filter(|event| at(event) < oldest_ns));
        this
    }

    fn add<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) {
        for event in events {
            let at_ns = ns_of_utc(&event.time).unwrap_or(0);
            self.newest_ns = self.newest_ns.max(at_ns);
            self.events.push((at_ns, alike(event)));
        }
        let since_ns = self.since_ns();
        self.events.retain(|(at_ns, _)| *at_ns >= since_ns);
    }

    /// From when on it is asked for more.
    fn since_ns(&self) -> u64 {
        self.newest_ns.saturating_sub(FOLLOW_BACK.as_nanos() as u64)
    }

    /// Those of an answer that were not shown yet.
    fn new_of(&mut self, events: Vec<Event>) -> Vec<Event> {
        let mut known: Vec<Option<&(u64, Alike)>> = self.events.iter().map(Some).collect();
        let mut new = events;
        new.retain(|event| {
            let (at_ns, of_it) = (ns_of_utc(&event.time).unwrap_or(0), alike(event));
            let is_it =
                |shown: &&(u64, Alike)| shown.1 == of_it && shown.0.abs_diff(at_ns) <= SAME_MAX.as_nanos() as u64;
            match known.iter_mut().find(|shown| shown.as_ref().is_some_and(is_it)) {
                Some(shown) => {
                    *shown = None;
                    false
                }
                None => true,
            }
        });
        self.add(&new);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seconds: u64, kind: &str) -> Event {
        Event {
            time: utc_of_ns(seconds * 1_000_000_000),
            severity: EventSeverity::Warning,
            node: "node-1".to_owned(),
            kind: kind.to_owned(),
            text: format!("at {seconds}"),
            subjects: vec!["node-2".to_owned()],
            seen_by: Vec::new(),
        }
    }

    #[test]
    fn since_is_a_time_or_how_long_ago() {
        assert_eq!(since("1970-01-01T00:00:02Z"), Ok(Since::At(2_000_000_000)));
        assert_eq!(since("15m"), Ok(Since::Ago(Duration::from_secs(900))));
        for text in ["", "m", "15", "-1m", "1w", "yesterday", "2026-05-04", "é"] {
            assert!(since(text).is_err(), "{text}");
        }
        let asked = |since, last| EventsArguments { since, last, follow: false };
        assert_eq!(query(&asked(None, None), 0), "?last=100");
        assert_eq!(query(&asked(None, Some(3)), 0), "?last=3");
        let ago = asked(Some(Since::Ago(Duration::from_secs(1))), None);
        assert_eq!(query(&ago, 3_000_000_000), "?since=1970-01-01T00:00:02.000Z");
    }

    #[test]
    fn a_line_says_when_how_bad_who_and_what() {
        let told = line(&event(1, "node-away"));
        assert_eq!(told, "1970-01-01T00:00:01.000Z  warning  node-1   node-away           at 1\n");
    }

    #[test]
    fn who_follows_is_shown_each_event_once_and_one_that_happens_again_again() {
        let mut shown = Shown::new(100_000_000_000, &[event(100, "away")], &[]);
        let kinds = |events: Vec<Event>| events.into_iter().map(|event| event.text).collect::<Vec<_>>();
        assert!(shown.new_of(vec![event(100, "away")]).is_empty());
        // Another node had seen it earlier: it is the same.
        assert!(shown.new_of(vec![event(99, "away")]).is_empty());
        assert_eq!(
            kinds(shown.new_of(vec![event(99, "away"), event(102, "back"), event(103, "away")])),
            ["at 102", "at 103"]
        );
        assert!(shown.new_of(vec![event(99, "away"), event(102, "back"), event(103, "away")]).is_empty());
        // What is older than anybody asks for is forgotten.
        assert_eq!(
            kinds(shown.new_of(vec![event(103, "away"), event(500, "back")])).last().map(String::as_str),
            Some("at 500")
        );
        assert_eq!((shown.since_ns(), shown.events.len()), (440_000_000_000, 1));
    }

    #[test]
    fn who_follows_is_not_shown_later_what_is_older_than_the_first() {
        let earlier = [event(98, "away"), event(99, "back"), event(100, "away"), event(101, "back")];
        let after = |first: &[Event]| Shown::new(101_000_000_000, first, &earlier).new_of(earlier.to_vec()).len();
        assert_eq!(after(&earlier[2..3]), 1, "what came between the two answers is new");
        assert_eq!(after(&earlier[3..]), 0);
        assert_eq!(after(&[]), 1);
    }
}
