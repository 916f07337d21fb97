//! The canonical text of a quantity.

use std::fmt;

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::Zero;

use super::{Amount, Format, Quantity};

const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

pub(super) fn canonical(quantity: &Quantity, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if quantity.is_zero() {
        return f.write_str("0");
    }
    if quantity.format == Format::BinarySi {
        let limit = Quantity::new(1024, Format::DecimalSi);
        let whole = quantity.round_up(0);
        if (*quantity >= limit || *quantity <= limit.neg()) && whole == *quantity {
            return binary(&whole, f);
        }
        return decimal(quantity, Format::DecimalSi, f);
    }
    decimal(quantity, quantity.format, f)
}

fn binary(quantity: &Quantity, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Amount::Small { value, scale: 0 } = quantity.amount {
        let (mut value, mut times) = (value, 0);
        while value % 1024 == 0 && times + 1 < BINARY.len() {
            value /= 1024;
            times += 1;
        }
        return write!(f, "{value}{}", BINARY[times]);
    }
    let decimal = quantity.decimal();
    let mut value =
        decimal.unscaled * BigInt::from(10).pow(u32::try_from(decimal.scale).unwrap_or(0));
    let mut times = 0;
    let step = BigInt::from(1024);
    while times + 1 < BINARY.len() {
        let (quotient, rest) = value.div_rem(&step);
        if !rest.is_zero() {
            break;
        }
        value = quotient;
        times += 1;
    }
    write!(f, "{value}{}", BINARY[times])
}

fn decimal(quantity: &Quantity, format: Format, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Amount::Small {
        mut value,
        mut scale,
    } = quantity.amount
    {
        while value % 10 == 0 && scale < i32::MAX {
            value /= 10;
            scale += 1;
        }
        let exponent = exponent(scale, format);
        let zeros = scale.abs_diff(exponent);
        if zeros <= 18 {
            write!(f, "{value}{:0<width$}", "", width = zeros as usize)?;
            return suffix(exponent, format, f);
        }
    }
    let number = quantity.decimal().normalised();
    let exponent = exponent(number.scale, format);
    write!(
        f,
        "{}{:0<width$}",
        number.unscaled,
        "",
        width = number.scale.abs_diff(exponent) as usize
    )?;
    suffix(exponent, format, f)
}

/// The largest printable exponent not above `scale`.
fn exponent(scale: i32, format: Format) -> i32 {
    let exponent = scale.div_euclid(3).saturating_mul(3);
    if format == Format::DecimalExponent {
        exponent
    } else {
        exponent.min(18)
    }
}

fn suffix(exponent: i32, format: Format, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if format == Format::DecimalExponent {
        return if exponent == 0 {
            Ok(())
        } else {
            write!(f, "e{exponent}")
        };
    }
    // Nothing is finer than nano: parsing rounds, and no operation increases the precision.
    f.write_str(
        DECIMAL
            .iter()
            .find(|(_, e)| *e == exponent)
            .map_or("", |(suffix, _)| suffix),
    )
}
