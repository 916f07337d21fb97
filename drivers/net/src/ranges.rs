//! Ranges of addresses.

use std::net::IpAddr;

/// An address as a number, and how many bits it has.
fn number(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    }
}

/// How many addresses ranges contain together: `172.18.30.131-172.18.30.140`, or single addresses. Invalid ranges count
/// 0; of ranges that overlap, every address counts once.
pub fn count<'a>(ranges: impl Iterator<Item = &'a str>) -> u128 {
    let bounds = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
        let ((first, bits), (last, last_bits)) = (number(first), number(last));
        (bits == last_bits && first <= last).then_some((bits, first, last))
    };
    let mut all: Vec<_> = ranges.filter_map(bounds).collect();
    all.sort_unstable();
    let mut total: u128 = 0;
    let mut end: Option<(u8, u128)> = None;
    for (bits, first, last) in all {
        let first = match end {
            Some((family, end)) if family == bits && end >= first => end.saturating_add(1),
            _ => first,
        };
        if first <= last {
            total = total.saturating_add(last - first).saturating_add(1);
            end = Some((bits, last));
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
