//! Entry points for the fuzz targets in `fuzz/`. Each must return for any input.

use crate::record::Record;

/// A record in the file's format with a valid checksum: the checksum detects corruption by a disk, but not a record
/// that another program wrote. A record that can be read is written unchanged.
pub fn record(bytes: &[u8]) {
    const REVISION: u64 = 7;
    let _ = Record::decode(REVISION, bytes);
    let mut bytes = bytes.to_vec();
    Record::seal(REVISION, &mut bytes);
    if let Ok(record) = Record::decode(REVISION, &bytes) {
        let written = record.encode();
        let again = Record::decode(REVISION, &written);
        let same = again.is_ok_and(|again| {
            again.collection == record.collection
                && again.deleted == record.deleted
                && again.entry.key == record.entry.key
                && again.entry.value == record.entry.value
        });
        assert!(same, "a record is written otherwise than it was read");
    }
}
