//! Layouts and archives for tests.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::Digest;
use crate::fixtures::{Built, Layer};
use crate::manifest::Descriptor;

/// Writes an OCI layout with one image, with its reference as an annotation.
pub(crate) fn layout(directory: &Path, image: &Built, ref_name: &str) -> PathBuf {
    let root = directory.join(format!("layout-{}", image.digest().hex()));
    let blobs = root.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(root.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    for blob in image.blobs.iter().chain([&image.manifest]) {
        std::fs::write(blobs.join(Digest::of(blob).hex()), blob).unwrap();
    }
    let mut descriptor = Descriptor::of(image.media_type, &image.manifest);
    let annotation = (
        "org.opencontainers.image.ref.name".to_owned(),
        ref_name.to_owned(),
    );
    descriptor.annotations.extend([annotation]);
    let index = json!({"schemaVersion": 2, "manifests": [descriptor]});
    std::fs::write(root.join("index.json"), index.to_string()).unwrap();
    root
}

/// The same as an archive.
pub(crate) fn archive(layout: &Path) -> Vec<u8> {
    let read = |name: &str| std::fs::read(layout.join(name)).unwrap();
    let mut layer = Layer::new().entry(b'0', "oci-layout", "", 0o644, &read("oci-layout"));
    for entry in std::fs::read_dir(layout.join("blobs/sha256")).unwrap() {
        let name = format!(
            "blobs/sha256/{}",
            entry.unwrap().file_name().to_str().unwrap()
        );
        layer = layer.entry(b'0', &name, "", 0o644, &read(&name));
    }
    layer
        .entry(b'0', "index.json", "", 0o644, &read("index.json"))
        .tar()
}
