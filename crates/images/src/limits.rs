//! Bounds for what others send.

use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Bounds of sizes and counts. What exceeds one is refused with [`crate::Error::TooLarge`].
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a manifest or an index. Registries allow 4 MiB.
    pub manifest: u64,
    /// Bytes of an image's configuration.
    pub config: u64,
    /// Bytes of one layer as it is sent.
    pub layer: u64,
    /// Bytes of all layers of an image as they are sent.
    pub image: u64,
    /// Layers of an image. Overlayfs takes at most 500 lower directories.
    pub layers: usize,
    /// Bytes of the files of one layer when unpacked, which is what a small layer of zeros could fill a disk with.
    pub unpacked: u64,
    /// Entries of one layer.
    pub entries: u64,
    /// Bytes of the files of all layers of an image when unpacked.
    pub image_unpacked: u64,
    /// Entries of all layers of an image: each takes an inode of the disk.
    pub image_entries: u64,
    /// Bytes of the headers of one entry: long names and extended attributes.
    pub header: u64,
    /// Directories below each other.
    pub depth: u32,
    /// Extended attributes of one entry.
    pub xattrs: usize,
    /// Bytes of all extended attributes of one entry, names and values.
    pub xattr_bytes: usize,
    /// Layers that are downloaded at the same time, over all images.
    pub parallel_downloads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            manifest: 4 * MIB,
            config: 8 * MIB,
            layer: 16 * GIB,
            image: 32 * GIB,
            layers: 128,
            unpacked: 32 * GIB,
            entries: 1_000_000,
            image_unpacked: 64 * GIB,
            image_entries: 2_000_000,
            header: MIB,
            depth: 255,
            xattrs: 64,
            xattr_bytes: 64 << 10,
            parallel_downloads: 3,
        }
    }
}

/// Bounds of waits for a registry.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// Until a connection is established, with TLS.
    pub connect: Duration,
    /// From a request to the head of its answer.
    pub response: Duration,
    /// Between two pieces of an answer.
    pub stall: Duration,
    /// For everything that belongs to one pull, so that a registry that sends byte by byte ends as well.
    pub pull: Duration,
    /// For the lock of the store, which others hold only while they rewrite its index.
    pub lock: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            response: Duration::from_secs(30),
            stall: Duration::from_secs(60),
            pull: Duration::from_secs(30 * 60),
            lock: Duration::from_secs(30),
        }
    }
}
