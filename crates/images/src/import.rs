//! Images from files: OCI image layouts, as a directory or an archive, and archives of `docker save`.

mod source;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use jiff::Timestamp;
use serde::Deserialize;

use crate::manifest::{
    Descriptor, Document, OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, Platform, select,
};
use crate::reference::is_tag;
use crate::store::{Image, Lease, NewImage, Store};
use crate::{Digest, Error, Reference, Result};
use source::Source;

/// The whole name, as containerd writes it.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// The whole name or a tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Images in one archive.
const MAX_IMAGES: usize = 1000;

#[derive(Deserialize)]
struct LayoutIndex {
    manifests: Vec<Descriptor>,
}

/// One image of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Vec<String>,
}

/// Imports all images of a directory or an archive (plain, gzip or zstd). `name` is the name of an image that has none,
/// or a repository for an image that has only a tag. Images without any name are stored under their digest.
///
/// Every blob is checked against its digest, and every layer is unpacked, before an image gets a name. Nothing is left of an
/// import that fails.
///
/// # Errors
///
/// [`Error::InvalidImage`] if the file is neither form, and everything that a pull can fail with.
pub fn import(
    store: &Store,
    path: &Path,
    name: Option<&Reference>,
    cancel: &AtomicBool,
) -> Result<Vec<Image>> {
    let imported = take(store, path, name, cancel);
    if imported.is_err() {
        store.clear();
    }
    imported
}

fn take(
    store: &Store,
    path: &Path,
    name: Option<&Reference>,
    cancel: &AtomicBool,
) -> Result<Vec<Image>> {
    let mut lease = store.lease()?;
    let source = Source::open(store, path, &mut lease, cancel)?;
    let mut new = Vec::new();
    if let Some(index) = source.read("index.json", store.limits().manifest)? {
        let index: LayoutIndex = parse("index.json", &index)?;
        check_count(index.manifests.len())?;
        for descriptor in index.manifests {
            let names = layout_names(&descriptor, name)?;
            let (target, manifest) = layout_image(store, &source, descriptor, &mut lease)?;
            new.extend(named(names, target, manifest));
        }
    } else if let Some(list) = source.read("manifest.json", store.limits().manifest)? {
        let list: Vec<Saved> = parse("manifest.json", &list)?;
        check_count(list.len())?;
        for saved in list {
            let tags = saved.repo_tags.iter().flatten();
            let mut names = tags
                .map(|tag| key(&Reference::parse(tag)?))
                .collect::<Result<Vec<_>>>()?;
            if names.is_empty() {
                names.extend(name.map(key).transpose()?);
            }
            let target = saved_image(store, &source, &saved, &mut lease)?;
            new.extend(named(names, target.clone(), target.digest));
        }
    } else {
        return Err(Error::InvalidImage(format!(
            "{} is neither an OCI image layout nor an archive of docker save",
            path.display()
        )));
    }
    // Names are set only after everything is verified.
    for new in &new {
        let image = store.inspect(new)?;
        lease.extend(image.config.diff_ids.clone())?;
        store.unpack(&image, cancel)?;
    }
    let now = Timestamp::now();
    new.iter().map(|new| store.add(new, now)).collect()
}

fn key(reference: &Reference) -> Result<String> {
    Ok(reference.clone().with_default_tag().key())
}

fn named(names: Vec<String>, target: Descriptor, manifest: Digest) -> Vec<NewImage> {
    let names = match names.is_empty() {
        true => vec![target.digest.to_string()],
        false => names,
    };
    let image = |name| NewImage {
        name,
        repository: None,
        target: target.clone(),
        manifest: manifest.clone(),
    };
    names.into_iter().map(image).collect()
}

fn layout_names(descriptor: &Descriptor, name: Option<&Reference>) -> Result<Vec<String>> {
    let text = |key: &str| descriptor.annotations.get(key).map(String::as_str);
    if let Some(full) = text(CONTAINERD_NAME) {
        return Ok(vec![key(&Reference::parse(full)?)?]);
    }
    match (text(REF_NAME), name) {
        (Some(tag), Some(name)) if is_tag(tag) && name.tag().is_none() => Ok(vec![key(
            &Reference::parse(&format!("{}:{tag}", name.name()))?,
        )?]),
        (_, Some(name)) => Ok(vec![key(name)?]),
        (Some(full), None) if full.contains(['/', ':']) => Ok(vec![key(&Reference::parse(full)?)?]),
        _ => Ok(Vec::new()),
    }
}

/// Takes the blobs of an image out of a layout; of an index those for this machine.
fn layout_image(
    store: &Store,
    source: &Source,
    target: Descriptor,
    lease: &mut Lease,
) -> Result<(Descriptor, Digest)> {
    let take = |blob: &Descriptor, lease: &mut Lease| {
        lease.extend([blob.digest.clone()])?;
        source.blob(store, blob)
    };
    let document = |blob: &Descriptor, lease: &mut Lease| {
        take(blob, lease)?;
        let content = store.read_blob(&blob.digest, store.limits().manifest)?;
        Document::parse(&content, store.limits())
    };
    let (digest, manifest) = match document(&target, lease)? {
        Document::Image(manifest) => (target.digest.clone(), manifest),
        Document::Index(entries) => {
            let entry = select(&entries, &Platform::host())?.clone();
            match document(&entry, lease)? {
                Document::Image(manifest) => (entry.digest, manifest),
                Document::Index(_) => {
                    return Err(Error::InvalidImage("an index within an index".to_owned()));
                }
            }
        }
    };
    for blob in std::iter::once(&manifest.config).chain(&manifest.layers) {
        take(blob, lease)?;
    }
    let target = Descriptor {
        annotations: Default::default(),
        ..target
    };
    Ok((target, digest))
}

/// Converts the output of `docker save` to an OCI image: its layers are plain archives, and there is no manifest.
fn saved_image(
    store: &Store,
    source: &Source,
    saved: &Saved,
    lease: &mut Lease,
) -> Result<Descriptor> {
    let config = source
        .read(&saved.config, store.limits().config)?
        .ok_or_else(|| Error::InvalidImage(format!("{:?} is missing", saved.config)))?;
    let config_blob = Descriptor::of(OCI_CONFIG, &config);
    lease.extend([config_blob.digest.clone()])?;
    store.put_blob_as(&config, &config_blob.digest)?;
    if saved.layers.len() > store.limits().layers {
        return Err(Error::TooLarge(format!(
            "the image has {} layers",
            saved.layers.len()
        )));
    }
    let layers = saved
        .layers
        .iter()
        .map(|name| source.file(store, name, OCI_LAYER, lease));
    let layers: Vec<Descriptor> = layers.collect::<Result<_>>()?;
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": config_blob,
        "layers": layers,
    });
    let manifest =
        serde_json::to_vec(&manifest).map_err(|error| Error::Internal(error.to_string()))?;
    let target = Descriptor::of(OCI_MANIFEST, &manifest);
    lease.extend([target.digest.clone()])?;
    store.put_blob_as(&manifest, &target.digest)?;
    // Its manifest must satisfy the limits as if it had been pulled.
    Document::parse(&manifest, store.limits())?;
    Ok(target)
}

fn check_count(count: usize) -> Result<()> {
    match count {
        0 => Err(Error::InvalidImage("there is no image in it".to_owned())),
        count if count > MAX_IMAGES => {
            Err(Error::TooLarge(format!("there are {count} images in it")))
        }
        _ => Ok(()),
    }
}

fn parse<T: for<'de> Deserialize<'de>>(name: &str, content: &[u8]) -> Result<T> {
    serde_json::from_slice(content).map_err(|error| Error::InvalidImage(format!("{name}: {error}")))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) mod fixtures;
