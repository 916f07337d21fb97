//! "Did you mean": the known name that is most similar to a mistyped one.

/// Longer names are not compared: the comparison takes the product of the lengths.
const LONGEST: usize = 256;

/// The known name that is most similar to `wanted`, if one is similar enough: a third of its letters may be wrong,
/// missing, surplus or swapped with a neighbour. Of equally similar names, the first in alphabetical order. A known
/// name is not suggested for itself.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = wanted.chars().collect();
    if letters.is_empty() || letters.len() > LONGEST {
        return None;
    }
    let most = (letters.len() / 3).max(1);
    let distances = known.into_iter().filter_map(|name| {
        let other: Vec<char> = name.chars().take(LONGEST + 1).collect();
        if name == wanted || other.len().abs_diff(letters.len()) > most {
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
    fn names_that_are_like_it_are_found() {
        let classes = ["gpu.example.com", "nic.example.com", "tpu.example.org"];
        check("gpu.exmaple.com", &classes, Some("gpu.example.com"));
        check("gpu.example.comm", &classes, Some("gpu.example.com"));
        check("pgu.example.com", &classes, Some("gpu.example.com"));
        check("memroy", &["memory", "model"], Some("memory"));
        check("Memory", &["memory", "nemory"], Some("memory"));
        check("a", &["b", "cc"], Some("b"));
    }

    #[test]
    fn others_are_not() {
        check("fpga", &["gpu.example.com", "network"], None);
        check("", &["a"], None);
        check("memory", &["memory"], None);
        check(&"x".repeat(10_000), &["x"], None);
        check("x", &[&"x".repeat(10_000)], None);
    }

    #[test]
    fn of_equals_the_first_is_taken() {
        check("gpu-c", &["gpu-b", "gpu-a"], Some("gpu-a"));
    }
}
