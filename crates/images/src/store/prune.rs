//! Removing what neither a name nor a lease needs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::{Store, try_lock};
use crate::{Digest, Error, Result};

/// How long a blob that was not completed waits for another pull.
const PARTIAL: Duration = Duration::from_secs(24 * 3600);

impl Store {
    /// Removes what an attempt has left that failed for good: nothing would remove it as long as no image is removed.
    pub(crate) fn clear(&self) {
        if let Err(error) = self.prune() {
            tracing::warn!(%error, "what a failed pull left was not removed");
        }
    }

    /// Removes blobs and layers that no name and no lease needs, and what ended processes left. Returns the bytes that
    /// are free again.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Config`] if the index or a lease cannot be read, in which case nothing is removed.
    pub fn prune(&self) -> Result<u64> {
        let _lock = self.lock()?;
        let mut needed = self.leased()?;
        for entry in self.index()?.manifests {
            needed.insert(entry.digest.clone());
            // An unreadable image is pulled again; its parts are not worth keeping.
            if let Ok(image) = self.load(&entry) {
                needed.extend([image.manifest, image.id]);
                needed.extend(image.config.diff_ids);
                needed.extend(image.layers.into_iter().map(|layer| layer.digest));
            }
        }
        let mut freed = 0;
        for algorithm in names(&self.path("blobs"))? {
            let directory = self.path("blobs").join(&algorithm);
            for hex in names(&directory)? {
                let digest = Digest::parse(&format!("{algorithm}:{hex}"));
                if !digest.is_ok_and(|digest| needed.contains(&digest)) {
                    freed += remove(&directory.join(hex))?;
                }
            }
        }
        freed += self.prune_layers(&needed)?;
        freed += self.prune_ingest()?;
        freed += self.prune_scratch()?;
        Ok(freed)
    }

    fn prune_layers(&self, needed: &BTreeSet<Digest>) -> Result<u64> {
        let mut freed = 0;
        let kept: BTreeSet<String> = needed.iter().map(Digest::file_name).collect();
        for name in names(&self.path("layers"))? {
            if !kept.contains(&name) {
                // First out of the way as a whole: half a layer may never be taken for one.
                let doomed = self.0.scratch.join(super::random_name());
                let from = self.path("layers").join(&name);
                fs::rename(&from, &doomed)
                    .map_err(Error::io(format!("remove {}", from.display())))?;
                freed += remove(&doomed)?;
            }
        }
        Ok(freed)
    }

    fn prune_ingest(&self) -> Result<u64> {
        let mut freed = 0;
        for name in names(&self.path("ingest"))? {
            let path = self.path("ingest").join(name);
            let Ok(file) = fs::File::open(&path) else {
                continue;
            };
            let changed = file.metadata().and_then(|data| data.modified());
            let age = changed
                .ok()
                .and_then(|changed| SystemTime::now().duration_since(changed).ok());
            if age.is_some_and(|age| age > PARTIAL) && try_lock(&file, &path)? {
                freed += remove(&path)?;
            }
        }
        Ok(freed)
    }

    fn prune_scratch(&self) -> Result<u64> {
        let mut freed = 0;
        for name in names(&self.path("tmp"))? {
            let path = self.path("tmp").join(name);
            let is_left = match fs::File::open(path.join("lock")) {
                Ok(file) => try_lock(&file, &path)?,
                Err(_) => true,
            };
            if path != self.0.scratch && is_left {
                freed += remove(&path)?;
            }
        }
        Ok(freed)
    }
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let failed = |error| Error::io(format!("list {}", directory.display()))(error);
    let entries = fs::read_dir(directory).map_err(failed)?;
    let names =
        entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    names.collect::<std::io::Result<_>>().map_err(failed)
}

/// Removes a file or a tree, and returns how many bytes it took on disk.
fn remove(path: &Path) -> Result<u64> {
    let failed = |error| Error::io(format!("remove {}", path.display()))(error);
    let data = fs::symlink_metadata(path).map_err(failed)?;
    if !data.is_dir() {
        fs::remove_file(path).map_err(failed)?;
        return Ok(data.len());
    }
    let size = size(path, 0);
    crate::remove_tree(path).map_err(failed)?;
    Ok(size)
}

/// Bytes of the files of a tree. Layers are limited in depth; deeper files are not counted.
fn size(path: &Path, depth: u32) -> u64 {
    /// As deep as layers may be; the copy of a container can be deeper.
    const DEEPEST: u32 = 256;
    let Ok(entries) = fs::read_dir(path) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() && depth < DEEPEST => size(&entry.path(), depth + 1),
        Ok(data) if data.is_file() => data.len(),
        _ => 0,
    });
    sizes.sum()
}
