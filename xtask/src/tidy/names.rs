//! Documents name items of the code: source files, Rust paths and tests in code style exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Extensions of files whose words count as existing.
const SOURCES: &[&str] = &["rs", "go", "py", "sh", "ts", "tsx", "txt", "yaml"];

/// Parts of file names that stand for any name.
const PLACEHOLDERS: &[&str] = &["NAME", "KIND", "GROUP"];

/// What documents name, with the documents.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Ends of paths: `plugins/image.rs`, `scheduler/src/core.rs`.
    files: BTreeMap<String, String>,
    /// Identifiers, each with the document and the whole that it is a part of.
    words: BTreeMap<String, (String, String)>,
}

impl Names {
    /// Adds what a document has in code style, if it is a name of one of these kinds.
    pub(super) fn add(&mut self, document: &str, code: &str) {
        let path = |c: char| c.is_ascii_alphanumeric() || "/._-{},".contains(c);
        if code.ends_with(".rs") && code.chars().all(path) {
            if !PLACEHOLDERS.iter().any(|part| code.contains(part)) {
                let all = alternatives(code).into_iter();
                self.files
                    .extend(all.map(|file| (file, document.to_owned())));
            }
            return;
        }
        let code = code.strip_suffix("()").unwrap_or(code);
        let word = |word: &str| {
            let first = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            first && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let words: Vec<&str> = match code.contains("::") {
            true => code.split("::").collect(),
            // Tests have long names; shorter ones may be of Kubernetes' code. Names of counters are put together.
            false if code.matches('_').count() >= 3 && !code.ends_with("_total") => vec![code],
            false => Vec::new(),
        };
        if words.iter().all(|it| word(it)) {
            let known = (document.to_owned(), code.to_owned());
            let words = words.into_iter().map(|it| (it.to_owned(), known.clone()));
            self.words.extend(words);
        }
    }

    /// Reports what none of the files is or has.
    pub(super) fn check(mut self, files: &[PathBuf], findings: &mut Vec<String>) {
        self.files.retain(|file, _| !is_among(file, files));
        for (file, document) in &self.files {
            findings.push(format!("{document}: there is no file {file}"));
        }
        let is_source = |file: &&PathBuf| {
            let extension = file.extension().and_then(|it| it.to_str());
            extension.is_some_and(|it| SOURCES.contains(&it))
        };
        for file in files.iter().filter(is_source) {
            let text = fs::read_to_string(file).unwrap_or_default();
            for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                self.words.remove(word);
            }
        }
        for (word, (document, code)) in &self.words {
            findings.push(format!(
                "{document}: {code}: there is no {word} in the code"
            ));
        }
    }
}

fn is_among(end: &str, files: &[PathBuf]) -> bool {
    files.iter().any(|file| file.ends_with(end))
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, (inside, after))) = path
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![path.to_owned()];
    };
    let each = inside.split(',');
    each.flat_map(|part| alternatives(&format!("{before}{part}{after}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_code_are_recognised() {
        let mut names = Names::default();
        for code in [
            "src/{a,b}.rs",
            "plugins/NAME.rs",
            "Core::assume()",
            "regression_a_b_c",
            "resource_version",
            "kubectl get pods",
            "a::<b>",
        ] {
            names.add("docs/x.md", code);
        }
        let files: Vec<&str> = names.files.keys().map(String::as_str).collect();
        assert_eq!(files, ["src/a.rs", "src/b.rs"]);
        let words: Vec<&str> = names.words.keys().map(String::as_str).collect();
        assert_eq!(words, ["Core", "assume", "regression_a_b_c"]);
    }

    #[test]
    fn what_is_missing_is_reported_with_its_document() {
        let mut names = Names::default();
        let here = crate::root().join("xtask/src/tidy/names.rs");
        for code in ["tidy/names.rs", "tidy/gone.rs", "Names::add", "Names::lost"] {
            names.add("docs/x.md", code);
        }
        let mut findings = Vec::new();
        names.check(&[here], &mut findings);
        // The test itself has the word, so that only the file is missing.
        assert_eq!(findings, ["docs/x.md: there is no file tidy/gone.rs"]);
    }
}
