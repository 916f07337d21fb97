//! A disk that fails, tears writes and loses what was not synced.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;
use proptest::prelude::*;
use redb::{Database, StorageBackend};

use super::*;
use crate::{Error, Opener};

/// What survives a power cut, and what is written on top.
#[derive(Debug, Default)]
struct Platter {
    durable: Mutex<Vec<u8>>,
    volatile: Mutex<Vec<u8>>,
    /// Writes and syncs until everything fails; negative for never.
    budget: AtomicI64,
    full: AtomicBool,
    /// Syncs fail; what was written is in the hands of the system, which may have dropped it.
    unsynced: AtomicBool,
}

impl Platter {
    fn new() -> Arc<Self> {
        Arc::new(Platter {
            budget: AtomicI64::new(-1),
            ..Platter::default()
        })
    }

    fn spend(&self) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let left = self.budget.load(Ordering::SeqCst);
        if left == 0 {
            return Err(io::Error::other("the power is out"));
        }
        if left > 0 {
            self.budget.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The state after a power cut: what was synced, and of each 512-byte sector written since, an arbitrary choice.
    fn cut(&self, choice: u64) {
        let mut durable = self.durable.lock();
        let volatile = self.volatile.lock();
        let length = volatile.len().max(durable.len());
        durable.resize(length, 0);
        let mut random = choice | 1;
        for start in (0..volatile.len()).step_by(512) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if random & 1 == 1 {
                let end = (start + 512).min(volatile.len());
                durable[start..end].copy_from_slice(&volatile[start..end]);
            }
        }
        drop(volatile);
        *self.volatile.lock() = durable.clone();
        self.budget.store(-1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Disk(Arc<Platter>);

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.volatile.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.volatile.lock();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let part = bytes
            .get(start..start + out.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(part);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.spend()?;
        self.0
            .volatile
            .lock()
            .resize(usize::try_from(len).map_err(io::Error::other)?, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.spend()?;
        if self.0.unsynced.load(Ordering::SeqCst) {
            return Err(io::Error::other("the sync failed"));
        }
        *self.0.durable.lock() = self.0.volatile.lock().clone();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.spend()?;
        let mut bytes = self.0.volatile.lock();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        bytes
            .get_mut(start..start + data.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?
            .copy_from_slice(data);
        Ok(())
    }
}

fn opener(platter: &Arc<Platter>) -> Opener {
    let platter = platter.clone();
    Box::new(move || Database::builder().create_with_backend(Disk(platter.clone())))
}

fn open(platter: &Arc<Platter>) -> Result<Embedded, Error> {
    Embedded::with_opener(opener(platter), Options::default())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever operation the power fails at and whatever sectors reach the platter: what was acknowledged is there.
    #[test]
    fn a_power_cut_loses_nothing_acknowledged(budget in 0i64..120, choice in any::<u64>()) {
        let platter = Platter::new();
        let store = open(&platter).unwrap();
        create(&store, "base", "x");
        platter.budget.store(budget, Ordering::SeqCst);
        let mut acknowledged = vec!["base".to_owned()];
        for number in 0..40 {
            let key = format!("k{number}");
            if store.commit_blocking(put(&key, Expect::Absent, &"v".repeat(300))).is_ok() {
                acknowledged.push(key);
            }
        }
        let revision = store.revision();
        drop(store);
        platter.cut(choice);
        let store = open(&platter).unwrap();
        prop_assert!(store.revision() >= revision);
        for key in acknowledged {
            prop_assert!(now(store.get(COLLECTION, &key)).unwrap().is_some(), "{} is lost", key);
        }
        // And it goes on.
        prop_assert!(store.commit_blocking(put("after", Expect::Absent, "x")).is_ok());
    }
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let platter = Platter::new();
    let store = open(&platter).unwrap();
    let first = create(&store, "a", "x");
    platter.full.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let error = store
            .commit_blocking(put("b", Expect::Absent, "x"))
            .unwrap_err();
        assert!(matches!(error, Error::Write(_)), "{error}");
    }
    assert_eq!(list(&store, None), [format!("a=x@{first}")]);
    platter.full.store(false, Ordering::SeqCst);
    // The revisions of failed writes are not used up, and nothing of them shows.
    assert_eq!(create(&store, "c", "x"), first + 1);
    drop(store);
    let store = open(&platter).unwrap();
    assert_eq!(
        list(&store, None),
        [format!("a=x@{first}"), format!("c=x@{}", first + 1)]
    );
}

#[test]
fn a_write_that_could_not_be_synced_is_refused_and_forgotten() {
    let platter = Platter::new();
    let store = open(&platter).unwrap();
    let first = create(&store, "a", "x");
    platter.unsynced.store(true, Ordering::SeqCst);
    let error = store
        .commit_blocking(put("b", Expect::Absent, "x"))
        .unwrap_err();
    assert!(matches!(error, Error::Write(_)), "{error}");
    assert_eq!(list(&store, None), [format!("a=x@{first}")]);
    platter.unsynced.store(false, Ordering::SeqCst);
    assert_eq!(create(&store, "c", "x"), first + 1);
    drop(store);
    // A crash now shows what was acknowledged, and nothing else.
    platter.cut(0);
    let store = open(&platter).unwrap();
    assert_eq!(
        list(&store, None),
        [format!("a=x@{first}"), format!("c=x@{}", first + 1)]
    );
}
