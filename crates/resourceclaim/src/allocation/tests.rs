use serde_json::json;

use super::*;

fn devices(amounts: &[(&str, &str)]) -> DeviceAllocationResult {
    let amounts: std::collections::BTreeMap<_, _> = amounts.iter().copied().collect();
    serde_json::from_value(json!({"results": [
        {"request": "r", "driver": "d", "pool": "p", "device": "x", "shareID": "s", "consumedCapacity": amounts},
    ]}))
    .unwrap()
}

#[test]
fn amounts_of_an_allocation_are_compared_by_value() {
    let check = |one: &[(&str, &str)], other: &[(&str, &str)], expected: bool| {
        let same = same_devices(Some(&devices(one)), Some(&devices(other)));
        assert_eq!(same, expected, "{one:?} {other:?}");
    };
    for gigas in 1..10u64 {
        let (written, shown) = (format!("{}", gigas * 1_000_000_000), format!("{gigas}G"));
        check(&[("m", &written)], &[("m", &shown)], true);
    }
    check(&[("m", "1Gi")], &[("m", "1G")], false);
    check(&[("m", "1")], &[("n", "1")], false);
    check(&[("m", "1")], &[], false);
    let other = json!({"results": [{"request": "r", "driver": "d", "pool": "p", "device": "y"}]});
    let other: DeviceAllocationResult = serde_json::from_value(other).unwrap();
    assert!(!same_devices(Some(&devices(&[])), Some(&other)));
    assert!(!same_devices(None, Some(&other)) && same_devices(None, None));
}

proptest::proptest! {
    /// However an amount is written, it stays the same amount, and its neighbour is another one.
    #[test]
    fn the_notation_of_an_amount_does_not_matter(
        count in 1..1_000_000u64,
        unit in 0..7usize,
    ) {
        const UNITS: [(&str, &str); 7] = [
            ("", "000m"), ("k", "000"), ("M", "000k"), ("G", "000M"), ("Ki", "e0"), ("e3", "000e0"), ("T", "000000M"),
        ];
        let (short, long) = UNITS[unit];
        let long = match short {
            "Ki" => format!("{}", count * 1024),
            _ => format!("{count}{long}"),
        };
        let short = |count: u64| format!("{count}{short}");
        let same = |a: &str, b: &str| {
            same_devices(Some(&devices(&[("m", a)])), Some(&devices(&[("m", b)])))
        };
        proptest::prop_assert!(same(&short(count), &long));
        proptest::prop_assert!(!same(&short(count + 1), &long));
    }
}
