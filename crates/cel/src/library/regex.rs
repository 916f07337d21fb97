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

/// Sizes of compiled programs, of which the first that is enough is taken, so that it is known how large a program is. The
/// largest is enough for all that fits the length limit of an expression.
const SIZES: [usize; 5] = [8 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20];
/// The largest memory that one search may take for the states that it meets.
const MOST_STATES: usize = 2 << 20;

/// Why RE2 does not accept a pattern, in the words of Go's regexp/syntax package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(String);

impl Regex {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// [`PatternError`] with Go's text, such as ``missing closing ): `a(b` ``.
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        let translated = translate(pattern).map_err(PatternError)?;
        for limit in SIZES {
            let states = (4 * limit).min(MOST_STATES);
            let built = ::regex::RegexBuilder::new(&translated)
                .size_limit(limit)
                .dfa_size_limit(states)
                .build();
            match built {
                // What is derived from the program, and the states of two searches at the same time.
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
        Err(PatternError(explain(pattern)))
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
