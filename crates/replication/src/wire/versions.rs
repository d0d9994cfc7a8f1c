//! Which versions of the protocol a node speaks, which features it has, and what two nodes make of it on a connection.
//!
//! ```text
//!   opener: 3 … 4, features {a, b}      answerer: 3 … 3, features {a}
//!                     └───────────── agreed: 3, {a} ─────────────┘    by both, out of both hellos, under both proofs
//! ```
//!
//! | what a later release changes | how |
//! |---|---|
//! | it appends a field or a list to a body | nothing: who does not know it skips it |
//! | it has another kind of frame, or another meaning of one | a feature: sent only where both have it, see [`Kind::needs`](super::Kind::needs) |
//! | it can no longer talk to an older release | the oldest version that it speaks is raised |
//!
//! No kind is skipped by who does not know it: whoever sends knows what the other has, so a kind that was not agreed on is an
//! error of the sender, and ends the connection.

use std::fmt;
use types::NodeId;

/// The newest version of the protocol that this build speaks.
pub const PROTOCOL_NEWEST: u16 = 3;
/// The oldest one.
pub const PROTOCOL_OLDEST: u16 = 3;

/// What a node has beyond what its version says: bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

impl Features {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Kind 23, and the field behind a beat: of no release, see [`Protocol::rehearsal`].
    pub const REHEARSAL: Self = Self(1 << 63);
    /// All that this build can have.
    pub const KNOWN: Self = Self(Self::REHEARSAL.0);

    /// Whether all of `others` are among them.
    pub fn has(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }

    /// Their names, one that this build does not know by its number.
    pub fn names(self) -> Vec<String> {
        let name = |bit: u32| match Self(1 << bit) {
            Self::REHEARSAL => "rehearsal".to_owned(),
            _ => format!("feature {bit}"),
        };
        (0..u64::BITS).filter(|bit| self.0 >> bit & 1 == 1).map(name).collect()
    }
}

/// A release of Cairn: major, minor, patch. Only told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release(pub [u16; 3]);

impl Release {
    /// That of this build.
    pub fn of_this_build() -> Self {
        let number = |text: &str| text.parse().unwrap_or_default();
        Self([
            number(env!("CARGO_PKG_VERSION_MAJOR")),
            number(env!("CARGO_PKG_VERSION_MINOR")),
            number(env!("CARGO_PKG_VERSION_PATCH")),
        ])
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// What a node speaks, as its hello says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    /// The oldest version of the protocol that it speaks.
    pub oldest: u16,
    /// The newest one.
    pub newest: u16,
    /// What it has.
    pub features: Features,
    /// Which release it is.
    pub release: Release,
}

impl Protocol {
    /// What this build speaks.
    pub fn of_this_build() -> Self {
        Self {
            oldest: PROTOCOL_OLDEST,
            newest: PROTOCOL_NEWEST,
            features: Features::NONE,
            release: Release::of_this_build(),
        }
    }

    /// What a release after this build might speak, for tests: one version more, a feature more, a field more behind its beats and
    /// a kind of frame more.
    pub fn rehearsal() -> Self {
        let this = Self::of_this_build();
        let [major, minor, patch] = this.release.0;
        Self {
            newest: this.newest + 1,
            features: Features::REHEARSAL,
            release: Release([major, minor + 1, patch]),
            ..this
        }
    }

    /// What a connection between this node and one that speaks `other` goes by: the newest version of both, and the features of
    /// both.
    ///
    /// # Errors
    /// There is no version that both speak.
    pub fn agree(&self, other: &Self) -> Result<Agreed, Apart> {
        let version = self.newest.min(other.newest);
        if version < self.oldest.max(other.oldest) {
            return Err(Apart { this: *self, other: *other });
        }
        Ok(Agreed { version, features: Features(self.features.0 & other.features.0) })
    }
}

/// What a connection goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// The version of the protocol.
    pub version: u16,
    /// What both sides have.
    pub features: Features,
}

/// Two nodes have no version of the protocol in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// What this node speaks.
    pub this: Protocol,
    /// What the other one does.
    pub other: Protocol,
}

impl Apart {
    /// Who must be brought to what, for the node that says so and the other one.
    pub fn between(&self, this: NodeId, other: NodeId) -> String {
        let speaks = |node: NodeId, of: &Protocol| {
            format!("node-{node}, release {}, speaks versions {} to {}", of.release, of.oldest, of.newest)
        };
        let (older, newer, needed) = match self.this.newest < self.other.newest {
            true => (this, other, &self.other),
            false => (other, this, &self.this),
        };
        format!(
            "{} of the node protocol, and {}: upgrade node-{older} to a release that speaks version {} (that of node-{newer} is {}), \
             one release after the other",
            speaks(this, &self.this),
            speaks(other, &self.other),
            needed.oldest,
            needed.release,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speaks(oldest: u16, newest: u16, features: u64) -> Protocol {
        Protocol { oldest, newest, features: Features(features), release: Release([0, newest, 0]) }
    }

    #[test]
    fn both_sides_agree_on_the_newest_version_and_the_features_of_both() {
        for (one, other, version, features) in [
            (speaks(3, 3, 0), speaks(3, 3, 0), 3, 0),
            (speaks(3, 4, 0b110), speaks(3, 3, 0b011), 3, 0b010),
            (speaks(1, 9, u64::MAX), speaks(9, 12, 1 << 63), 9, 1 << 63),
            (speaks(2, 5, 1), speaks(3, 4, 2), 4, 0),
        ] {
            let agreed = Agreed { version, features: Features(features) };
            assert_eq!((one.agree(&other), other.agree(&one)), (Ok(agreed), Ok(agreed)));
        }
    }

    #[test]
    fn who_has_no_version_in_common_is_told_which_of_the_two_to_upgrade() {
        let (old, new) = (speaks(1, 2, 7), speaks(3, 5, 7));
        let (seen_by_old, seen_by_new) = (old.agree(&new).unwrap_err(), new.agree(&old).unwrap_err());
        for text in [seen_by_old.between(NodeId(1), NodeId(2)), seen_by_new.between(NodeId(2), NodeId(1))] {
            assert!(
                text.contains("upgrade node-1 to a release that speaks version 3 (that of node-2 is 0.5.0)"),
                "{text}"
            );
            assert!(text.contains("node-1, release 0.2.0, speaks versions 1 to 2"), "{text}");
        }
    }

    #[test]
    fn a_rehearsed_release_talks_to_this_one() {
        let (this, next) = (Protocol::of_this_build(), Protocol::rehearsal());
        assert_eq!(next.agree(&this), Ok(Agreed { version: PROTOCOL_NEWEST, features: Features::NONE }));
        assert_eq!(next.agree(&next).map(|agreed| agreed.features), Ok(Features::REHEARSAL));
        assert_eq!(Features(1 << 63 | 2).names(), ["feature 1", "rehearsal"]);
    }
}
