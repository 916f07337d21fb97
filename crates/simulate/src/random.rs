//! Numbers that a seed decides, the same on every machine and in every release.

/// The generator SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that starts at a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of the sequence.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero when that is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or_default()
    }

    /// One of some things by their weights; `None` when all weights are zero.
    pub fn weighted<'a, T>(&mut self, choices: &'a [(T, u64)]) -> Option<&'a T> {
        let mut left = self.below(choices.iter().map(|(_, weight)| weight).sum());
        choices.iter().find_map(|(choice, weight)| {
            if left < *weight {
                return Some(choice);
            }
            left -= weight;
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.draw(), random.draw(), random.below(10)]
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        // The first number of the sequence of seed zero, as published with the algorithm.
        assert_eq!(Random::new(0).draw(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn weights_decide_how_often() {
        let mut random = Random::new(3);
        let choices = [("never", 0), ("often", 9), ("seldom", 1)];
        let mut often = 0;
        for _ in 0..1000 {
            let choice = random.weighted(&choices).expect("a choice");
            assert_ne!(*choice, "never");
            often += usize::from(*choice == "often");
        }
        assert!((850..950).contains(&often), "{often}");
        assert_eq!(random.weighted(&[("a", 0)]), None);
    }
}
