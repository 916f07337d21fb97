//! Files of the driver: CDI specs, and the files in its own directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use allot_cdi::{Registry, Spec};

use super::World;
use crate::case::{Stop, ensure, skip};
use crate::kubelet::{ClaimRef, Device};

impl World {
    /// Whether containers could be started with the devices of an answer.
    pub(crate) fn resolves(&self, devices: &[Device]) -> Result<(), Stop> {
        let ids: Vec<&String> = devices.iter().flat_map(|device| &device.cdi).collect();
        let registry = Registry::load(&[&self.places.cdi]);
        if let Err(error) = registry.resolve(&ids) {
            let broken: Vec<String> = registry.errors().iter().map(ToString::to_string).collect();
            let broken = if broken.is_empty() {
                String::new()
            } else {
                format!(" ({})", broken.join("; "))
            };
            return Err(Stop::Fail(format!("{error}{broken}")));
        }
        Ok(())
    }

    /// Skips a case about CDI for a driver without CDI devices.
    pub(crate) fn needs_cdi(&self, devices: &[Device]) -> Result<(), Stop> {
        match devices.iter().all(|device| device.cdi.is_empty()) {
            true => skip("the driver answers without CDI devices"),
            false => Ok(()),
        }
    }

    /// The CDI files.
    pub(crate) fn cdi_files(&self) -> BTreeSet<PathBuf> {
        let files = walk(&self.places.cdi).into_iter();
        files.filter(|path| is_spec(path)).collect()
    }

    /// Names of all CDI devices; unreadable files are skipped.
    pub(crate) fn cdi_devices(&self) -> BTreeSet<String> {
        let specs = self
            .cdi_files()
            .into_iter()
            .filter_map(|path| Spec::read(&path).ok());
        specs
            .flat_map(|spec| {
                let kind = spec.kind.clone();
                spec.devices
                    .into_iter()
                    .map(move |device| format!("{kind}={}", device.name))
            })
            .collect()
    }

    /// Fails if the CDI directory still has anything of a claim.
    pub(crate) fn is_clean(&self, claim: &ClaimRef, before: &BTreeSet<String>) -> Result<(), Stop> {
        let left: Vec<String> = self.cdi_devices().difference(before).cloned().collect();
        ensure!(left.is_empty(), "CDI devices are left: {}", left.join(", "));
        for path in walk(&self.places.cdi) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let content = std::fs::read_to_string(&path).unwrap_or_default();
            let left = name.contains(&claim.uid) || content.contains(&claim.uid);
            ensure!(!left, "{name} still has the unprepared claim");
        }
        Ok(())
    }

    /// Removes all files of the CDI directory, as a reboot does.
    pub(crate) fn wipe_cdi(&self) {
        for path in walk(&self.places.cdi) {
            // The driver may have removed it meanwhile.
            let _ = std::fs::remove_file(path);
        }
    }

    /// The driver's regular files, without CDI files.
    pub(crate) fn state_files(&self) -> Vec<PathBuf> {
        let mut files = walk(&self.places.plugins);
        if self.options.is_command() {
            files.extend(walk(&self.places.scratch));
        }
        files.retain(|path| !path.starts_with(&self.places.cdi));
        files
    }
}

/// What a runtime reads.
pub(crate) fn is_spec(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let known = path
        .extension()
        .is_some_and(|extension| extension == "json" || extension == "yaml");
    known && !name.starts_with('.')
}

/// All regular files below a directory, sorted.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let (mut files, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}
