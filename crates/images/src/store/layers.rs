//! Unpacked layers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::{Image, Store, make_directory, read_file, write_file};
use crate::manifest::Descriptor;
use crate::unpack::{Options, Ownership, Report, Unpacker, Whiteouts};
use crate::{Digest, Error, Limits, Result};

/// The directories of an image's root file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootFs {
    /// For overlayfs' `lowerdir`, the topmost first. They must not be written.
    pub lower: Vec<PathBuf>,
    /// Whether overlayfs must be mounted with `userxattr`, since markers of layers are in the `user.` namespace.
    pub user_xattrs: bool,
}

/// What the layers of an image may still have.
struct Left {
    bytes: u64,
    entries: u64,
}

impl Left {
    fn of(limits: &Limits) -> Self {
        Self {
            bytes: limits.image_unpacked,
            entries: limits.image_entries,
        }
    }

    /// The limits of the next layer.
    fn limits(&self, whole: &Limits) -> Limits {
        let mut limits = whole.clone();
        limits.unpacked = limits.unpacked.min(self.bytes);
        limits.entries = limits.entries.min(self.entries);
        limits
    }

    /// Counts a layer.
    fn take(&mut self, bytes: u64, entries: u64, whole: &Limits) -> Result<()> {
        let left = (
            self.bytes.checked_sub(bytes),
            self.entries.checked_sub(entries),
        );
        let (Some(bytes), Some(entries)) = left else {
            return Err(Error::TooLarge(format!(
                "the image has more than {} bytes or {} files when unpacked",
                whole.image_unpacked, whole.image_entries
            )));
        };
        (self.bytes, self.entries) = (bytes, entries);
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    bytes: u64,
    entries: u64,
    devices: u64,
    xattrs: u64,
    set_ids: u64,
    user_xattrs: bool,
}

impl Store {
    fn options(&self, whiteouts: Whiteouts, limits: Limits) -> Options {
        Options {
            limits,
            ownership: Ownership::of_process(),
            whiteouts,
        }
    }

    /// Unpacks the layers of an image that are not unpacked yet. Each layer's archive is checked against the
    /// configuration's diff id before it can be used.
    ///
    /// # Errors
    ///
    /// What [`Unpacker::layer`] fails with, and [`Error::Corrupt`] for another diff id.
    pub fn unpack(&self, image: &Image, cancel: &AtomicBool) -> Result<RootFs> {
        let mut lower = Vec::new();
        let mut user_xattrs = false;
        let mut left = Left::of(self.limits());
        for (layer, diff_id) in image.layers.iter().zip(&image.config.diff_ids) {
            let stored = match self.stored(diff_id)? {
                Some(stored) => stored,
                None => {
                    let _one = self.0.unpacking.lock();
                    match self.stored(diff_id)? {
                        Some(stored) => stored,
                        None => {
                            let limits = left.limits(self.limits());
                            self.unpack_layer(layer, diff_id, limits, cancel)?
                        }
                    }
                }
            };
            left.take(stored.bytes, stored.entries, self.limits())?;
            user_xattrs |= stored.user_xattrs;
            lower.push(self.layer_path(diff_id).join("fs"));
        }
        lower.reverse();
        Ok(RootFs { lower, user_xattrs })
    }

    /// Unpacks all layers of an image over each other into one empty directory, for file systems without overlayfs.
    ///
    /// # Errors
    ///
    /// As [`Store::unpack`].
    pub fn unpack_merged(
        &self,
        image: &Image,
        target: &Path,
        cancel: &AtomicBool,
    ) -> Result<BTreeMap<Digest, Report>> {
        let parent = target.parent().unwrap_or(Path::new("."));
        // Content that layers replace is moved, so the trash must be on the same file system.
        let trash = tempfile::TempDir::new_in(parent).map_err(Error::io(format!(
            "make a directory in {}",
            parent.display()
        )))?;
        let _one = self.0.unpacking.lock();
        let options = self.options(Whiteouts::Apply, self.limits().clone());
        let mut unpacker = Unpacker::new(target, trash.path(), options, cancel)?;
        let mut reports = BTreeMap::new();
        let mut left = Left::of(self.limits());
        for (layer, diff_id) in image.layers.iter().zip(&image.config.diff_ids) {
            unpacker.limit(left.limits(self.limits()));
            let report = unpacker.layer(self.open_blob(&layer.digest)?)?;
            check(&report, diff_id)?;
            left.take(report.bytes, report.entries, self.limits())?;
            reports.insert(diff_id.clone(), report);
        }
        Ok(reports)
    }

    fn stored(&self, diff_id: &Digest) -> Result<Option<Stored>> {
        let content = read_file(&self.layer_path(diff_id).join("report.json"), 4096)?;
        Ok(content.and_then(|content| serde_json::from_slice(&content).ok()))
    }

    fn unpack_layer(
        &self,
        layer: &Descriptor,
        diff_id: &Digest,
        limits: Limits,
        cancel: &AtomicBool,
    ) -> Result<Stored> {
        let work = self.temporary()?;
        let (whole, trash) = (work.path().join("layer"), work.path().join("trash"));
        let root = whole.join("fs");
        make_directory(&root)?;
        make_directory(&trash)?;
        // Directories without an entry in a layer are open to all users of the container. The store's directory is not.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&root, open).map_err(Error::io(format!("open {}", root.display())))?;
        let options = self.options(Whiteouts::Overlay, limits);
        let mut unpacker = Unpacker::new(&root, &trash, options, cancel)?;
        let report = unpacker.layer(self.open_blob(&layer.digest)?)?;
        check(&report, diff_id)?;
        let stored = Stored {
            bytes: report.bytes,
            entries: report.entries,
            devices: report.devices,
            xattrs: report.xattrs,
            set_ids: report.set_ids,
            user_xattrs: report.user_xattrs,
        };
        let text =
            serde_json::to_vec(&stored).map_err(|error| Error::Internal(error.to_string()))?;
        write_file(&whole.join("report.json"), &text)?;
        let shown = format!("unpack layer {diff_id}");
        let directory = File::open(&whole).map_err(Error::io(shown.clone()))?;
        rustix::fs::syncfs(&directory).map_err(Error::os(shown.clone()))?;
        let target = self.layer_path(diff_id);
        match fs::rename(&whole, &target) {
            Ok(()) => {}
            // Another process was faster.
            Err(_) if self.stored(diff_id)?.is_some() => {}
            Err(error) => return Err(Error::io(shown)(error)),
        }
        File::open(self.path("layers"))
            .and_then(|directory| directory.sync_all())
            .map_err(Error::io(format!("unpack layer {diff_id}")))?;
        Ok(stored)
    }
}

fn check(report: &Report, diff_id: &Digest) -> Result<()> {
    match &report.diff_id {
        Some(actual) if actual == diff_id => Ok(()),
        Some(actual) => Err(Error::Corrupt {
            expected: diff_id.clone(),
            actual: actual.clone(),
        }),
        None => Err(Error::Internal("a layer without a digest".to_owned())),
    }
}
