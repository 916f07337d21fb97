//! Names of images, and their targets.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Store, read_json, write_json};
use crate::manifest::{Descriptor, Document, Manifest, OCI_INDEX, Platform, select};
use crate::{Digest, Error, ImageConfig, Reference, Result};

const NAME: &str = "org.opencontainers.image.ref.name";
const MANIFEST: &str = "allot.dev/manifest";
const PULLED: &str = "allot.dev/pulled";
const REPOSITORY: &str = "allot.dev/repository";

/// An image of the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// The name that it was found by, `DOMAIN/PATH:TAG` or `DOMAIN/PATH@DIGEST`.
    pub name: String,
    /// The repository that it was pulled from; absent for images that were imported.
    pub repository: Option<String>,
    /// The target of the name: an index or a manifest.
    pub target: Digest,
    /// The manifest for this machine.
    pub manifest: Digest,
    /// The digest of the configuration, which is the image's id.
    pub id: Digest,
    /// Bytes as they were sent.
    pub size: u64,
    /// When it was added to the store.
    pub pulled: Timestamp,
    /// The layers as they were sent, the lowest first.
    pub layers: Vec<Descriptor>,
    /// The runtime configuration of the image.
    pub config: ImageConfig,
}

impl Image {
    /// What `status.containerStatuses[].imageID` is: `REPOSITORY@DIGEST`, or the image's id if it was never pulled.
    pub fn image_id(&self) -> String {
        match &self.repository {
            Some(repository) => format!("{repository}@{}", self.target),
            None => self.id.to_string(),
        }
    }
}

/// A name for an image in the store.
#[derive(Clone, Debug)]
pub struct NewImage {
    /// The name, [`Reference::key`] or a digest alone.
    pub name: String,
    /// The repository that it was pulled from, if a registry confirmed it.
    pub repository: Option<String>,
    /// The index or the manifest.
    pub target: Descriptor,
    /// The manifest for this machine.
    pub manifest: Digest,
}

impl NewImage {
    fn entry(&self, now: Timestamp) -> Descriptor {
        let mut entry = self.target.clone();
        entry.annotations = BTreeMap::from([
            (NAME.to_owned(), self.name.clone()),
            (MANIFEST.to_owned(), self.manifest.to_string()),
            (PULLED.to_owned(), now.to_string()),
        ]);
        if let Some(repository) = &self.repository {
            entry
                .annotations
                .insert(REPOSITORY.to_owned(), repository.clone());
        }
        entry
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    pub(super) manifests: Vec<Descriptor>,
}

impl Store {
    pub(super) fn index(&self) -> Result<Index> {
        read_json(&self.path("index.json"))
    }

    pub(super) fn write_index(&self, mut index: Index) -> Result<()> {
        index.schema_version = 2;
        index.media_type = OCI_INDEX.to_owned();
        write_json(&self.path("index.json"), &index)
    }

    /// Adds a name for an image in the store. An existing name is moved.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], or [`Error::NotFound`] if a part of the image is not in the store: a named image is complete.
    pub fn add(&self, new: &NewImage, now: Timestamp) -> Result<Image> {
        let entry = new.entry(now);
        let _lock = self.lock()?;
        let image = self.complete(&entry)?;
        let mut index = self.index()?;
        index
            .manifests
            .retain(|known| known.annotations.get(NAME) != Some(&new.name));
        index.manifests.push(entry);
        self.write_index(index)?;
        Ok(image)
    }

    /// What [`Store::add`] would add.
    ///
    /// # Errors
    ///
    /// As [`Store::add`].
    pub fn inspect(&self, new: &NewImage) -> Result<Image> {
        self.complete(&new.entry(Timestamp::UNIX_EPOCH))
    }

    fn complete(&self, entry: &Descriptor) -> Result<Image> {
        let image = self.load(entry)?;
        match image
            .layers
            .iter()
            .find(|layer| !self.has_blob(&layer.digest))
        {
            Some(layer) => Err(Error::NotFound(format!("layer {}", layer.digest))),
            None => Ok(image),
        }
    }

    /// All names, sorted, with their images. A name whose image cannot be read is left out: it will be pulled again.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], or [`Error::Config`] for an index that is none.
    pub fn list(&self) -> Result<Vec<Image>> {
        let index = self.index()?;
        let mut images: Vec<Image> = index
            .manifests
            .iter()
            .filter_map(|entry| self.load(entry).ok())
            .collect();
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// Finds an image by its name. A digest finds the image also if it was pulled by a tag of the same repository.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], or [`Error::Config`] for an index that is none.
    pub fn find(&self, reference: &Reference) -> Result<Option<Image>> {
        let key = reference.clone().with_default_tag().key();
        let name = reference.name();
        let index = self.index()?;
        let named = |entry: &&Descriptor| entry.annotations.get(NAME) == Some(&key);
        let same = |entry: &&Descriptor| {
            let Some(digest) = reference.digest() else {
                return false;
            };
            let manifest = entry.annotations.get(MANIFEST).map(String::as_str);
            entry.annotations.get(REPOSITORY) == Some(&name)
                && (entry.digest == *digest || manifest == Some(digest.as_str()))
        };
        let entries = index.manifests.iter();
        let found = entries
            .clone()
            .find(named)
            .or_else(|| entries.clone().find(same));
        let Some(entry) = found else { return Ok(None) };
        let Ok(mut image) = self.load(entry) else {
            return Ok(None);
        };
        let complete = image
            .layers
            .iter()
            .all(|layer| self.has_blob(&layer.digest));
        image.name = key;
        Ok(complete.then_some(image))
    }

    /// Removes a name, or all names of an image given by its id or digest, and then unused content.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such name, [`Error::Io`].
    pub fn remove(&self, name: &str) -> Result<Removed> {
        let key = match Reference::parse(name) {
            Ok(reference) => reference.with_default_tag().key(),
            Err(_) => name.to_owned(),
        };
        let digest = Digest::parse(name).ok();
        let names = {
            let _lock = self.lock()?;
            let mut index = self.index()?;
            let mut names = Vec::new();
            index.manifests.retain(|entry| {
                let known = entry.annotations.get(NAME).cloned().unwrap_or_default();
                let image = digest.is_some().then(|| self.load(entry).ok()).flatten();
                let is_image = image.is_some_and(|image| {
                    let digest = digest.as_ref();
                    [&image.id, &image.target, &image.manifest]
                        .iter()
                        .any(|own| Some(*own) == digest)
                });
                let remove = known == key || known == name || is_image;
                if remove {
                    names.push(known);
                }
                !remove
            });
            if names.is_empty() {
                return Err(Error::NotFound(format!("image {name:?}")));
            }
            self.write_index(index)?;
            names
        };
        let freed = self.prune()?;
        Ok(Removed { names, freed })
    }

    /// Reads the image of an index entry.
    pub(super) fn load(&self, entry: &Descriptor) -> Result<Image> {
        let text = |name: &str| entry.annotations.get(name).map(String::as_str);
        let manifest_digest = match text(MANIFEST) {
            Some(digest) => Digest::parse(digest)?,
            None => entry.digest.clone(),
        };
        let (manifest_digest, manifest) = self.manifest(&manifest_digest)?;
        let config = self.read_blob(&manifest.config.digest, self.limits().config)?;
        let config = ImageConfig::parse(&config, self.limits())?;
        if config.diff_ids.len() != manifest.layers.len() {
            return Err(Error::InvalidImage(format!(
                "the manifest has {} layers, the configuration {}",
                manifest.layers.len(),
                config.diff_ids.len()
            )));
        }
        Ok(Image {
            name: text(NAME).unwrap_or_default().to_owned(),
            repository: text(REPOSITORY).map(str::to_owned),
            target: entry.digest.clone(),
            manifest: manifest_digest,
            id: manifest.config.digest.clone(),
            size: manifest.size(),
            pulled: text(PULLED)
                .and_then(|time| time.parse().ok())
                .unwrap_or_default(),
            layers: manifest.layers,
            config,
        })
    }

    /// The manifest at a digest; of an index that for this machine.
    pub(crate) fn manifest(&self, digest: &Digest) -> Result<(Digest, Manifest)> {
        let document = |digest: &Digest| {
            let content = self.read_blob(digest, self.limits().manifest)?;
            Document::parse(&content, self.limits())
        };
        match document(digest)? {
            Document::Image(manifest) => Ok((digest.clone(), manifest)),
            Document::Index(entries) => {
                let entry = select(&entries, &Platform::host())?;
                match document(&entry.digest)? {
                    Document::Image(manifest) => Ok((entry.digest.clone(), manifest)),
                    Document::Index(_) => {
                        Err(Error::InvalidImage("an index within an index".to_owned()))
                    }
                }
            }
        }
    }
}

/// What [`Store::remove`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The removed names.
    pub names: Vec<String>,
    /// Freed bytes; 0 if other images or containers need the content.
    pub freed: u64,
}
