//! Which results may stand side by side.

use crate::MeasureError;
use crate::record::{Record, TargetRecord};
use crate::setting::Difference;

/// A target's results, and where they come from.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The file's name, or the profile's if it was measured just now.
    pub from: &'a str,
    /// The run.
    pub record: &'a Record,
    /// Its target.
    pub target: &'a TargetRecord,
}

impl Entry<'_> {
    /// The step of a ladder or the fault that it is about: others are another matter, and not held against it.
    pub fn subject(&self) -> Option<&str> {
        let layer = self.target.layer.as_ref().map(|layer| layer.name.as_str());
        layer.or(self.target.failure.as_ref().map(|failure| failure.fault.as_str()))
    }

    /// What differs from another one; none: they may be compared.
    pub fn differences(&self, other: &Entry<'_>) -> Vec<Difference> {
        let mut differences = Vec::new();
        let mut differ = |field: &str, first: String, second: String| {
            if first != second {
                differences.push(Difference { field: field.to_owned(), first, second });
            }
        };
        differ("profile", self.record.profile.clone(), other.record.profile.clone());
        differ("quick", self.record.quick.to_string(), other.record.quick.to_string());
        let outstanding = |entry: &Entry<'_>| {
            let names = entry.target.cases.iter().map(|measured| measured.case.name.clone());
            let load = entry.target.failure.as_ref().map(|failure| format!("{:?}", failure.load));
            names.chain(load).collect::<Vec<String>>().join("; ")
        };
        differ("outstanding I/O", outstanding(self), outstanding(other));
        differences.extend(self.target.setting.differences(&other.target.setting));
        differences
    }
}

/// All targets of all records.
pub fn entries<'a>(records: &'a [(String, Record)]) -> Vec<Entry<'a>> {
    let of =
        |(from, record): &'a (String, Record)| record.targets.iter().map(move |target| Entry { from, record, target });
    records.iter().flat_map(of).collect()
}

/// Entries that are alike, with what tells the others from the first of all.
pub struct Likes<'a> {
    /// Alike among themselves.
    pub entries: Vec<Entry<'a>>,
    /// From the first group that is about the same; none: it is that.
    pub differences: Vec<Difference>,
}

/// Puts together what is alike and about the same.
pub fn groups<'a>(entries: &[Entry<'a>]) -> Vec<Likes<'a>> {
    let mut groups: Vec<Likes<'a>> = Vec::new();
    for entry in entries {
        let is_alike = |first: &Entry<'_>| first.subject() == entry.subject() && first.differences(entry).is_empty();
        match groups.iter_mut().find(|group| is_alike(&group.entries[0])) {
            Some(group) => group.entries.push(*entry),
            None => {
                let first = groups.iter().find(|group| group.entries[0].subject() == entry.subject());
                let differences = first.map(|first| first.entries[0].differences(entry)).unwrap_or_default();
                groups.push(Likes { entries: vec![*entry], differences });
            }
        }
    }
    groups
}

/// Refuses unlike ones that are about the same.
///
/// # Errors
/// Names the first two that are not alike, and every field in which they differ.
pub fn refuse_unlike(entries: &[Entry<'_>]) -> Result<(), MeasureError> {
    for (at, other) in entries.iter().enumerate() {
        let Some(first) = entries[..at].iter().find(|first| first.subject() == other.subject()) else { continue };
        let differences = first.differences(other);
        if differences.is_empty() {
            continue;
        }
        let told: Vec<String> = differences.iter().map(told).collect();
        return Err(MeasureError::Unlike(format!(
            "{} of {} and {} of {} cannot be compared: {}; measure them alike (--setting says what a target cannot tell), or \
             show them apart with --context",
            first.target.target,
            first.from,
            other.target.target,
            other.from,
            told.join(", ")
        )));
    }
    Ok(())
}

/// `copies is 3 and 1`.
pub fn told(difference: &Difference) -> String {
    let Difference { field, first, second } = difference;
    if first == second {
        return format!("{field} is not known of either");
    }
    let short = |value: &str| match value.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    };
    format!("{field} is '{}' and '{}'", short(first), short(second))
}
