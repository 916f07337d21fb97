//! The rules `member` and `primary` of the grammar: selections, indexes, calls, and what they are applied to.

use std::sync::Arc;

use super::SUFFIXES;
use crate::ast::{Expr, ExprKind};
use crate::parser::{
    END, EXPR, Failure, Kind, OPTIONAL, PRIMARY, Parsed, Parser, Rule, Set, unspecified,
};

impl Parser<'_> {
    pub(super) fn member(&mut self, follow: Set) -> Parsed<Expr> {
        // What was read before something that is no suffix: macros complain about it, too.
        let mut before = unspecified();
        let read = self.rule(Some(Rule::Member), follow, None, |p| {
            let own = SUFFIXES.or_end();
            let mut target = p.primary(own)?;
            loop {
                match p.peek() {
                    Kind::Dot if !p.is_selection() => {
                        before = target;
                        let end = (p.at + 1).min(p.tokens.len() - 1);
                        return Err(Failure::NoAlternative(end));
                    }
                    Kind::Dot => target = p.selection(target)?,
                    Kind::LeftBracket => {
                        p.enter(Rule::Member)?;
                        let op = p.take();
                        p.sync(OPTIONAL)?;
                        let optional = p.take_if(Kind::Question).is_some();
                        let id = p.id(op);
                        let index = p.expr(Set::of(&[Kind::RightBracket]))?;
                        p.expect(Kind::RightBracket, own)?;
                        target = p.call(
                            id,
                            if optional { "_[?_]" } else { "_[_]" },
                            vec![target, index],
                        );
                    }
                    _ => return Ok(Some(target)),
                }
            }
        })?;
        Ok(read.unwrap_or(before))
    }

    /// Whether a selection follows the current dot.
    pub(super) fn is_selection(&self) -> bool {
        let names = [Kind::Question, Kind::Ident, Kind::EscapedIdent];
        names.contains(&self.peek_at(1))
    }

    pub(super) fn selection(&mut self, target: Expr) -> Parsed<Expr> {
        let own = SUFFIXES.or_end();
        self.enter(Rule::Member)?;
        let is_call = self.peek_at(1) == Kind::Ident && self.peek_at(2) == Kind::LeftParen;
        let op = self.take();
        if is_call {
            let name = self.take();
            let open = self.take();
            let id = self.id(open);
            let args = self.arguments()?;
            self.expect(Kind::RightParen, own)?;
            return Ok(self.member_call(id, name.text, target, args));
        }
        let optional = self.take_if(Kind::Question).is_some();
        let names = Set::of(&[Kind::Ident, Kind::EscapedIdent]);
        let offset = self.token(0).offset;
        let name = self.rule(None, own, None, |p| {
            p.sync(names)?;
            Ok(names.has(p.peek()).then(|| p.take()))
        })?;
        let Some(name) = name else {
            self.error(Some(offset), "unsupported ident kind");
            let id = self.id(op);
            return Ok(Expr {
                id,
                kind: ExprKind::Unspecified,
            });
        };
        let field: Arc<str> = Self::name(name.text.trim_matches('`'));
        if name.kind == Kind::EscapedIdent {
            self.error(Some(name.offset), "unsupported syntax: '`'");
        }
        let id = self.id(op);
        if optional {
            let literal = self.string_at(name.offset, &field);
            return Ok(self.call(id, "_?._", vec![target, literal]));
        }
        Ok(Expr {
            id,
            kind: ExprKind::Select {
                operand: Box::new(target),
                field,
                test_only: false,
            },
        })
    }

    /// The arguments of a call, after its opening parenthesis.
    pub(super) fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        self.sync(EXPR.with(Kind::RightParen))?;
        if !EXPR.has(self.peek()) {
            return Ok(Vec::new());
        }
        self.rule(None, Set::of(&[Kind::RightParen]), Vec::new(), |p| {
            let own = Set::of(&[Kind::Comma]).or_end();
            let mut args = vec![p.expr(own)?];
            while p.take_if(Kind::Comma).is_some() {
                args.push(p.expr(own)?);
            }
            Ok(args)
        })
    }

    pub(super) fn primary(&mut self, follow: Set) -> Parsed<Expr> {
        self.rule(Some(Rule::Primary), follow, unspecified(), |p| {
            p.sync(PRIMARY)?;
            match p.peek() {
                Kind::Dot | Kind::Ident => p.named(),
                Kind::LeftParen => {
                    p.take();
                    let expr = p.expr(Set::of(&[Kind::RightParen]))?;
                    p.expect(Kind::RightParen, END)?;
                    Ok(expr)
                }
                Kind::LeftBracket => p.list(),
                Kind::LeftBrace => {
                    let open = p.take();
                    let id = p.id(open);
                    let entries = p.map_entries()?;
                    Ok(Expr {
                        id,
                        kind: ExprKind::Map(entries),
                    })
                }
                kind if PRIMARY.has(kind) => p.literal(),
                _ => Err(Failure::NoAlternative(p.at)),
            }
        })
    }

    /// A variable, a call or a message.
    pub(super) fn named(&mut self) -> Parsed<Expr> {
        let dot = usize::from(self.peek() == Kind::Dot);
        if self.peek_at(dot) != Kind::Ident {
            return Err(Failure::NoAlternative(
                (self.at + dot).min(self.tokens.len() - 1),
            ));
        }
        let first = self.token(0);
        let name = self.token(dot);
        let prefix = if dot == 1 { "." } else { "" };
        let mut end = dot + 1;
        while self.peek_at(end) == Kind::Dot && self.peek_at(end + 1) == Kind::Ident {
            end += 2;
        }
        if self.peek_at(end) == Kind::LeftBrace {
            let type_name: String = (0..end).map(|ahead| self.token(ahead).text).collect();
            for _ in 0..end {
                self.take();
            }
            let open = self.take();
            let id = self.id(open);
            let fields = self.fields()?;
            return Ok(Expr {
                id,
                kind: ExprKind::Struct {
                    type_name: type_name.into(),
                    fields,
                },
            });
        }
        for _ in 0..=dot {
            self.take();
        }
        let reserved = is_reserved(name.text);
        if reserved {
            self.error(
                Some(first.offset),
                format!("reserved identifier: {}", name.text),
            );
        }
        let full = format!("{prefix}{}", name.text);
        if self.peek() == Kind::LeftParen {
            let open = self.take();
            let id = self.id(open);
            let args = self.arguments()?;
            self.expect(Kind::RightParen, END)?;
            return Ok(self.call(id, &full, args));
        }
        let id = self.id(name);
        let kind = if reserved {
            ExprKind::Unspecified
        } else {
            ExprKind::Ident(full.into())
        };
        Ok(Expr { id, kind })
    }
}

/// Words that cannot be variables or functions.
fn is_reserved(name: &str) -> bool {
    matches!(
        name,
        "as" | "break"
            | "const"
            | "continue"
            | "else"
            | "false"
            | "for"
            | "function"
            | "if"
            | "import"
            | "in"
            | "let"
            | "loop"
            | "package"
            | "namespace"
            | "null"
            | "return"
            | "true"
            | "var"
            | "void"
            | "while"
    )
}
