//! Which styles can hold a text, and whether a reader would take it for something else without quotes.

/// The styles that can hold a text.
pub(super) struct Allowed {
    pub(super) plain: bool,
    pub(super) single: bool,
    pub(super) literal: bool,
}

pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}

impl Allowed {
    pub(super) fn of(found: &str) -> Self {
        let chars: Vec<char> = found.chars().collect();
        let next_is_space = |index: usize| {
            chars
                .get(index + 1)
                .is_none_or(|c| matches!(c, ' ' | '\t') || is_break(*c))
        };
        let mut indicators = found.starts_with("---") || found.starts_with("...");
        let (mut special, mut breaks, mut space_break, mut break_space) =
            (false, false, false, false);
        for (index, c) in chars.iter().copied().enumerate() {
            let before = index.checked_sub(1).map(|index| chars[index]);
            indicators |= match (index, c) {
                (
                    0,
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"'
                    | '%' | '@' | '`',
                ) => true,
                (0, '?' | '-') | (_, ':') => next_is_space(index),
                (1.., '#') => before.is_some_and(|c| matches!(c, ' ' | '\t') || is_break(c)),
                _ => false,
            };
            special |= !is_printable(c);
            breaks |= is_break(c);
            space_break |= is_break(c) && before == Some(' ');
            break_space |= c == ' ' && before.is_some_and(is_break);
        }
        let ends = [chars.first(), chars.last()];
        let edge = |wanted: &dyn Fn(char) -> bool| ends.iter().flatten().any(|c| wanted(**c));
        let trailing_space = chars.last() == Some(&' ');
        let odd = space_break || special;
        Self {
            plain: !(edge(&|c| c == ' ' || is_break(c))
                || break_space
                || odd
                || breaks
                || indicators),
            single: !(break_space || odd),
            literal: !(trailing_space || odd),
        }
    }
}

/// Whether the text, without quotes, is read as a text: it is no number, date, boolean or null.
pub(super) fn reads_as_text(found: &str) -> bool {
    const WORDS: [&str; 11] = [
        "", "~", "null", "true", "false", "y", "n", "yes", "no", "on", "off",
    ];
    let lower = found.to_ascii_lowercase();
    let one_case = found == lower
        || found == found.to_ascii_uppercase()
        || found
            .get(..1)
            .is_some_and(|first| first == first.to_ascii_uppercase())
            && found.get(1..) == lower.get(1..);
    if WORDS.contains(&lower.as_str()) && one_case {
        return false;
    }
    let bare = found.strip_prefix(['+', '-']).unwrap_or(found);
    let bare_lower = bare.to_ascii_lowercase();
    if bare_lower == ".inf" || lower == ".nan" {
        return false;
    }
    !(is_number(bare, found) || is_sexagesimal(bare) || is_time(found))
}

fn is_number(bare: &str, found: &str) -> bool {
    if !found.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return false;
    }
    let plain: String = bare.chars().filter(|c| *c != '_').collect();
    for (prefix, radix) in [("0x", 16), ("0X", 16), ("0b", 2), ("0o", 8)] {
        if let Some(digits) = plain.strip_prefix(prefix) {
            return u64::from_str_radix(digits, radix).is_ok();
        }
    }
    let (mantissa, exponent) = match plain.find(['e', 'E']) {
        Some(at) => (&plain[..at], Some(&plain[at + 1..])),
        None => (plain.as_str(), None),
    };
    let digits = |text: &str| text.bytes().all(|it| it.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    has_digits && digits(whole) && digits(fraction) && fits
}

/// A number of base 60, as YAML 1.1 has it: `1:20`.
fn is_sexagesimal(bare: &str) -> bool {
    let (whole, fraction) = bare.split_once('.').unwrap_or((bare, ""));
    let mut parts = whole.split(':');
    let first = parts.next().unwrap_or_default();
    let digits = |text: &str| text.bytes().all(|it| it.is_ascii_digit() || it == b'_');
    let mut count = 0;
    let small = parts.all(|part| {
        count += 1;
        part.len() <= 2 && part.parse::<u8>().is_ok_and(|part| part < 60)
    });
    small
        && count > 0
        && first.starts_with(|c: char| c.is_ascii_digit())
        && digits(first)
        && digits(fraction)
}

/// A date, or a date with a time.
fn is_time(found: &str) -> bool {
    let Some((date, time)) =
        found.split_at_checked(found.find(['T', 't', ' ']).unwrap_or(found.len()))
    else {
        return false;
    };
    let parts: Vec<&str> = date.split('-').collect();
    let number = |text: &str, most: u32| {
        text.len() <= 2 && text.parse::<u32>().is_ok_and(|it| (1..=most).contains(&it))
    };
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let is_date = year.len() == 4
        && year.bytes().all(|it| it.is_ascii_digit())
        && number(month, 12)
        && number(day, 31);
    is_date
        && (time.is_empty()
            || time[1..].starts_with(|c: char| c.is_ascii_digit()) && time.contains(':'))
}
