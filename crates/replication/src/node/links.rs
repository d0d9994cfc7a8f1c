//! A core's connections, and which of those to one core of another node is used.
//!
//! Each side may have made one, and one that its maker knows to have ended may look alive to the other. Both sides go by the same
//! rule, whenever something is to be said: of those that are made and live, the one that the lower of both cores has made, and of
//! its own the last. So both come to one as soon as both know of it. On the others only answers go, until nothing comes there.
//! While none is made yet, what is said gathers on the one that is being made.

use super::link::Link;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cell::RefCell;
use std::rc::Rc;
use types::{Mutant, NodeId, mutant};

/// A core of a node.
pub(super) type Place = (NodeId, u16);

/// See the module.
pub(super) struct Links {
    this: Place,
    /// By the other side's place; the one that is used is the last that lives.
    of_places: RefCell<HashMap<Place, Vec<Rc<Link>>, FixedState>>,
}

impl Links {
    pub(super) fn new(this: Place) -> Self {
        Self { this, of_places: RefCell::new(HashMap::with_hasher(FixedState::default())) }
    }

    /// The one over which something is said to a place.
    pub(super) fn used(&self, place: Place) -> Option<Rc<Link>> {
        let all = self.of_places.borrow();
        let mut living = all.get(&place)?.iter().rev().filter(|link| !link.is_closed());
        let last = living.next()?;
        let used = if last.is_made() { last } else { living.find(|link| link.is_made()).unwrap_or(last) };
        Some(used.clone())
    }

    /// Whether it is beside the one that is used. Of a connection to itself a core has both ends, and uses one.
    pub(super) fn is_left(&self, link: &Rc<Link>) -> bool {
        let place = (link.node, link.core);
        place != self.this && self.used(place).is_some_and(|used| !Rc::ptr_eq(&used, link))
    }

    pub(super) fn add(&self, link: &Rc<Link>) {
        let place = (link.node, link.core);
        let mut all = self.of_places.borrow_mut();
        let of_place = all.entry(place).or_default();
        let is_lowers = |link: &Link| match mutant(Mutant::EachSaysItOverItsOwn) {
            true => link.is_dialled,
            false => link.is_dialled == (self.this <= place),
        };
        let is_behind = !is_lowers(link);
        let at = of_place.partition_point(|other| !(is_behind && is_lowers(other)));
        of_place.insert(at, link.clone());
    }

    pub(super) fn remove(&self, link: &Rc<Link>) {
        let place = (link.node, link.core);
        let mut all = self.of_places.borrow_mut();
        if let Some(of_place) = all.get_mut(&place) {
            of_place.retain(|other| !Rc::ptr_eq(other, link));
            if of_place.is_empty() {
                all.remove(&place);
            }
        }
    }

    /// In an order that is always the same.
    pub(super) fn all(&self) -> Vec<Rc<Link>> {
        let all = self.of_places.borrow();
        let mut places: Vec<_> = all.keys().copied().collect();
        places.sort_unstable();
        places.iter().flat_map(|place| all[place].iter().cloned()).collect()
    }
}
