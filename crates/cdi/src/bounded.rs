//! What drivers write is bounded: an entry of a list takes many times as much memory as its text.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Bytes of a spec file.
pub(crate) const FILE: u64 = 16 << 20;
/// Bytes of all files that are read for one container.
pub(crate) const ALL_FILES: u64 = 64 << 20;
/// Files of all directories.
pub(crate) const FILES: usize = 4096;
/// Entries of one list in a file.
const ENTRIES: usize = 16_384;

struct List<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {ENTRIES} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_element()? {
            if all.len() == ENTRIES {
                let text = format!("a list has more than {ENTRIES} entries");
                return Err(A::Error::custom(text));
            }
            all.push(entry);
        }
        Ok(all)
    }
}

/// Reads a list with a bounded number of entries.
pub(crate) fn list<'de, D, T>(list: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    list.deserialize_seq(List(PhantomData))
}
