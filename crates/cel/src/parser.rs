//! Reads expressions.
//!
//! A recursive-descent parser for the CEL grammar that reports and recovers from errors the way the ANTLR runtime does
//! for upstream's generated parser: it deletes or inserts one token if that helps, otherwise it skips to a token that
//! can follow. So the error texts are equal.

use std::sync::Arc;

use crate::{
    ast::{Ast, Expr, Positions},
    source::Issue,
};

mod aggregate;
mod grammar;
mod kinds;
mod lexer;
mod literal;
mod macros;
mod recovery;
mod unescape;

use kinds::{END, EXPR, Kind, OPTIONAL, PRIMARY, Set};
use lexer::Token;

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

/// Parses an expression and expands its macros, `cel.bind` only with `bindings`. The tree is only valid without issues.
pub fn parse(source: &str, bindings: bool) -> (Ast, Vec<Issue>) {
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
        bindings,
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
    /// The current token is not allowed here.
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
    /// No error is reported between a syntax error and the next matched token.
    recovering: bool,
    last_error: Option<usize>,
    recoveries: usize,
    fatal: bool,
    /// `cel.bind` is a macro.
    bindings: bool,
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

    /// Consumes a token that is known to exist.
    fn take(&mut self) -> Token<'a> {
        self.recovering = false;
        self.consume()
    }

    fn take_if(&mut self, kind: Kind) -> Option<Token<'a>> {
        (self.peek() == kind).then(|| self.take())
    }

    fn name(text: &str) -> Arc<str> {
        Arc::from(text)
    }
}

#[cfg(test)]
mod tests;
