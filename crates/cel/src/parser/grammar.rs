//! The rules of the grammar, one function each.

use std::sync::Arc;

use super::{END, EXPR, Failure, Kind, PRIMARY, Parsed, Parser, Rule, Set, Token, unspecified};
use crate::ast::{Expr, ExprKind, Id};

mod member;

const RELATIONS: Set = Set::of(&[
    Kind::Less,
    Kind::LessEquals,
    Kind::GreaterEquals,
    Kind::Greater,
    Kind::EqualsEquals,
    Kind::NotEquals,
    Kind::In,
]);
const SUMS: Set = Set::of(&[
    Kind::Star,
    Kind::Slash,
    Kind::Percent,
    Kind::Plus,
    Kind::Minus,
]);
const SUFFIXES: Set = Set::of(&[Kind::Dot, Kind::LeftBracket]);

impl<'a> Parser<'a> {
    pub(super) fn start(&mut self) -> Expr {
        self.follow.push(END);
        let expr = self
            .expr(Set::of(&[Kind::End]))
            .unwrap_or_else(|_| unspecified());
        if !self.fatal
            && let Err(failure) = self.expect(Kind::End, END)
        {
            // A fatal error was reported where it occurred.
            let _ = self.recover(&failure);
        }
        expr
    }

    pub(super) fn expr(&mut self, follow: Set) -> Parsed<Expr> {
        self.rule(Some(Rule::Expr), follow, unspecified(), |p| {
            let condition = p.or(Set::of(&[Kind::Question]).or_end())?;
            let Some(op) = p.take_if(Kind::Question) else {
                return Ok(condition);
            };
            let id = p.id(op);
            let then = p.or(Set::of(&[Kind::Colon]))?;
            p.expect(Kind::Colon, EXPR)?;
            let otherwise = p.expr(END)?;
            Ok(p.call(id, "_?_:_", vec![condition, then, otherwise]))
        })
    }

    fn or(&mut self, follow: Set) -> Parsed<Expr> {
        let own = Set::of(&[Kind::Or]).or_end();
        self.rule(Some(Rule::Or), follow, unspecified(), |p| {
            p.logical(Kind::Or, "_||_", |p| p.and(own))
        })
    }

    fn and(&mut self, follow: Set) -> Parsed<Expr> {
        let own = Set::of(&[Kind::And]).or_end();
        self.rule(Some(Rule::And), follow, unspecified(), |p| {
            p.logical(Kind::And, "_&&_", |p| p.relation(own))
        })
    }

    /// A chain of equal logical operators, built as a balanced tree.
    fn logical(
        &mut self,
        op: Kind,
        function: &str,
        mut term: impl FnMut(&mut Self) -> Parsed<Expr>,
    ) -> Parsed<Expr> {
        let mut terms = vec![Some(term(self)?)];
        let mut ops = Vec::new();
        while let Some(token) = self.take_if(op) {
            terms.push(Some(term(self)?));
            ops.push(self.id(token));
        }
        if ops.is_empty() {
            return Ok(terms.pop().flatten().unwrap_or_else(unspecified));
        }
        let function = Self::name(function);
        Ok(balanced(&function, &mut terms, &ops, 0, ops.len() - 1))
    }

    fn relation(&mut self, follow: Set) -> Parsed<Expr> {
        let own = RELATIONS.or_end();
        self.rule(Some(Rule::Relation), follow, unspecified(), |p| {
            let mut left = p.calc(own)?;
            while RELATIONS.has(p.peek()) {
                p.enter(Rule::Relation)?;
                let op = p.take();
                let id = p.id(op);
                let right = p.single_relation(own)?;
                let function = match op.kind {
                    Kind::Less => "_<_",
                    Kind::LessEquals => "_<=_",
                    Kind::GreaterEquals => "_>=_",
                    Kind::Greater => "_>_",
                    Kind::EqualsEquals => "_==_",
                    Kind::NotEquals => "_!=_",
                    _ => "@in",
                };
                left = p.call(id, function, vec![left, right]);
            }
            Ok(left)
        })
    }

    /// The right side of a relation: relations are left-associative.
    fn single_relation(&mut self, follow: Set) -> Parsed<Expr> {
        self.rule(Some(Rule::Relation), follow, unspecified(), |p| {
            p.calc(RELATIONS.or_end())
        })
    }

    fn calc(&mut self, follow: Set) -> Parsed<Expr> {
        self.rule(Some(Rule::Calc), follow, unspecified(), |p| p.sum(0))
    }

    fn sum(&mut self, level: u8) -> Parsed<Expr> {
        let own = SUMS.or_end();
        let mut left = self.unary(own)?;
        loop {
            let (function, precedence) = match self.peek() {
                Kind::Star => ("_*_", 2),
                Kind::Slash => ("_/_", 2),
                Kind::Percent => ("_%_", 2),
                Kind::Plus => ("_+_", 1),
                Kind::Minus => ("_-_", 1),
                _ => return Ok(left),
            };
            if precedence <= level {
                return Ok(left);
            }
            self.enter(Rule::Calc)?;
            let op = self.take();
            let id = self.id(op);
            let right = self.rule(Some(Rule::Calc), own, unspecified(), |p| p.sum(precedence))?;
            left = self.call(id, function, vec![left, right]);
        }
    }

    fn unary(&mut self, follow: Set) -> Parsed<Expr> {
        self.rule(Some(Rule::Unary), follow, unspecified(), |p| {
            p.sync(EXPR)?;
            match p.peek() {
                Kind::Exclam => {
                    let op = p.take();
                    let mut count = 1;
                    p.sync_loop(EXPR)?;
                    while p.take_if(Kind::Exclam).is_some() {
                        count += 1;
                        p.sync_loop(EXPR)?;
                    }
                    p.negated(op, count, "!_")
                }
                Kind::Minus => {
                    if !p.is_negation()? {
                        return p.member(END);
                    }
                    let op = p.take();
                    let mut count = 1;
                    p.sync_loop(PRIMARY)?;
                    while p.peek() == Kind::Minus {
                        // The last one before a number is an operator as well, not its sign.
                        p.is_negation()?;
                        p.take();
                        count += 1;
                        p.sync_loop(PRIMARY)?;
                    }
                    p.negated(op, count, "-_")
                }
                kind if PRIMARY.has(kind) => p.member(END),
                _ => Err(Failure::NoAlternative(p.at)),
            }
        })
    }

    /// Whether this minus is an operator, and not the sign of a number.
    fn is_negation(&self) -> Parsed<bool> {
        match self.peek_at(1) {
            Kind::Int | Kind::Float => Ok(false),
            kind if PRIMARY.has(kind) => Ok(true),
            _ => Err(Failure::NoAlternative(
                (self.at + 1).min(self.tokens.len() - 1),
            )),
        }
    }

    fn negated(&mut self, op: Token<'a>, count: usize, function: &str) -> Parsed<Expr> {
        let id = if count % 2 == 1 {
            Some(self.id(op))
        } else {
            None
        };
        let operand = self.member(END)?;
        Ok(match id {
            Some(id) => self.call(id, function, vec![operand]),
            None => operand,
        })
    }

    pub(super) fn id(&mut self, token: Token<'_>) -> Id {
        self.positions.next(Some(token.offset))
    }
}

fn balanced(
    function: &Arc<str>,
    terms: &mut [Option<Expr>],
    ops: &[Id],
    low: usize,
    high: usize,
) -> Expr {
    let middle = (low + high).div_ceil(2);
    let mut leaf = |at: usize| terms[at].take().unwrap_or_else(unspecified);
    let left = if middle == low {
        Some(leaf(middle))
    } else {
        None
    };
    let right = if middle == high {
        Some(leaf(middle + 1))
    } else {
        None
    };
    let left = left.unwrap_or_else(|| balanced(function, terms, ops, low, middle - 1));
    let right = right.unwrap_or_else(|| balanced(function, terms, ops, middle + 1, high));
    let kind = ExprKind::Call {
        function: function.clone(),
        target: None,
        args: vec![left, right],
    };
    Expr {
        id: ops[middle],
        kind,
    }
}
