//! Literals.

use super::{Kind, Parsed, Parser, unescape::unescape, unspecified};
use crate::ast::{Expr, ExprKind, Literal};

impl Parser<'_> {
    pub(super) fn literal(&mut self) -> Parsed<Expr> {
        let first = self.token(0);
        let negative = self.take_if(Kind::Minus).is_some();
        let token = self.take();
        let sign = if negative { "-" } else { "" };
        let text = token.text;
        let literal = match token.kind {
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            Kind::Null => Ok(Literal::Null),
            Kind::Int => int(sign, text)
                .map(Literal::Int)
                .ok_or("invalid int literal"),
            Kind::Uint => uint(&text[..text.len() - 1])
                .map(Literal::Uint)
                .ok_or("invalid uint literal"),
            Kind::Float => match format!("{sign}{text}").parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Literal::Double(number)),
                _ => Err("invalid double literal"),
            },
            Kind::String => unescape(text, false).map(|bytes| {
                // The escapes of strings give characters, never single bytes.
                Literal::String(String::from_utf8_lossy(&bytes).into_owned().into())
            }),
            Kind::Bytes => unescape(&text[1..], true).map(|bytes| Literal::Bytes(bytes.into())),
            _ => return Ok(unspecified()),
        };
        let id = self.positions.next(Some(first.offset));
        match literal {
            Ok(literal) => Ok(Expr {
                id,
                kind: ExprKind::Literal(literal),
            }),
            Err(message) => {
                self.error(Some(first.offset), message);
                Ok(Expr {
                    id,
                    kind: ExprKind::Unspecified,
                })
            }
        }
    }

    pub(super) fn string_at(&mut self, offset: u32, text: &str) -> Expr {
        let id = self.positions.next(Some(offset));
        Expr {
            id,
            kind: ExprKind::Literal(Literal::String(text.into())),
        }
    }
}

fn int(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

fn uint(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
