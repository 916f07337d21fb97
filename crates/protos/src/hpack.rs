//! HPACK (RFC 7541), as much as a relay needs: a complete decoder and an encoder without state.
//!
//! The encoder writes literals that are never indexed and never Huffman-coded, so its output is valid whatever the
//! state of the receiver's dynamic table is.

use std::collections::VecDeque;

mod huffman;
mod table;
#[cfg(test)]
mod tests;

pub use table::STATIC;

/// Default size of the dynamic table (RFC 9113, 6.5.2).
pub const DEFAULT_TABLE_SIZE: usize = 4096;

/// A header block that is not valid HPACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The block ends inside of a field.
    #[error("header block ends inside of a field")]
    Truncated,
    /// An integer does not fit.
    #[error("integer in header block is too large")]
    IntegerOverflow,
    /// An index points to no entry.
    #[error("header index {0} does not exist")]
    BadIndex(usize),
    /// Huffman-coded data with bad padding or with the end-of-string symbol.
    #[error("bad Huffman code")]
    BadHuffman,
    /// A table size update above the limit, or in the middle of a block.
    #[error("bad dynamic table size update")]
    BadSizeUpdate,
    /// The decoded fields exceed the limit.
    #[error("header list is too large")]
    TooLarge,
}

/// A decoded field. Pseudo-headers are fields whose name starts with a colon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Lower-case name.
    pub name: Vec<u8>,
    /// Value, bytes as sent.
    pub value: Vec<u8>,
    /// The sender forbids to add this field to a table.
    pub never_index: bool,
}

/// Decoder with the dynamic table of one connection.
#[derive(Debug)]
pub struct Decoder {
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    size: usize,
    max_size: usize,
    /// Upper bound for `max_size`: what the receiver announced in SETTINGS_HEADER_TABLE_SIZE.
    limit: usize,
    max_list_size: usize,
}

impl Decoder {
    /// A decoder with an empty table. `max_list_size` bounds the sum of name and value lengths of one block, in bytes.
    pub fn new(max_list_size: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            max_size: DEFAULT_TABLE_SIZE,
            limit: DEFAULT_TABLE_SIZE,
            max_list_size,
        }
    }

    /// Decodes a whole header block (HEADERS with its CONTINUATIONs).
    pub fn decode(&mut self, block: &[u8]) -> Result<Vec<Field>, Error> {
        let mut input = Input { rest: block };
        let mut fields = Vec::new();
        let mut total = 0usize;
        while let Some(&first) = input.rest.first() {
            if first & 0xe0 == 0x20 {
                let size = input.integer(5)?;
                if size > self.limit || !fields.is_empty() {
                    return Err(Error::BadSizeUpdate);
                }
                self.max_size = size;
                self.evict(0);
                continue;
            }
            let field = self.field(first, &mut input)?;
            total += field.name.len() + field.value.len();
            if total > self.max_list_size {
                return Err(Error::TooLarge);
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn field(&mut self, first: u8, input: &mut Input<'_>) -> Result<Field, Error> {
        if first & 0x80 != 0 {
            let index = input.integer(7)?;
            let (name, value) = self.entry(index)?;
            return Ok(Field {
                name: name.to_vec(),
                value: value.to_vec(),
                never_index: false,
            });
        }
        let (prefix, store) = if first & 0x40 != 0 {
            (6, true)
        } else {
            (4, false)
        };
        let index = input.integer(prefix)?;
        let name = if index == 0 {
            input.string()?
        } else {
            self.entry(index)?.0.to_vec()
        };
        let value = input.string()?;
        if store {
            self.insert(name.clone(), value.clone());
        }
        Ok(Field {
            name,
            value,
            never_index: !store && first & 0x10 != 0,
        })
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), Error> {
        let at = index.checked_sub(1).ok_or(Error::BadIndex(index))?;
        if let Some((name, value)) = STATIC.get(at) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        match self.entries.get(at - STATIC.len()) {
            Some((name, value)) => Ok((name, value)),
            None => Err(Error::BadIndex(index)),
        }
    }

    fn insert(&mut self, name: Vec<u8>, value: Vec<u8>) {
        let size = name.len() + value.len() + 32;
        self.evict(size);
        if size <= self.max_size {
            self.size += size;
            self.entries.push_front((name, value));
        }
    }

    /// Drops the oldest entries until `room` more bytes fit, or the table is empty.
    fn evict(&mut self, room: usize) {
        while self.size + room > self.max_size {
            let Some((name, value)) = self.entries.pop_back() else {
                return;
            };
            self.size -= name.len() + value.len() + 32;
        }
    }
}

/// Appends `fields` to `out` as literals that touch no table.
pub fn encode(fields: &[Field], out: &mut Vec<u8>) {
    for field in fields {
        out.push(if field.never_index { 0x10 } else { 0x00 });
        for text in [&field.name, &field.value] {
            integer(text.len(), 7, out);
            out.extend_from_slice(text);
        }
    }
}

/// Appends an integer with a prefix of `bits` bits whose other bits are zero.
fn integer(value: usize, bits: u32, out: &mut Vec<u8>) {
    let max = (1usize << bits) - 1;
    if value < max {
        out.push(value as u8);
        return;
    }
    out.push(max as u8);
    let mut rest = value - max;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

struct Input<'a> {
    rest: &'a [u8],
}

impl Input<'_> {
    fn byte(&mut self) -> Result<u8, Error> {
        let (first, rest) = self.rest.split_first().ok_or(Error::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    fn integer(&mut self, bits: u32) -> Result<usize, Error> {
        let max = (1usize << bits) - 1;
        let mut value = usize::from(self.byte()?) & max;
        if value < max {
            return Ok(value);
        }
        // Four more bytes hold 28 bits: far more than any header block that a server accepts.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::IntegerOverflow)
    }

    fn string(&mut self) -> Result<Vec<u8>, Error> {
        let coded = self.rest.first().ok_or(Error::Truncated)? & 0x80 != 0;
        let len = self.integer(7)?;
        if len > self.rest.len() {
            return Err(Error::Truncated);
        }
        let (text, rest) = self.rest.split_at(len);
        self.rest = rest;
        if coded {
            huffman::decode(text)
        } else {
            Ok(text.to_vec())
        }
    }
}
