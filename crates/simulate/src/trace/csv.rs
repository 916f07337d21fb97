//! Tables of comma-separated values (RFC 4180).

use super::Table;

/// Reads a table with a header. Empty lines are left out; short rows lack their last cells.
///
/// # Errors
/// There is no header, a row has more cells than that, or a quotation does not end.
pub fn read(text: &str) -> anyhow::Result<Table> {
    let mut rows = Vec::new();
    let (mut row, mut cell) = (Vec::new(), String::new());
    let (mut quoted, mut was_quoted) = (false, false);
    let mut letters = text.trim_start_matches('\u{feff}').chars().peekable();
    let mut finish = |row: &mut Vec<String>| {
        let row = std::mem::take(row);
        if row.iter().any(|cell| !cell.is_empty()) {
            rows.push(row);
        }
    };
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' if quoted => quoted = false,
            '"' if cell.is_empty() && !was_quoted => (quoted, was_quoted) = (true, true),
            ',' if !quoted => {
                row.push(std::mem::take(&mut cell));
                was_quoted = false;
            }
            '\r' if !quoted && letters.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                row.push(std::mem::take(&mut cell));
                was_quoted = false;
                finish(&mut row);
            }
            other => cell.push(other),
        }
    }
    anyhow::ensure!(!quoted, "a quotation does not end");
    row.push(cell);
    finish(&mut row);
    let mut rows = rows.into_iter();
    let header: Vec<String> = match rows.next() {
        Some(header) => header.iter().map(|name| name.trim().to_owned()).collect(),
        None => anyhow::bail!("the table has no header"),
    };
    let rows: Vec<Vec<String>> = rows.collect();
    if let Some(at) = rows.iter().position(|row| row.len() > header.len()) {
        anyhow::bail!(
            "row {} of the table has {} cells, and the header {}",
            at + 1,
            rows[at].len(),
            header.len()
        );
    }
    Ok((header, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_may_be_quoted() {
        let (header, rows) = read("a,b\r\n1,\"x, \"\"y\"\"\"\n\n2\n").expect("a table");
        assert_eq!(header, ["a", "b"]);
        assert_eq!(rows, [vec!["1", "x, \"y\""], vec!["2"]]);
    }

    #[test]
    fn broken_tables_are_refused() {
        for wrong in ["", "\n\n", "a\n\"x", "a\n1,2"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
