//! The text of an expression, its lines, and errors in it.

/// A problem at a place of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The position, in code points from the start; `None` if it is unknown.
    pub offset: Option<u32>,
    /// The text of the error, without its position.
    pub message: String,
}

/// The text of an expression.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    text: &'a str,
    /// Code point offset and byte offset at which each line starts.
    lines: Vec<(u32, usize)>,
}

const MAX_ISSUES: usize = 100;
/// Longest line that is shown under an error.
const MAX_SNIPPET: usize = 16_384;

impl<'a> Source<'a> {
    /// Wraps the text.
    pub fn new(text: &'a str) -> Self {
        let mut lines = vec![(0, 0)];
        for (points, (bytes, c)) in text.char_indices().enumerate() {
            if c == '\n' {
                lines.push((points as u32 + 1, bytes + 1));
            }
        }
        Self { text, lines }
    }

    /// Line (from 1) and column (from 0, in code points) of an offset.
    pub fn position(&self, offset: u32) -> (usize, u32) {
        let line = self
            .lines
            .partition_point(|(start, _)| *start <= offset)
            .max(1);
        (line, offset - self.lines[line - 1].0)
    }

    fn line(&self, line: usize) -> &'a str {
        let start = self.lines[line - 1].1;
        let rest = &self.text[start..];
        rest.split_once('\n').map_or(rest, |(line, _)| line)
    }

    /// The issues in cel-go's format: sorted by position, each with its line and a caret.
    pub fn render(&self, issues: &[Issue]) -> String {
        let mut sorted: Vec<_> = issues.iter().take(MAX_ISSUES).collect();
        sorted.sort_by_key(|issue| issue.offset.map(|offset| self.position(offset)));
        let mut texts: Vec<String> = sorted
            .into_iter()
            .map(|issue| self.render_one(issue))
            .collect();
        if issues.len() > MAX_ISSUES {
            texts.push(format!(
                "{} more errors were truncated",
                issues.len() - MAX_ISSUES
            ));
        }
        texts.join("\n")
    }

    fn render_one(&self, issue: &Issue) -> String {
        let Some(offset) = issue.offset else {
            return format!("ERROR: <input>:-1:0: {}", issue.message);
        };
        if self.text.is_empty() {
            return format!("ERROR: <input>:1:0: {}", issue.message);
        }
        let (line, column) = self.position(offset);
        let mut text = format!("ERROR: <input>:{line}:{}: {}", column + 1, issue.message);
        let snippet = self.line(line).replace('\t', " ");
        if snippet.len() <= MAX_SNIPPET {
            let mut chars = snippet.chars();
            let mut under = String::with_capacity(column as usize + 1);
            for c in chars.by_ref().take(column as usize) {
                under.push(if c.len_utf8() > 1 { '\u{ff0e}' } else { '.' });
            }
            under.push(if chars.next().is_some_and(|c| c.len_utf8() > 1) {
                '\u{ff3e}'
            } else {
                '^'
            });
            text.push_str(&format!("\n | {snippet}\n | {under}"));
        }
        text
    }
}
