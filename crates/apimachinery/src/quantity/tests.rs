use num_bigint::BigInt;
use proptest::prelude::*;

use super::*;

fn q(text: &str) -> Quantity {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn check(text: &str, canonical: &str) {
    assert_eq!(q(text).to_string(), canonical, "{text}");
}

#[test]
fn canonical_texts() {
    for text in [
        "0", "1", "100m", "12Mi", "12M", "12e6", "1500m", "2Ki", "1536Mi", "-5k", "1E", "9n",
    ] {
        check(text, text);
    }
    for (text, canonical) in [
        ("1.5Gi", "1536Mi"),
        ("1024Ki", "1Mi"),
        ("1000k", "1M"),
        ("0.5", "500m"),
        ("0.5Ki", "512"),
        ("0.0001Ki", "102400u"),
        ("0.5n", "1n"),
        ("1.0000000001", "1000000001n"),
        ("-0.5n", "-1n"),
        ("100Ei", "9223372036854775807"),
        ("1e3", "1e3"),
        ("1000e3", "1e6"),
        ("10e2", "1e3"),
        ("1E6", "1E6"),
        ("00001", "00001"),
        ("Ki", "0"),
        (".", "0"),
        ("-", "0"),
        ("1023", "1023"),
        ("8Ki", "8Ki"),
        ("10Ki", "10Ki"),
        ("100000Ki", "100000Ki"),
        ("9223372036854775808", "9223372036854775808"),
        ("1.5E", "1500P"),
        ("1000E", "1000E"),
        ("1e100000", "10e99999"),
        ("0.000000001Ki", "1024n"),
        ("1e-9", "1e-9"),
    ] {
        check(text, canonical);
    }
}

#[test]
fn errors_are_upstreams() {
    for (text, error) in [
        ("", ParseError::Format),
        ("1 Gi", ParseError::Format),
        ("x", ParseError::Format),
        ("1Gx", ParseError::Format),
        ("1gi", ParseError::Format),
        ("1.2.3", ParseError::Format),
        ("1iK", ParseError::Suffix),
        ("1KiB", ParseError::Format),
        ("1e", ParseError::Suffix),
        ("1e99999999999", ParseError::Suffix),
        ("é", ParseError::Format),
    ] {
        assert_eq!(text.parse::<Quantity>().unwrap_err(), error, "{text}");
    }
}

#[test]
fn values_round_up() {
    assert_eq!(q("100m").value(), 1);
    assert_eq!(q("-100m").value(), -1);
    assert_eq!(q("1.5Gi").value(), 1_610_612_736);
    assert_eq!(q("1u").milli_value(), 1);
    assert_eq!(q("2").milli_value(), 2000);
    assert_eq!(q("1e30").value(), i64::MAX);
    assert_eq!(q("-1e2000000000").value(), i64::MIN);
    assert_eq!(q("9223372036854775807").value(), i64::MAX);
}

#[test]
fn integer_form_is_upstreams() {
    assert_eq!(q("2k").as_i64(), Some(2000));
    assert_eq!(q("1Ki").as_i64(), Some(1024));
    assert_eq!(q("1.5Gi").as_i64(), None);
    assert_eq!(q("1.5").as_i64(), None);
    assert_eq!(q("10E").as_i64(), None);
}

#[test]
fn arithmetic_keeps_the_left_format() {
    let add = |a: &str, b: &str| q(a).checked_add(&q(b)).unwrap().to_string();
    assert_eq!(add("1Ki", "1k"), "2024");
    assert_eq!(add("0", "1Mi"), "1Mi");
    assert_eq!(add("1Gi", "1Gi"), "2Gi");
    assert_eq!(add("1", "1m"), "1001m");
    assert_eq!(add("9223372036854775807", "1"), "9223372036854775808");
    assert_eq!(
        q("1Mi").checked_sub(&q("1Ki")).unwrap().to_string(),
        "1023Ki"
    );
    assert_eq!(q("5Ei").checked_mul(2).unwrap().to_string(), "10Ei");
    assert!(q("1e2000000000").checked_add(&q("1")).is_none());
}

#[test]
fn compares_by_value() {
    assert_eq!(q("1Ki"), q("1024"));
    assert!(q("1e2000000000") > q("1e1999999999"));
    assert!(q("-1e2000000000") < q("1n"));
    assert!(q("1.5Gi") > q("1500M"));
    let hash =
        |quantity: &Quantity| std::hash::BuildHasher::hash_one(&rustc_free_hasher(), quantity);
    assert_eq!(hash(&q("1Ki")), hash(&q("1.024k")));
}

fn rustc_free_hasher() -> std::hash::BuildHasherDefault<std::hash::DefaultHasher> {
    std::hash::BuildHasherDefault::new()
}

/// `number * 10^-9` as an exact rational over 10^9.
fn nanos(quantity: &Quantity) -> BigInt {
    let decimal = quantity.decimal();
    decimal.unscaled * BigInt::from(10).pow((decimal.scale + 9) as u32)
}

const SUFFIXES: [(&str, i64, i64); 9] = [
    ("", 1, 1),
    ("m", 1, 1000),
    ("u", 1, 1_000_000),
    ("n", 1, 1_000_000_000),
    ("k", 1000, 1),
    ("M", 1_000_000, 1),
    ("Ki", 1024, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
];

prop_compose! {
    /// A text and its value in nanos, rounded away from zero.
    fn quantity()(whole in 0..4_000_000_i64, fraction in 0..1000_i64, negative: bool, suffix in 0..SUFFIXES.len())
        -> (String, BigInt) {
        let (suffix, times, over) = SUFFIXES[suffix];
        let text = format!("{}{whole}.{fraction:03}{suffix}", if negative { "-" } else { "" });
        let thousandths = BigInt::from(whole) * 1000 + fraction;
        let (nanos, rest) =
            num_integer::Integer::div_rem(&(thousandths * times * 1_000_000_000_i64), &BigInt::from(over * 1000));
        let nanos = nanos + i32::from(rest != BigInt::from(0));
        (text, if negative { -nanos } else { nanos })
    }
}

proptest! {
    #[test]
    fn equals_rationals((a, na) in quantity(), (b, nb) in quantity(), factor in -1000..1000_i64) {
        let (a, b) = (q(&a), q(&b));
        prop_assert_eq!(nanos(&a), na.clone());
        prop_assert_eq!(a.cmp(&b), na.cmp(&nb));
        prop_assert_eq!(nanos(&a.checked_add(&b).unwrap()), &na + &nb);
        prop_assert_eq!(nanos(&a.checked_sub(&b).unwrap()), &na - &nb);
        prop_assert_eq!(nanos(&a.checked_mul(factor).unwrap()), &na * factor);
        prop_assert_eq!(q(&a.to_string()), a);
    }

    #[test]
    fn never_panics(text in "[+-]?[0-9.]{0,25}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,12}") {
        if let Ok(quantity) = text.parse::<Quantity>()
            && quantity.decimal().magnitude().abs() < 1000
        {
            let _ = (quantity.value(), quantity.milli_value(), quantity.to_f64());
            prop_assert_eq!(q(&quantity.to_string()), quantity.clone(), "{}", quantity);
        }
    }
}

#[test]
fn nano_units() {
    for (text, nanos) in [
        ("0", 0),
        ("1", 1_000_000_000),
        ("-1500m", -1_500_000_000),
        ("1n", 1),
        ("1Ki", 1_024_000_000_000),
        ("9223372036854775807", 9_223_372_036_854_775_807_000_000_000),
        ("1e40", i128::MAX),
        ("-1e400000", i128::MIN),
    ] {
        let quantity: Quantity = text.parse().unwrap();
        assert_eq!(quantity.nanos(), nanos, "{text}");
    }
}

/// A bare suffix is no number, and a dot that upstream keeps is kept.
#[test]
fn odd_texts_are_read_as_upstream_does() {
    for text in ["Ei", "-Pi", "+Ei"] {
        assert_eq!(text.parse::<Quantity>(), Err(ParseError::Numeric), "{text}");
    }
    for (text, shown) in [("1.Ki", "1.Ki"), ("0Ei", "0"), ("1.G", "1.G")] {
        let quantity: Quantity = text.parse().expect("a quantity");
        assert_eq!(quantity.to_string(), shown);
    }
}
