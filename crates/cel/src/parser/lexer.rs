//! Splits the source into tokens.

use super::kinds::Kind;
use crate::source::Issue;

/// A token: its kind, its text, and where it starts (in code points).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    pub(super) offset: u32,
    /// Where it starts in bytes.
    pub(super) start: usize,
}

/// All tokens of the text, ended by [`Kind::End`], and what could not be read.
pub(super) fn tokens(text: &str) -> (Vec<Token<'_>>, Vec<Issue>) {
    let mut lexer = Lexer {
        text,
        at: 0,
        points: 0,
    };
    let (mut tokens, mut issues) = (Vec::new(), Vec::new());
    loop {
        lexer.skip_space();
        if lexer.at == text.len() {
            tokens.push(Token {
                kind: Kind::End,
                text: "<EOF>",
                offset: lexer.points,
                start: text.len(),
            });
            return (tokens, issues);
        }
        let rest = &text[lexer.at..];
        let offset = lexer.points;
        if let Some((kind, len)) = token(rest) {
            tokens.push(Token {
                kind,
                text: &rest[..len],
                offset,
                start: lexer.at,
            });
            lexer.advance(len);
        } else {
            let len = bad_len(rest);
            let message = format!(
                "Syntax error: token recognition error at: '{}'",
                escape_space(&rest[..len])
            );
            issues.push(Issue {
                offset: Some(offset),
                message,
            });
            lexer.advance(len);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    points: u32,
}

impl Lexer<'_> {
    fn advance(&mut self, bytes: usize) {
        self.points += self.text[self.at..self.at + bytes].chars().count() as u32;
        self.at += bytes;
    }

    fn skip_space(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let len = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else {
                rest.bytes()
                    .take_while(|b| matches!(b, b'\t' | b' ' | b'\r' | b'\n' | 0x0c))
                    .count()
            };
            if len == 0 {
                return;
            }
            self.advance(len);
        }
    }
}

/// The longest token at the start of `rest`, with its length in bytes.
fn token(rest: &str) -> Option<(Kind, usize)> {
    let bytes = rest.as_bytes();
    let first = *bytes.first()?;
    if let Some(found) = string(rest) {
        return Some(found);
    }
    match first {
        b'0'..=b'9' => Some(number(bytes)),
        b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => Some(number(bytes)),
        b'A'..=b'Z' | b'a'..=b'z' | b'_' => {
            let len = bytes
                .iter()
                .take_while(|b| b.is_ascii_alphanumeric() || **b == b'_')
                .count();
            let kind = match &rest[..len] {
                "in" => Kind::In,
                "true" => Kind::True,
                "false" => Kind::False,
                "null" => Kind::Null,
                _ => Kind::Ident,
            };
            Some((kind, len))
        }
        b'`' => {
            let allowed = |b: &&u8| {
                b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/' | b' ')
            };
            let len = bytes[1..].iter().take_while(allowed).count();
            (len > 0 && bytes.get(len + 1) == Some(&b'`')).then_some((Kind::EscapedIdent, len + 2))
        }
        _ => symbol(bytes),
    }
}

fn symbol(bytes: &[u8]) -> Option<(Kind, usize)> {
    let two = match bytes.get(..2) {
        Some(b"==") => Some(Kind::EqualsEquals),
        Some(b"!=") => Some(Kind::NotEquals),
        Some(b"<=") => Some(Kind::LessEquals),
        Some(b">=") => Some(Kind::GreaterEquals),
        Some(b"&&") => Some(Kind::And),
        Some(b"||") => Some(Kind::Or),
        _ => None,
    };
    if let Some(kind) = two {
        return Some((kind, 2));
    }
    let kind = match bytes[0] {
        b'<' => Kind::Less,
        b'>' => Kind::Greater,
        b'[' => Kind::LeftBracket,
        b']' => Kind::RightBracket,
        b'{' => Kind::LeftBrace,
        b'}' => Kind::RightBrace,
        b'(' => Kind::LeftParen,
        b')' => Kind::RightParen,
        b'.' => Kind::Dot,
        b',' => Kind::Comma,
        b'-' => Kind::Minus,
        b'!' => Kind::Exclam,
        b'?' => Kind::Question,
        b':' => Kind::Colon,
        b'+' => Kind::Plus,
        b'*' => Kind::Star,
        b'/' => Kind::Slash,
        b'%' => Kind::Percent,
        _ => return None,
    };
    Some((kind, 1))
}

fn number(bytes: &[u8]) -> (Kind, usize) {
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    if bytes.starts_with(b"0x") {
        let hex = bytes[2..]
            .iter()
            .take_while(|b| b.is_ascii_hexdigit())
            .count();
        if hex > 0 {
            let unsigned = matches!(bytes.get(2 + hex), Some(b'u' | b'U'));
            return if unsigned {
                (Kind::Uint, hex + 3)
            } else {
                (Kind::Int, hex + 2)
            };
        }
    }
    let mut len = digits(0);
    let mut float = false;
    if bytes.get(len) == Some(&b'.') && digits(len + 1) > 0 {
        len += 1 + digits(len + 1);
        float = true;
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let exponent = bytes
            .get(len + 1 + sign..)
            .map_or(0, |_| digits(len + 1 + sign));
        if exponent > 0 {
            len += 1 + sign + exponent;
            float = true;
        }
    }
    if float {
        (Kind::Float, len)
    } else if matches!(bytes.get(len), Some(b'u' | b'U')) {
        (Kind::Uint, len + 1)
    } else {
        (Kind::Int, len)
    }
}

/// A string or bytes literal with its prefixes.
fn string(rest: &str) -> Option<(Kind, usize)> {
    let bytes = rest.as_bytes();
    let mut at = 0;
    let is_bytes = matches!(bytes[0], b'b' | b'B');
    at += usize::from(is_bytes);
    let raw = matches!(bytes.get(at), Some(b'r' | b'R'));
    at += usize::from(raw);
    let quote = *bytes.get(at).filter(|b| matches!(b, b'"' | b'\''))?;
    let end = closing(bytes, at, quote, raw)?;
    Some((if is_bytes { Kind::Bytes } else { Kind::String }, end))
}

/// Where the literal that opens at `at` ends: the longest of the plain and the triple-quoted reading.
fn closing(bytes: &[u8], at: usize, quote: u8, raw: bool) -> Option<usize> {
    let triple = [quote; 3];
    if bytes[at..].starts_with(&triple) {
        let mut i = at + 3;
        while i < bytes.len() {
            if bytes[i..].starts_with(&triple) {
                return Some(i + 3);
            }
            i += if bytes[i] == b'\\' && !raw {
                escape_len(&bytes[i..])?
            } else {
                1
            };
        }
        // Not closed: what is left is an empty string.
        return Some(at + 2);
    }
    let mut i = at + 1;
    loop {
        match *bytes.get(i)? {
            b if b == quote => return Some(i + 1),
            b'\n' | b'\r' => return None,
            b'\\' if !raw => i += escape_len(&bytes[i..])?,
            _ => i += 1,
        }
    }
}

fn escape_len(bytes: &[u8]) -> Option<usize> {
    let hex = |count: usize| {
        let digits = bytes.get(2..2 + count)?;
        digits
            .iter()
            .all(u8::is_ascii_hexdigit)
            .then_some(2 + count)
    };
    match *bytes.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => {
            Some(2)
        }
        b'x' | b'X' => hex(2),
        b'u' => hex(4),
        b'U' => hex(8),
        b'0'..=b'3' => bytes
            .get(2..4)?
            .iter()
            .all(|b| matches!(b, b'0'..=b'7'))
            .then_some(4),
        _ => None,
    }
}

/// How much of a bad escape could still have become a good one.
fn good_escape(bytes: &[u8]) -> usize {
    let (prefix, most, digit): (usize, usize, fn(&u8) -> bool) = match bytes.get(1) {
        Some(b'x' | b'X') => (2, 2, u8::is_ascii_hexdigit),
        Some(b'u') => (2, 4, u8::is_ascii_hexdigit),
        Some(b'U') => (2, 8, u8::is_ascii_hexdigit),
        Some(b'0'..=b'3') => (2, 2, |b| matches!(b, b'0'..=b'7')),
        _ => return 1,
    };
    prefix
        + bytes[prefix..]
            .iter()
            .take(most)
            .take_while(|b| digit(b))
            .count()
}

/// How much of `rest` the recogniser had read when it gave up: all that could still have become a token.
fn bad_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let first_len = rest.chars().next().map_or(1, char::len_utf8);
    let next_len = |at: usize| rest[at..].chars().next().map_or(0, char::len_utf8);
    match bytes[0] {
        b'"' | b'\'' => {
            let quote = bytes[0];
            let mut i = 1;
            while i < bytes.len() {
                match bytes[i] {
                    b'\n' | b'\r' => return i + 1,
                    b if b == quote => return i + 1,
                    b'\\' => match escape_len(&bytes[i..]) {
                        Some(len) => i += len,
                        None => {
                            let good = i + good_escape(&bytes[i..]);
                            return (good + next_len(good)).min(rest.len());
                        }
                    },
                    _ => i += next_len(i),
                }
            }
            rest.len()
        }
        b'`' => {
            let allowed = |b: &&u8| {
                b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/' | b' ')
            };
            let len = 1 + bytes[1..].iter().take_while(allowed).count();
            len + next_len(len)
        }
        b'=' | b'&' | b'|' => 1 + next_len(1),
        _ => first_len,
    }
}

fn escape_space(text: &str) -> String {
    text.replace('\n', "\\n")
        .replace('\t', "\\t")
        .replace('\r', "\\r")
}
