//! Go's errors for patterns that do not compile.

use super::{ErrorCode, PatternError};

/// Go's error for a pattern that does not compile, as far as it can be determined.
pub(super) fn explain(pattern: &str) -> PatternError {
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
                    return ErrorCode::InvalidCharRange.at(&format!("{low}-{high}"));
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
                    return ErrorCode::UnexpectedParen.at(pattern);
                }
            }
            '{' => {
                if let Some((inside, _)) = rest[1..].split_once('}')
                    && let Some((low, high)) = inside.split_once(',')
                    && let (Ok(low), Ok(high)) = (low.parse::<u32>(), high.parse::<u32>())
                    && low > high
                {
                    return ErrorCode::InvalidRepeatSize.at(&format!("{{{inside}}}"));
                }
            }
            '*' | '+' | '?' => {
                if matches!(pattern[..at].chars().next_back(), None | Some('(' | '|')) {
                    return ErrorCode::MissingRepeatArgument.at(&c.to_string());
                }
                if let Some(start) = last_repeat
                    && nested_repetition(&pattern[..at], c)
                {
                    return ErrorCode::InvalidRepeatOp.at(&pattern[start..=at]);
                }
                repeat = last_repeat.or(Some(at));
            }
            _ => {}
        }
        last_repeat = repeat;
    }
    if let Some(start) = class_start {
        return ErrorCode::MissingBracket.at(&pattern[start..]);
    }
    if depth > 0 {
        return ErrorCode::MissingParen.at(pattern);
    }
    ErrorCode::InvalidPerlOp.at(pattern)
}

/// Whether a repetition is repeated; only `?` may follow one, to make it lazy.
pub(super) fn nested_repetition(before: &str, operator: char) -> bool {
    let mut back = before.chars().rev();
    match (back.next(), back.next()) {
        (Some('*' | '+' | '?'), escaped) if escaped != Some('\\') => {
            let lazy = before.ends_with("*?") || before.ends_with("+?") || before.ends_with("??");
            operator != '?' || lazy
        }
        _ => false,
    }
}

fn bad_escape(rest: &str, escaped: Option<char>) -> Option<PatternError> {
    match escaped? {
        'p' | 'P' => {
            let name = rest.find('}').map_or(rest, |end| &rest[..=end]);
            let known = ::regex::Regex::new(name).is_ok();
            (!known).then(|| ErrorCode::InvalidCharRange.at(name))
        }
        c if c.is_ascii_alphanumeric() && !"aftnrvdDsSwWbBAzQECx0".contains(c) => {
            Some(ErrorCode::InvalidEscape.at(&format!("\\{c}")))
        }
        _ => None,
    }
}

fn bad_group(rest: &str) -> Option<PatternError> {
    let inside = rest.strip_prefix("(?")?;
    if inside.starts_with("P<") {
        return (!inside.contains('>')).then(|| ErrorCode::InvalidNamedCapture.at(rest));
    }
    let flags = inside
        .chars()
        .take_while(|c| matches!(c, 'i' | 'm' | 's' | 'U' | '-'))
        .count();
    match inside[flags..].chars().next() {
        Some(':' | ')' | '<') => None,
        next => {
            let flags = &inside[..flags];
            let part = format!("(?{flags}{}", next.unwrap_or(' '));
            Some(ErrorCode::InvalidPerlOp.at(&part))
        }
    }
}
