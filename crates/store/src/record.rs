//! The form of a change on disk.

use std::sync::Arc;

use bytes::Bytes;

use crate::Entry;

/// First byte of every record; another encoding gets another number.
const VERSION: u8 = 1;
const PUT: u8 = 0;
const DELETE: u8 = 1;
/// version, operation, checksum, length of the collection, length of the key.
const HEADER: usize = 1 + 1 + 4 + 2 + 2;

/// One accepted write.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub collection: Arc<str>,
    pub entry: Arc<Entry>,
    pub deleted: bool,
}

impl Record {
    /// The deletion without the last state, if there is no space for it. Older revisions must not be available any
    /// longer.
    pub fn bare(&self) -> Record {
        let (key, revision) = (self.entry.key.clone(), self.entry.revision);
        Record {
            entry: Arc::new(Entry::new(key, revision, Bytes::new())),
            ..self.clone()
        }
    }

    /// The bytes stored under the revision.
    pub fn encode(&self) -> Vec<u8> {
        let (collection, key, value) = (
            self.collection.as_bytes(),
            self.entry.key.as_bytes(),
            &self.entry.value,
        );
        let mut out = Vec::with_capacity(HEADER + collection.len() + key.len() + value.len());
        out.push(VERSION);
        out.push(if self.deleted { DELETE } else { PUT });
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&length(collection).to_le_bytes());
        out.extend_from_slice(&length(key).to_le_bytes());
        out.extend_from_slice(collection);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
        Self::seal(self.entry.revision, &mut out);
        out
    }

    /// Writes the checksum into bytes that are otherwise complete; input shorter than a header is not changed.
    pub fn seal(revision: u64, bytes: &mut [u8]) {
        if bytes.len() >= HEADER {
            let sum = checksum(revision, bytes);
            bytes[2..6].copy_from_slice(&sum.to_le_bytes());
        }
    }

    /// Decodes the record stored at a revision.
    ///
    /// # Errors
    /// The bytes are damaged, or a newer version of the program wrote them.
    pub fn decode(revision: u64, bytes: &[u8]) -> Result<Record, RecordError> {
        let fail = |fault| RecordError { revision, fault };
        if bytes.len() < HEADER {
            return Err(fail(Fault::Short));
        }
        if bytes[0] != VERSION {
            return Err(fail(Fault::Version));
        }
        let stored = u32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
        if stored != checksum(revision, bytes) {
            return Err(fail(Fault::Checksum));
        }
        let collection_end = HEADER + usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
        let key_end = collection_end + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let text = |range: std::ops::Range<usize>| {
            bytes
                .get(range)
                .and_then(|part| std::str::from_utf8(part).ok())
                .ok_or_else(|| fail(Fault::Key))
        };
        let collection = text(HEADER..collection_end)?.into();
        let key = text(collection_end..key_end)?.into();
        let value = Bytes::copy_from_slice(&bytes[key_end..]);
        Ok(Record {
            collection,
            entry: Arc::new(Entry::new(key, revision, value)),
            deleted: bytes[1] == DELETE,
        })
    }
}

/// Bytes of the log that are not a record of this format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record of revision {revision}: {fault}")]
pub(crate) struct RecordError {
    revision: u64,
    fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error("too short")]
    Short,
    #[error("written by a newer version of this program")]
    Version,
    #[error("checksum does not match")]
    Checksum,
    #[error("bad key")]
    Key,
}

/// Names are shorter than 64 KiB: the writer refuses longer ones.
fn length(part: &[u8]) -> u16 {
    u16::try_from(part.len()).unwrap_or(u16::MAX)
}

/// CRC-32 of the revision and of the bytes of a record without the checksum.
fn checksum(revision: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&revision.to_le_bytes());
    hasher.update(&bytes[..2]);
    hasher.update(&bytes[6..]);
    hasher.finalize()
}
