//! Tables and CSV.

use std::io::{self, Write};

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
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

/// Prints one row as columns of these widths.
pub fn line(out: &mut impl Write, row: &[String], widths: &[usize]) -> io::Result<()> {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        line += &format!("{cell:width$}   ");
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

    #[test]
    fn cells_with_separators_are_quoted() {
        let mut out = Vec::new();
        csv(&mut out, &rows()).expect("written");
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(text, "A,LONG\n\"x, \"\"y\"\"\",\nz,1\n");
    }
}
