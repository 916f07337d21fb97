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
}
