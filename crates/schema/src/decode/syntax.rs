//! Go's wording of JSON syntax errors: the states of its scanner, which stops at the first byte that cannot follow.

use allot_apimachinery::quote::quote;

const END: &str = "unexpected end of JSON input";

/// What Go says about a text that is no JSON; none if its scanner takes the text.
pub(super) fn error(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { text, at: 0 };
    match scanner.document() {
        Ok(()) => None,
        Err(Stop::End) => Some(END.to_owned()),
        Err(Stop::At(context)) => {
            let byte = scanner.or_space();
            Some(format!("invalid character {} {context}", shown(byte)))
        }
    }
}

/// A byte as Go shows it: it takes the byte for a character.
fn shown(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let quoted = quote(&char::from(byte).to_string());
            format!("'{}'", quoted.trim_matches('"'))
        }
    }
}

/// Why reading stops.
enum Stop {
    End,
    /// At a byte that cannot be there, with Go's words for the place.
    At(String),
}

fn at(context: &str) -> Stop {
    Stop::At(context.to_owned())
}

struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
}

impl Scanner<'_> {
    /// A value and nothing else. What is open is kept on the heap, so that any depth can be read.
    fn document(&mut self) -> Result<(), Stop> {
        let mut open = Vec::new();
        loop {
            // A value, or the end of an empty list or map.
            let byte = self.next_token()?;
            let complete = match byte {
                b'{' => {
                    self.at += 1;
                    if self.next_token()? == b'}' {
                        self.at += 1;
                        true
                    } else {
                        self.key()?;
                        open.push(b'}');
                        false
                    }
                }
                b'[' => {
                    self.at += 1;
                    if self.next_token()? == b']' {
                        self.at += 1;
                        true
                    } else {
                        open.push(b']');
                        false
                    }
                }
                _ => {
                    self.scalar(byte)?;
                    true
                }
            };
            if complete && self.after_value(&mut open)? {
                return Ok(());
            }
        }
    }

    /// Goes on after a value to the place of the next one; true if there is none.
    fn after_value(&mut self, open: &mut Vec<u8>) -> Result<bool, Stop> {
        loop {
            let Some(end) = open.last().copied() else {
                return match self.next_token() {
                    Err(_) => Ok(true),
                    Ok(_) => Err(at("after top-level value")),
                };
            };
            let byte = self.next_token()?;
            if byte == end {
                self.at += 1;
                open.pop();
                continue;
            }
            if byte != b',' {
                return Err(at(match end {
                    b'}' => "after object key:value pair",
                    _ => "after array element",
                }));
            }
            self.at += 1;
            if end == b'}' {
                self.next_token()?;
                self.key()?;
            }
            return Ok(false);
        }
    }

    /// A key, and the colon after it.
    fn key(&mut self) -> Result<(), Stop> {
        if self.text[self.at] != b'"' {
            return Err(at("looking for beginning of object key string"));
        }
        self.string()?;
        if self.next_token()? != b':' {
            return Err(at("after object key"));
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self, first: u8) -> Result<(), Stop> {
        match first {
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(at("looking for beginning of value")),
        }
    }

    fn string(&mut self) -> Result<(), Stop> {
        self.at += 1;
        loop {
            match self.here()? {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => {
                    self.at += 1;
                    match self.or_space() {
                        b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
                        b'u' => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.or_space().is_ascii_hexdigit() {
                                    return Err(at("in \\u hexadecimal character escape"));
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(at("in string escape code")),
                    }
                }
                0..0x20 => return Err(at("in string literal")),
                _ => self.at += 1,
            }
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), Stop> {
        for expected in literal.bytes() {
            if self.or_space() != expected {
                let expected = char::from(expected);
                return Err(Stop::At(format!(
                    "in literal {literal} (expecting '{expected}')"
                )));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Stop> {
        if self.or_space() == b'-' {
            self.at += 1;
        }
        match self.or_space() {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return Err(at("in numeric literal")),
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            if !self.or_space().is_ascii_digit() {
                return Err(at("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.or_space(), b'+' | b'-') {
                self.at += 1;
            }
            if !self.or_space().is_ascii_digit() {
                return Err(at("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn here(&self) -> Result<u8, Stop> {
        self.text.get(self.at).copied().ok_or(Stop::End)
    }

    /// The next byte. At the end of a text Go looks whether a space could follow.
    fn or_space(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(b' ')
    }

    /// The next byte that is no space.
    fn next_token(&mut self) -> Result<u8, Stop> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.here()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Go 1.26 says about each text.
    #[test]
    fn errors_are_those_of_go() {
        let check = |text: &str, expected: &str| {
            assert_eq!(error(text.as_bytes()).as_deref(), Some(expected), "{text}");
        };
        check("", "unexpected end of JSON input");
        check(" ", "unexpected end of JSON input");
        check("{", "unexpected end of JSON input");
        check("[", "unexpected end of JSON input");
        check("]", "invalid character ']' looking for beginning of value");
        check("}", "invalid character '}' looking for beginning of value");
        check("x", "invalid character 'x' looking for beginning of value");
        check("{}x", "invalid character 'x' after top-level value");
        check("1 2", "invalid character '2' after top-level value");
        check("{\"a\"", "unexpected end of JSON input");
        check("{\"a\":", "unexpected end of JSON input");
        check("{\"a\":1", "unexpected end of JSON input");
        check("{\"a\":1,", "unexpected end of JSON input");
        check(
            "{\"a\":1,}",
            "invalid character '}' looking for beginning of object key string",
        );
        check(
            "{,}",
            "invalid character ',' looking for beginning of object key string",
        );
        check(
            "{a:1}",
            "invalid character 'a' looking for beginning of object key string",
        );
        check("{\"a\" 1}", "invalid character '1' after object key");
        check(
            "{\"a\":1 \"b\":2}",
            "invalid character '\"' after object key:value pair",
        );
        check(
            "{\"a\":}",
            "invalid character '}' looking for beginning of value",
        );
        check("[1 2]", "invalid character '2' after array element");
        check(
            "[1,]",
            "invalid character ']' looking for beginning of value",
        );
        check(
            "[,]",
            "invalid character ',' looking for beginning of value",
        );
        check("[1}", "invalid character '}' after array element");
        check(
            "{\"a\":[}",
            "invalid character '}' looking for beginning of value",
        );
        check("\"a", "unexpected end of JSON input");
        check("\"a\tb\"", "invalid character '\\t' in string literal");
        check("\"a\nb\"", "invalid character '\\n' in string literal");
        check("\"\\h\"", "invalid character 'h' in string escape code");
        check(
            "\"\\u0,0e\"",
            "invalid character ',' in \\u hexadecimal character escape",
        );
        check(
            "\"\\u00",
            "invalid character ' ' in \\u hexadecimal character escape",
        );
        check(
            "tru",
            "invalid character ' ' in literal true (expecting 'e')",
        );
        check(
            "trux",
            "invalid character 'x' in literal true (expecting 'e')",
        );
        check(
            "nul1",
            "invalid character '1' in literal null (expecting 'l')",
        );
        check(
            "fals\"",
            "invalid character '\"' in literal false (expecting 'e')",
        );
        check("-", "invalid character ' ' in numeric literal");
        check("-x", "invalid character 'x' in numeric literal");
        check(
            "1.x",
            "invalid character 'x' after decimal point in numeric literal",
        );
        check(
            "1.",
            "invalid character ' ' after decimal point in numeric literal",
        );
        check("1e", "invalid character ' ' in exponent of numeric literal");
        check(
            "1ex",
            "invalid character 'x' in exponent of numeric literal",
        );
        check(
            "1e+",
            "invalid character ' ' in exponent of numeric literal",
        );
        check(
            "1e+x",
            "invalid character 'x' in exponent of numeric literal",
        );
        check("01", "invalid character '1' after top-level value");
        check("+1", "invalid character '+' looking for beginning of value");
        check(".5", "invalid character '.' looking for beginning of value");
        check(
            "'a'",
            "invalid character '\\'' looking for beginning of value",
        );
        check(
            "{'a':1}",
            "invalid character '\\'' looking for beginning of object key string",
        );
        check(
            "\u{feff}{}",
            "invalid character 'ï' looking for beginning of value",
        );
        check("é", "invalid character 'Ã' looking for beginning of value");
        check(
            "{\"a\":1]}",
            "invalid character ']' after object key:value pair",
        );
        check(
            "{]",
            "invalid character ']' looking for beginning of object key string",
        );
        check("{\"\\", "invalid character ' ' in string escape code");
        check(
            "\0",
            "invalid character '\\x00' looking for beginning of value",
        );
        check("[1:2]", "invalid character ':' after array element");
        check(
            "{\"a\":1:2}",
            "invalid character ':' after object key:value pair",
        );
        check(
            "NaN",
            "invalid character 'N' looking for beginning of value",
        );
        check(
            "{\"a\":\"b\"c\"}",
            "invalid character 'c' after object key:value pair",
        );
        check("//", "invalid character '/' looking for beginning of value");
        check(
            "apiVersion: v1",
            "invalid character 'a' looking for beginning of value",
        );
    }

    #[test]
    fn what_go_takes_is_no_error() {
        for text in [
            "0",
            "-0.5e+7",
            "\"\\u00e9\\n\"",
            " [ ] ",
            "{\"a\":[{},null,true,false],\"b\":\"\"}",
            "\t1\r\n",
        ] {
            assert_eq!(error(text.as_bytes()), None, "{text}");
        }
        assert_eq!(
            error(&[b"[".repeat(100_000), b"]".repeat(100_000)].concat()),
            None
        );
        assert_eq!(error(&b"[".repeat(1 << 20)).as_deref(), Some(END));
    }
}
