//! Regular expressions in Go's dialect (RE2).

use super::{Args, int, strings, text};
use crate::{
    library::Function,
    value::{Fault, Value},
};

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
/// Highest count of a repetition.
const MAX_REPEAT: u32 = 1000;

impl Regex {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Go's error, such as ``missing closing ): `a(b` ``.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let translated = translate(pattern)?;
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

/// How often the parts of a pattern are repeated, one in another: all together no more than one repetition may, as in Go.
/// Otherwise a short pattern is a program of millions of steps for each character of a text.
struct Repetitions {
    /// The highest count in each open group, and outside of all.
    groups: Vec<u32>,
    /// The highest count of the expression that was parsed last.
    last: u32,
}

impl Repetitions {
    fn new() -> Self {
        Self {
            groups: vec![1],
            last: 1,
        }
    }

    /// The last part has that count.
    fn count(&mut self, count: u32) {
        self.last = count;
        if let Some(most) = self.groups.last_mut() {
            *most = count.max(*most);
        }
    }

    fn open(&mut self) {
        self.groups.push(1);
        self.last = 1;
    }

    fn close(&mut self) {
        if self.groups.len() > 1
            && let Some(most) = self.groups.pop()
        {
            self.count(most);
        }
    }

    /// The last part is repeated so often.
    fn repeat(&mut self, times: u32) -> bool {
        let count = self.last.saturating_mul(times.max(1));
        self.count(count);
        count <= MAX_REPEAT
    }
}

/// Rewrites syntax with another meaning in Rust's dialect: classes such as `\d` are ASCII in Go, brackets and `&&` have
/// no meaning inside a class, `\Q…\E` quotes.
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let mut in_class = false;
    let mut repetitions = Repetitions::new();
    while let Some(c) = rest.chars().next() {
        if !in_class && !matches!(c, '{' | '*' | '+' | '?' | '(' | ')') {
            repetitions.count(1);
        }
        if let Some(after) = rest.strip_prefix("\\Q")
            && !in_class
        {
            let (quoted, after) = after.split_once("\\E").unwrap_or((after, ""));
            out.push_str(&::regex::escape(quoted));
            rest = after;
            continue;
        }
        if c == '\\' {
            let Some(escaped) = rest[1..].chars().next() else {
                return Err("trailing backslash at end of expression: ``".to_owned());
            };
            out.push_str(&escape(escaped, in_class));
            rest = &rest[1 + escaped.len_utf8()..];
            if matches!(escaped, 'p' | 'P' | 'x')
                && rest.starts_with('{')
                && let Some(end) = rest.find('}')
            {
                out.push_str(&rest[..=end]);
                rest = &rest[end + 1..];
            }
            continue;
        }
        if in_class {
            rest = class_part(rest, &mut out, &mut in_class);
            continue;
        }
        match c {
            '[' => {
                in_class = true;
                out.push('[');
                rest = &rest[1..];
                if let Some(after) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = after;
                }
                if let Some(after) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = after;
                }
            }
            '*' | '+' | '?' if nested_repetition(&pattern[..pattern.len() - rest.len()], c) => {
                return Err(explain(pattern));
            }
            '{' => {
                let repeat = repeat(rest)?;
                match repeat {
                    Some(times) if !repetitions.repeat(times) => {
                        let end = rest.find('}').map_or(rest.len(), |end| end + 1);
                        return Err(format!("invalid repeat count: `{}`", &rest[..end]));
                    }
                    Some(_) => {
                        // The digits of the bounds are copied as they are.
                        let end = rest.find('}').map_or(rest.len(), |end| end + 1);
                        out.push_str(&rest[..end]);
                        rest = &rest[end..];
                        continue;
                    }
                    None => repetitions.count(1),
                }
                out.push_str("\\{");
                rest = &rest[1..];
            }
            '(' if rest.starts_with("(?") => {
                let flags = rest[2..]
                    .bytes()
                    .take_while(u8::is_ascii_alphabetic)
                    .count();
                if let Some(bad) = rest[2..2 + flags]
                    .chars()
                    .find(|flag| matches!(flag, 'x' | 'u' | 'R'))
                    && !rest[2..].starts_with("P<")
                {
                    let _ = bad;
                    return Err(format!(
                        "invalid or unsupported Perl syntax: `(?{}`",
                        &rest[2..2 + flags.max(1)]
                    ));
                }
                repetitions.open();
                out.push('(');
                rest = &rest[1..];
            }
            c => {
                match c {
                    '(' => repetitions.open(),
                    ')' => repetitions.close(),
                    _ => {}
                }
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    Ok(out)
}

/// Whether a repetition is repeated; only `?` may follow one, to make it lazy.
fn nested_repetition(before: &str, operator: char) -> bool {
    let mut back = before.chars().rev();
    match (back.next(), back.next()) {
        (Some('*' | '+' | '?'), escaped) if escaped != Some('\\') => {
            let lazy = before.ends_with("*?") || before.ends_with("+?") || before.ends_with("??");
            operator != '?' || lazy
        }
        _ => false,
    }
}

fn class_part<'p>(rest: &'p str, out: &mut String, in_class: &mut bool) -> &'p str {
    if rest.starts_with("[:")
        && let Some(end) = rest.find(":]")
    {
        out.push_str(&rest[..end + 2]);
        return &rest[end + 2..];
    }
    let Some(c) = rest.chars().next() else {
        return "";
    };
    match c {
        ']' => {
            *in_class = false;
            out.push(']');
        }
        '[' | '&' | '~' => {
            out.push('\\');
            out.push(c);
        }
        // A range keeps its dash, a second dash is a character.
        '-' if rest.starts_with("--") => {
            out.push_str("\\-");
        }
        c => out.push(c),
    }
    &rest[c.len_utf8()..]
}

fn escape(c: char, in_class: bool) -> String {
    let class = |set: &str, negated: bool| match (in_class, negated) {
        (true, false) => set.to_owned(),
        (_, true) => format!("[^{set}]"),
        (false, false) => format!("[{set}]"),
    };
    match c {
        'd' => class("0-9", false),
        'D' => class("0-9", true),
        'w' => class("0-9A-Za-z_", false),
        'W' => class("0-9A-Za-z_", true),
        's' => class("\\t\\n\\x0C\\r\\x20", false),
        'S' => class("\\t\\n\\x0C\\r\\x20", true),
        'b' if !in_class => "(?-u:\\b)".to_owned(),
        'B' if !in_class => "(?-u:\\B)".to_owned(),
        c => format!("\\{c}"),
    }
}

/// The count of the repetition that a brace starts, which is limited; `None` if the brace is a literal.
fn repeat(rest: &str) -> Result<Option<u32>, String> {
    let Some((inside, _)) = rest[1..].split_once('}') else {
        return Ok(None);
    };
    let (low, high) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if low.is_empty() || !digits(low) || !digits(high) {
        return Ok(None);
    }
    let too_many = |text: &str| {
        !text.is_empty() && text.parse::<u32>().map_or(true, |count| count > MAX_REPEAT)
    };
    if too_many(low) || too_many(high) {
        return Err(format!("invalid repeat count: `{{{inside}}}`"));
    }
    let most = if high.is_empty() { low } else { high };
    Ok(Some(most.parse().unwrap_or(MAX_REPEAT)))
}

/// Go's error for a pattern that does not compile, as far as it can be determined.
fn explain(pattern: &str) -> String {
    let mut depth = 0_i32;
    let mut class_start = None;
    let mut last_repeat = None;
    let mut chars = pattern.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let rest = &pattern[at..];
        let mut repeat = None;
        match c {
            '\\' => {
                let escaped = chars.next().map(|(_, c)| c);
                if let Some(problem) = bad_escape(rest, escaped) {
                    return problem;
                }
            }
            ']' if class_start.is_some_and(|start: usize| at > start + 1) => class_start = None,
            '-' if class_start.is_some() => {
                let before = pattern[..at].chars().next_back();
                let after = rest.chars().nth(1);
                if let (Some(low), Some(high)) = (before, after)
                    && low > high
                    && high != ']'
                {
                    return format!("invalid character class range: `{low}-{high}`");
                }
            }
            _ if class_start.is_some() => {}
            '[' => class_start = Some(at),
            '(' => {
                depth += 1;
                if let Some(problem) = bad_group(rest) {
                    return problem;
                }
                if rest.starts_with("(?") {
                    chars.next();
                }
            }
            ')' => {
                depth -= 1;
                if depth < 0 {
                    return format!("unexpected ): `{pattern}`");
                }
            }
            '{' => {
                if let Some((inside, _)) = rest[1..].split_once('}')
                    && let Some((low, high)) = inside.split_once(',')
                    && let (Ok(low), Ok(high)) = (low.parse::<u32>(), high.parse::<u32>())
                    && low > high
                {
                    return format!("invalid repeat count: `{{{inside}}}`");
                }
            }
            '*' | '+' | '?' => {
                if matches!(pattern[..at].chars().next_back(), None | Some('(' | '|')) {
                    return format!("missing argument to repetition operator: `{c}`");
                }
                if let Some(start) = last_repeat
                    && nested_repetition(&pattern[..at], c)
                {
                    return format!(
                        "invalid nested repetition operator: `{}`",
                        &pattern[start..=at]
                    );
                }
                repeat = last_repeat.or(Some(at));
            }
            _ => {}
        }
        last_repeat = repeat;
    }
    if let Some(start) = class_start {
        return format!("missing closing ]: `{}`", &pattern[start..]);
    }
    if depth > 0 {
        return format!("missing closing ): `{pattern}`");
    }
    format!("invalid or unsupported Perl syntax: `{pattern}`")
}

fn bad_escape(rest: &str, escaped: Option<char>) -> Option<String> {
    match escaped? {
        'p' | 'P' => {
            let name = rest.find('}').map_or(rest, |end| &rest[..=end]);
            let known = ::regex::Regex::new(name).is_ok();
            (!known).then(|| format!("invalid character class range: `{name}`"))
        }
        c if c.is_ascii_alphanumeric() && !"aftnrvdDsSwWbBAzQECx0".contains(c) => {
            Some(format!("invalid escape sequence: `\\{c}`"))
        }
        _ => None,
    }
}

fn bad_group(rest: &str) -> Option<String> {
    let inside = rest.strip_prefix("(?")?;
    if inside.starts_with("P<") {
        return (!inside.contains('>')).then(|| format!("invalid named capture: `{rest}`"));
    }
    let flags = inside
        .chars()
        .take_while(|c| matches!(c, 'i' | 'm' | 's' | 'U' | '-'))
        .count();
    match inside[flags..].chars().next() {
        Some(':' | ')' | '<') => None,
        next => Some(format!(
            "invalid or unsupported Perl syntax: `(?{}{}`",
            &inside[..flags],
            next.unwrap_or(' ')
        )),
    }
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
            assert_eq!(Regex::new(pattern).unwrap_err(), expected, "{pattern}");
        }
    }
}
