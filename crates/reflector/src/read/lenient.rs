//! Values that servers accept, because they are written in Go, and that cannot be parsed here: times at the end of the year 9999,
//! because a [`Timestamp`] must have a date in every time zone; times before the year 0, which result from its first day and an
//! offset, and which Go writes with a sign; and unpaired surrogates in opaque parameters, which are stored as they were sent.
//! Fields and parameters can also be nested deeper than the parser permits.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::DateTime;

/// The years of such times in JSON, each with its replacement: the last second of a [`Timestamp`], or the first of the year 0.
const BOUNDS: [(&str, &str); 2] = [
    ("\"9999", "9999-12-30T22:00:00"),
    ("\"-001", "0000-01-01T00:00:00"),
];
/// The text that follows these years.
const DAYS: &str = "-12-3";
/// The maximum nesting of an object; the parser's limit is slightly higher.
const LEVELS: usize = 100;

/// The replacement character, as which Go reads an unpaired surrogate.
const REPLACED: &str = "\\ufffd";

/// The text with replacements for such values; `None` if it has none.
pub(super) fn readable(text: &str) -> Option<String> {
    let mut read = Cow::Borrowed(text);
    for part in [whole_characters, clamped, shallow] {
        if let Some(other) = part(&read) {
            read = Cow::Owned(other);
        }
    }
    match read {
        Cow::Owned(other) => Some(other),
        Cow::Borrowed(_) => None,
    }
}

/// The text with null for values that are nested too deep.
fn shallow(text: &str) -> Option<String> {
    let (mut shallow, mut from, mut level) = (String::new(), 0, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                level += 1;
                if level == LEVELS + 1 {
                    shallow.push_str(&text[from..at]);
                    shallow.push_str("null");
                }
            }
            b'}' | b']' if !in_string => {
                if level == LEVELS + 1 {
                    from = at + 1;
                }
                level = usize::saturating_sub(level, 1);
            }
            _ => {}
        }
    }
    if from == 0 || level > LEVELS {
        return None;
    }
    shallow.push_str(&text[from..]);
    Some(shallow)
}

/// The text with the replacement character for unpaired surrogates.
fn whole_characters(text: &str) -> Option<String> {
    let (mut whole, mut rest, mut is_changed) = (String::new(), text, false);
    while let Some(at) = rest.find('\\') {
        let (before, from) = rest.split_at(at);
        whole.push_str(before);
        let length = match (unit(from), from.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                whole.push_str(REPLACED);
                is_changed = true;
                rest = &from[6..];
                continue;
            }
            (Some(_), _) => 6,
            // A backslash and the escaped character.
            (None, _) => 1 + from[1..].chars().next().map_or(0, char::len_utf8),
        };
        let (escape, after) = from.split_at(length);
        whole.push_str(escape);
        rest = after;
    }
    whole.push_str(rest);
    is_changed.then_some(whole)
}

/// The number in the escape at the beginning of a text.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

/// The text with the nearest times for those that cannot be parsed; `None` if it has none. Strings that look like such a time
/// change as well, and keep their length.
fn clamped(text: &str) -> Option<String> {
    clamped_where(text, |rest| rest.find(DAYS))
}

/// Like [`clamped`]. `find` returns the position of the next of the [`DAYS`] in the rest of the text: one search for all of them,
/// because one search for each would read the rest repeatedly.
fn clamped_where(text: &str, mut find: impl FnMut(&str) -> Option<usize>) -> Option<String> {
    let (mut clamped, mut rest, mut is_changed) = (String::new(), text, false);
    while let Some(at) = find(rest) {
        let year = BOUNDS.iter().find(|(year, _)| rest[..at].ends_with(year));
        let Some((year, bound)) = year else {
            let (before, after) = rest.split_at(at + DAYS.len());
            clamped.push_str(before);
            rest = after;
            continue;
        };
        let (before, from) = rest.split_at(at + 1 - year.len());
        clamped.push_str(before);
        let (time, after) = from.split_at(from.find('"').unwrap_or(from.len()));
        match fraction(time) {
            Some(fraction) if time.parse::<Timestamp>().is_err() => {
                clamped.push_str(bound);
                clamped.push_str(fraction);
                is_changed = true;
            }
            _ => clamped.push_str(time),
        }
        rest = after;
    }
    clamped.push_str(rest);
    is_changed.then_some(clamped)
}

/// The text after the seconds of a time in UTC, for any year; `None` for other texts.
fn fraction(time: &str) -> Option<&str> {
    let (second, fraction) = time.split_at_checked("YYYY-MM-DDTHH:MM:SS".len())?;
    let digits = fraction.strip_suffix('Z')?;
    let digits = digits.strip_prefix('.').unwrap_or(digits);
    let second = format!("2000{}", second.get(4..)?);
    let is_time = second.parse::<DateTime>().is_ok();
    (is_time && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(fraction)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::resource::v1::ResourceClaim;

    use super::*;
    use crate::{everything, parse};

    fn lease(time: &str) -> String {
        format!(
            r#"{{"metadata": {{"name": "l", "labels": {{"a": "9999-12-31Z", "b": "9999-12-31T23:59:60xZ"}},
            "managedFields": [{{"time": "9999-12-31T23:59:59Z"}}]}}, "spec": {{"renewTime": "{time}"}}}}"#
        )
    }

    /// The attack: a Lease in any namespace with a renew time at the end of the year 9999. The watch of all Leases failed from then
    /// on, and every node became unreachable.
    #[test]
    fn regression_an_object_of_the_last_day_is_read() {
        for time in [
            "9999-12-31T23:59:59.999999Z",
            "9999-12-30T22:00:01.000000Z",
            "9999-12-30T22:00:00.999999Z",
        ] {
            let read: Lease = parse(&lease(time), everything).unwrap();
            let renewed = read.spec.unwrap().renew_time.unwrap().0;
            assert_eq!(renewed.as_second(), Timestamp::MAX.as_second());
            let labels = read.metadata.labels.unwrap();
            assert_eq!(labels["a"], "9999-12-31Z");
            assert_eq!(labels["b"], "9999-12-31T23:59:60xZ");
            let owners = read.metadata.managed_fields.unwrap();
            assert_eq!(
                owners[0].time.as_ref().unwrap().0.as_second(),
                renewed.as_second()
            );
        }
    }

    /// The attack: a condition of a pod on the first day of the year 0, east of Greenwich, which is written as one of the year -1.
    /// The watches of all pods failed from then on: of the scheduler, the controllers and the nodes.
    #[test]
    fn regression_an_object_of_the_day_before_the_first_is_read() {
        for time in [
            "-001-12-31T01:00:00.000000Z",
            "-001-12-30T23:00:00Z",
            "-001-12-31T23:59:59.999999Z",
        ] {
            let read: Lease = parse(&lease(time), everything).unwrap();
            let renewed = read.spec.unwrap().renew_time.unwrap().0;
            assert_eq!(renewed.strftime("%FT%T").to_string(), "0000-01-01T00:00:00");
        }
        let zero: Lease = parse(&lease("0000-01-01T00:00:00Z"), everything).unwrap();
        assert!(zero.spec.unwrap().renew_time.is_some());
    }

    /// The attack: an object with one such time and very many texts that begin like one. After each of them the rest of the object
    /// was searched for the other kind of times: a minute for an object of the maximum size, in every process that watches it.
    #[test]
    fn regression_texts_like_times_are_read_once() {
        let like_times = r#""9999-12-3","a-12-3","#.repeat(50_000);
        let text = format!(r#"[{like_times}"9999-12-31T23:59:59Z"]"#);
        let mut searched = 0;
        let read = clamped_where(&text, |rest| {
            let at = rest.find(DAYS);
            searched += at.map_or(rest.len(), |at| at + DAYS.len());
            at
        });
        assert_eq!(
            read.unwrap(),
            format!(r#"[{like_times}"9999-12-30T22:00:00Z"]"#)
        );
        assert!(searched <= text.len(), "{searched} of {} bytes", text.len());
    }

    /// The attack: a claim with an unpaired surrogate in its parameters, which Go replaces when it reads them.
    #[test]
    fn regression_half_a_character_is_read() {
        let pair = "\\ud83d\\ude00";
        let text = |inside: &str| format!(r#"{{"metadata": {{"name": "{inside}"}}}}"#);
        for (inside, expected) in [
            ("a\\ud800", "a\u{fffd}"),
            ("\\udc00\\ud800\\u0041", "\u{fffd}\u{fffd}A"),
            ("\\ud800\\n\\ud83d\\ude00", "\u{fffd}\n😀"),
            ("\\\\ud800\\udbff", "\\ud800\u{fffd}"),
            ("\\ud800é", "\u{fffd}é"),
        ] {
            let read: Lease = parse(&text(inside), everything).unwrap();
            assert_eq!(read.metadata.name.as_deref(), Some(expected), "{inside}");
        }
        assert_eq!(readable(&text(pair)), None);
        for broken in ["\\u12", "\\", "\\ud800\\u12", "\\ud8"] {
            assert!(parse::<Lease>(&text(broken), everything).is_err());
            assert!(parse::<Lease>(broken, everything).is_err());
        }
    }

    /// The attack: a claim whose parameters, or owners of fields, are nested deeper than a parser reads.
    #[test]
    fn regression_what_is_nested_too_deep_is_left_out() {
        let claim = |levels: usize| {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            format!(
                r#"{{"metadata": {{"name": "c", "managedFields": [{{"fieldsV1": {{"f:a\"[": {open}"}}"{close}}}}}]}},
                "spec": {{"devices": {{"config": [{{"opaque": {{"driver": "d", "parameters": {{"a": {open}{close}, "b": 1}}}}}}]}}}}}}"#
            )
        };
        for levels in [1, 90, 120, 5000] {
            let read: ResourceClaim = parse(&claim(levels), everything).unwrap();
            assert_eq!(read.metadata.name.as_deref(), Some("c"));
            let config = read.spec.devices.unwrap().config.unwrap();
            let parameters = &config[0].opaque.as_ref().unwrap().parameters.0;
            assert_eq!(parameters["b"], 1);
            assert!(parameters["a"].is_array());
        }
        let open = claim(5000).replace(']', "");
        assert!(parse::<ResourceClaim>(&open, everything).is_err());
    }

    #[test]
    fn other_texts_stay() {
        let early = r#"{"time": "9999-12-30T22:00:00Z", "name": "9999-12-31", "open": "9999-12-3"#;
        assert_eq!(readable(early), None);
        assert_eq!(
            readable(r#"{"a": "-001-12-32T00:00:00Z", "b": "-001-12-31", "c": "-001-12-3"#),
            None
        );
        assert_eq!(readable(r#"{"time": "2026-01-01T00:00:00Z"}"#), None);
        assert!(parse::<Lease>(&lease("soon"), everything).is_err());
    }
}
