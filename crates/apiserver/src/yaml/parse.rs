//! YAML as upstream's parser reads it: a port of libyaml (go-yaml v2), with its errors. What the events mean is in
//! [`super::build`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use libyaml_safer::{ErrorKind, Event, EventData, Parser, ScalarStyle};

use super::build::{Document, Reader};

#[cfg(test)]
mod tests;

/// Directives before a document: each is compared with all others.
const MAX_DIRECTIVES: usize = 64;

/// Reads the first document of a text.
///
/// # Errors
/// Upstream's texts.
pub(super) fn parse(text: &[u8]) -> Result<Document, String> {
    if text
        .split(|byte| *byte == b'\n')
        .filter(|line| line.starts_with(b"%"))
        .nth(MAX_DIRECTIVES)
        .is_some()
    {
        return Err(format!("yaml: more than {MAX_DIRECTIVES} directives"));
    }
    let mut line = 0;
    if let Some(ended) = with_line_break(text) {
        let events = AssertUnwindSafe(|| read(&ended, Some(ended.len()), &mut line));
        if let Ok(Ok(document)) = catch_unwind(events) {
            return Ok(document);
        }
        // Errors are those of the text as it was sent.
        line = 0;
    }
    let events = AssertUnwindSafe(|| read(text, None, &mut line));
    catch_unwind(events).unwrap_or_else(|_| Err(unreadable_tag(line)))
}

/// The text with a line break, if its last line can be that of a block scalar (`|`, `>`) and has none: the library panics
/// at the end of such a text.
fn with_line_break(text: &[u8]) -> Option<Vec<u8>> {
    // Other line breaks of YAML: next line, line separator, paragraph separator.
    let others = ["\u{85}", "\u{2028}", "\u{2029}"];
    let last = text.rsplit(|byte| matches!(byte, b'\n' | b'\r')).next()?;
    if !text.iter().any(|byte| matches!(byte, b'|' | b'>'))
        || last.iter().all(|byte| matches!(byte, b' ' | b'\t'))
        || others.iter().any(|it| text.ends_with(it.as_bytes()))
    {
        return None;
    }
    Some([text, b"\n"].concat())
}

/// Takes the line break of [`with_line_break`] from the scalar that it was added to. As in libyaml, the last line then
/// has none, also where the scalar keeps those that it has.
fn without_line_break(event: &mut Event, text: &[u8], end: usize) {
    let at = usize::try_from(event.end_mark.index).unwrap_or(usize::MAX);
    let mark = if text.starts_with("\u{feff}".as_bytes()) {
        "\u{feff}".len()
    } else {
        0
    };
    if let EventData::Scalar {
        value,
        style: ScalarStyle::Literal | ScalarStyle::Folded,
        ..
    } = &mut event.data
        && (at == end || at + mark == end)
        && value.ends_with('\n')
    {
        value.pop();
    }
}

/// Reads the events of a document; `line` is that of the last one, from zero. `added` is the length of a text with an
/// added line break.
fn read(sent: &[u8], added: Option<usize>, line: &mut u64) -> Result<Document, String> {
    let mut text = sent;
    let mut parser = Parser::new();
    parser.set_input(&mut text);
    let mut reader = Reader::default();
    loop {
        let mut event = parser.parse().map_err(|error| syntax(&error))?;
        if let Some(end) = added {
            without_line_break(&mut event, sent, end);
        }
        *line = event.end_mark.line;
        if reader.take(event).map_err(|why| format!("yaml: {why}"))? {
            return reader.finish();
        }
    }
}

/// The error of a tag that a comma follows. The library panics there; the other place that is known is avoided by
/// [`with_line_break`].
fn unreadable_tag(line: u64) -> String {
    let place = match line {
        0 => String::new(),
        line => format!("line {}: ", line + 1),
    };
    format!("yaml: {place}did not find expected whitespace or line break")
}

/// An error of the parser with the line that upstream finds it in: often the one before.
fn syntax(error: &libyaml_safer::Error) -> String {
    let line = |mark: Option<libyaml_safer::Mark>| mark.map_or(0, |mark| mark.line);
    let problem = line(error.problem_mark());
    let line = match error.kind() {
        ErrorKind::Scanner if problem > 0 => problem + 1,
        _ if problem > 0 => problem,
        _ => line(error.context_mark()),
    };
    let place = match line {
        0 => String::new(),
        line => format!("line {line}: "),
    };
    format!("yaml: {place}{}", error.problem())
}
