//! The route that says what happened; and what all nodes saw, put together.

use super::elsewhere::IsPassedOn;
use super::error::ApiError;
use super::event_types::{Event, Events};
use super::server::Shared;
use super::types::ErrorBody;
use crate::events::kind;
use crate::log::ns_of_utc;
use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use std::collections::HashMap;
use std::time::Duration;

/// What two nodes note of the same within this is one event: they look once a second, and a map that is away for one of them is away
/// for seconds.
const TOGETHER_MAX: Duration = Duration::from_secs(30);

/// Which events are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// From this moment on, ns since 1970.
    since_ns: u64,
    /// No more than so many, the newest.
    last: Option<usize>,
}

impl Wanted {
    /// As the query says it; it may say nothing else.
    pub(super) fn of(query: Option<&str>) -> Result<Self, ApiError> {
        let mut wanted = Self::default();
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "since" => {
                    let value = value.replace("%3A", ":").replace("%3a", ":");
                    wanted.since_ns = ns_of_utc(&value).ok_or_else(|| {
                        ApiError::bad_request(
                            format!("since is no time in UTC: '{}'", crate::volume_spec::shortened(&value)),
                            "write ?since=2026-05-04T12:00:00Z",
                        )
                    })?;
                }
                "last" => {
                    let last = value.parse().ok().filter(|last| *last > 0);
                    wanted.last = Some(last.ok_or_else(|| {
                        ApiError::bad_request(
                            "last is no number of events",
                            "write ?last=100, or leave it away for all",
                        )
                    })?);
                }
                _ => {
                    return Err(ApiError::bad_request(
                        format!("'{}' says nothing about events", crate::volume_spec::shortened(name)),
                        "write ?since=TIME or ?last=NUMBER, or both with & between them",
                    ));
                }
            }
        }
        Ok(wanted)
    }

    /// What another node is asked for: how many of it are among the last is not known before all are together.
    pub(super) fn path_for_part(&self) -> String {
        format!("/v1/events?since={}", crate::log::utc_of_ns(self.since_ns))
    }

    /// The last of them.
    pub(super) fn cut(&self, mut events: Vec<Event>) -> Vec<Event> {
        if let Some(last) = self.last {
            events.drain(..events.len().saturating_sub(last));
        }
        events
    }
}

/// What happened, the newest last: what the nodes saw, and what they were told to do. Bounded: each node remembers the newest some
/// thousand.
#[utoipa::path(get, path = "/v1/events", params(
    ("since" = Option<String>, Query, description = "from this moment on, RFC 3339 in UTC"),
    ("last" = Option<usize>, Query, description = "the newest so many")), responses(
    (status = 200, body = Events), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(super) async fn get_events(
    State(admin): Shared,
    passed_on: Option<Extension<IsPassedOn>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Events>, ApiError> {
    let wanted = Wanted::of(query.as_deref())?;
    let events = admin.events.since(wanted.since_ns);
    let is_part = admin.is_shared || passed_on.is_some();
    let events = if is_part { events } else { wanted.cut(together(vec![events])) };
    Ok(Json(Events { events, missing: Vec::new() }))
}

/// Whether every node notes it for itself.
fn is_seen_by_all(event: &Event) -> bool {
    kind::SEEN_BY_ALL.iter().any(|kind| kind.name == event.kind)
}

/// What it is about: later events about the same are of a later state of it.
fn matter_of(event: &Event) -> (String, String) {
    let what = event.kind.split('-').next().unwrap_or_default();
    let whose = match what {
        "groups" | "health" => "",
        _ => event.subjects.first().map_or("", String::as_str),
    };
    (what.to_owned(), whose.to_owned())
}

/// The events of all nodes in the order of their times, those once that several saw.
pub(super) fn together(parts: Vec<Vec<Event>>) -> Vec<Event> {
    let mut all: Vec<(u64, Event)> =
        parts.into_iter().flatten().map(|event| (ns_of_utc(&event.time).unwrap_or(0), event)).collect();
    all.sort_by(|one, other| (one.0, &one.1.node).cmp(&(other.0, &other.1.node)));
    let mut told: Vec<(u64, Event)> = Vec::with_capacity(all.len());
    let mut of_kind: HashMap<(String, Vec<String>), Vec<usize>> = HashMap::new();
    // What a node has seen of a matter last.
    let mut last: HashMap<(String, (String, String)), usize> = HashMap::new();
    for (at_ns, mut event) in all {
        if is_seen_by_all(&event) {
            let same = of_kind.entry((event.kind.clone(), event.subjects.clone())).or_default();
            same.retain(|place| at_ns - told[*place].0 <= TOGETHER_MAX.as_nanos() as u64);
            // The second time that a node sees it is another event, and so is what it sees behind something else about the same.
            let whose = (event.node.clone(), matter_of(&event));
            let before = last.get(&whose).copied();
            if let Some(place) = same.iter().copied().find(|place| before.is_none_or(|before| *place > before)) {
                told[place].1.seen_by.push(event.node);
                last.insert(whose, place);
                continue;
            }
            last.insert(whose, told.len());
            same.push(told.len());
        }
        event.seen_by = vec![event.node.clone()];
        told.push((at_ns, event));
    }
    told.into_iter().map(|(_, event)| event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::kind::{GROUPS_LACK_COPIES, GROUPS_WHOLE, NODE_AWAY, NODE_BACK, VOLUME_CREATED};

    fn event(seconds: u64, node: &str, kind: kind::Kind, subject: &str) -> Event {
        Event {
            node: node.to_owned(),
            kind: kind.name.to_owned(),
            subjects: vec![subject.to_owned()],
            ..crate::events::tests::event(seconds, &format!("{subject} seen by {node}"))
        }
    }

    fn told(events: &[Event]) -> Vec<(String, String, usize)> {
        events.iter().map(|event| (event.time[17..19].to_owned(), event.kind.clone(), event.seen_by.len())).collect()
    }

    #[test]
    fn what_several_nodes_saw_is_one_event_each_time_that_it_happened() {
        let one = vec![
            event(1, "node-1", NODE_AWAY, "node-2"),
            event(5, "node-1", NODE_BACK, "node-2"),
            event(9, "node-1", NODE_AWAY, "node-2"),
        ];
        let three = vec![
            event(2, "node-3", NODE_AWAY, "node-2"),
            event(4, "node-3", NODE_BACK, "node-2"),
            event(10, "node-3", NODE_AWAY, "node-2"),
            event(10, "node-3", NODE_AWAY, "node-4"),
        ];
        let expected = [("01", "node-away", 2), ("04", "node-back", 2), ("09", "node-away", 2), ("10", "node-away", 1)];
        let expected = expected.map(|(time, kind, count)| (time.to_owned(), kind.to_owned(), count));
        for parts in [vec![one.clone(), three.clone()], vec![three, one]] {
            let events = together(parts);
            assert_eq!(told(&events), expected);
            assert_eq!(
                (&*events[1].node, &*events[0].seen_by),
                ("node-3", &["node-1".to_owned(), "node-3".to_owned()][..])
            );
        }
    }

    /// One node saw groups whole that another saw lacking all the time: when that one sees them whole, it is another time.
    #[test]
    fn what_a_node_saw_behind_something_else_is_no_part_of_what_was_before() {
        let of_groups = |seconds, node, kind| Event { subjects: Vec::new(), ..event(seconds, node, kind, "") };
        let one = vec![of_groups(1, "node-1", GROUPS_LACK_COPIES), of_groups(3, "node-1", GROUPS_WHOLE)];
        let other = vec![
            of_groups(1, "node-2", GROUPS_LACK_COPIES),
            Event { subjects: vec!["node-3".to_owned()], ..of_groups(8, "node-2", GROUPS_LACK_COPIES) },
            of_groups(20, "node-2", GROUPS_WHOLE),
        ];
        let events = together(vec![one, other]);
        let expected = [
            ("01", "groups-lack-copies", 2),
            ("03", "groups-whole", 1),
            ("08", "groups-lack-copies", 1),
            ("20", "groups-whole", 1),
        ];
        assert_eq!(told(&events), expected.map(|(time, kind, count)| (time.to_owned(), kind.to_owned(), count)));
    }

    #[test]
    fn what_is_far_apart_or_was_done_twice_stays_two_events() {
        let far = [event(1, "node-1", NODE_AWAY, "node-2"), event(40, "node-3", NODE_AWAY, "node-2")];
        assert_eq!(together(far.map(|event| vec![event]).to_vec()).len(), 2);
        let done = [event(1, "node-1", VOLUME_CREATED, "a"), event(2, "node-3", VOLUME_CREATED, "a")];
        assert_eq!(together(done.map(|event| vec![event]).to_vec()).len(), 2);
    }

    #[test]
    fn the_query_says_since_when_and_how_many() {
        let wanted = Wanted::of(Some("since=1970-01-01T00:00:02Z&last=2")).unwrap();
        assert_eq!(wanted, Wanted { since_ns: 2_000_000_000, last: Some(2) });
        let encoded = Wanted::of(Some("since=1970-01-01T00%3A00%3A02Z")).unwrap();
        assert_eq!((encoded.since_ns, encoded.last), (wanted.since_ns, None));
        assert_eq!(Wanted::of(Some(encoded.path_for_part().split_once('?').unwrap().1)).unwrap(), encoded);
        let events = [1, 2, 3].map(|seconds| event(seconds, "node-1", NODE_AWAY, "a")).to_vec();
        assert_eq!(told(&wanted.cut(events)).len(), 2);
        assert_eq!(Wanted::of(None).unwrap(), Wanted::default());
        for query in ["since=", "since=now", "last=0", "last=x", "until=1"] {
            assert!(Wanted::of(Some(query)).is_err(), "{query}");
        }
    }
}
