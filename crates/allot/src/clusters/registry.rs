//! The clusters of this user, wherever their directories are: one small file for each in `$XDG_STATE_HOME/allot`. It is
//! used by `--all`, and finds clusters in memory. It is only a cache: without a home directory there is none.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use anyhow::Context as _;

use super::record::Record;

/// Limit of records that are read.
const MOST: usize = 1000;

fn directory() -> Option<PathBuf> {
    Some(super::below_home("XDG_STATE_HOME", ".local/state")?.join("clusters"))
}

fn file(record: &Record) -> Option<PathBuf> {
    let process = &record.process;
    Some(directory()?.join(format!("{}-{}.json", process.pid, process.start)))
}

/// Adds or updates a cluster.
pub(super) fn add(record: &Record) -> anyhow::Result<()> {
    let path = file(record).context("no home directory is known")?;
    let directory = path.parent().context("no directory")?;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)?;
    record.write_to(&path)
}

/// Removes a cluster from the registry.
pub(super) fn remove(record: &Record) {
    if let Some(path) = file(record) {
        let _ = std::fs::remove_file(path);
    }
}

/// All known clusters, the oldest first: running ones, and ended ones that left something behind.
#[must_use]
pub fn all() -> Vec<Record> {
    let entries = directory().and_then(|directory| std::fs::read_dir(directory).ok());
    let files = entries.into_iter().flatten().flatten().take(MOST);
    let mut all: Vec<Record> = files
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .filter_map(|path| Record::read(&path))
        .collect();
    all.sort_by_key(|record| record.started);
    all
}
