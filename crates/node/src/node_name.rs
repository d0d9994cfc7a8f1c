//! What a node is called where people name it: `node-2`.

use std::fmt;
use std::str::FromStr;
use types::NodeId;

/// A node, by its name; its number alone is one, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeName(pub NodeId);

/// No name of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not the name of a node: `cairn node ls` lists them")]
pub struct UnknownNodeName(String);

impl FromStr for NodeName {
    type Err = UnknownNodeName;

    fn from_str(text: &str) -> Result<Self, UnknownNodeName> {
        let number = text.strip_prefix("node-").unwrap_or(text).parse::<u32>().ok().filter(|number| *number > 0);
        number.map(|number| Self(NodeId(number))).ok_or_else(|| UnknownNodeName(text.chars().take(40).collect()))
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.client_number() {
            Some(number) => write!(f, "client-{number}"),
            None => write!(f, "node-{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_as_it_is_listed_or_by_its_number() {
        for text in ["node-2", "2"] {
            assert_eq!(text.parse::<NodeName>().expect("a node").to_string(), "node-2");
        }
        for text in ["", "0", "node-0", "node--1", "node-x", "n2", "node-99999999999"] {
            assert!(text.parse::<NodeName>().is_err(), "{text}");
        }
    }
}
