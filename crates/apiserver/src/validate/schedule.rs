//! The schedules of cron jobs, with the texts of the library that upstream reads them with.

/// The least and the greatest value of a field, and names for values.
struct Bounds {
    low: u64,
    high: u64,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds {
        low: 0,
        high: 59,
        names: &[],
    },
    Bounds {
        low: 0,
        high: 23,
        names: &[],
    },
    Bounds {
        low: 1,
        high: 31,
        names: &[],
    },
    Bounds {
        low: 1,
        high: 12,
        names: &MONTHS,
    },
    Bounds {
        low: 0,
        high: 6,
        names: &DAYS,
    },
];

/// Why a schedule is none.
pub(super) fn error(schedule: &str) -> Option<String> {
    if let Some(descriptor) = schedule.strip_prefix('@') {
        return descriptor_error(descriptor);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let count = fields.len();
        return Some(format!(
            "expected exactly 5 fields, found {count}: [{}]",
            fields.join(" ")
        ));
    }
    fields
        .iter()
        .zip(&FIELDS)
        .find_map(|(field, bounds)| field_error(field, bounds))
}

fn descriptor_error(descriptor: &str) -> Option<String> {
    match descriptor {
        "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly" => None,
        other => match other.strip_prefix("every ") {
            Some(text) => duration_error(text)
                .map(|error| format!("failed to parse duration @{descriptor}: {error}")),
            None => Some(format!("unrecognized descriptor: @{descriptor}")),
        },
    }
}

/// A Go duration: numbers with units, such as `1h30m`.
fn duration_error(text: &str) -> Option<String> {
    let invalid = || Some(format!("time: invalid duration {text:?}"));
    let mut rest = text.trim_start_matches(['+', '-']);
    if rest == "0" {
        return None;
    }
    if rest.is_empty() {
        return invalid();
    }
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if digits.len() == rest.len() {
            return invalid();
        }
        let unit_end = digits
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(digits.len());
        match &digits[..unit_end] {
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => {}
            "" => return Some(format!("time: missing unit in duration {text:?}")),
            unit => {
                return Some(format!("time: unknown unit {unit:?} in duration {text:?}"));
            }
        }
        rest = &digits[unit_end..];
    }
    None
}

fn field_error(field: &str, bounds: &Bounds) -> Option<String> {
    field
        .split(',')
        .filter(|range| !range.is_empty())
        .find_map(|range| range_error(range, bounds).err())
}

fn range_error(text: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let single = ends.len() == 1;
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (bounds.low, bounds.high),
        [start] => {
            let start = value(start, bounds)?;
            (start, start)
        }
        [start, end] => (value(start, bounds)?, value(end, bounds)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    match parts.as_slice() {
        [_] => {}
        [_, step] => {
            let step = number(step)?;
            // One value with a step means from it on.
            if single {
                end = bounds.high;
            }
            if step == 0 {
                return Err(format!("step of range should be a positive number: {text}"));
            }
        }
        _ => return Err(format!("too many slashes: {text}")),
    }
    if start < bounds.low {
        let low = bounds.low;
        return Err(format!(
            "beginning of range ({start}) below minimum ({low}): {text}"
        ));
    }
    if end > bounds.high {
        let high = bounds.high;
        return Err(format!(
            "end of range ({end}) above maximum ({high}): {text}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {text}"
        ));
    }
    Ok(())
}

fn value(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    match (bounds.low..)
        .zip(bounds.names)
        .find(|(_, name)| **name == lower)
    {
        Some((value, _)) => Ok(value),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(number) if number >= 0 => Ok(number.unsigned_abs()),
        Ok(number) => Err(format!("negative number ({number}) not allowed: {text}")),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
        )),
    }
}
