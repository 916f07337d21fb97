//! Which of the possible victims of a PodGroup are reprieved.
//!
//! Upstream restores one victim after the other, in their order, and places the group each time; a victim stays removed if the
//! group does not fit beside it. [`reprieve`] decides the same with fewer searches: bisection finds how many of the next victims
//! can be restored together. The number of searches is limited.

use std::ops::Range;

/// A cluster from which possible victims can be removed. They are numbered from 0 in the order in which they are reprieved.
pub(super) trait Cluster {
    /// Where the group fits.
    type Placement;

    /// Removes a possible victim.
    fn remove(&mut self, victim: usize);
    /// Restores a removed one.
    fn restore(&mut self, victim: usize);
    /// Where the group fits now; the same each time in the same state.
    fn place(&mut self) -> Option<Self::Placement>;
    /// Splits victims into those that are on none of the nodes of the group, and the others.
    fn split(&self, victims: Range<usize>, placement: &Self::Placement)
    -> (Vec<usize>, Vec<usize>);
}

/// Removes all of `count` possible victims and restores as many as possible. Returns where the group fits then, and which
/// victims stay removed; `None` if it does not fit without any of them. With all of them it must not fit.
///
/// After `searches` searches the rest is only restored as far as it is on other nodes than the group.
pub(super) fn reprieve<C: Cluster>(
    cluster: &mut C,
    count: usize,
    searches: usize,
) -> Option<(C::Placement, Vec<usize>)> {
    (0..count).for_each(|victim| cluster.remove(victim));
    let mut found = cluster.place()?;
    let mut left = searches.saturating_sub(1);
    let mut victims = Vec::new();
    // All before `next` are decided; the others are removed.
    let mut next = 0;
    while next < count && left > 0 {
        // Those from `next` to `fits` can be restored together, those to `fails` cannot.
        let (mut fits, mut fails, mut probe) = match next {
            0 => (0, count, count / 2),
            _ => (next, count + 1, count),
        };
        while probe > fits && left > 0 {
            left -= 1;
            (fits..probe).for_each(|victim| cluster.restore(victim));
            match cluster.place() {
                Some(placement) => (found, fits) = (placement, probe),
                None => {
                    (fits..probe).for_each(|victim| cluster.remove(victim));
                    fails = probe;
                }
            }
            probe = usize::midpoint(fits, fails);
        }
        if fits == count {
            return Some((found, victims));
        }
        // Where the limit ended the bisection, this one may not be needed, but it has not been shown.
        victims.push(fits);
        next = fits + 1;
    }
    let (elsewhere, near) = cluster.split(next..count, &found);
    victims.extend(near);
    if !elsewhere.is_empty() {
        elsewhere.iter().for_each(|victim| cluster.restore(*victim));
        match cluster.place() {
            Some(placement) => found = placement,
            None => {
                elsewhere.iter().for_each(|victim| cluster.remove(*victim));
                victims.extend(elsewhere);
                victims.sort_unstable();
            }
        }
    }
    Some((found, victims))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Each victim takes an amount on its node; the group needs some nodes on which enough is free.
    #[derive(Debug, Clone)]
    struct Nodes {
        victims: Vec<(usize, u32)>,
        removed: BTreeSet<usize>,
        nodes: usize,
        capacity: u32,
        /// How many nodes the group needs, and how much on each.
        needed: (usize, u32),
        searches: usize,
    }

    impl Nodes {
        fn fitting(&self) -> Vec<usize> {
            let used = |node: usize| {
                let there = self.victims.iter().enumerate();
                let there = there.filter(|(at, (on, _))| *on == node && !self.removed.contains(at));
                there.map(|(_, (_, amount))| amount).sum::<u32>()
            };
            let fits = |node: &usize| used(*node) + self.needed.1 <= self.capacity;
            (0..self.nodes).filter(fits).collect()
        }

        /// What upstream decides: each victim is restored, and stays if the group still fits.
        fn one_by_one(mut self) -> Option<Vec<usize>> {
            self.removed = (0..self.victims.len()).collect();
            self.place()?;
            for at in 0..self.victims.len() {
                self.removed.remove(&at);
                if self.place().is_none() {
                    self.removed.insert(at);
                }
            }
            Some(self.removed.into_iter().collect())
        }
    }

    impl Cluster for Nodes {
        type Placement = Vec<usize>;

        fn remove(&mut self, victim: usize) {
            assert!(self.removed.insert(victim));
        }

        fn restore(&mut self, victim: usize) {
            assert!(self.removed.remove(&victim));
        }

        fn place(&mut self) -> Option<Vec<usize>> {
            self.searches += 1;
            let mut fitting = self.fitting();
            fitting.truncate(self.needed.0);
            (fitting.len() == self.needed.0).then_some(fitting)
        }

        fn split(&self, victims: Range<usize>, placement: &Vec<usize>) -> (Vec<usize>, Vec<usize>) {
            victims.partition(|victim| !placement.contains(&self.victims[*victim].0))
        }
    }

    fn cluster() -> impl Strategy<Value = Nodes> {
        let shape = (1..6usize, 1..8u32, 1..4usize, 1..5u32);
        (shape, prop::collection::vec((0..6usize, 1..4u32), 0..16)).prop_map(
            |((nodes, capacity, wanted, amount), victims)| Nodes {
                victims: victims.into_iter().map(|(on, a)| (on % nodes, a)).collect(),
                removed: BTreeSet::new(),
                nodes,
                capacity,
                needed: (wanted, amount),
                searches: 0,
            },
        )
    }

    proptest! {
        /// With enough searches the same victims as upstream's are chosen.
        #[test]
        fn the_same_victims_are_chosen_as_one_by_one(cluster in cluster()) {
            prop_assume!(cluster.clone().place().is_none());
            let expected = cluster.clone().one_by_one();
            let mut tried = cluster.clone();
            let count = tried.victims.len();
            let found = reprieve(&mut tried, count, 1000);
            prop_assert_eq!(found.as_ref().map(|(_, victims)| victims.clone()), expected);
            if let Some((placement, victims)) = found {
                prop_assert_eq!(&tried.removed, &victims.into_iter().collect());
                prop_assert_eq!(Some(placement), tried.place());
            }
        }

        /// However few searches are allowed: the group fits, and the victims are those that are removed.
        #[test]
        fn the_group_fits_without_the_victims(cluster in cluster(), searches in 1..12usize) {
            prop_assume!(cluster.clone().place().is_none());
            let mut tried = cluster.clone();
            let count = tried.victims.len();
            let found = reprieve(&mut tried, count, searches);
            prop_assert!(tried.searches <= searches + 1);
            prop_assert_eq!(found.is_some(), cluster.one_by_one().is_some());
            if let Some((placement, victims)) = found {
                prop_assert_eq!(&tried.removed, &victims.into_iter().collect());
                prop_assert_eq!(Some(placement), tried.place());
            }
        }
    }

    #[test]
    fn victims_on_other_nodes_are_reprieved_when_the_limit_is_reached() {
        // A node each, of which the group needs the first.
        let mut cluster = Nodes {
            victims: (0..100).map(|node| (node, 4)).collect(),
            removed: BTreeSet::new(),
            nodes: 100,
            capacity: 4,
            needed: (1, 4),
            searches: 0,
        };
        let (placement, victims) = reprieve(&mut cluster, 100, 1).expect("fits");
        assert_eq!((placement, victims), (vec![0], vec![0]));
    }
}
