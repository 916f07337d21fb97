//! Order of resource versions.

use std::cmp::Ordering;

/// Compares two resource versions as the decimal numbers that they are (guaranteed since Kubernetes 1.35, true before).
///
/// A version that is not a number is older than every number, so that a strange object never hides a watch event.
pub fn compare(a: &str, b: &str) -> Ordering {
    // Of numbers without zeros in front the longer one is larger.
    fn number(v: &str) -> Option<(usize, &str)> {
        let digits = v.trim_start_matches('0');
        let is_number = v.bytes().all(|b| b.is_ascii_digit());
        is_number.then_some((digits.len(), digits))
    }
    number(a).cmp(&number(b))
}

/// Whether `a` is newer than `b`.
pub fn is_newer(a: &str, b: &str) -> bool {
    compare(a, b) == Ordering::Greater
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_of_any_size() {
        assert!(is_newer("10", "9"));
        assert!(is_newer("18446744073709551617", "18446744073709551616"));
        assert!(!is_newer("007", "7"));
        assert!(is_newer("1", "x"));
        assert!(!is_newer("", "0"));
    }
}
