//! The counts of a run, and the names that its last lines tell.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// What came of a run so far.
#[derive(Debug, Default)]
pub struct Summary {
    /// Tests that passed at once.
    pub passed: usize,
    /// Tests that passed alone after they had failed.
    pub flaky: Vec<String>,
    /// Tests that failed twice.
    pub failed: Vec<String>,
    /// Tests that were ignored or said that they skip, with the reasons.
    pub skipped: Vec<String>,
    /// Other remarks, such as an expected failure that passes.
    pub notes: Vec<String>,
}

impl Summary {
    /// The closing lines.
    fn text(&self) -> String {
        let mut text = String::new();
        for (word, names) in [
            ("NOTE", &self.notes),
            ("SKIPPED", &self.skipped),
            ("FLAKY", &self.flaky),
            ("FAILED", &self.failed),
        ] {
            for name in names {
                text.push_str(&format!("{word} {name}\n"));
            }
        }
        let passed = self.passed + self.flaky.len();
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        text.push_str(&format!(
            "{passed} passed, {failed} failed, {skipped} skipped\n"
        ));
        text
    }

    /// Prints the closing lines and writes them to `test-summary.txt`, which `.ci/run` prints again after its last step.
    pub fn finish(&self, target: &Path) -> Result<()> {
        let text = self.text();
        fs::create_dir_all(target)?;
        fs::write(target.join("test-summary.txt"), &text)?;
        print!("\n{text}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_holds_the_counts() {
        let summary = Summary {
            passed: 3,
            flaky: vec!["a b".to_owned()],
            failed: vec!["a c".to_owned()],
            skipped: vec!["a d: no kubectl".to_owned()],
            notes: Vec::new(),
        };
        assert_eq!(
            summary.text(),
            "SKIPPED a d: no kubectl\nFLAKY a b\nFAILED a c\n4 passed, 1 failed, 1 skipped\n"
        );
    }
}
