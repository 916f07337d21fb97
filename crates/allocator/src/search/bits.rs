//! Sets of device numbers.

/// A set of device numbers of one attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn new(len: u32) -> Self {
        Self(vec![0; len.div_ceil(64) as usize])
    }

    pub(super) fn insert(&mut self, index: u32) {
        self.0[index as usize / 64] |= 1 << (index % 64);
    }

    pub(super) fn remove(&mut self, index: u32) {
        self.0[index as usize / 64] &= !(1 << (index % 64));
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.0[index as usize / 64] >> (index % 64) & 1 == 1
    }

    pub(super) fn len(&self) -> i64 {
        self.0.iter().map(|w| i64::from(w.count_ones())).sum()
    }

    /// The number of common elements.
    pub(super) fn common(&self, other: &Self) -> i64 {
        self.0
            .iter()
            .zip(&other.0)
            .map(|(a, b)| i64::from((a & b).count_ones()))
            .sum()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    pub(super) fn keep(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= b);
    }

    pub(super) fn drop(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= !b);
    }

    /// Removes all numbers below a number.
    pub(super) fn drop_below(&mut self, number: u32) {
        let word = number as usize / 64;
        let len = self.0.len();
        self.0[..word.min(len)].fill(0);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !0 << (number % 64);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut word = word;
            std::iter::from_fn(move || {
                if word == 0 {
                    return None;
                }
                let bit = word.trailing_zeros();
                word &= word - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.0
    }
}
