//! Removing what neither a name nor a lease needs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::blob::is_at;
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
        let mut doomed = Vec::new();
        let freed = {
            let _lock = self.lock()?;
            self.prune_locked(&mut doomed)
        };
        // A tree may take longer than others wait for the lock. Each is removed, also after an error.
        let removed: Vec<Result<u64>> = doomed.iter().map(|path| remove(path)).collect();
        let mut freed = freed?;
        for bytes in removed {
            freed += bytes?;
        }
        Ok(freed)
    }

    /// Removes files, and moves trees out of the way. The caller holds the lock.
    fn prune_locked(&self, doomed: &mut Vec<PathBuf>) -> Result<u64> {
        let mut needed = self.leased()?;
        for entry in self.index()?.manifests {
            needed.insert(entry.digest.clone());
            match self.load(&entry) {
                Ok(image) => {
                    needed.extend([image.manifest, image.id]);
                    needed.extend(image.config.diff_ids);
                    needed.extend(image.layers.into_iter().map(|layer| layer.digest));
                }
                // What cannot be read now may be readable later.
                Err(error @ Error::Io(..)) => return Err(error),
                // An image with missing or wrong parts is pulled again; the others are not worth keeping.
                Err(_) => {}
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
        self.prune_layers(&needed, doomed)?;
        freed += self.prune_ingest()?;
        self.prune_scratch(doomed)?;
        Ok(freed)
    }

    /// Moves a tree to where it is removed from, as a whole: half a layer may never be taken for one.
    fn doom(&self, from: &Path) -> Result<PathBuf> {
        let to = self.0.scratch.join(super::random_name());
        fs::rename(from, &to).map_err(Error::io(format!("remove {}", from.display())))?;
        Ok(to)
    }

    fn prune_layers(&self, needed: &BTreeSet<Digest>, doomed: &mut Vec<PathBuf>) -> Result<()> {
        let kept: BTreeSet<String> = needed.iter().map(Digest::file_name).collect();
        for name in names(&self.path("layers"))? {
            if !kept.contains(&name) {
                doomed.push(self.doom(&self.path("layers").join(&name))?);
            }
        }
        Ok(())
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
            if age.is_some_and(|age| age > PARTIAL)
                && try_lock(&file, &path)?
                && is_at(&file, &path)
            {
                freed += remove(&path)?;
            }
        }
        Ok(freed)
    }

    fn prune_scratch(&self, doomed: &mut Vec<PathBuf>) -> Result<()> {
        for name in names(&self.path("tmp"))? {
            let path = self.path("tmp").join(name);
            let is_left = match fs::File::open(path.join("lock")) {
                Ok(file) => try_lock(&file, &path)?,
                Err(_) => true,
            };
            if path != self.0.scratch && is_left {
                doomed.push(self.doom(&path)?);
            }
        }
        Ok(())
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
