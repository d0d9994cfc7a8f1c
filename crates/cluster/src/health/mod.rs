//! What is wrong, what is at risk because of it, what is being done, when that ends, and what to run: a pure function of the
//! map's records.
//!
//! ```text
//!   a listing of the map ─► Known ──┐
//!                                   ├─► findings: most urgent first ─► `GET /v1/status`, `cairn status`
//!   since when who is away, a rate,─┘       cause · losses · work · command
//!   the caller's own devices: Looks
//! ```
//!
//! Every node can ask it and gets the same, whoever the nodes are to it: what they have to say of themselves is in the map. Only
//! what no record holds comes from [`Looks`]: since when somebody is away, how fast copies are made (two looks at what is left),
//! and how exactly the devices of the caller are, which the map knows to a 64th.
//!
//! What is not as it should be says all five: cause, what is at risk (or that nothing is), what is being done (or that nothing is, and
//! why), when that ends, and what to run, be it only to watch ([`Finding::lacks`]). No time is promised that is not known: where nobody
//! has seen a rate yet, what ends it is said, and no time.

mod devices;
mod groups;
mod known;
mod losses;
mod nodes;
mod releases;
mod volumes;
mod words;
mod work;

pub use devices::{DeviceLook, REFUSED_PERCENT, Trash, WARNING_PERCENT, of_device};
pub use known::Known;
pub use losses::{Harm, Loss, of_damage};
pub use words::{ago, named};
pub use work::{End, Rate, Seen, Work, WorkKind};

use std::collections::BTreeMap;
use types::{NodeId, StoreId};

/// How bad it is, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it is meant to be; somebody may want to know.
    Ok,
    /// Everything is served, with less in reserve than there should be.
    Degraded,
    /// One more loss stops or loses something, or what is left is nearly used up.
    AtRisk,
    /// Something is not served.
    Stopped,
}

/// One thing that somebody should know.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What is the matter, in plain words.
    pub cause: String,
    /// What one more loss would do, or a device that is full does; the worst first.
    pub at_risk: Vec<Loss>,
    /// What is being done.
    pub doing: Option<Work>,
    /// What to do; with a command it leads up to that.
    pub advice: String,
    /// The command to run, if only to see how it goes on; empty of what is as it is meant to be.
    pub command: String,
}

/// The command where nothing is to be done: it shows how it goes on.
pub const WATCH: &str = "cairn status --watch";

impl Finding {
    /// Something that is the matter.
    pub fn new(severity: Severity, cause: impl Into<String>) -> Self {
        Self {
            severity,
            cause: cause.into(),
            at_risk: Vec::new(),
            doing: None,
            advice: String::new(),
            command: String::new(),
        }
    }

    /// The same, with what to do.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>, command: impl Into<String>) -> Self {
        Self { advice: advice.into(), command: command.into(), ..self }
    }

    /// The same, with what is being done.
    #[must_use]
    pub fn doing(self, work: Work) -> Self {
        Self { doing: Some(work), ..self }
    }

    /// The same, with what one more loss would do; that makes it worse.
    #[must_use]
    pub fn risking(self, at_risk: Vec<Loss>) -> Self {
        let severity = if at_risk.is_empty() { self.severity } else { self.severity.max(Severity::AtRisk) };
        Self { severity, at_risk, ..self }
    }

    /// The same; nothing can be done but wait, until this has happened.
    #[must_use]
    pub fn waits(self, subject: &str, text: impl Into<String>, until: impl Into<String>) -> Self {
        self.doing(Work::plain(WorkKind::Wait, subject, text, End::When(until.into())))
    }

    /// The same, with something at risk, or out of service, that makes it no worse.
    #[must_use]
    pub fn with(mut self, loss: impl Into<Option<Loss>>) -> Self {
        self.at_risk.extend(loss.into());
        self
    }

    /// The same; where nothing is at risk, that is said.
    #[must_use]
    pub fn or_no_risk(self) -> Self {
        if self.at_risk.is_empty() { self.with(Loss::plain(Harm::Nothing)) } else { self }
    }

    /// What it leaves open, of what each must say that is not as it should be.
    pub fn lacks(&self) -> Vec<&'static str> {
        let (text, ends) = match &self.doing {
            Some(Work { text, end: End::When(until), .. }) => (&text[..], &until[..]),
            Some(Work { text, end: End::AtNs(_), .. }) => (&text[..], "then"),
            None => ("", ""),
        };
        let all = [
            (self.cause.is_empty(), "a cause"),
            (self.at_risk.is_empty(), "what is at risk"),
            (text.is_empty(), "what is being done"),
            (ends.is_empty(), "when that ends"),
            (self.advice.is_empty() || self.command.is_empty(), "what to run"),
        ];
        let lacks = all.into_iter().filter(|(is_missing, _)| *is_missing && self.severity != Severity::Ok);
        lacks.map(|(_, what)| what).collect()
    }

    /// What to do, as one sentence; empty: nothing.
    pub fn remedy(&self) -> String {
        match (&self.advice[..], &self.command[..]) {
            (advice, "") => advice.to_owned(),
            ("", command) => format!("`{command}`"),
            (advice, command) => format!("{advice} `{command}`"),
        }
    }
}

/// What the map does not say.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    /// Wall time, ns since 1970.
    pub now_ns: u64,
    /// Stores that have no session, and since when somebody has seen that.
    pub away_since: BTreeMap<StoreId, u64>,
    /// How fast copies are made, if that was seen.
    pub rate: Option<Rate>,
    /// Devices that the caller looks at itself.
    pub devices: BTreeMap<StoreId, DeviceLook>,
}

/// All there is to know, the most urgent first.
pub fn findings(known: &Known, looks: &Looks) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(why) = known.unreadable() {
        let cause = format!("nothing is moved: {why}");
        let finding = Finding::new(Severity::Degraded, cause).with(Loss::plain(Harm::Told(losses::UNMENDED)));
        let finding =
            finding.waits("", "nothing: what is not understood is left as it is", "this node runs a newer program");
        found.push(finding.advise("start a newer program on this node; which one the others run:", "cairn upgrade"));
    }
    nodes::find(known, looks, &mut found);
    releases::find(known, &mut found);
    devices::find(known, looks, &mut found);
    groups::find(known, looks, &mut found);
    volumes::find(known, &mut found);
    // Stable: of the same severity, in the order of the floors.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

/// A node, as people name it.
pub(crate) fn node_name(node: NodeId) -> String {
    match node.client_number() {
        Some(number) => format!("client-{number}"),
        None => format!("node-{node}"),
    }
}

#[cfg(test)]
mod tests;
