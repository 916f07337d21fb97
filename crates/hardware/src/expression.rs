//! The expressions of hardware models: whole numbers, texts, lists and records.
//!
//! ```text
//! expression = sum [ ".." sum ]                     a list of whole numbers, the end excluded
//! sum        = product { ("+" | "-") product }
//! product    = value { ("*" | "/" | "%") value }
//! value      = number | 'text' | name | "uuid(" expression { "," expression } ")" | "(" expression ")"
//!              followed by any of ".member" and "[" expression "]"
//! ```

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Nesting of parentheses and indexes that an expression may have.
const DEEPEST: usize = 32;

/// Longest list from a range.
const LONGEST_RANGE: i64 = 4096;

/// What names mean.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    /// The innermost last.
    names: Vec<(String, Value)>,
}

impl Scope {
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.names.push((name.to_owned(), value));
    }

    /// The number of names: [`Scope::forget`] takes this to drop those that were set later.
    pub(crate) fn mark(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn forget(&mut self, mark: usize) {
        self.names.truncate(mark);
    }

    fn get(&self, name: &str) -> Option<&Value> {
        let found = self.names.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }
}

/// Evaluates an expression.
pub(crate) fn evaluate(text: &str, scope: &Scope) -> Result<Value, String> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        scope,
    };
    let value = parser.expression()?;
    parser.space();
    match parser.rest().chars().next() {
        None => Ok(value),
        Some(found) => Err(format!("unexpected {found:?} in expression {text:?}")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    scope: &'a Scope,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        let taken = self.rest().starts_with(token);
        if taken {
            self.at += token.len();
        }
        taken
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        match self.take(token) {
            true => Ok(()),
            false => Err(format!("expected {token:?} in expression {:?}", self.text)),
        }
    }

    /// The longest piece of which every character is accepted.
    fn piece(&mut self, accept: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let length = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        let piece = rest[..length].to_owned();
        self.at += length;
        piece
    }

    fn expression(&mut self) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("expression is nested deeper than {DEEPEST}"));
        }
        let first = self.sum()?;
        let value = if self.take("..") {
            let (from, to) = (number(&first)?, number(&self.sum()?)?);
            if to.saturating_sub(from) > LONGEST_RANGE {
                return Err(format!("range has more than {LONGEST_RANGE} numbers"));
            }
            (from..to).map(Value::from).collect::<Vec<_>>().into()
        } else {
            first
        };
        self.depth -= 1;
        Ok(value)
    }

    fn sum(&mut self) -> Result<Value, String> {
        let mut left = self.product()?;
        loop {
            if self.take("+") {
                left = arithmetic(&left, &self.product()?, i64::checked_add)?;
            } else if self.take("-") {
                left = arithmetic(&left, &self.product()?, i64::checked_sub)?;
            } else {
                return Ok(left);
            }
        }
    }

    fn product(&mut self) -> Result<Value, String> {
        let mut left = self.value()?;
        loop {
            if self.take("*") {
                left = arithmetic(&left, &self.value()?, i64::checked_mul)?;
            } else if self.take("/") {
                left = arithmetic(&left, &self.value()?, i64::checked_div)?;
            } else if self.take("%") {
                left = arithmetic(&left, &self.value()?, i64::checked_rem)?;
            } else {
                return Ok(left);
            }
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        self.space();
        let mut value = match self.rest().chars().next() {
            None => return Err(format!("expression {:?} ends too early", self.text)),
            Some('(') => {
                self.at += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                inner
            }
            Some('\'') => {
                self.at += 1;
                let inner = self.piece(|c| c != '\'');
                self.expect("'")?;
                inner.into()
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self.piece(|c| c.is_ascii_digit());
                let number: i64 = digits
                    .parse()
                    .map_err(|_| format!("{digits} is too large"))?;
                number.into()
            }
            Some(c) if c.is_ascii_alphabetic() => {
                let name = self.name();
                if name == "uuid" && self.take("(") {
                    self.uuid()?
                } else {
                    let found = self.scope.get(&name).cloned();
                    found.ok_or_else(|| format!("unknown name {name:?}"))?
                }
            }
            Some(c) => return Err(format!("unexpected {c:?} in expression {:?}", self.text)),
        };
        loop {
            if self.take("[") {
                let index = number(&self.expression()?)?;
                self.expect("]")?;
                let list = value.as_array().ok_or("only a list has an index")?;
                let found = usize::try_from(index).ok().and_then(|at| list.get(at));
                let missing = || format!("no element {index} in a list of {}", list.len());
                value = found.cloned().ok_or_else(missing)?;
            } else if self.rest().starts_with('.') && !self.rest().starts_with("..") {
                self.at += 1;
                let name = self.name();
                let found = value.get(&name).cloned();
                value = found.ok_or_else(|| format!("no member {name:?}"))?;
            } else {
                return Ok(value);
            }
        }
    }

    fn name(&mut self) -> String {
        self.piece(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// A UUID that depends only on the arguments.
    fn uuid(&mut self) -> Result<Value, String> {
        let mut hash = Sha256::new();
        loop {
            let part = show(&self.expression()?)?;
            hash.update(part.as_bytes());
            hash.update([0]);
            if self.take(")") {
                break;
            }
            self.expect(",")?;
        }
        let bytes = hash.finalize();
        let hex: String = bytes
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let (a, b, c, d, e) = (
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        );
        Ok(format!("{a}-{b}-{c}-{d}-{e}").into())
    }
}

fn number(value: &Value) -> Result<i64, String> {
    value
        .as_i64()
        .ok_or_else(|| format!("expected a whole number, found {value}"))
}

fn arithmetic(
    left: &Value,
    right: &Value,
    apply: impl Fn(i64, i64) -> Option<i64>,
) -> Result<Value, String> {
    let (left, right) = (number(left)?, number(right)?);
    let result = apply(left, right);
    let result = result.ok_or_else(|| format!("no result for {left} and {right}"))?;
    Ok(result.into())
}

/// A simple value as text.
pub(crate) fn show(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        other => Err(format!("{other} has no text")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &Value) {
        let mut scope = Scope::default();
        scope.set("gpu", json!(5));
        scope.set("p", json!({"at": [0, 4], "name": "1g"}));
        assert_eq!(evaluate(text, &scope).as_ref(), Ok(expected), "{text}");
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        let error = evaluate(text, &Scope::default()).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }

    #[test]
    fn values_are_computed() {
        check("1 + 2 * 3", &json!(7));
        check("(1 + 2) * 3 - 10 % 4", &json!(7));
        check("gpu / 4", &json!(1));
        check("p.at[1] + 1", &json!(5));
        check("p.name", &json!("1g"));
        check("2 .. gpu", &json!([2, 3, 4]));
        check("2..gpu", &json!([2, 3, 4]));
        check("'a'", &json!("a"));
        assert_eq!(
            evaluate("uuid('a', 1)", &Scope::default()),
            evaluate("uuid( 'a' , 1 )", &Scope::default())
        );
    }

    #[test]
    fn bad_expressions_have_a_reason() {
        check_error("", "ends too early");
        check_error("gpux", "unknown name \"gpux\"");
        check_error("1 2", "unexpected '2'");
        check_error("1 / 0", "no result");
        check_error("9223372036854775807 + 1", "no result");
        check_error("99999999999999999999", "too large");
        check_error("0..1000000000", "more than");
        check_error("'a' + 1", "whole number");
        check_error("1[0]", "only a list");
        check_error("(0..2)[7]", "no element 7");
        check_error(&"(".repeat(100_000), "nested deeper");
        check_error("ü", "unexpected");
        check_error("'a", "expected \"'\"");
    }
}
