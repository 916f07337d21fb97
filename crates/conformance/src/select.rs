//! The options that name cases: each name and pattern is checked against the list of cases.

use std::collections::BTreeSet;

use crate::case::Case;
use crate::cases::cases;
use crate::options::{Options, OptionsError};
use crate::selection::matches;

impl Options {
    /// Runs only the cases that match one of the patterns (`*` and `?`), without those that match one of `skip`.
    ///
    /// # Errors
    /// A pattern that matches no case, or no case is left: a run without cases would pass.
    pub fn cases(
        mut self,
        only: &[impl AsRef<str>],
        skip: &[impl AsRef<str>],
    ) -> Result<Self, OptionsError> {
        self.selection.only = patterns(only)?;
        self.selection.skip = patterns(skip)?;
        let is_empty = self.selected().next().is_none();
        match is_empty {
            true => Err(OptionsError::NoCase),
            false => Ok(self),
        }
    }

    /// The cases that a run includes, in their order.
    pub fn selected(&self) -> impl Iterator<Item = &'static Case> {
        let all = cases().iter();
        all.filter(move |case| self.selection.includes(case.name))
    }

    /// Cases that are known to fail: one name per line, `#` begins a comment. If one of them passes, the run fails, so
    /// that the list stays correct.
    ///
    /// # Errors
    /// A name that is no case.
    pub fn expected_failures(mut self, text: &str) -> Result<Self, OptionsError> {
        self.selection.expected = expected(text)?;
        Ok(self)
    }
}

fn patterns(patterns: &[impl AsRef<str>]) -> Result<Vec<String>, OptionsError> {
    let known = |pattern: &str| cases().iter().any(|case| matches(pattern, case.name));
    let check = |pattern: &str| match known(pattern) {
        true => Ok(pattern.to_owned()),
        false => Err(OptionsError::Pattern(pattern.to_owned())),
    };
    patterns
        .iter()
        .map(|pattern| check(pattern.as_ref()))
        .collect()
}

fn expected(text: &str) -> Result<BTreeSet<&'static str>, OptionsError> {
    let mut expected = BTreeSet::new();
    for (index, line) in text.lines().enumerate() {
        let name = line.split('#').next().unwrap_or_default().trim();
        if name.is_empty() {
            continue;
        }
        let case = cases().iter().find(|case| case.name == name);
        let unknown = || OptionsError::Expected {
            line: index + 1,
            name: name.to_owned(),
        };
        expected.insert(case.ok_or_else(unknown)?.name);
    }
    Ok(expected)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_name_cases_that_exist() {
        assert!(
            expected("# none\n\nprepare-answers # a reason\n")
                .unwrap()
                .contains("prepare-answers")
        );
        let error = expected("prepare-answers\nprepare-anwsers\n")
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "expected failures, line 2: there is no case \"prepare-anwsers\""
        );
        assert!(patterns(&["no-such-*"]).is_err());
    }

    /// A run without cases passed.
    #[test]
    fn regression_some_case_is_selected() {
        let select = |only: &[&str], skip: &[&str]| {
            let options = Options::command("d").unwrap().cases(only, skip);
            options.map(|options| options.selected().count())
        };
        assert!(matches!(
            select(&["config-*"], &["config-[valid]"]),
            Err(OptionsError::Pattern(_))
        ));
        let left = select(&["config-*"], &["config-valid"]).unwrap();
        assert_eq!(left + 1, select(&["config-*"], &[]).unwrap());
        assert!(matches!(
            select(&["config-*"], &["*"]),
            Err(OptionsError::NoCase)
        ));
    }

    /// The case about unknown fields crashed on parameters without fields.
    #[test]
    fn regression_parameters_are_an_object_of_a_kind() {
        let check = |parameters: serde_json::Value| {
            let options = Options::command("d").unwrap();
            options.parameters(parameters).is_ok()
        };
        assert!(check(json!({"apiVersion": "a/v1", "kind": "K"})));
        assert!(!check(json!({"apiVersion": "a/v1"})));
        assert!(!check(json!("text")));
        assert!(!check(json!([])));
        assert!(!check(json!(null)));
    }
}
