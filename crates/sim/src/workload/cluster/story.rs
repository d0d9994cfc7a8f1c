//! The story of a run, for whoever reads about a failure: faults, records as members come to know them, what nodes log.

use super::layout::Layout;
use super::machine::Machine;
use super::watch::members;
use replication::protocol::Membership;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::Once;
use std::time::Duration;
use types::{GroupId, StoreId};

thread_local! {
    /// The world's time, of a run whose story is told on this thread.
    static NOW: Cell<Option<Duration>> = const { Cell::new(None) };
}

static LOGGER: Once = Once::new();

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        NOW.get().is_some()
    }

    fn log(&self, record: &log::Record<'_>) {
        if let Some(now) = NOW.get() {
            eprintln!("{:>14.6} {} {}", now.as_secs_f64(), record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

/// What a member was known to say last.
#[derive(PartialEq, Eq)]
struct Known {
    record: Arc<Membership>,
    leads: bool,
    serves: bool,
    whole: bool,
    stopped: Option<String>,
}

/// See the module.
#[derive(Default)]
pub struct Story {
    known: BTreeMap<(GroupId, usize), Known>,
}

impl Story {
    pub fn begin() -> Self {
        LOGGER.call_once(|| {
            if log::set_logger(&Logger).is_ok() {
                log::set_max_level(log::LevelFilter::Debug);
            }
        });
        NOW.set(Some(Duration::ZERO));
        Self::default()
    }

    /// It is this late in the world.
    pub fn pass(now: Duration) {
        NOW.set(NOW.get().map(|_| now));
    }

    /// Tells what is new since it was asked last.
    pub fn go_on(&mut self, now: Duration, layout: &Layout, machines: &[Rc<Machine>]) {
        NOW.set(Some(now));
        for member in members(layout, machines) {
            let standing = member.standing;
            let known = Known {
                record: standing.record,
                leads: standing.leads,
                serves: standing.serves,
                whole: standing.whole,
                stopped: standing.stopped,
            };
            let key = (member.group, member.store);
            if self.known.get(&key) == Some(&known) {
                continue;
            }
            let Known { record, leads, serves, whole, stopped } = &known;
            let name = |id: &StoreId| layout.store_index(*id).map_or("?".to_owned(), |index| index.to_string());
            let names = |ids: &[StoreId]| ids.iter().map(name).collect::<Vec<_>>().join(" ");
            tell(format_args!(
                "group {} at store {} (node {}): epoch {} of {} life {}, in sync [{}], eligible [{}], joining [{}]{}{}{}, committed {}, durable {}{}",
                member.group,
                member.store,
                layout.stores[member.store].node,
                record.epoch,
                name(&record.primary),
                record.life,
                names(&record.in_sync),
                names(&record.eligible),
                names(&record.joining),
                if *leads { ", leads" } else { "" },
                if *serves { ", serves" } else { "" },
                if *whole { "" } else { ", not whole" },
                standing.committed,
                standing.durable,
                stopped.as_ref().map_or_else(String::new, |why| format!(", stopped: {why}")),
            ));
            self.known.insert(key, known);
        }
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        NOW.set(None);
    }
}

/// A line of the story, if one is told.
pub fn tell(line: std::fmt::Arguments<'_>) {
    if let Some(now) = NOW.get() {
        eprintln!("{:>14.6} {line}", now.as_secs_f64());
    }
}
