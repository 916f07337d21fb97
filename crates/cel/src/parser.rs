//! Reads expressions.
//!
//! A recursive-descent parser for the CEL grammar that reports and recovers from errors the way the ANTLR runtime does
//! for upstream's generated parser: it deletes or inserts one token where that helps, otherwise it skips to a token that
//! can follow. That is what makes the error texts equal.

use std::sync::Arc;

use crate::{
    ast::{Ast, Expr, Positions},
    source::Issue,
};

mod grammar;
mod lexer;
mod literal;
mod macros;
mod unescape;

use lexer::{Kind, Token};

/// Deepest nesting of one grammar rule.
const MAX_DEPTH: usize = 250;
/// Longest expression in code points.
const MAX_LENGTH: usize = 100_000;
/// Most attempts to recover from errors.
const MAX_RECOVERIES: usize = 30;
/// Most syntax errors that are reported.
const MAX_ERRORS: usize = 100;
/// Most tokens that are skipped while recovering from one error.
const MAX_SKIPPED: usize = 256;

/// Parses an expression and expands its macros. The tree is only good where there are no issues.
pub fn parse(source: &str) -> (Ast, Vec<Issue>) {
    let length = source.chars().count();
    if length > MAX_LENGTH {
        let message =
            format!("expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}");
        let issues = vec![Issue {
            offset: None,
            message,
        }];
        return (
            Ast {
                expr: unspecified(),
                positions: Positions::default(),
            },
            issues,
        );
    }
    let (tokens, issues) = lexer::tokens(source);
    let mut parser = Parser {
        text: source,
        tokens,
        at: 0,
        issues,
        positions: Positions::default(),
        follow: Vec::new(),
        depth: [0; RULES],
        recovering: false,
        last_error: None,
        recoveries: 0,
        fatal: false,
    };
    let expr = parser.start();
    (
        Ast {
            expr,
            positions: parser.positions,
        },
        parser.issues,
    )
}

fn unspecified() -> Expr {
    Expr {
        id: 0,
        kind: crate::ast::ExprKind::Unspecified,
    }
}

/// A set of token kinds; [`EPSILON`] in it says that the rule may end here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set(u64);

const EPSILON: u64 = 1 << 63;

impl Set {
    const fn of(kinds: &[Kind]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < kinds.len() {
            bits |= 1 << kinds[i] as u64;
            i += 1;
        }
        Self(bits)
    }

    const fn or_end(self) -> Self {
        Self(self.0 | EPSILON)
    }

    const fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u64)
    }

    const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, kind: Kind) -> bool {
        self.0 >> kind as u64 & 1 == 1
    }

    /// As error texts list it.
    fn text(self) -> String {
        const ALL: [Kind; 36] = {
            use Kind::*;
            [
                EqualsEquals,
                NotEquals,
                In,
                Less,
                LessEquals,
                GreaterEquals,
                Greater,
                And,
                Or,
                LeftBracket,
                RightBracket,
                LeftBrace,
                RightBrace,
                LeftParen,
                RightParen,
                Dot,
                Comma,
                Minus,
                Exclam,
                Question,
                Colon,
                Plus,
                Star,
                Slash,
                Percent,
                True,
                False,
                Null,
                Float,
                Int,
                Uint,
                String,
                Bytes,
                Ident,
                EscapedIdent,
                End,
            ]
        };
        let names: Vec<_> = ALL
            .into_iter()
            .filter(|kind| self.has(*kind))
            .map(Kind::name)
            .collect();
        if names.len() == 1 {
            names[0].to_owned()
        } else {
            format!("{{{}}}", names.join(", "))
        }
    }
}

/// Tokens that an expression can start with, without `!` and `-` operators in front of a member.
const PRIMARY: Set = Set::of(&[
    Kind::LeftBracket,
    Kind::LeftBrace,
    Kind::LeftParen,
    Kind::Dot,
    Kind::Minus,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::String,
    Kind::Bytes,
    Kind::Ident,
]);
/// Tokens that an expression can start with.
const EXPR: Set = PRIMARY.with(Kind::Exclam);

/// Grammar rules whose nesting is counted.
#[derive(Debug, Clone, Copy)]
enum Rule {
    Expr,
    Or,
    And,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
}
const RULES: usize = 8;

/// Why a rule was left early.
#[derive(Debug)]
enum Failure {
    /// The token at hand cannot stand here.
    Mismatch(Set),
    /// The tokens from here up to the given one fit nothing.
    NoAlternative(usize),
    /// Parsing stops altogether.
    Fatal,
}

type Parsed<T> = Result<T, Failure>;

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    issues: Vec<Issue>,
    positions: Positions,
    /// What can follow each rule that is being read, from the outside in.
    follow: Vec<Set>,
    depth: [usize; RULES],
    /// Between a syntax error and the next matched token nothing is reported.
    recovering: bool,
    last_error: Option<usize>,
    recoveries: usize,
    fatal: bool,
}

impl<'a> Parser<'a> {
    fn token(&self, ahead: usize) -> Token<'a> {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> Kind {
        self.token(0).kind
    }

    fn peek_at(&self, ahead: usize) -> Kind {
        self.token(ahead).kind
    }

    fn consume(&mut self) -> Token<'a> {
        let token = self.token(0);
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    /// Reads a rule; `follow` is what the caller reads next. An error inside ends the rule and is recovered from.
    fn rule<T>(
        &mut self,
        rule: Option<Rule>,
        follow: Set,
        failed: T,
        read: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Parsed<T> {
        self.follow.push(follow);
        let entered = match rule {
            Some(rule) => self.enter(rule),
            None => Ok(()),
        };
        let depth = self.depth;
        let result = match entered {
            Ok(()) => read(self),
            Err(failure) => Err(failure),
        };
        self.depth = depth;
        if let Some(rule) = rule {
            self.depth[rule as usize] = self.depth[rule as usize].saturating_sub(1);
        }
        let result = match result {
            Err(Failure::Fatal) => Err(Failure::Fatal),
            Err(failure) => self.recover(&failure).map(|()| failed),
            Ok(value) => Ok(value),
        };
        self.follow.pop();
        result
    }

    fn enter(&mut self, rule: Rule) -> Parsed<()> {
        self.depth[rule as usize] += 1;
        if self.depth[rule as usize] > MAX_DEPTH {
            return Err(self.abort(format!("expression recursion limit exceeded: {MAX_DEPTH}")));
        }
        Ok(())
    }

    fn abort(&mut self, message: String) -> Failure {
        self.issues.push(Issue {
            offset: None,
            message,
        });
        self.fatal = true;
        Failure::Fatal
    }

    /// Reads a token of this kind, or does as if where one token too much or too little explains the error.
    fn expect(&mut self, kind: Kind, after: Set) -> Parsed<Token<'a>> {
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

    /// Reads a token that is known to be there.
    fn take(&mut self) -> Token<'a> {
        self.recovering = false;
        self.consume()
    }

    fn take_if(&mut self, kind: Kind) -> Option<Token<'a>> {
        (self.peek() == kind).then(|| self.take())
    }

    /// In front of a choice: makes sure that one of `expected` comes next, by deleting a token where that helps.
    fn sync(&mut self, expected: Set) -> Parsed<()> {
        if self.recovering || expected.0 & EPSILON != 0 || expected.has(self.peek()) {
            return Ok(());
        }
        if self.delete_token(expected)? {
            Ok(())
        } else {
            Err(Failure::Mismatch(expected))
        }
    }

    /// At the end of a loop body: skips what neither continues nor follows the loop.
    fn sync_loop(&mut self, expected: Set) -> Parsed<()> {
        if self.recovering || expected.0 & EPSILON != 0 || expected.has(self.peek()) {
            return Ok(());
        }
        self.unwanted(expected)?;
        self.skip_until(expected.union(self.recovery_set()))
    }

    fn delete_token(&mut self, expected: Set) -> Parsed<bool> {
        if !self.in_context(expected).has(self.peek_at(1)) || self.peek() == Kind::End {
            return Ok(false);
        }
        self.unwanted(expected)?;
        self.consume();
        self.recovering = false;
        Ok(true)
    }

    fn unwanted(&mut self, expected: Set) -> Parsed<()> {
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
    fn in_context(&self, set: Set) -> Set {
        let mut all = set;
        for follow in self.follow.iter().rev() {
            if all.0 & EPSILON == 0 {
                break;
            }
            all = Set(all.0 & !EPSILON | follow.0);
        }
        if all.0 & EPSILON != 0 {
            Set(all.0 & !EPSILON).with(Kind::End)
        } else {
            all
        }
    }

    fn recovery_set(&self) -> Set {
        let all = self
            .follow
            .iter()
            .fold(Set(0), |all, follow| all.union(*follow));
        Set(all.0 & !EPSILON)
    }

    fn skip_until(&mut self, set: Set) -> Parsed<()> {
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

    fn count_recovery(&mut self) -> Parsed<()> {
        if self.recoveries == MAX_RECOVERIES {
            let message = format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}");
            self.syntax_error(self.token(0).offset, message)?;
            self.fatal = true;
            return Err(Failure::Fatal);
        }
        self.recoveries += 1;
        Ok(())
    }

    fn recover(&mut self, failure: &Failure) -> Parsed<()> {
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

    fn no_alternative(&mut self, end: usize) -> Parsed<()> {
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

    fn shown(&self, token: Token<'_>) -> String {
        let text = token
            .text
            .replace('\n', "\\n")
            .replace('\r', "\\r")
            .replace('\t', "\\t");
        format!("'{text}'")
    }

    fn syntax_error(&mut self, offset: u32, message: String) -> Parsed<()> {
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
    fn error(&mut self, offset: Option<u32>, message: impl Into<String>) {
        self.issues.push(Issue {
            offset,
            message: message.into(),
        });
    }

    fn name(text: &str) -> Arc<str> {
        Arc::from(text)
    }
}

#[cfg(test)]
mod tests;
