//! Ranges of addresses, as SpiderIPPools list them: `172.18.30.131-172.18.30.140`, or single addresses.

use std::net::IpAddr;

/// Consecutive addresses of one family, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    /// Whether it is of IPv6.
    six: bool,
    /// The first address.
    pub(crate) first: u128,
    /// The last address.
    pub(crate) last: u128,
}

impl Range {
    /// Parses a range or a single address.
    ///
    /// # Errors
    /// A text that is neither, or a range without addresses.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no address and no range such as 10.0.0.2-10.0.0.9");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let read = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| wrong());
        let (first, last) = (read(first)?, read(last)?);
        let range = Self {
            six: first.is_ipv6(),
            first: number(first),
            last: number(last),
        };
        match first.is_ipv4() == last.is_ipv4() && range.first <= range.last {
            true => Ok(range),
            false => Err(wrong()),
        }
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.six == address.is_ipv6() && (self.first..=self.last).contains(&number(address))
    }

    /// The first address that is in both ranges.
    pub(crate) fn first_common(&self, other: &Self) -> Option<IpAddr> {
        let first = self.first.max(other.first);
        (self.six == other.six && first <= self.last.min(other.last))
            .then(|| self.address(first))
            .flatten()
    }

    /// The address of the range's family with this number.
    pub(crate) fn address(&self, number: u128) -> Option<IpAddr> {
        match self.six {
            true => Some(IpAddr::from(number.to_be_bytes())),
            false => Some(IpAddr::from(u32::try_from(number).ok()?.to_be_bytes())),
        }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(u32::from(four)),
        IpAddr::V6(six) => u128::from(six),
    }
}

/// How many addresses ranges contain together. Invalid ranges count 0; of ranges that overlap, every address counts once.
pub(crate) fn count<'a>(ranges: impl Iterator<Item = &'a str>) -> u128 {
    let mut all: Vec<Range> = ranges.filter_map(|text| Range::parse(text).ok()).collect();
    all.sort_unstable();
    let mut total: u128 = 0;
    let mut end: Option<(bool, u128)> = None;
    for Range { six, first, last } in all {
        let first = match end {
            Some((family, end)) if family == six && end >= first => end.saturating_add(1),
            _ => first,
        };
        if first <= last {
            total = total.saturating_add(last - first).saturating_add(1);
            end = Some((six, last));
        }
    }
    total
}

/// The addresses of `ranges` that are not in `excluded`.
pub(crate) fn without(ranges: &[Range], excluded: &[Range]) -> Vec<Range> {
    let mut excluded = excluded.to_vec();
    excluded.sort_unstable();
    let mut left = Vec::new();
    for range in ranges {
        let mut next = Some(range.first);
        for over in excluded.iter().filter(|it| it.six == range.six) {
            let Some(first) = next.filter(|it| *it <= range.last) else {
                break;
            };
            if over.last < first || over.first > range.last {
                continue;
            }
            if let Some(last) = over.first.checked_sub(1).filter(|last| first <= *last) {
                left.push(Range {
                    first,
                    last,
                    ..*range
                });
            }
            next = over.last.checked_add(1);
        }
        if let Some(first) = next.filter(|it| *it <= range.last) {
            left.push(Range { first, ..*range });
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted_once() {
        let count = |ranges: &[&str]| count(ranges.iter().copied());
        assert_eq!(count(&["172.18.30.131-172.18.30.140"]), 10);
        assert_eq!(count(&["10.0.0.1", "10.0.0.1-10.0.0.3", "10.0.0.2"]), 3);
        assert_eq!(count(&["10.0.0.3-10.0.0.1", "nonsense", "10.0.0.1-::1"]), 0);
        assert_eq!(count(&["::1-::2", "0.0.0.1"]), 3);
    }

    #[test]
    fn excluded_addresses_are_removed_from_ranges() {
        let check = |ranges: &[&str], excluded: &[&str], expected: &[&str]| {
            let read = |texts: &[&str]| -> Vec<Range> {
                texts
                    .iter()
                    .map(|it| Range::parse(it).expect("a range"))
                    .collect()
            };
            assert_eq!(
                without(&read(ranges), &read(excluded)),
                read(expected),
                "{ranges:?}"
            );
        };
        check(&["10.0.0.1-10.0.0.9"], &[], &["10.0.0.1-10.0.0.9"]);
        check(
            &["10.0.0.1-10.0.0.9"],
            &["10.0.0.7-10.0.0.20", "10.0.0.3", "10.0.0.3-10.0.0.4"],
            &["10.0.0.1-10.0.0.2", "10.0.0.5-10.0.0.6"],
        );
        check(
            &["10.0.0.1-10.0.0.9", "::1"],
            &["0.0.0.0-255.255.255.255"],
            &["::1"],
        );
        check(&["10.0.0.1"], &["::-ffff::"], &["10.0.0.1"]);
        check(
            &["::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
            &["::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
            &[],
        );
    }
}
