//! The tests of attributes against the steps that they stand for.

use proptest::{prelude::*, sample::select};

use super::*;

/// Whether the selector is evaluated by tests on the device; result and cost are those of the steps either way.
fn check(expression: &str, device: &Device) -> Result<bool, TestCaseError> {
    let selector =
        compile(expression, &Options::default()).unwrap_or_else(|e| panic!("{expression}: {e}"));
    let (steps, cost) = selector.evaluate_steps(device, None);
    let quick = selector.quick(device);
    if let Some((result, quick_cost)) = quick {
        prop_assert_eq!(
            (Ok(result), quick_cost),
            (steps.clone(), cost),
            "{}",
            expression
        );
    }
    prop_assert_eq!(selector.matches(device), steps, "{}", expression);
    Ok(quick.is_some())
}

#[test]
fn common_selectors_are_evaluated_by_tests() {
    let (own, device) = ("device.attributes['dra.example.com']", sample());
    let memory = "device.capacity['dra.example.com'].memory";
    for text in [
        "device.driver == 'dra.example.com'".to_owned(),
        "'other' != device.driver".to_owned(),
        format!("{own}.name == 'fish'"),
        format!("{own}.name != 'a much longer name than the one that it has'"),
        format!("{own}.b && !({own}.n == 2) || {own}.n >= 3"),
        format!("4 != {own}.n && {own}.b == true"),
        format!("{own}.name in ['bird', 'fish']"),
        format!("{own}.name.matches('^f.*h$')"),
        format!("{memory}.compareTo(quantity('1Gi')) == 0 && {memory}.isLessThan(quantity('2Gi'))"),
        format!(
            "{own}.v.compareTo(semver('1.10.0')) < 0 || {own}.v.isGreaterThan(semver('2.0.0'))"
        ),
        format!("has({own}.name) && 'x' in {own} || 'other.example.com' in device.attributes"),
        "!device.allowMultipleAllocations".to_owned(),
        "device.attributes['other.example.com'].x == 'y'".to_owned(),
    ] {
        assert!(check(&text, &device).unwrap(), "{text}");
    }
    for text in [
        format!("{own}.nope == 1"),
        format!("{own}.name == 1"),
        format!("{own}.list == 'a'"),
        format!("{own}.n + 1 == 4"),
    ] {
        assert!(!check(&text, &device).unwrap(), "{text}");
    }
}

#[test]
fn a_selector_follows_devices_of_other_layouts() {
    let expression = "device.attributes['d'].a == 1 && 'b' in device.attributes['d']";
    let selector = compile(expression, &Options::default()).unwrap();
    let layouts = Layouts::new();
    let device = |names: &[&str]| {
        let mut builder = Device::builder("d");
        for name in names {
            builder = builder.attribute((*name).to_owned(), Attribute::Int(1));
        }
        builder.build_in(&layouts)
    };
    let devices = [
        device(&["a", "b"]),
        device(&["b", "c", "a"]),
        device(&["a"]),
        device(&["b"]),
    ];
    for _ in 0..2 {
        let results = devices
            .each_ref()
            .map(|device| selector.matches(device).ok());
        assert_eq!(results, [Some(true), Some(true), Some(false), None]);
    }
    assert_eq!(devices[0].layout.id, device(&["a", "b"]).layout.id);
    assert_ne!(devices[0].layout.id, device(&["b", "a"]).layout.id);
}

#[test]
fn the_cost_limit_holds() {
    let options = Options {
        cost_limit: 3,
        ..Options::default()
    };
    let selector = compile("device.driver == 'dra.example.com'", &options).unwrap();
    assert_eq!(selector.quick(&sample()), None);
    assert!(selector.matches(&sample()).is_err());
}

fn leaf() -> impl Strategy<Value = String> {
    let path = select(vec![
        "device.driver",
        "device.allowMultipleAllocations",
        "device.attributes['d'].name",
        "device.attributes['d'].n",
        "device.attributes['d'].b",
        "device.attributes['d'].v",
        "device.attributes['d'].list",
        "device.attributes['d'].missing",
        "device.attributes['e'].n",
        "device.capacity['d'].memory",
        "device.capacity['d'].nope",
        "device.attributes['d']",
        "device.attributes",
    ]);
    let test = select(vec![
        "@ == 'fish'",
        "'fish' != @",
        "@ != 'a name that is longer than that'",
        "@ == 'ä'",
        "@ == 3",
        "@ != 3",
        "3 == @",
        "@ < 3",
        "@ >= 4",
        "@ == true",
        "@",
        "!@",
        "has(@)",
        "'n' in @",
        "'d' in @",
        "@ in ['bird', 'fish', 'd']",
        "@ in [1, 3]",
        "@ in []",
        "@.matches('^f')",
        "@.matches('is')",
        "@.compareTo(quantity('1Gi')) >= 0",
        "@.compareTo(quantity('1Gi')) != 1",
        "@.isGreaterThan(quantity('1'))",
        "@ == quantity('1Gi')",
        "@.compareTo(semver('1.2.3')) == 0",
        "@.compareTo(semver('1.2.4-a')) < 0",
        "@.isLessThan(semver('2.0.0'))",
        "@.compareTo(semver('1.2.3')) > -7",
        "@.startsWith('f')",
        "@ == 1.0",
        "@ > 2.5",
        "true",
        "false",
    ]);
    (path, test).prop_map(|(path, test)| test.replace('@', path))
}

fn device() -> impl Strategy<Value = Device> {
    let text = select(vec![
        "fish",
        "",
        "ä",
        "f",
        "a name that is longer than that one",
    ]);
    let value = prop_oneof![
        text.prop_map(|t| Attribute::String(t.into())),
        (2..5_i64).prop_map(Attribute::Int),
        any::<bool>().prop_map(Attribute::Bool),
        select(vec!["1.2.3", "1.2.4-a", "2.0.0+x"])
            .prop_map(|t| Attribute::Version(crate::semver::Version::parse(t).unwrap())),
        prop::collection::vec(0..3_i64, 0..2).prop_map(|v| Attribute::Ints(v.into())),
    ];
    let name = select(vec!["name", "n", "b", "v", "list", "e/n", "d/n", "d/name"]);
    let quantity = select(vec!["1Gi", "1073741824", "1", "0.1", "1e30"]);
    let entries = prop::collection::vec((name, value), 0..7);
    (select(vec!["d", "fish"]), entries, quantity, any::<bool>()).prop_map(
        |(driver, entries, quantity, allow)| {
            let mut builder = Device::builder(driver)
                .capacity("memory", quantity.parse().unwrap())
                .allow_multiple_allocations(Some(allow));
            for (name, value) in entries {
                builder = builder.attribute(name, value);
            }
            builder.build()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tests_and_steps_agree(
        leaves in prop::collection::vec(leaf(), 1..4),
        join in select(vec![" && ", " || "]),
        last in select(vec![" && ", " || "]),
        devices in prop::collection::vec(device(), 4),
    ) {
        let (end, rest) = leaves.split_last().unwrap();
        let text = if rest.is_empty() { end.clone() } else { format!("({}){last}{end}", rest.join(join)) };
        if compile(&text, &Options::default()).is_ok() {
            for device in &devices {
                check(&text, device)?;
            }
        }
    }
}
