//! `string.format`: clauses `%s %d %f %e %b %x %X %o` with the texts and the number forms of upstream (locale en_US).

use allot_apimachinery::quote::quote;

use crate::value::{Fault, List, Value};

/// Default precision of a clause.
const PRECISION: usize = 6;

/// Formats the arguments of clauses.
pub(crate) trait Formatter {
    /// Number of arguments.
    fn len(&self) -> usize;

    /// The text of the argument at an index for a clause.
    ///
    /// # Errors
    /// The argument has no text for this clause.
    fn format(&mut self, index: usize, clause: Clause) -> Result<String, ArgumentError>;
}

/// Why a format string cannot be evaluated; the texts are those of cel-go's `ext.Strings`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("unexpected end of string")]
    End,
    #[error("index {0} out of range")]
    NoArgument(usize),
    #[error("could not parse formatting clause: {0}")]
    Clause(ClauseError),
    #[error("error during formatting: {0}")]
    Argument(ArgumentError),
}

/// Why a clause of a format string is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClauseError {
    #[error("unexpected end of string")]
    End,
    #[error("unrecognized formatting clause \"{0}\"")]
    Unknown(char),
    #[error("error while parsing precision: could not find end of precision specifier")]
    NoPrecisionEnd,
    #[error(
        "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {}: {}",
        quote(.0),
        if .0.is_empty() { "invalid syntax" } else { "value out of range" }
    )]
    Precision(String),
}

/// Why an argument has no text for a clause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("{}, was given {type_name}", clause.types())]
    Type { clause: Clause, type_name: String },
    #[error("no formatting function for {0}")]
    NoText(String),
    #[error(
        "could not convert argument \"invalid UTF-8 in bytes, cannot convert to string\" to string"
    )]
    NotUtf8,
}

/// A clause of a format string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

impl Clause {
    /// Which types of arguments the clause takes, as cel-go's errors begin.
    fn types(self) -> &'static str {
        match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        }
    }
}

/// Parses a format string and inserts the formatter's text for each clause.
pub(crate) fn format_with(
    format: &str,
    formatter: &mut dyn Formatter,
) -> Result<String, FormatError> {
    let mut out = String::with_capacity(format.len());
    let mut rest = format;
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        if rest.is_empty() && index < formatter.len() {
            return Err(FormatError::End);
        }
        if index >= formatter.len() {
            return Err(FormatError::NoArgument(index));
        }
        let (clause, after) = clause(rest).map_err(FormatError::Clause)?;
        rest = after;
        let text = formatter.format(index, clause);
        out.push_str(&text.map_err(FormatError::Argument)?);
        index += 1;
    }
    out.push_str(rest);
    Ok(out)
}

/// Reads the clause behind a percent sign. Returns also the text behind the clause.
fn clause(text: &str) -> Result<(Clause, &str), ClauseError> {
    let mut precision = PRECISION;
    let mut rest = text;
    if let Some(after) = text.strip_prefix('.') {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits == after.len() {
            return Err(ClauseError::NoPrecisionEnd);
        }
        let number = &after[..digits];
        let parsed = number.parse();
        precision = parsed.map_err(|_| ClauseError::Precision(number.to_owned()))?;
        rest = &after[digits..];
    }
    let Some(letter) = rest.chars().next() else {
        return Err(ClauseError::End);
    };
    let clause = match letter {
        's' => Clause::String,
        'd' => Clause::Decimal,
        'f' => Clause::Fixed(precision),
        'e' => Clause::Scientific(precision),
        'b' => Clause::Binary,
        'x' => Clause::Hex { upper: false },
        'X' => Clause::Hex { upper: true },
        'o' => Clause::Octal,
        other => return Err(ClauseError::Unknown(other)),
    };
    Ok((clause, &rest[letter.len_utf8()..]))
}

/// `format.format(list)`.
pub(super) fn format(format: &str, list: &List<'_>) -> Result<String, Fault> {
    struct Values<'v, 'a>(&'v List<'a>);

    impl Formatter for Values<'_, '_> {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn format(&mut self, index: usize, clause: Clause) -> Result<String, ArgumentError> {
            format_value(&self.0.get(index).unwrap_or(Value::Null), clause)
        }
    }

    format_with(format, &mut Values(list)).map_err(|error| Fault::new(error.to_string()))
}

fn format_value(value: &Value<'_>, clause: Clause) -> Result<String, ArgumentError> {
    let unsuitable = || {
        Err(ArgumentError::Type {
            clause,
            type_name: value.type_name().into_owned(),
        })
    };
    match clause {
        Clause::String => string(value),
        Clause::Decimal => match value {
            Value::Int(_) | Value::Uint(_) => Ok(value.to_string()),
            _ => unsuitable(),
        },
        Clause::Fixed(precision) => match float(value) {
            Some(number) => Ok(fixed(number, precision)),
            None => unsuitable(),
        },
        Clause::Scientific(precision) => match float(value) {
            Some(number) => Ok(scientific(number, precision)),
            None => unsuitable(),
        },
        Clause::Binary => match value {
            Value::Int(number) => Ok(signed(*number, |number| format!("{number:b}"))),
            Value::Uint(number) => Ok(format!("{number:b}")),
            Value::Bool(value) => Ok(if *value { "1" } else { "0" }.to_owned()),
            _ => unsuitable(),
        },
        Clause::Octal => match value {
            Value::Int(number) => Ok(signed(*number, |number| format!("{number:o}"))),
            Value::Uint(number) => Ok(format!("{number:o}")),
            _ => unsuitable(),
        },
        Clause::Hex { upper } => {
            let bytes = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
            let text = match value {
                Value::Int(number) => signed(*number, |number| format!("{number:x}")),
                Value::Uint(number) => format!("{number:x}"),
                Value::String(text) => bytes(text.as_bytes()),
                Value::Bytes(data) => bytes(data),
                _ => return unsuitable(),
            };
            Ok(if upper { text.to_uppercase() } else { text })
        }
    }
}

fn signed(number: i64, format: impl Fn(u64) -> String) -> String {
    format!(
        "{}{}",
        if number < 0 { "-" } else { "" },
        format(number.unsigned_abs())
    )
}

fn float(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn special(number: f64) -> Option<String> {
    if number.is_nan() {
        Some("NaN".to_owned())
    } else if number.is_infinite() {
        Some(
            if number > 0.0 {
                "\u{221e}"
            } else {
                "-\u{221e}"
            }
            .to_owned(),
        )
    } else {
        None
    }
}

/// Decimals with commas between groups of three digits.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(text) = special(number) {
        return text;
    }
    let text = format!("{number:.precision$}");
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or(("", &*text), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut out = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if precision > 0 {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// `1.5\u{202f}×\u{202f}10²`.
fn scientific(number: f64, precision: usize) -> String {
    if let Some(text) = special(number) {
        return text;
    }
    let text = format!("{number:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exponent
        .strip_prefix('-')
        .map_or(("", exponent), |digits| ("\u{207b}", digits));
    let superscript = |digit: char| match digit {
        '0' => '\u{2070}',
        '1' => '\u{b9}',
        '2' => '\u{b2}',
        '3' => '\u{b3}',
        digit => char::from_u32(0x2070 + digit.to_digit(10).unwrap_or(0)).unwrap_or(digit),
    };
    let digits: String = format!("{digits:0>2}").chars().map(superscript).collect();
    format!("{mantissa}\u{202f}\u{d7}\u{202f}10{sign}{digits}")
}

/// A value for `%s`.
fn string(value: &Value<'_>) -> Result<String, ArgumentError> {
    match value {
        Value::List(list) => {
            let elements: Result<Vec<_>, _> =
                list.iter().map(|element| literal(&element)).collect();
            Ok(format!("[{}]", elements?.join(", ")))
        }
        Value::Map(map) => {
            let mut pairs = Vec::with_capacity(map.len());
            for key in map.keys() {
                let value = map.find(&key).unwrap_or(Value::Null);
                pairs.push((literal(&key)?, literal(&value)?));
            }
            pairs.sort();
            let pairs: Vec<_> = pairs
                .into_iter()
                .map(|(key, value)| format!("{key}:{value}"))
                .collect();
            Ok(format!("{{{}}}", pairs.join(", ")))
        }
        Value::Null => Ok("null".to_owned()),
        Value::Quantity(_) | Value::Version(_) | Value::Extension(_) | Value::Optional(_) => {
            Err(ArgumentError::Type {
                clause: Clause::String,
                type_name: value.type_name().into_owned(),
            })
        }
        other => super::convert::to_text(other).map_err(|_| ArgumentError::NotUtf8),
    }
}

/// A value inside a list or map, as CEL would write it.
fn literal(value: &Value<'_>) -> Result<String, ArgumentError> {
    match value {
        Value::String(text) => Ok(quote(text)),
        Value::Bytes(_) => Ok(format!("b{}", quote(&string(value)?))),
        Value::Timestamp(timestamp) => Ok(format!("timestamp({})", quote(&timestamp.text()))),
        Value::Duration(_) => Ok(format!("duration({})", quote(&string(value)?))),
        Value::Double(number) if !number.is_finite() => Ok(quote(&value.to_string())),
        Value::Double(number) => Ok(format!("{number:.PRECISION$}")),
        Value::Quantity(_) | Value::Version(_) | Value::Extension(_) | Value::Optional(_) => {
            Err(ArgumentError::NoText(value.type_name().into_owned()))
        }
        other => string(other),
    }
}
