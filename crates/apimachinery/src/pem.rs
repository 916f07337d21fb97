//! Blocks of PEM as Go reads and writes them: text between blocks is skipped, and so is what is no block.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// A block.
#[derive(Debug, PartialEq)]
pub struct Block {
    /// What stands after `BEGIN`.
    pub label: String,
    /// There are lines `key: value` before the data.
    pub has_headers: bool,
    /// What is encoded in it.
    pub data: Vec<u8>,
}

/// All blocks of a text.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut begun: Option<(&str, Vec<&str>)> = None;
    for line in text.lines().map(str::trim_end) {
        // A block that begins before the last one has ended replaces it.
        if let Some(label) = label(line, BEGIN) {
            begun = Some((label, Vec::new()));
        } else if let Some(end) = label(line, END) {
            let ended = begun.take().filter(|(label, _)| *label == end);
            blocks.extend(ended.and_then(|(label, lines)| block(label, &lines)));
        } else if let Some((_, lines)) = &mut begun {
            lines.push(line);
        }
    }
    blocks
}

/// A block with data, in lines of 64 characters.
pub fn encode(label: &str, data: &[u8]) -> String {
    let text = STANDARD.encode(data);
    let mut block = format!("{BEGIN}{label}{DASHES}\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        block.push_str(line);
        block.push('\n');
        rest = more;
    }
    block.push_str(&format!("{END}{label}{DASHES}\n"));
    block
}

fn label<'a>(line: &'a str, begin: &str) -> Option<&'a str> {
    line.strip_prefix(begin)?.strip_suffix(DASHES)
}

fn block(label: &str, lines: &[&str]) -> Option<Block> {
    let headers = lines.iter().take_while(|line| line.contains(':')).count();
    let data: String = lines[headers..]
        .iter()
        .flat_map(|line| line.chars())
        .filter(|it| !matches!(it, ' ' | '\t'))
        .collect();
    Some(Block {
        label: label.to_owned(),
        has_headers: headers > 0,
        data: STANDARD.decode(data).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_block_is_skipped() {
        let text = "text\n-----BEGIN A-----\nYQ==\n-----END A-----\nmore\n-----BEGIN B-----\n-----BEGIN C-----\n\
                    key: value\n\n YW \tJj \n-----END C-----\n-----BEGIN D-----\nYQ==\n-----END E-----\n\
                    -----BEGIN F-----\n?\n-----END F-----\n-----BEGIN G-----\r\nYWI=\r\n-----END G-----\r\n-----BEGIN H-----\n";
        let found: Vec<(String, bool, Vec<u8>)> = blocks(text)
            .into_iter()
            .map(|it| (it.label, it.has_headers, it.data))
            .collect();
        let block = |label: &str, headers, data: &[u8]| (label.to_owned(), headers, data.to_vec());
        assert_eq!(
            found,
            [
                block("A", false, b"a"),
                block("C", true, b"abc"),
                block("G", false, b"ab")
            ]
        );
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(encode("A", b""), "-----BEGIN A-----\n-----END A-----\n");
        for length in [1, 47, 48, 49, 1000] {
            let data: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let text = encode("SOME KIND", &data);
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            let block = Block {
                label: "SOME KIND".to_owned(),
                has_headers: false,
                data,
            };
            assert_eq!(blocks(&text), [block]);
        }
    }

    /// The attack: many beginnings without an end, each of which could be looked for an end.
    #[test]
    fn beginnings_without_an_end_are_read_once() {
        assert!(blocks(&"-----BEGIN A-----\n".repeat(60_000)).is_empty());
    }
}
