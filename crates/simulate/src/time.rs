//! Times and durations as users write them.

use std::time::Duration;

/// Longest time that is taken: a thousand years. Sums of a few of them still fit everywhere.
const LONGEST: Duration = Duration::from_secs(1000 * 365 * 24 * 3600);

/// Reads `90`, `1.5` (seconds), or numbers with units: `1h30m`, `2d`, `250ms`.
///
/// # Errors
/// The text is none of these, or means more than a thousand years.
pub fn duration(text: &str) -> anyhow::Result<Duration> {
    let wrong = || {
        anyhow::anyhow!("{text:?} is no duration: write seconds, or such as 1h30m, 2d and 250ms")
    };
    let text_left = text.trim();
    if let Ok(seconds) = text_left.parse::<f64>() {
        return limited(seconds).ok_or_else(wrong);
    }
    let (mut left, mut total) = (text_left, 0.0);
    if left.is_empty() {
        return Err(wrong());
    }
    while !left.is_empty() {
        let digits = left
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(wrong)?;
        let number: f64 = left[..digits].parse().map_err(|_| wrong())?;
        let unit = &left[digits..];
        let end = unit
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(unit.len());
        let seconds = match &unit[..end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(wrong()),
        };
        total += number * seconds;
        left = &unit[end..];
    }
    limited(total).ok_or_else(wrong)
}

fn limited(seconds: f64) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    // Whole milliseconds, so that what is printed is what was meant.
    let millis = u64::try_from(duration.as_millis()).ok()?;
    Some(Duration::from_millis(millis)).filter(|d| *d <= LONGEST)
}

/// A duration for people: `2d3h`, `1h30m`, `12.5s`. Only the two largest units are shown.
#[must_use]
pub fn shown(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours) = (seconds / 86400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    let pair = |a: u64, unit: &str, b: u64, smaller: &str| match b {
        0 => format!("{a}{unit}"),
        b => format!("{a}{unit}{b}{smaller}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => match duration.subsec_millis() {
            0 => format!("{rest}s"),
            millis => {
                let text = format!("{rest}.{millis:03}");
                format!("{}s", text.trim_end_matches('0'))
            }
        },
        (0, 0, _) => pair(minutes, "m", rest, "s"),
        (0, ..) => pair(hours, "h", minutes, "m"),
        _ => pair(days, "d", hours, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown() {
        for (text, millis, again) in [
            ("0", 0, "0s"),
            ("90", 90_000, "1m30s"),
            ("1.5", 1_500, "1.5s"),
            ("250ms", 250, "0.25s"),
            ("1h30m", 5_400_000, "1h30m"),
            ("2d3h4m", 183_840_000, "2d3h"),
            ("0.5h", 1_800_000, "30m"),
        ] {
            let read = duration(text).expect(text);
            assert_eq!(read, Duration::from_millis(millis), "{text}");
            assert_eq!(shown(read), again, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            " ",
            "h",
            "1x",
            "-1",
            "1h-2m",
            "inf",
            "NaN",
            "1e30",
            "9999999999d",
            "1..2s",
            "5 m",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
