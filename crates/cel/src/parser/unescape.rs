//! The value of string and bytes literals.

/// The bytes of a literal (with quotes and `r`, without `b`). The lexer has checked its form.
pub(super) fn unescape(literal: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    let raw = literal.starts_with(['r', 'R']);
    let text = if raw { &literal[1..] } else { literal };
    let quotes = if text.len() >= 6 && (text.starts_with("\"\"\"") || text.starts_with("'''")) {
        3
    } else {
        1
    };
    let text = text
        .get(quotes..text.len().saturating_sub(quotes))
        .ok_or("unable to unescape string")?;
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    if raw || !text.contains('\\') {
        return Ok(text.into_bytes());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let c = chars
            .next()
            .ok_or("unable to unescape string, found '\\' as last character")?;
        let mut number = |digits: usize, radix: u32, start: u32| {
            (0..digits).try_fold(start, |n, _| {
                Some(n * radix + chars.next()?.to_digit(radix)?)
            })
        };
        let code = match c {
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            '\\' | '\'' | '"' | '`' | '?' => Some(c as u32),
            'x' | 'X' => number(2, 16, 0),
            'u' | 'U' if is_bytes => return Err("unable to unescape string"),
            'u' => number(4, 16, 0),
            'U' => number(8, 16, 0),
            '0'..='3' => number(2, 8, c as u32 - '0' as u32),
            _ => None,
        };
        let code = code.ok_or("unable to unescape string")?;
        if is_bytes && !matches!(c, 'u' | 'U') {
            out.push(u8::try_from(code).map_err(|_| "unable to unescape string")?);
        } else {
            let c = char::from_u32(code).ok_or("invalid unicode code point")?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Ok(out)
}
