//! The Huffman code of RFC 7541, appendix B.
//!
//! The code is canonical: codes of one length are consecutive and ordered by symbol, so the lengths determine it.

use std::sync::LazyLock;

use super::Error;

/// Code length in bits of every byte, and of the end-of-string symbol (256).
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const LONGEST: usize = 30;
const END: u16 = 256;

struct Code {
    /// First code, number of codes and position of the first symbol, by code length.
    lengths: [(u32, u32, usize); LONGEST + 1],
    symbols: Vec<u16>,
}

static CODE: LazyLock<Code> = LazyLock::new(|| {
    let mut symbols: Vec<u16> = (0..=END).collect();
    symbols.sort_by_key(|&symbol| (LENGTHS[usize::from(symbol)], symbol));
    let mut lengths = [(0, 0, 0); LONGEST + 1];
    let (mut code, mut at) = (0u32, 0usize);
    for (bits, entry) in lengths.iter_mut().enumerate().skip(1) {
        code <<= 1;
        let count = LENGTHS
            .iter()
            .filter(|&&length| usize::from(length) == bits)
            .count();
        *entry = (code, count as u32, at);
        code += count as u32;
        at += count;
    }
    Code { lengths, symbols }
});

/// Decodes a whole string.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, Error> {
    let table = &*CODE;
    let mut out = Vec::with_capacity(text.len() * 8 / 5);
    let (mut code, mut bits) = (0u32, 0usize);
    for byte in text {
        for shift in (0..8).rev() {
            code = code << 1 | u32::from(byte >> shift & 1);
            bits += 1;
            let (first, count, at) = table.lengths[bits];
            if code.wrapping_sub(first) < count {
                match table.symbols[at + (code - first) as usize] {
                    END => return Err(Error::BadHuffman),
                    symbol => out.push(symbol as u8),
                }
                (code, bits) = (0, 0);
            } else if bits == LONGEST {
                return Err(Error::BadHuffman);
            }
        }
    }
    // The padding is shorter than a byte and a prefix of the end-of-string code, which is all ones.
    if bits > 7 || code != (1 << bits) - 1 {
        return Err(Error::BadHuffman);
    }
    Ok(out)
}
