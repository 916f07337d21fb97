use super::*;

fn amount(text: &str) -> Amount {
    Amount::parse(&ApiQuantity(text.into()))
}

#[test]
fn whole_units_are_rounded_away_from_zero() {
    for (text, whole) in [
        ("0", 0),
        ("1", 1),
        ("1500m", 2),
        ("-1500m", -2),
        ("1n", 1),
        ("1Ki", 1024),
    ] {
        assert_eq!(amount(text).ceil(), whole, "{text}");
    }
}

#[test]
fn notations_do_not_matter() {
    assert_eq!(amount("80Gi"), amount("81920Mi"));
    assert_eq!(amount("1500m"), amount("1.5"));
    assert!(amount("1G") < amount("1Gi"));
}

#[test]
fn what_is_no_quantity_is_zero() {
    assert_eq!(amount("many"), Amount::ZERO);
}

#[test]
fn regression_shown_in_the_notation_of_the_quantity() {
    for (text, shown) in [
        ("80Gi", "80Gi"),
        ("20G", "20G"),
        ("20000M", "20G"),
        ("20e9", "20e9"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("0", "0"),
        ("1.5", "1500m"),
        ("-1500m", "-1500m"),
        ("1n", "1n"),
        ("0.5Ki", "512"),
        ("5e-1", "500e-3"),
    ] {
        let (amount, format) = Amount::written(&ApiQuantity(text.into()));
        assert_eq!(amount.shown(format), shown, "{text}");
    }
    assert_eq!(
        amount("20G").plus(amount("1")).shown(Format::BinarySi),
        "20000000001"
    );
}

#[test]
fn nothing_wraps_around() {
    let huge = amount("1e40");
    assert!(huge.plus(huge) >= huge);
    assert!(Amount::ZERO.minus(huge).minus(huge).is_negative());
}
