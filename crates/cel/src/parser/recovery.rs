//! Error recovery, as in the ANTLR runtime.

use super::{Failure, Kind, MAX_ERRORS, MAX_RECOVERIES, MAX_SKIPPED, Parsed, Parser, Set, Token};
use crate::source::Issue;

impl<'a> Parser<'a> {
    /// Consumes a token of this kind, or recovers if one surplus or missing token explains the error.
    pub(super) fn expect(&mut self, kind: Kind, after: Set) -> Parsed<Token<'a>> {
        if self.peek() == kind {
            self.recovering = false;
            return Ok(self.consume());
        }
        self.count_recovery()?;
        let expected = Set::of(&[kind]);
        if self.delete_token(expected)? {
            self.recovering = false;
            return Ok(self.consume());
        }
        if self.in_context(after).has(self.peek()) {
            if !self.recovering {
                self.recovering = true;
                let found = self.shown(self.token(0));
                self.syntax_error(
                    self.token(0).offset,
                    format!("missing {} at {found}", expected.text()),
                )?;
            }
            let Token { offset, start, .. } = self.token(0);
            return Ok(Token {
                kind,
                text: "",
                offset,
                start,
            });
        }
        Err(Failure::Mismatch(expected))
    }

    /// Before a choice: ensures that one of `expected` comes next, by deleting a token if that helps.
    pub(super) fn sync(&mut self, expected: Set) -> Parsed<()> {
        if self.recovering || expected.may_end() || expected.has(self.peek()) {
            return Ok(());
        }
        if self.delete_token(expected)? {
            Ok(())
        } else {
            Err(Failure::Mismatch(expected))
        }
    }

    /// At the end of a loop body: skips what neither continues nor follows the loop.
    pub(super) fn sync_loop(&mut self, expected: Set) -> Parsed<()> {
        if self.recovering || expected.may_end() || expected.has(self.peek()) {
            return Ok(());
        }
        self.unwanted(expected)?;
        self.skip_until(expected.union(self.recovery_set()))
    }

    pub(super) fn delete_token(&mut self, expected: Set) -> Parsed<bool> {
        if !self.in_context(expected).has(self.peek_at(1)) || self.peek() == Kind::End {
            return Ok(false);
        }
        self.unwanted(expected)?;
        self.consume();
        self.recovering = false;
        Ok(true)
    }

    pub(super) fn unwanted(&mut self, expected: Set) -> Parsed<()> {
        if self.recovering {
            return Ok(());
        }
        self.recovering = true;
        let expected = self.in_context(expected).text();
        let token = self.token(0);
        self.syntax_error(
            token.offset,
            format!(
                "extraneous input {} expecting {expected}",
                self.shown(token)
            ),
        )
    }

    /// `set` where its end means the end of the rule: then what follows the rules around it counts, too.
    pub(super) fn in_context(&self, set: Set) -> Set {
        let mut all = set;
        for follow in self.follow.iter().rev() {
            if !all.may_end() {
                break;
            }
            all = all.without_end().union(*follow);
        }
        if all.may_end() {
            all.without_end().with(Kind::End)
        } else {
            all
        }
    }

    pub(super) fn recovery_set(&self) -> Set {
        let all = self
            .follow
            .iter()
            .fold(Set::of(&[]), |all, follow| all.union(*follow));
        all.without_end()
    }

    pub(super) fn skip_until(&mut self, set: Set) -> Parsed<()> {
        let mut skipped = 0;
        while self.peek() != Kind::End && !set.has(self.peek()) {
            if skipped == MAX_SKIPPED {
                return Err(self.abort(format!(
                    "error recovery token lookahead limit exceeded: {MAX_SKIPPED}"
                )));
            }
            skipped += 1;
            self.consume();
        }
        Ok(())
    }

    pub(super) fn count_recovery(&mut self) -> Parsed<()> {
        if self.recoveries == MAX_RECOVERIES {
            let message = format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}");
            self.syntax_error(self.token(0).offset, message)?;
            self.fatal = true;
            return Err(Failure::Fatal);
        }
        self.recoveries += 1;
        Ok(())
    }

    pub(super) fn recover(&mut self, failure: &Failure) -> Parsed<()> {
        if !self.recovering {
            self.recovering = true;
            let token = self.token(0);
            match failure {
                Failure::Mismatch(expected) => {
                    let expected = self.in_context(*expected).text();
                    let message = format!(
                        "mismatched input {} expecting {expected}",
                        self.shown(token)
                    );
                    self.syntax_error(token.offset, message)?;
                }
                Failure::NoAlternative(end) => self.no_alternative(*end)?,
                Failure::Fatal => {}
            }
        }
        self.count_recovery()?;
        if self.last_error == Some(self.at) {
            self.consume();
        }
        self.last_error = Some(self.at);
        self.skip_until(self.recovery_set())
    }

    pub(super) fn no_alternative(&mut self, end: usize) -> Parsed<()> {
        let last = self.tokens[end];
        let mut input = String::new();
        let mut before: Option<Token<'_>> = None;
        for token in &self.tokens[self.at..=end] {
            // Blanks are shown, characters that are no token are not.
            let gap = before.map_or("", |before| {
                &self.text[before.start + before.text.len()..token.start]
            });
            input.extend(gap.chars().filter(char::is_ascii_whitespace));
            if token.kind != Kind::End || end == self.at {
                input.push_str(token.text);
            }
            before = Some(*token);
        }
        let input = input
            .replace('\n', "\\n")
            .replace('\r', "\\r")
            .replace('\t', "\\t");
        // Reserved words keep the message that they had before the grammar was changed.
        let mut shape = input.chars();
        let message = match (shape.next(), shape.as_str()) {
            (Some(_), word @ ("true" | "false" | "null")) => {
                format!("mismatched input '{word}' expecting IDENTIFIER")
            }
            _ => format!("no viable alternative at input '{input}'"),
        };
        self.syntax_error(last.offset, message)
    }

    pub(super) fn shown(&self, token: Token<'_>) -> String {
        let text = token
            .text
            .replace('\n', "\\n")
            .replace('\r', "\\r")
            .replace('\t', "\\t");
        format!("'{text}'")
    }

    pub(super) fn syntax_error(&mut self, offset: u32, message: String) -> Parsed<()> {
        let reported = self
            .issues
            .iter()
            .filter(|issue| issue.message.starts_with("Syntax error: "))
            .count();
        if reported >= MAX_ERRORS {
            let message = format!("Syntax error: More than {MAX_ERRORS} syntax errors");
            self.issues.push(Issue {
                offset: Some(offset),
                message,
            });
            self.fatal = true;
            return Err(Failure::Fatal);
        }
        self.issues.push(Issue {
            offset: Some(offset),
            message: format!("Syntax error: {message}"),
        });
        Ok(())
    }

    /// Reports a problem that is not one of syntax.
    pub(super) fn error(&mut self, offset: Option<u32>, message: impl Into<String>) {
        self.issues.push(Issue {
            offset,
            message: message.into(),
        });
    }
}
