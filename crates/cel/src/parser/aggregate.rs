//! Lists, maps and messages.

use std::sync::Arc;

use super::{END, EXPR, Kind, OPTIONAL, Parsed, Parser, Set, unspecified};
use crate::ast::{Entry, Expr, ExprKind};

impl Parser<'_> {
    pub(super) fn list(&mut self) -> Parsed<Expr> {
        let open = self.take();
        let id = self.id(open);
        self.sync(OPTIONAL.with(Kind::Comma).with(Kind::RightBracket))?;
        let (mut elements, mut optional) = (Vec::new(), Vec::new());
        if OPTIONAL.has(self.peek()) {
            let follow = Set::of(&[Kind::Comma, Kind::RightBracket]);
            (elements, optional) = self.rule(None, follow, (Vec::new(), Vec::new()), |p| {
                let own = Set::of(&[Kind::Comma]).or_end();
                let (mut elements, mut optional) = (Vec::new(), Vec::new());
                loop {
                    let (element, is_optional) = p.optional_expr(own)?;
                    if is_optional {
                        optional.push(elements.len());
                    }
                    elements.push(element);
                    if p.peek() != Kind::Comma || !OPTIONAL.has(p.peek_at(1)) {
                        return Ok((elements, optional));
                    }
                    p.take();
                }
            })?;
        }
        self.sync(Set::of(&[Kind::Comma, Kind::RightBracket]))?;
        self.take_if(Kind::Comma);
        self.expect(Kind::RightBracket, END)?;
        Ok(Expr {
            id,
            kind: ExprKind::List { elements, optional },
        })
    }

    fn optional_expr(&mut self, follow: Set) -> Parsed<(Expr, bool)> {
        self.rule(None, follow, (unspecified(), false), |p| {
            p.sync(OPTIONAL)?;
            let optional = p.take_if(Kind::Question).is_some();
            Ok((p.expr(END)?, optional))
        })
    }

    pub(super) fn map_entries(&mut self) -> Parsed<Vec<Entry<Expr>>> {
        self.sync(OPTIONAL.with(Kind::Comma).with(Kind::RightBrace))?;
        let mut entries = Vec::new();
        if OPTIONAL.has(self.peek()) {
            let follow = Set::of(&[Kind::Comma, Kind::RightBrace]);
            entries = self.rule(None, follow, Vec::new(), |p| {
                let mut entries = Vec::new();
                loop {
                    let (key, optional) = p.optional_expr(Set::of(&[Kind::Colon]))?;
                    let colon = p.expect(Kind::Colon, EXPR)?;
                    let id = p.id(colon);
                    let value = p.expr(Set::of(&[Kind::Comma]).or_end())?;
                    entries.push(Entry {
                        id,
                        key,
                        value,
                        optional,
                    });
                    if p.peek() != Kind::Comma || !OPTIONAL.has(p.peek_at(1)) {
                        return Ok(entries);
                    }
                    p.take();
                }
            })?;
        }
        self.sync(Set::of(&[Kind::Comma, Kind::RightBrace]))?;
        self.take_if(Kind::Comma);
        self.expect(Kind::RightBrace, END)?;
        Ok(entries)
    }

    pub(super) fn fields(&mut self) -> Parsed<Vec<Entry<Arc<str>>>> {
        let names = Set::of(&[Kind::Ident, Kind::EscapedIdent]);
        let starts = names.with(Kind::Question);
        self.sync(starts.with(Kind::Comma).with(Kind::RightBrace))?;
        let mut fields = Vec::new();
        if starts.has(self.peek()) {
            let follow = Set::of(&[Kind::Comma, Kind::RightBrace]);
            fields = self.rule(None, follow, Vec::new(), |p| {
                let mut fields = Vec::new();
                loop {
                    p.sync(starts)?;
                    let optional = p.take_if(Kind::Question).is_some();
                    p.sync(names)?;
                    let name = p.take();
                    if name.kind == Kind::EscapedIdent {
                        p.error(Some(name.offset), "unsupported syntax: '`'");
                    }
                    let colon = p.expect(Kind::Colon, EXPR)?;
                    let id = p.id(colon);
                    let value = p.expr(Set::of(&[Kind::Comma]).or_end())?;
                    fields.push(Entry {
                        id,
                        key: Self::name(name.text.trim_matches('`')),
                        value,
                        optional,
                    });
                    if p.peek() != Kind::Comma || !starts.has(p.peek_at(1)) {
                        return Ok(fields);
                    }
                    p.take();
                }
            })?;
        }
        self.sync(Set::of(&[Kind::Comma, Kind::RightBrace]))?;
        self.take_if(Kind::Comma);
        self.expect(Kind::RightBrace, END)?;
        Ok(fields)
    }
}
