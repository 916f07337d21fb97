//! What may not be removed although it has no name: parts of images that containers run on, and of those being pulled.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;

use super::{Image, Store, create, random_name, read_file, try_lock, write_file};
use crate::{Digest, Error, Result};

/// Prefix of leases that end with the process.
const PULL: &str = "pull-";
const USE: &str = "use-";
const MAX_LEASE: u64 = 1 << 20;

/// Keeps blobs during a pull. It ends when it is dropped, and with the process.
pub struct Lease {
    path: PathBuf,
    _lock: File,
    digests: BTreeSet<Digest>,
    store: Store,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a text can name a lease: letters, digits, `.`, `_` and `-`, at most 200.
pub fn is_lease_name(name: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= 200 && name.bytes().all(valid)
}

impl Lease {
    /// The store that the lease is of.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Keeps more blobs.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn extend(&mut self, digests: impl IntoIterator<Item = Digest>) -> Result<()> {
        self.digests.extend(digests);
        let text = serde_json::to_vec(&self.digests)
            .map_err(|error| Error::Internal(error.to_string()))?;
        let _lock = self.store.lock()?;
        // In place: the lock is on this very file.
        fs::write(&self.path, text).map_err(Error::io(format!("write {}", self.path.display())))
    }
}

impl Store {
    /// Starts to keep blobs that are about to be pulled.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn lease(&self) -> Result<Lease> {
        let _lock = self.lock()?;
        let path = self.path("leases").join(format!("{PULL}{}", random_name()));
        let file = create(&path)?;
        try_lock(&file, &path)?;
        Ok(Lease {
            path,
            _lock: file,
            digests: BTreeSet::new(),
            store: self.clone(),
        })
    }

    /// Keeps an image for as long as something of this name runs, also across restarts. The image may lose its names.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a name that [`is_lease_name`] does not accept, [`Error::Io`].
    pub fn hold(&self, name: &str, image: &Image) -> Result<()> {
        self.hold_all(name, std::iter::once(image))
    }

    /// As [`Store::hold`], for several images at once: a container may have volumes that are images, too.
    ///
    /// # Errors
    ///
    /// As [`Store::hold`].
    pub fn hold_all<'a>(
        &self,
        name: &str,
        images: impl IntoIterator<Item = &'a Image>,
    ) -> Result<()> {
        if !is_lease_name(name) {
            return Err(Error::Config(format!(
                "{name:?} can not be the name of a lease"
            )));
        }
        let mut digests: BTreeSet<&Digest> = BTreeSet::new();
        for image in images {
            digests.extend([&image.target, &image.manifest, &image.id]);
            digests.extend(&image.config.diff_ids);
            digests.extend(image.layers.iter().map(|layer| &layer.digest));
        }
        let text =
            serde_json::to_vec(&digests).map_err(|error| Error::Internal(error.to_string()))?;
        let _lock = self.lock()?;
        write_file(&self.path("leases").join(format!("{USE}{name}")), &text)
    }

    /// Ends what [`Store::hold`] began. It is no error if it has ended already.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn release(&self, name: &str) -> Result<()> {
        if !is_lease_name(name) {
            return Ok(());
        }
        let path = self.path("leases").join(format!("{USE}{name}"));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {}", path.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// The names that [`Store::hold`] was called with, for a restart to release those that do not run any longer.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn held(&self) -> Result<Vec<String>> {
        let names = self.lease_names()?.into_iter();
        let mut held: Vec<String> = names
            .filter_map(|name| name.strip_prefix(USE).map(str::to_owned))
            .collect();
        held.sort();
        Ok(held)
    }

    /// The digests of everything that is held or being pulled, among them the ids of images in use.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], or [`Error::Config`] for a lease that cannot be read.
    pub fn in_use(&self) -> Result<BTreeSet<Digest>> {
        let _lock = self.lock()?;
        self.leased()
    }

    fn lease_names(&self) -> Result<Vec<String>> {
        let directory = self.path("leases");
        let failed = |error| Error::io(format!("list {}", directory.display()))(error);
        let entries = fs::read_dir(&directory).map_err(failed)?;
        let names = entries
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        names.collect::<std::io::Result<_>>().map_err(failed)
    }

    /// Everything that a lease names. Leases of processes that have ended are removed. The caller holds the lock.
    pub(super) fn leased(&self) -> Result<BTreeSet<Digest>> {
        let mut digests = BTreeSet::new();
        for name in self.lease_names()? {
            let path = self.path("leases").join(&name);
            if name.starts_with(PULL) {
                match File::open(&path) {
                    Ok(file) if try_lock(&file, &path)? => {
                        let _ = fs::remove_file(&path);
                        continue;
                    }
                    Ok(_) => {}
                    Err(_) => continue,
                }
            } else if !name.starts_with(USE) {
                continue;
            }
            // A lease that cannot be read does not protect anything: fail instead.
            let content = read_file(&path, MAX_LEASE)?.unwrap_or_default();
            if content.is_empty() {
                continue;
            }
            let listed: BTreeSet<Digest> = serde_json::from_slice(&content)
                .map_err(|error| Error::Config(format!("{}: {error}", path.display())))?;
            digests.extend(listed);
        }
        Ok(digests)
    }
}
