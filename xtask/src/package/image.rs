//! An image as an OCI layout, directory and archive, without a container engine.
//!
//! Its content besides the program: the libraries that it needs, if it is not static, CA certificates, and the users
//! for name lookups. No shell, no package manager.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::tree::{Tree, gzip};
use super::{Subject, libraries, sbom, sha256};

/// The default user of the program.
const USER: &str = "65532:65532";

/// The machine's CA certificates.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// Writes the image; returns the names of the files.
pub(super) fn write(subject: &Subject, out: &Path, name: &str) -> Result<Vec<String>> {
    let architecture = subject.architecture()?;
    let (root, bill) = root(subject)?;
    let layer = root.tar("", subject.time)?;
    let created = sbom::rfc3339(subject.time)?;
    let labels = json!({
        "org.opencontainers.image.title": "allot",
        "org.opencontainers.image.description": "Kubernetes Dynamic Resource Allocation: one binary with every component.",
        "org.opencontainers.image.version": subject.version,
        "org.opencontainers.image.revision": subject.revision,
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.source": env!("CARGO_PKG_REPOSITORY"),
        "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
    });
    let mut blobs = Blobs::default();
    let config = json!({
        "architecture": architecture, "os": "linux", "created": created,
        "config": {
            "User": USER, "Entrypoint": ["/usr/local/bin/allot"], "WorkingDir": "/",
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))]},
        "history": [{"created": created, "created_by": "cargo xtask image"}],
    });
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blobs.add("application/vnd.oci.image.config.v1+json", serde_json::to_vec(&config)?),
        "layers": [blobs.add("application/vnd.oci.image.layer.v1.tar+gzip", gzip(&layer)?)],
        "annotations": labels,
    });
    let mut descriptor = blobs.add(
        "application/vnd.oci.image.manifest.v1+json",
        serde_json::to_vec(&manifest)?,
    );
    descriptor["platform"] = json!({"architecture": architecture, "os": "linux"});
    let tag = name.rsplit_once(':').map(|(_, tag)| tag);
    // What follows a port is no tag.
    let tag = tag.filter(|tag| !tag.contains('/')).unwrap_or("latest");
    descriptor["annotations"] = json!({
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": tag,
    });
    let index = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [descriptor],
    });
    blobs
        .0
        .file("index.json", 0o644, serde_json::to_vec(&index)?);
    blobs.0.file(
        "oci-layout",
        0o644,
        &b"{\"imageLayoutVersion\":\"1.0.0\"}"[..],
    );

    let stem = format!("allot-{}-linux-{architecture}", subject.version);
    std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    directory(&blobs.0, &out.join("layout"))?;
    let archive = format!("{stem}.oci.tar");
    std::fs::write(out.join(&archive), blobs.0.tar("", subject.time)?)?;
    let bom = format!("{stem}.cdx.json");
    std::fs::write(out.join(&bom), sbom::document(&bill)?)?;
    Ok(vec![archive, bom, "layout/index.json".to_owned()])
}

/// The root directory of a container, and its bill of materials.
fn root(subject: &Subject) -> Result<(Tree, Value)> {
    let mut root = Tree::default();
    let mut taken = libraries::of(&subject.binary)?;
    if let Ok(certificates) = std::fs::read(Path::new("/").join(CERTIFICATES)) {
        taken.push((CERTIFICATES.to_owned(), certificates));
    }
    let bill = sbom::with_files(&subject.sbom, &taken);
    for (path, content) in taken {
        let mode = if path.ends_with(".crt") { 0o644 } else { 0o755 };
        root.file(path, mode, content);
    }
    root.file("usr/local/bin/allot", 0o755, subject.program()?);
    let users =
        "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n";
    root.file("etc/passwd", 0o644, users);
    root.file("etc/group", 0o644, "root:x:0:\nnonroot:x:65532:\n");
    root.file(
        "etc/nsswitch.conf",
        0o644,
        "passwd: files\ngroup: files\nhosts: files dns\n",
    );
    root.directory("tmp", 0o1777);
    root.file(
        "usr/share/doc/allot/sbom.cdx.json",
        0o644,
        sbom::document(&bill)?,
    );
    let license = std::fs::read(crate::root().join("LICENSE")).context("LICENSE")?;
    root.file("usr/share/doc/allot/LICENSE", 0o644, license);
    Ok((root, bill))
}

/// The content of a layout.
#[derive(Default)]
struct Blobs(Tree);

impl Blobs {
    /// Adds a blob and returns its descriptor.
    fn add(&mut self, kind: &str, content: Vec<u8>) -> Value {
        let digest = sha256(&content);
        let descriptor = json!({
            "mediaType": kind, "digest": format!("sha256:{digest}"), "size": content.len(),
        });
        self.0
            .file(format!("blobs/sha256/{digest}"), 0o644, content);
        descriptor
    }
}

/// Writes a layout in place of an earlier one.
fn directory(layout: &Tree, out: &Path) -> Result<()> {
    if out.exists() {
        ensure!(
            out.join("oci-layout").exists(),
            "{} exists and is no image layout",
            out.display()
        );
        std::fs::remove_dir_all(out)?;
    }
    for (path, content) in layout.files() {
        let path = out.join(path);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(())
}
