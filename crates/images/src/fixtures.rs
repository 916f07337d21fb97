//! Layers, images and a registry for tests of this crate and, by the feature `fixtures`, of others.

#![allow(missing_docs, clippy::unwrap_used)]

pub mod registry;

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;

use crate::manifest::{DOCKER_MANIFEST, Descriptor, OCI_CONFIG, OCI_MANIFEST, Platform};
use crate::{Digest, Limits, Store, Timeouts};

/// An archive, entry by entry. Paths are taken as they are, which tar's own builder would refuse.
#[derive(Default)]
pub struct Layer(Vec<u8>);

impl Layer {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn entry(mut self, kind: u8, path: &str, link: &str, mode: u32, content: &[u8]) -> Self {
        let mut header = [0u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, path.as_bytes());
        put(100, format!("{mode:07o}").as_bytes());
        put(108, b"0000000");
        put(116, b"0000000");
        put(124, format!("{:011o}", content.len()).as_bytes());
        put(136, b"00000000001");
        put(148, b"        ");
        put(156, &[kind]);
        put(157, link.as_bytes());
        put(257, b"ustar\x0000");
        put(329, b"0000001");
        put(337, b"0000003");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(header);
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn file(self, path: &str, content: &str) -> Self {
        self.entry(b'0', path, "", 0o644, content.as_bytes())
    }

    pub fn directory(self, path: &str) -> Self {
        self.entry(b'5', path, "", 0o755, b"")
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(b'2', path, target, 0o777, b"")
    }

    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(b'1', path, target, 0o644, b"")
    }

    /// An extended header for the next entry.
    pub fn extended(self, key: &str, value: &str) -> Self {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        let record = format!("{length} {key}={value}\n");
        self.entry(b'x', "PaxHeaders/0", "", 0o644, record.as_bytes())
    }

    pub fn tar(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}

/// An image with its blobs.
#[derive(Clone)]
pub struct Built {
    pub manifest: Vec<u8>,
    pub media_type: &'static str,
    pub blobs: Vec<Vec<u8>>,
    pub layers: Vec<Digest>,
    pub config: Vec<u8>,
}

/// How a layer is compressed.
pub type Pack = fn(&[u8]) -> Vec<u8>;

impl Built {
    /// An image of plain layers, each compressed as specified.
    pub fn new(layers: &[(Vec<u8>, Pack)]) -> Self {
        let run = json!({"Entrypoint": ["/bin/app"], "Cmd": null, "Env": ["A=1"], "User": "app", "WorkingDir": "/srv",
                         "Volumes": {"/data": {}}, "Labels": {"a": "b"}, "StopSignal": "SIGINT"});
        Self::with_config(layers, run)
    }

    /// Like [`Built::new`], with the image's runtime configuration.
    pub fn with_config(layers: &[(Vec<u8>, Pack)], run: serde_json::Value) -> Self {
        let diff_ids: Vec<Digest> = layers.iter().map(|(plain, _)| Digest::of(plain)).collect();
        let sent: Vec<Vec<u8>> = layers.iter().map(|(plain, pack)| pack(plain)).collect();
        let host = Platform::host();
        let config = json!({
            "architecture": host.architecture, "os": host.os,
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = serde_json::to_vec(&config).unwrap();
        let layer = |content: &Vec<u8>| {
            Descriptor::of("application/vnd.oci.image.layer.v1.tar+gzip", content)
        };
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST,
            "config": Descriptor::of(OCI_CONFIG, &config),
            "layers": sent.iter().map(layer).collect::<Vec<_>>(),
        });
        Self {
            manifest: serde_json::to_vec(&manifest).unwrap(),
            media_type: OCI_MANIFEST,
            layers: sent.iter().map(|content| Digest::of(content)).collect(),
            blobs: [vec![config.clone()], sent].concat(),
            config,
        }
    }

    pub fn docker(mut self) -> Self {
        let text = String::from_utf8(self.manifest).unwrap();
        self.manifest = text.replace(OCI_MANIFEST, DOCKER_MANIFEST).into_bytes();
        self.media_type = DOCKER_MANIFEST;
        self
    }

    /// An image with one small file.
    pub fn simple() -> Self {
        let plain = Layer::new()
            .directory("etc/")
            .file(
                "etc/passwd",
                "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n",
            )
            .file("etc/group", "app:x:1001:\nextra:x:7:app\n")
            .tar();
        Self::new(&[(plain, gzip)])
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }
}

/// Deadlines that tests wait for; everything else is far below them.
pub fn timeouts() -> Timeouts {
    Timeouts {
        connect: Duration::from_secs(30),
        response: Duration::from_secs(60),
        ..Timeouts::default()
    }
}

pub fn store(directory: &std::path::Path) -> Store {
    Store::open(directory.join("images"), Limits::default(), timeouts()).unwrap()
}
