//! A disk that is full or fails: writes end with a Status, reads go on, nothing acknowledged is lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use allot_apiserver::{Config, Server};
use allot_store::{Embedded, Options, Reserve};
use redb::backends::InMemoryBackend;
use redb::{Database, StorageBackend};
use serde_json::{Value, json};

use crate::admin;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What is wrong with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Nothing can be written.
    Full,
    /// Writes fail until space is released.
    Short,
    /// Nothing reaches the disk for certain.
    Sync,
    /// Half of a write is written before it fails.
    Torn,
}

const FAULTS: [Fault; 5] = [
    Fault::None,
    Fault::Full,
    Fault::Short,
    Fault::Sync,
    Fault::Torn,
];

#[derive(Debug, Default)]
struct Disk {
    bytes: InMemoryBackend,
    fault: AtomicU8,
    released: AtomicBool,
}

impl Disk {
    fn fault(&self) -> Fault {
        FAULTS[usize::from(self.fault.load(Ordering::SeqCst)) % FAULTS.len()]
    }

    fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Shared(Arc<Disk>);

impl StorageBackend for Shared {
    fn len(&self) -> io::Result<u64> {
        self.0.bytes.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.bytes.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match self.0.fault() {
            Fault::Full | Fault::Short => Err(io::ErrorKind::StorageFull.into()),
            _ => self.0.bytes.set_len(len),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.0.fault() {
            Fault::Sync => Err(io::Error::other("the sync failed")),
            _ => self.0.bytes.sync_data(),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.0.fault() {
            Fault::Full | Fault::Short => Err(io::ErrorKind::StorageFull.into()),
            Fault::Torn => {
                self.0.bytes.write(offset, &data[..data.len() / 2])?;
                Err(io::Error::other("the write was cut off"))
            }
            _ => self.0.bytes.write(offset, data),
        }
    }
}

/// The space that is kept on the disk.
struct Kept(Arc<Disk>);

impl Reserve for Kept {
    fn fill(&mut self) -> bool {
        self.0.fault() == Fault::None && !self.0.released.load(Ordering::SeqCst)
    }

    fn release(&mut self) {
        if self.0.fault() == Fault::Short {
            self.0.released.store(true, Ordering::SeqCst);
            self.0.set(Fault::None);
        }
    }
}

async fn server(disk: &Arc<Disk>) -> Server {
    let shared = disk.clone();
    let opener = Box::new(move || Database::builder().create_with_backend(Shared(shared.clone())));
    let kept = Box::new(Kept(disk.clone()));
    let backend = Embedded::with_reserve(opener, kept, Options::default()).unwrap();
    let server = Server::new(Arc::new(backend), Config::default());
    server.bootstrap().await.unwrap();
    server
}

async fn create(server: &Server, name: &str) -> (u16, Value) {
    let object = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(5000)}});
    admin(server, "POST", MAPS, object).await
}

async fn names(server: &Server) -> Vec<String> {
    let (code, list) = admin(server, "GET", MAPS, Value::Null).await;
    assert_eq!(code, 200);
    let items = list["items"].as_array().unwrap();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    items.iter().map(name).collect()
}

#[tokio::test]
async fn a_disk_that_fails_costs_no_acknowledged_write() {
    for fault in [Fault::Full, Fault::Sync, Fault::Torn] {
        let disk = Arc::new(Disk::default());
        let server = server(&disk).await;
        assert_eq!(create(&server, "before").await.0, 201);
        disk.set(fault);
        for round in 0..3 {
            let (code, status) = create(&server, "during").await;
            assert_eq!(code, 500, "{fault:?} {round}: {status}");
            assert_eq!(status["kind"], "Status");
            assert_eq!(status["reason"], "InternalError");
            let patch = json!({"data": {"more": "x"}});
            let path = format!("{MAPS}/before");
            assert_eq!(admin(&server, "PATCH", &path, patch).await.0, 500);
            assert_eq!(admin(&server, "DELETE", &path, Value::Null).await.0, 500);
            // Reads go on, and show nothing of it.
            assert_eq!(names(&server).await, ["before"]);
        }
        disk.set(Fault::None);
        assert_eq!(create(&server, "after").await.0, 201, "{fault:?}");
        assert_eq!(names(&server).await, ["after", "before"]);
        let path = format!("{MAPS}/before");
        let (_, kept) = admin(&server, "GET", &path, Value::Null).await;
        drop(server);
        let server = self::server(&disk).await;
        assert_eq!(names(&server).await, ["after", "before"], "{fault:?}");
        assert_eq!(admin(&server, "GET", &path, Value::Null).await.1, kept);
    }
}

#[tokio::test]
async fn a_full_disk_still_takes_deletes() {
    let disk = Arc::new(Disk::default());
    let server = server(&disk).await;
    for name in ["free", "held", "kept"] {
        assert_eq!(create(&server, name).await.0, 201);
    }
    let held = format!("{MAPS}/held");
    let finalizer = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    assert_eq!(admin(&server, "PATCH", &held, finalizer).await.0, 200);
    disk.set(Fault::Short);
    assert_eq!(create(&server, "more").await.0, 500);
    // At once, by a mark, and by the update that takes away what held it.
    for path in [&format!("{MAPS}/free"), &held] {
        let (code, answer) = admin(&server, "DELETE", path, Value::Null).await;
        assert_eq!(code, 200, "{answer}");
    }
    assert_eq!(create(&server, "more").await.0, 500);
    assert_eq!(names(&server).await, ["held", "kept"]);
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(admin(&server, "PATCH", &held, free).await.0, 200);
    assert_eq!(names(&server).await, ["kept"]);
    // Space was freed elsewhere.
    disk.released.store(false, Ordering::SeqCst);
    assert_eq!(create(&server, "more").await.0, 201);
    drop(server);
    let server = self::server(&disk).await;
    assert_eq!(names(&server).await, ["kept", "more"]);
}
