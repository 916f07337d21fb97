//! "Did you mean": the known name that is most similar to a mistyped one.

/// Longer names are not compared: the comparison takes the product of the lengths.
const LONGEST: usize = 256;

/// The known name that is most similar to `wanted`, if one is similar enough: a third of its letters may be wrong,
/// missing, surplus or swapped with a neighbour. A domain that both have does not count: `nope.example.com` is not like
/// `gpu.example.com`. Of equally similar names, the first in alphabetical order. A known name is not suggested for
/// itself.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wanted.is_empty() || wanted.len() > 4 * LONGEST {
        return None;
    }
    let distances = known.into_iter().filter_map(|name| {
        let (own, other) = without_shared(wanted, name);
        let letters: Vec<char> = own.chars().take(LONGEST + 1).collect();
        let other: Vec<char> = other.chars().take(LONGEST + 1).collect();
        let most = (letters.len() / 3).max(1);
        let is_long = letters.len() > LONGEST;
        if name == wanted || is_long || other.len().abs_diff(letters.len()) > most {
            return None;
        }
        let distance = distance(&letters, &other);
        (distance <= most).then_some((distance, name))
    });
    distances.min().map(|(_, name)| name)
}

/// `; did you mean gpu.example.com?`, or empty.
pub fn hint<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(wanted, known) {
        Some(name) => format!("; did you mean {name}?"),
        None => String::new(),
    }
}

/// Two names without the domain that both have: what is before the last `/`, and the last labels, of which each name
/// keeps one.
fn without_shared<'a>(a: &'a str, b: &'a str) -> (&'a str, &'a str) {
    if let (Some((of_a, in_a)), Some((of_b, in_b))) = (a.rsplit_once('/'), b.rsplit_once('/')) {
        if of_a == of_b {
            return (in_a, in_b);
        }
        if in_a == in_b {
            return without_labels(of_a, of_b);
        }
    }
    without_labels(a, b)
}

/// Two names without the last labels that are equal.
fn without_labels<'a>(mut a: &'a str, mut b: &'a str) -> (&'a str, &'a str) {
    while let (Some((before_a, last_a)), Some((before_b, last_b))) =
        (a.rsplit_once('.'), b.rsplit_once('.'))
        && last_a == last_b
    {
        (a, b) = (before_a, before_b);
    }
    (a, b)
}

/// How many letters must be replaced, inserted, deleted or swapped with the next one (optimal string alignment);
/// letters that differ only in case count half, rounded up over the name.
fn distance(a: &[char], b: &[char]) -> usize {
    // Doubled, so that case can count half.
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).map(|n| 2 * n).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![2 * (i + 1)];
        for (j, y) in b.iter().enumerate() {
            let replace = match x == y {
                true => 0,
                false if x.eq_ignore_ascii_case(y) => 1,
                false => 2,
            };
            let mut least = (last[j] + replace).min(last[j + 1] + 2).min(row[j] + 2);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before_last[j - 1] + 2);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().map_or(0, |doubled| doubled.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wanted: &str, known: &[&str], expected: Option<&str>) {
        assert_eq!(nearest(wanted, known.iter().copied()), expected, "{wanted}");
    }

    #[test]
    fn a_likely_misspelling_is_corrected() {
        let classes = ["gpu.example.com", "nic.example.com", "tpu.example.org"];
        check("gpu.exmaple.com", &classes, Some("gpu.example.com"));
        check("gpu.example.comm", &classes, Some("gpu.example.com"));
        check("pgu.example.com", &classes, Some("gpu.example.com"));
        check("memroy", &["memory", "model"], Some("memory"));
        check("Memory", &["memory", "nemory"], Some("memory"));
        check("a", &["b", "cc"], Some("b"));
    }

    #[test]
    fn unlike_equal_and_very_long_names_are_not_suggested() {
        check("fpga", &["gpu.example.com", "network"], None);
        check("", &["a"], None);
        check("memory", &["memory"], None);
        check(&"x".repeat(10_000), &["x"], None);
        check("x", &[&"x".repeat(10_000)], None);
    }

    #[test]
    fn a_shared_domain_makes_no_likeness() {
        let attributes = ["gpu.example.com/model", "gpu.example.com/numaNode"];
        check("gpu.example.com/numanode", &attributes, Some(attributes[1]));
        check("gpu.example.com/numaNode", &attributes[..1], None);
        check("gpu.exmple.com/model", &attributes, Some(attributes[0]));
        check("nope.example.com", &["gpu.example.com"], None);
        check("nic.example.com/model", &attributes, None);
        check("example.com", &["gpu.example.com"], None);
    }

    #[test]
    fn of_equals_the_first_is_taken() {
        check("gpu-c", &["gpu-b", "gpu-a"], Some("gpu-a"));
    }
}
