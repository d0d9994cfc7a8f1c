//! The setting a figure was measured in: what must be alike for two of them to be compared.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What nobody has said. Two of these are not alike.
pub const UNKNOWN: &str = "unknown";

/// All fields and what they mean, in the order in which they are shown.
pub const FIELDS: &[(&str, &str)] = &[
    ("copies", "copies of each block"),
    ("min-in-sync", "copies that are durable before a write is acknowledged"),
    ("nodes", "storage nodes that hold blocks"),
    ("node-cores", "CPU cores that each of them may use for I/O"),
    ("placement", "where a volume lies: gathered at one node, spread over all, or as its storage says"),
    ("limits", "what the storage lets a volume do in a second: none, or so much"),
    ("durability", "what an acknowledged write survives: each-write, or flush (durable once flushed)"),
    ("checksums", "what finds a damaged block when it is read: none, or their kind"),
    ("encryption", "of stored blocks: none, or its kind"),
    ("compression", "of stored blocks: off, or its kind"),
    ("cache", "between client and devices: none, or its kind"),
    ("fill", "what was written before anything was measured"),
    ("span", "bytes that the I/O went to"),
    ("times", "seconds of warm-up and of measurement"),
    ("rate", "I/Os per second that are offered: as many as there can be, or so many"),
    ("locality", "where client and storage are: same-machine, or remote"),
    ("cores", "CPU cores of the client's machine"),
    ("media", "what the blocks lie on"),
    ("cpu", "the CPU's model"),
    ("kernel", "the client's kernel"),
    ("fio", "the load generator's version"),
];

/// Fields and their values; what is missing is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Setting(BTreeMap<String, String>);

/// A field in which two settings differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name.
    pub field: String,
    /// One value.
    pub first: String,
    /// The other.
    pub second: String,
}

impl Setting {
    /// Whether there is a field of this name.
    pub fn has_field(name: &str) -> bool {
        FIELDS.iter().any(|(field, _)| *field == name)
    }

    /// Says what a field is.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn set(&mut self, field: &str, value: impl Into<String>) {
        assert!(Self::has_field(field), "{field} is no field of a setting");
        self.0.insert(field.to_owned(), value.into());
    }

    /// What a field is.
    pub fn get(&self, field: &str) -> &str {
        self.0.get(field).map_or(UNKNOWN, String::as_str)
    }

    /// What differs, or is not known of either.
    pub fn differences(&self, other: &Setting) -> Vec<Difference> {
        let differs = |field: &&str| self.get(field) != other.get(field) || self.get(field) == UNKNOWN;
        let difference = |field: &str| Difference {
            field: field.to_owned(),
            first: self.get(field).to_owned(),
            second: other.get(field).to_owned(),
        };
        FIELDS.iter().map(|(field, _)| *field).filter(differs).map(difference).collect()
    }

    /// Sets what is the client's machine's.
    pub fn describe_machine(&mut self) {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = text("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1.trim()));
        self.set("cpu", model.unwrap_or(std::env::consts::ARCH));
        self.set("kernel", text("/proc/sys/kernel/osrelease").trim());
        self.set("cores", std::thread::available_parallelism().map_or(UNKNOWN.to_owned(), |cores| cores.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Setting {
        let mut setting = Setting::default();
        for (field, _) in FIELDS {
            setting.set(field, "x");
        }
        setting
    }

    #[test]
    fn every_field_counts() {
        for (field, _) in FIELDS {
            let (one, mut other) = (known(), known());
            assert!(one.differences(&other).is_empty());
            other.set(field, "y");
            let differences = one.differences(&other);
            assert_eq!(differences.len(), 1);
            assert_eq!(differences[0].field, *field);
        }
    }

    #[test]
    fn what_is_not_known_is_not_alike() {
        let mut one = known();
        one.set("copies", UNKNOWN);
        assert_eq!(one.differences(&one.clone())[0].field, "copies");
    }
}
