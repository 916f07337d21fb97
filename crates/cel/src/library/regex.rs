//! Regular expressions in Go's dialect (RE2).

use super::{Args, int, strings, text};
use crate::{
    library::Function,
    value::{Fault, Value},
};

mod explain;
mod translate;

use explain::explain;
use translate::translate;

/// A regular expression in Go's dialect.
#[derive(Debug, Clone)]
pub struct Regex {
    compiled: ::regex::Regex,
    size: usize,
}

/// Size limits of compiled programs in bytes. They are tried in turn, so that the size of a program is known roughly; the
/// last one is enough for every pattern within the length limit of expressions.
const SIZES: [usize; 5] = [8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20];
/// Limit of the memory in bytes that one search may use for states of the lazy DFA.
const MOST_STATES: usize = 2 << 20;

/// Why RE2 does not accept a pattern, as Go's `regexp/syntax.Error`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: `{part}`")]
pub struct PatternError {
    code: ErrorCode,
    /// The part of the pattern that is wrong.
    part: String,
}

/// What is wrong with a pattern: the names and texts of Go's `regexp/syntax.ErrorCode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum ErrorCode {
    #[error("invalid character class range")]
    InvalidCharRange,
    #[error("invalid escape sequence")]
    InvalidEscape,
    #[error("invalid named capture")]
    InvalidNamedCapture,
    #[error("invalid or unsupported Perl syntax")]
    InvalidPerlOp,
    #[error("invalid nested repetition operator")]
    InvalidRepeatOp,
    #[error("invalid repeat count")]
    InvalidRepeatSize,
    #[error("missing closing ]")]
    MissingBracket,
    #[error("missing closing )")]
    MissingParen,
    #[error("missing argument to repetition operator")]
    MissingRepeatArgument,
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    #[error("unexpected )")]
    UnexpectedParen,
}

impl ErrorCode {
    fn at(self, part: &str) -> PatternError {
        PatternError {
            code: self,
            part: part.to_owned(),
        }
    }
}

impl Regex {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// [`PatternError`] with Go's text, such as ``missing closing ): `a(b` ``.
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        let translated = translate(pattern)?;
        for limit in SIZES {
            let states = (4 * limit).min(MOST_STATES);
            let built = ::regex::RegexBuilder::new(&translated)
                .size_limit(limit)
                .dfa_size_limit(states)
                .build();
            match built {
                // The program with what is derived from it, and the states of two concurrent searches.
                Ok(compiled) => {
                    return Ok(Self {
                        compiled,
                        size: 4 * limit + 2 * states,
                    });
                }
                Err(::regex::Error::CompiledTooBig(_)) => {}
                Err(_) => break,
            }
        }
        Err(explain(pattern))
    }

    /// The memory that the expression may take, roughly. It is kept between searches.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether there is a match anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.compiled.is_match(text)
    }

    /// The first match, or the empty string.
    pub(crate) fn find<'a>(&self, text: &str) -> Value<'a> {
        Value::string(self.compiled.find(text).map_or("", |found| found.as_str()))
    }

    /// The matches; at most `limit`, if it is not negative.
    pub(crate) fn find_all<'a>(&self, text: &str, limit: i64) -> Value<'a> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        // Unlike Rust, Go does not report an empty match right after another match; both skip it.
        strings(
            self.compiled
                .find_iter(text)
                .take(limit)
                .map(|found| found.as_str()),
        )
    }
}

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "matches" => |args| {
            let (text, pattern) = (text(&args[0])?, text(&args[1])?);
            let regex = Regex::new(pattern)
                .map_err(|error| Fault::new(format!("error parsing regexp: {error}")))?;
            Ok(Value::Bool(regex.is_match(text)))
        },
        "find" => |args| Ok(library_regex(args)?.find(text(&args[0])?)),
        "findAll" => |args| {
            let limit = args.get(2).map_or(Ok(-1), int)?;
            Ok(library_regex(args)?.find_all(text(&args[0])?, limit))
        },
        _ => return None,
    })
}

fn library_regex(args: Args<'_, '_>) -> Result<Regex, Fault> {
    text(&args[0])?;
    Regex::new(text(&args[1])?)
        .map_err(|error| Fault::new(format!("Illegal regex: error parsing regexp: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rust's limit is one of memory: a pattern of twelve characters was a program of nine thousand states.
    #[test]
    fn regression_repetitions_in_one_another_count_together() {
        for pattern in [
            "a{1000}",
            "(a{10}){100}",
            "(a{10}b{100}){10}",
            "((a{2}){2,5}){3,100}",
            "a{1000}b{1000}",
            "(a{1000})(b{1000})",
            "[{2}]{1000}",
            "(a{5}){10,}",
            "a\\{1000}{2}",
            "(?:a{30}){30}",
            "(?i)a{1000}",
            "a{,5}",
            "x{a}{2}",
            "\\Qa{\\E{900}",
        ] {
            assert!(Regex::new(pattern).is_ok(), "{pattern}");
        }
        for (pattern, wrong) in [
            ("(a{1000}){2}", "{2}"),
            ("(a{11}){100}", "{100}"),
            ("((a{10}){10}){11}", "{11}"),
            ("(b|(a{10}c){20}){10}", "{10}"),
            ("(a{500}b*){3,}", "{3,}"),
            ("(?:a{100}){2,100}", "{2,100}"),
        ] {
            let expected = format!("invalid repeat count: `{wrong}`");
            let error = Regex::new(pattern).unwrap_err().to_string();
            assert_eq!(error, expected, "{pattern}");
        }
    }
}
