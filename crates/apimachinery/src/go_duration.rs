//! Durations as Go prints them.

use std::time::Duration;

/// A duration as Go's `time.Duration` prints it: `1h0m3s`, `2m0.5s`, `532ms`.
pub fn go_duration(duration: Duration) -> String {
    let (whole, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if whole == 0 && nanos > 0 {
        // Go prints these in the unit in which there is a whole part.
        return match nanos {
            1_000_000.. => format!("{}ms", decimal(nanos.into(), 6)),
            1_000.. => format!("{}µs", decimal(nanos.into(), 3)),
            _ => format!("{nanos}ns"),
        };
    }
    let seconds = decimal(whole % 60 * 1_000_000_000 + u64::from(nanos), 9);
    match (whole / 3600, whole / 60 % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// A number with so many digits behind the point, without zeros at the end.
fn decimal(number: u64, digits: usize) -> String {
    let unit = 10_u64.pow(digits as u32);
    match number % unit {
        0 => (number / unit).to_string(),
        rest => {
            let text = format!("{}.{rest:0digits$}", number / unit);
            text.trim_end_matches('0').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_texts_of_go() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (532_000_000, "532ms"),
            (1_000_001, "1.000001ms"),
            (1_200_000_000, "1.2s"),
            (60_000_000_000, "1m0s"),
            (120_500_000_000, "2m0.5s"),
            (3_603_000_000_000, "1h0m3s"),
            (90_000_000_000_000, "25h0m0s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
    }
}
