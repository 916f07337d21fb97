//! kubectl's form of a label selector.

use super::{Operator, ParseError, Requirement};
use crate::{field, names};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
    Bad,
}

type Token = (Kind, String);

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, ParseError> {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
    };
    parser.parse().map_err(ParseError)
}

fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let special = |b: u8| matches!(b, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<');
    let space = |b: u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n');
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let b = bytes[at];
        if space(b) {
            at += 1;
        } else if special(b) {
            let two = bytes.get(at..at + 2).unwrap_or_default();
            let (kind, len) = match (b, two) {
                (_, b"==") => (Kind::DoubleEquals, 2),
                (_, b"!=") => (Kind::NotEquals, 2),
                (b'=', _) => (Kind::Equals, 1),
                (b'!', _) => (Kind::Not, 1),
                (b'(', _) => (Kind::Open, 1),
                (b')', _) => (Kind::Close, 1),
                (b',', _) => (Kind::Comma, 1),
                (b'>', _) => (Kind::Greater, 1),
                (b'<', _) => (Kind::Less, 1),
                _ => (Kind::Bad, 1),
            };
            out.push((kind, text[at..at + len].to_owned()));
            at += len;
        } else {
            let end = bytes[at..]
                .iter()
                .position(|b| special(*b) || space(*b))
                .map_or(bytes.len(), |len| at + len);
            let word = &text[at..end];
            let kind = match word {
                "in" => Kind::In,
                "notin" => Kind::NotIn,
                _ => Kind::Identifier,
            };
            out.push((kind, word.to_owned()));
            at = end;
        }
    }
    out
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    /// The next token, with `in` and `notin` read as identifiers.
    fn peek(&self) -> (Kind, &str) {
        match self.tokens.get(self.at) {
            None => (Kind::End, ""),
            Some((Kind::In | Kind::NotIn, text)) => (Kind::Identifier, text),
            Some((kind, text)) => (*kind, text),
        }
    }

    fn next(&mut self) -> Token {
        let (kind, text) = self.peek();
        let token = (kind, text.to_owned());
        self.at += 1;
        token
    }

    fn parse(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Kind::Identifier | Kind::Not, _) => {}
                (Kind::End, _) => return Ok(requirements),
                (_, text) => {
                    return Err(format!(
                        "found '{text}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
            let requirement = self
                .requirement()
                .map_err(|error| format!("unable to parse requirement: {error}"))?;
            requirements.push(requirement);
            match self.next() {
                (Kind::End, _) => return Ok(requirements),
                (Kind::Comma, _) => match self.peek() {
                    (Kind::Identifier | Kind::Not, _) => {}
                    (_, text) => {
                        return Err(format!("found '{text}', expected: identifier after ','"));
                    }
                },
                (_, text) => {
                    return Err(format!("found '{text}', expected: ',' or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut kind, mut key) = self.next();
        let negated = kind == Kind::Not;
        if negated {
            (kind, key) = self.next();
        }
        if kind != Kind::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let problems = names::qualified_name(&key);
        if !problems.is_empty() {
            return Err(
                field::Error::invalid(&field::Path::root(), &key, problems.join("; ")).to_string(),
            );
        }
        let ends = matches!(self.peek().0, Kind::End | Kind::Comma);
        let (operator, values) = if negated {
            (Operator::DoesNotExist, Vec::new())
        } else if ends {
            (Operator::Exists, Vec::new())
        } else {
            let operator = self.operator()?;
            let values = match operator {
                Operator::In | Operator::NotIn => self.values()?,
                _ => vec![self.exact_value()?],
            };
            (operator, values)
        };
        Requirement::new(&key, operator, values).map_err(|error| error.0)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let token = self
            .tokens
            .get(self.at)
            .cloned()
            .unwrap_or((Kind::End, String::new()));
        self.at += 1;
        Ok(match token.0 {
            Kind::In => Operator::In,
            Kind::NotIn => Operator::NotIn,
            Kind::Equals => Operator::Equals,
            Kind::DoubleEquals => Operator::DoubleEquals,
            Kind::NotEquals => Operator::NotEquals,
            Kind::Greater => Operator::GreaterThan,
            Kind::Less => Operator::LessThan,
            _ => return Err(format!("found '{}', expected: {OPERATORS}", token.1)),
        })
    }

    fn exact_value(&mut self) -> Result<String, String> {
        if matches!(self.peek().0, Kind::End | Kind::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            (Kind::Identifier, text) => Ok(text),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        let (kind, text) = self.next();
        if kind != Kind::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        let mut values = Vec::new();
        match self.peek() {
            (Kind::Close, _) => values.push(String::new()),
            (Kind::Identifier | Kind::Comma, _) => self.value_list(&mut values)?,
            (_, text) => return Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
        // Both ways end in front of the closing bracket.
        self.at += 1;
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }

    fn value_list(&mut self, values: &mut Vec<String>) -> Result<(), String> {
        loop {
            match self.next() {
                (Kind::Identifier, text) => {
                    values.push(text);
                    match self.peek() {
                        (Kind::Comma, _) => {}
                        (Kind::Close, _) => return Ok(()),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Kind::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek().0 {
                        Kind::Close => {
                            values.push(String::new());
                            return Ok(());
                        }
                        Kind::Comma => values.push(String::new()),
                        _ => {}
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }
}
