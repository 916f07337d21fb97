//! Forms of output that commands share: tables, CSV, JSON and YAML.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

/// Text for people, or one value for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For humans
    Text,
    /// One JSON value
    Json,
    /// One YAML document
    Yaml,
}

impl Format {
    /// Prints a value for programs, or calls `text` for humans.
    ///
    /// # Errors
    /// The output is closed.
    pub fn print(
        self,
        out: &mut impl Write,
        value: &impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Text => text(out)?,
            Self::Json => writeln!(out, "{}", serde_json::to_string_pretty(value)?)?,
            Self::Yaml => out.write_all(yaml(&serde_json::to_value(value)?)?.as_bytes())?,
        }
        Ok(())
    }
}

/// A value as a YAML document that ends with a line break.
///
/// # Errors
/// The value has no YAML form.
pub fn yaml(value: &Value) -> io::Result<String> {
    let mut text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Turns JSON values, one a line, into YAML documents. A command that prints many values writes them in one way for both
/// forms.
#[derive(Debug)]
pub struct YamlOfLines<W> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> YamlOfLines<W> {
    /// Documents are written to `out`.
    pub fn new(out: W) -> Self {
        Self {
            out,
            line: Vec::new(),
        }
    }
}

impl<W: Write> Write for YamlOfLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let value: Value = serde_json::from_slice(&self.line)?;
                self.line.clear();
                write!(self.out, "---\n{}", yaml(&value)?)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Standard output for a command that prints JSON values, one a line: as they are, or as YAML documents.
pub fn lines(yaml: bool) -> Box<dyn Write> {
    let out = io::stdout().lock();
    match yaml {
        true => Box::new(YamlOfLines::new(out)),
        false => Box::new(out),
    }
}

/// Standard output for text: what drivers and tenants wrote cannot control the terminal.
pub fn text() -> Printable<io::StdoutLock<'static>> {
    Printable(io::stdout().lock())
}

/// Writes text without characters that control a terminal; line breaks stay.
#[derive(Debug)]
pub struct Printable<W>(W);

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The rest of a character comes with the next call.
        let whole = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) if error.valid_up_to() > 0 => {
                let (valid, _) = bytes.split_at(error.valid_up_to());
                std::str::from_utf8(valid).unwrap_or_default()
            }
            Err(error) => return Err(io::Error::other(error)),
        };
        for line in whole.split_inclusive('\n') {
            let (text, end) = match line.strip_suffix('\n') {
                Some(text) => (text, "\n"),
                None => (line, ""),
            };
            write!(self.0, "{}{end}", printable(text))?;
        }
        Ok(whole.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Text in which characters that control a terminal, or turn the direction of text around, are visible: `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    let controls =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(controls) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::new();
    for c in text.chars() {
        match controls(c) {
            true => safe.extend(c.escape_default()),
            false => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Prints rows as columns; the first row is the headings.
pub fn table(out: &mut impl Write, rows: &[Vec<String>]) -> io::Result<()> {
    let widths = widths(rows);
    for row in rows {
        line(out, row, &widths)?;
    }
    Ok(())
}

/// The width of each column.
pub fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| printable(cell).chars().count())
            .max()
            .unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

/// Prints one row as columns of these widths.
pub fn line(out: &mut impl Write, row: &[String], widths: &[usize]) -> io::Result<()> {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        line += &format!("{:width$}   ", printable(cell));
    }
    writeln!(out, "{}", line.trim_end())
}

/// Prints rows in the format of RFC 4180, with the line ends of this system.
pub fn csv(out: &mut impl Write, rows: &[Vec<String>]) -> io::Result<()> {
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
        writeln!(out, "{}", cells.join(","))?;
    }
    Ok(())
}

fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        vec![row(["A", "LONG"]), row(["x, \"y\"", ""]), row(["z", "1"])]
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut out = Vec::new();
        table(&mut out, &rows()).expect("written");
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(text, "A        LONG\nx, \"y\"\nz        1\n");
    }

    /// A driver's attribute could clear the screen, or look like other lines of the table.
    #[test]
    fn attack_text_does_not_control_the_terminal() {
        let mut out = Vec::new();
        let row = ["a\u{1b}[2Jb\nnode-9".to_owned(), "größe 🚀".to_owned()];
        table(&mut out, &[row.to_vec()]).expect("written");
        writeln!(Printable(&mut out), "\u{9b}31m\r\u{202e}x\nö").expect("written");
        let text = String::from_utf8(out).expect("UTF-8");
        let expected = "a\\u{1b}[2Jb\\nnode-9   größe 🚀\n\\u{9b}31m\\r\\u{202e}x\nö\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn lines_of_json_become_documents() {
        let mut out = YamlOfLines::new(Vec::new());
        for part in ["{\"a\":", "1}\n{\"b\":[true]}\n"] {
            out.write_all(part.as_bytes()).expect("written");
        }
        let text = String::from_utf8(out.out).expect("UTF-8");
        let found: Vec<Value> = serde_saphyr::from_multiple(&text).expect(&text);
        let expected = [
            serde_json::json!({"a": 1}),
            serde_json::json!({"b": [true]}),
        ];
        assert_eq!(found, expected);
        assert_eq!(text.matches("---\n").count(), 2, "{text}");
    }

    #[test]
    fn cells_with_separators_are_quoted() {
        let mut out = Vec::new();
        csv(&mut out, &rows()).expect("written");
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(text, "A,LONG\n\"x, \"\"y\"\"\",\nz,1\n");
    }
}
