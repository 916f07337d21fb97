//! Files for an archive, and archives with reproducible bytes.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// Files, links and directories by their paths, which have no slash in front.
#[derive(Default)]
pub(super) struct Tree(BTreeMap<String, Entry>);

enum Entry {
    Directory(u32),
    File(u32, Vec<u8>),
}

impl Tree {
    /// Adds a file, and the directories above it.
    pub fn file(&mut self, path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) {
        let path = path.into();
        self.parents(&path);
        self.0.insert(path, Entry::File(mode, content.into()));
    }

    /// Adds a directory, and those above it.
    pub fn directory(&mut self, path: &str, mode: u32) {
        self.parents(path);
        self.0.insert(path.to_owned(), Entry::Directory(mode));
    }

    fn parents(&mut self, path: &str) {
        for (end, _) in path.match_indices('/') {
            let parent = path[..end].to_owned();
            self.0.entry(parent).or_insert(Entry::Directory(0o755));
        }
    }

    /// The files, in order.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().filter_map(|(path, entry)| match entry {
            Entry::File(_, content) => Some((path.as_str(), content.as_slice())),
            Entry::Directory(_) => None,
        })
    }

    /// An archive: sorted, everything owned by root, with one time. `prefix` precedes each path.
    pub fn tar(&self, prefix: &str, time: u64) -> Result<Vec<u8>> {
        let mut builder = Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            let (kind, mode, content) = match entry {
                Entry::Directory(mode) => (EntryType::Directory, *mode, &[][..]),
                Entry::File(mode, content) => (EntryType::Regular, *mode, content.as_slice()),
            };
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(time);
            header.set_size(content.len() as u64);
            let slash = if kind == EntryType::Directory {
                "/"
            } else {
                ""
            };
            builder.append_data(&mut header, format!("{prefix}{path}{slash}"), content)?;
        }
        Ok(builder.into_inner()?)
    }
}

/// Compresses without name and time.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
