//! Translation of patterns from Go's dialect to Rust's.

use super::explain::{explain, nested_repetition};
use super::{ErrorCode, PatternError};

/// Highest count of a repetition.
const MAX_REPEAT: u32 = 1000;

/// How often the parts of a pattern are repeated. Nested repetitions multiply, and Go limits the product as it limits the
/// count of one: otherwise a short pattern is a program of millions of steps for each character of a text.
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

    /// Records the count of the expression that was parsed last.
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

    /// Records that the last expression is repeated. Returns whether that is within the limit.
    fn repeat(&mut self, times: u32) -> bool {
        let count = self.last.saturating_mul(times.max(1));
        self.count(count);
        count <= MAX_REPEAT
    }
}

/// Rewrites syntax with another meaning in Rust's dialect: classes such as `\d` are ASCII in Go, brackets and `&&` have
/// no meaning inside a class, `\Q…\E` quotes.
pub(super) fn translate(pattern: &str) -> Result<String, PatternError> {
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
                return Err(ErrorCode::TrailingBackslash.at(""));
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
            '{' => match repeat(rest)? {
                Some(times) => {
                    let end = rest.find('}').map_or(rest.len(), |end| end + 1);
                    if !repetitions.repeat(times) {
                        return Err(ErrorCode::InvalidRepeatSize.at(&rest[..end]));
                    }
                    // The digits of the bounds are copied as they are.
                    out.push_str(&rest[..end]);
                    rest = &rest[end..];
                }
                None => {
                    repetitions.count(1);
                    out.push_str("\\{");
                    rest = &rest[1..];
                }
            },
            '(' if rest.starts_with("(?") => {
                let flags = rest[2..]
                    .bytes()
                    .take_while(u8::is_ascii_alphabetic)
                    .count();
                let unsupported = |flag| matches!(flag, 'x' | 'u' | 'R');
                if rest[2..2 + flags].chars().any(unsupported) && !rest[2..].starts_with("P<") {
                    let group = &rest[..2 + flags.max(1)];
                    return Err(ErrorCode::InvalidPerlOp.at(group));
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
fn repeat(rest: &str) -> Result<Option<u32>, PatternError> {
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
        let count = &rest[..inside.len() + 2];
        return Err(ErrorCode::InvalidRepeatSize.at(count));
    }
    let most = if high.is_empty() { low } else { high };
    Ok(Some(most.parse().unwrap_or(MAX_REPEAT)))
}
