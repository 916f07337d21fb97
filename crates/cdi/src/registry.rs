//! Looking names up in spec directories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{ContainerEdits, Error, QualifiedName, Spec, bounded};

#[cfg(test)]
mod tests;

/// All specs of a list of directories, as they were when loaded.
#[derive(Debug, Default)]
pub struct Registry {
    specs: Vec<Spec>,
    /// Which spec defines a device.
    devices: BTreeMap<QualifiedName, usize>,
    conflicts: BTreeMap<QualifiedName, Vec<PathBuf>>,
    errors: Vec<Error>,
    /// The number of files that were read, and of their bytes; those of invalid files count as well.
    read: (usize, u64),
}

impl Registry {
    /// Reads all `.json` and `.yaml` files of the directories; later directories have priority. A missing directory
    /// counts as empty. Invalid files are skipped and recorded for [`Registry::errors`].
    pub fn load(directories: &[impl AsRef<Path>]) -> Self {
        let mut registry = Self::default();
        for directory in directories {
            registry.add_directory(directory.as_ref());
        }
        registry
    }

    /// The files that could not be used.
    pub fn errors(&self) -> &[Error] {
        &self.errors
    }

    fn add_directory(&mut self, directory: &Path) {
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(source) => {
                self.errors.push(Error::Io {
                    path: directory.to_owned(),
                    source,
                });
                return;
            }
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| {
            let hidden = path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with('.'));
            !hidden
                && path
                    .extension()
                    .is_some_and(|extension| extension == "json" || extension == "yaml")
        });
        paths.sort();
        let mut here: BTreeMap<QualifiedName, PathBuf> = BTreeMap::new();
        for path in paths {
            if self.read.0 >= bounded::FILES {
                let text = format!("there are more than {} files", bounded::FILES);
                self.errors.push(Error::Io {
                    path: directory.to_owned(),
                    source: std::io::Error::other(text),
                });
                break;
            }
            self.read.0 += 1;
            let spec = match Spec::read_within(&path, &mut self.read.1) {
                Ok(spec) => spec,
                Err(error) => {
                    self.errors.push(error);
                    continue;
                }
            };
            let index = self.specs.len();
            for device in &spec.devices {
                // The kind was validated.
                let Some((vendor, class)) = spec.kind.split_once('/') else {
                    continue;
                };
                let name = QualifiedName {
                    vendor: vendor.to_owned(),
                    class: class.to_owned(),
                    device: device.name.clone(),
                };
                match here.insert(name.clone(), path.clone()) {
                    Some(other) => {
                        self.conflicts
                            .entry(name)
                            .or_insert_with(|| vec![other])
                            .push(path.clone());
                    }
                    None => {
                        self.conflicts.remove(&name);
                        self.devices.insert(name, index);
                    }
                }
            }
            self.specs.push(spec);
        }
    }

    /// Whether one of the devices has an annotation with this value.
    pub fn is_annotated(&self, names: &[impl AsRef<str>], (key, value): (&str, &str)) -> bool {
        let mut names = names.iter().filter_map(|name| name.as_ref().parse().ok());
        names.any(|name: QualifiedName| {
            let spec = self.devices.get(&name).map(|&index| &self.specs[index]);
            let mut devices = spec.into_iter().flat_map(|spec| &spec.devices);
            let device = devices.find(|device| device.name == name.device);
            device
                .and_then(|device| device.annotations.get(key))
                .is_some_and(|it| it == value)
        })
    }

    /// The edits of the names, in their order; edits of a whole spec are included once, before its first device. A name
    /// that is given several times counts once.
    ///
    /// # Errors
    /// [`Error::Unresolvable`] with all names that have no definition, or several of the same priority.
    pub fn resolve(&self, names: &[impl AsRef<str>]) -> Result<ContainerEdits, Error> {
        let mut edits = ContainerEdits::default();
        let (mut seen, mut specs, mut missing) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for name in names {
            let name: QualifiedName = name.as_ref().parse()?;
            if !seen.insert(name.clone()) {
                continue;
            }
            if let Some(paths) = self.conflicts.get(&name) {
                let paths: Vec<String> = paths
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                missing.push(format!("{name} (defined in {})", paths.join(" and ")));
                continue;
            }
            let found = self.devices.get(&name).and_then(|&index| {
                let device = self.specs[index]
                    .devices
                    .iter()
                    .find(|device| device.name == name.device)?;
                Some((index, device))
            });
            let Some((index, device)) = found else {
                missing.push(name.to_string());
                continue;
            };
            if specs.insert(index) {
                edits.append(&self.specs[index].edits);
            }
            edits.append(&device.edits);
        }
        if missing.is_empty() {
            Ok(edits)
        } else {
            Err(Error::Unresolvable(missing))
        }
    }
}
