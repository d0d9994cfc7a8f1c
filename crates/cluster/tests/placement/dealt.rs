//! Groups dealt at random: how many of them two devices would share.

use cluster::placement::Placement;
use std::collections::BTreeMap;
use types::StoreId;

/// Each group takes so many domains, and of each a device, so that everybody holds what it does hold. Domains are chosen
/// as likely as the product of their factors: nothing else is known of the choice.
pub struct Dealt<'a> {
    domains: &'a BTreeMap<StoreId, String>,
    held: BTreeMap<StoreId, f64>,
    of_domain: BTreeMap<&'a String, f64>,
    groups: f64,
    /// Of each domain that is in some groups, and not in all.
    factors: BTreeMap<&'a String, f64>,
    /// Members of a group that are chosen among these.
    places: usize,
    /// Sum of the products over all choices.
    all: f64,
}

impl<'a> Dealt<'a> {
    pub fn new(domains: &'a BTreeMap<StoreId, String>, placement: &Placement) -> Self {
        let groups = placement.groups.len() as f64;
        let mut held = BTreeMap::<StoreId, f64>::new();
        placement
            .groups
            .iter()
            .flat_map(|group| &group.members)
            .for_each(|store| *held.entry(*store).or_default() += 1.0);
        let mut of_domain = BTreeMap::<&String, f64>::new();
        held.iter().for_each(|(store, held)| *of_domain.entry(&domains[store]).or_default() += held);
        let is_open = |held: &f64| *held < groups;
        let places = placement.copies - of_domain.values().filter(|held| !is_open(held)).count();
        let open = of_domain.iter().filter(|(_, held)| is_open(held));
        let factors = open.map(|(domain, held)| (*domain, held / (groups - held))).collect();
        let mut dealt = Self { domains, held, groups, factors, places, all: 1.0, of_domain };
        dealt.find_factors();
        dealt.all = dealt.choices(&[])[places];
        dealt
    }

    /// Each domain in turn gets the factor with which it is in as many groups as it should be, until all have theirs.
    fn find_factors(&mut self) {
        let open: Vec<&String> = self.factors.keys().copied().collect();
        for _ in 0..10_000 {
            let mut off = 0.0f64;
            for domain in &open {
                let (without, held) = (self.choices(&[domain]), self.of_domain[domain]);
                let right = held / (self.groups - held) * without[self.places] / without[self.places - 1];
                off = off.max((right / self.factors[domain] - 1.0).abs());
                self.factors.insert(domain, right);
            }
            if off < 1e-4 {
                return;
            }
        }
        panic!("no factors are found");
    }

    /// Products of factors, summed over all choices of no domain, of one, and so on: but of these.
    fn choices(&self, without: &[&String]) -> Vec<f64> {
        let mut sums = vec![0.0; self.places + 1];
        sums[0] = 1.0;
        for (_, factor) in self.factors.iter().filter(|(domain, _)| !without.contains(domain)) {
            for count in (1..sums.len()).rev() {
                sums[count] += factor * sums[count - 1];
            }
        }
        sums
    }

    /// Groups that two devices share, on average.
    pub fn shared(&self, one: StoreId, other: StoreId) -> f64 {
        let (a, b) = (&self.domains[&one], &self.domains[&other]);
        let part = |store: StoreId, domain| self.held.get(&store).map_or(0.0, |held| held / self.of_domain[domain]);
        let of_domains = match (self.factors.get(a), self.factors.get(b)) {
            _ if a == b => 0.0,
            (Some(x), Some(y)) if self.places >= 2 => {
                self.groups * x * y * self.choices(&[a, b])[self.places - 2] / self.all
            }
            (Some(_), Some(_)) => 0.0,
            _ => {
                let held = |domain| self.of_domain.get(domain).copied().unwrap_or(0.0);
                held(a).min(held(b))
            }
        };
        of_domains * part(one, a) * part(other, b)
    }
}
