//! # model: a group's protocol, every order of events
//!
//! The decisions that ship (`replication::protocol::Member`), three of them, under a model checker: messages arrive in any order or
//! never, the map is asked and answers late or not, members crash, lose what was not durable, start anew and take over, time passes
//! at any moment. Every state that can be reached within the bounds is looked at; and of long ways some end with everybody
//! up and the network fine, and the group must serve again. Above it, in some of the bounds, hosts and the heads of a volume: what they
//! ask of the group, and what they may be told. A primary's log, its
//! store and the network are lists here; catch-up by chunks, space and devices are the simulator's matter.
//!
//! Main types: [`Group`] (the model and its bounds), [`State`].

mod actions;
mod group;
mod heads;
mod heal;
#[cfg(feature = "mutants")]
pub mod mutants;
mod node;
pub mod search;

pub use actions::Action;
pub use group::{Bounds, Flight, Group, State};
pub use heads::{Answered, Asked, HeadStep, Says, Wants};
