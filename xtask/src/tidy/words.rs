//! Words that comments do not use: programs, objects and pods are "it", and Kubernetes has the verbs.

/// The words with what to write in their place. Only comments are checked, in lower case.
const WORDS: &[(&str, &str)] = &[
    ("whoever", "name the program or object"),
    (
        "nobody",
        "name the program or object: \"no pod\", \"no component\"",
    ),
    ("somebody", "name the program or object: \"another client\""),
    ("everybody", "\"all users\", \"all clients\""),
    ("in vain", "\"without success\""),
    ("for ever", "\"forever\", or the bound"),
    ("gives back", "\"releases\", \"unprepares\""),
];

/// Comments that need one of the words: a part of the path and of the line.
const EXCEPTIONS: &[(&str, &str)] = &[("", "\"nobody\"")];

/// The findings in the comments of a file.
pub fn findings(shown: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            continue;
        };
        let excepted = |(path, part): &(&str, &str)| shown.contains(path) && comment.contains(part);
        if EXCEPTIONS.iter().any(excepted) {
            continue;
        }
        let comment = comment.to_lowercase();
        for (word, better) in WORDS {
            if contains(&comment, word) {
                let number = number + 1;
                findings.push(format!(
                    "{shown}:{number}: \"{word}\" in a comment: {better}"
                ));
            }
        }
    }
    findings
}

/// Whether a text has a word, not only as a part of another one.
fn contains(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        ![before, after]
            .into_iter()
            .flatten()
            .any(|c| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_name_programs_and_objects() {
        let count = |text| findings("crates/x/src/a.rs", text).len();
        assert_eq!(count("/// Whoever reads it, for ever.\n"), 2);
        assert_eq!(count("let nobody = 1; // of nobody\n"), 0);
        assert_eq!(count("// The user \"nobody\".\n// nobody_else\n"), 0);
    }
}
