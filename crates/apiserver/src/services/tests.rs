use std::collections::BTreeSet;
use std::net::IpAddr;

use allot_apimachinery::IpFamily;
use proptest::prelude::*;

use super::addresses::free;
use crate::config::ServiceRange;

/// Ranges of both families that overlap, are adjacent or are apart, small ones and huge ones.
fn range() -> impl Strategy<Value = ServiceRange> {
    let four = (0u8..2, any::<u8>(), 24u8..=32)
        .prop_map(|(third, last, length)| format!("10.0.{third}.{last}/{length}"));
    let six = (0u8..2, any::<u8>(), 120u8..=128)
        .prop_map(|(high, last, length)| format!("fd00::{high}:{last:x}/{length}"));
    let huge = prop_oneof![Just("fd00::/64".to_owned()), Just("0.0.0.0/0".to_owned())];
    prop_oneof![4 => four, 4 => six, 1 => huge].prop_map(|text| text.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the ranges, the same address is never given twice, all are of a range, and a range is full only when each of
    /// its addresses is given. One that is released is given again.
    #[test]
    fn every_address_is_given_once(
        ranges in prop::collection::vec(range(), 1..4),
        six in any::<bool>(),
        steps in prop::collection::vec(prop::option::weighted(0.2, any::<prop::sample::Index>()), 0..300),
    ) {
        let family = if six { IpFamily::V6 } else { IpFamily::V4 };
        let ranges_of: Vec<_> = ranges.iter().filter(|it| it.family() == family).collect();
        let mut taken = BTreeSet::new();
        for step in steps {
            if let Some(released) = step && !taken.is_empty() {
                let address: IpAddr = *taken.iter().nth(released.index(taken.len())).unwrap();
                taken.remove(&address);
                continue;
            }
            match free(&ranges, family, &taken) {
                Some(address) => {
                    prop_assert!(taken.insert(address), "{address} twice");
                    prop_assert!(ranges_of.iter().any(|it| it.gives(address)), "{address}");
                }
                None => {
                    let whole = ranges_of.iter().flat_map(|it| it.usable().map(move |number| it.address(number)));
                    prop_assert_eq!(whole.collect::<BTreeSet<_>>(), taken.clone());
                }
            }
        }
    }
}

/// With the upper part taken, the lower end, which is for addresses that users choose, is given as well.
#[test]
fn the_last_address_of_a_range_is_found() {
    for text in ["10.0.0.0/24", "fd00::/120"] {
        let range: ServiceRange = text.parse().unwrap();
        let first = range.first();
        let all = range.usable().map(|number| range.address(number));
        let mut taken: BTreeSet<IpAddr> = all.collect();
        assert_eq!(free(&[range], range.family(), &taken), None);
        taken.remove(&first);
        assert_eq!(free(&[range], range.family(), &taken), Some(first));
    }
}
