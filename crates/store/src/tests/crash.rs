//! A disk that fails, tears writes and loses what was not synced.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;
use proptest::prelude::*;
use redb::{Database, StorageBackend};

use super::*;
use crate::{Error, Opener, Reserve};

const BLOCK: usize = 4096;

/// What survives a power cut, and what is written on top.
#[derive(Debug, Default)]
struct Platter {
    durable: Mutex<Vec<u8>>,
    volatile: Mutex<Vec<u8>>,
    /// Writes and syncs until everything fails; negative for never.
    budget: AtomicI64,
    full: AtomicBool,
    /// Blocks that can still be written for the first time, where that is limited, and those that have been.
    space: Mutex<Option<usize>>,
    blocks: Mutex<BTreeSet<usize>>,
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

    /// Space for what is written, as on a file system that gives a block to what is written first.
    fn take_blocks(&self, start: usize, length: usize) -> io::Result<()> {
        let (mut space, mut blocks) = (self.space.lock(), self.blocks.lock());
        for block in start / BLOCK..=(start + length.max(1) - 1) / BLOCK {
            if blocks.contains(&block) {
                continue;
            }
            match space.as_mut() {
                Some(0) => return Err(io::Error::from(io::ErrorKind::StorageFull)),
                Some(left) => *left -= 1,
                None => {}
            }
            blocks.insert(block);
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
        self.0.take_blocks(start, data.len())?;
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

/// Blocks of the platter that are kept for deletes.
struct Blocks {
    platter: Arc<Platter>,
    held: usize,
}

const RESERVED: usize = 64;

impl Reserve for Blocks {
    fn fill(&mut self) -> bool {
        if let (Some(left), 0) = (self.platter.space.lock().as_mut(), self.held)
            && *left >= RESERVED
        {
            *left -= RESERVED;
            self.held = RESERVED;
        }
        self.held > 0
    }

    fn release(&mut self) {
        if let Some(left) = self.platter.space.lock().as_mut() {
            *left += std::mem::take(&mut self.held);
        }
    }
}

/// A store on a platter with space for about so many blocks.
fn open_limited(platter: &Arc<Platter>, space: usize) -> Result<Embedded, Error> {
    *platter.space.lock() = Some(space);
    let blocks = Blocks {
        platter: platter.clone(),
        held: 0,
    };
    Embedded::with_reserve(opener(platter), Box::new(blocks), Options::default())
}

fn remove(store: &Embedded, key: &str) -> Result<Arc<crate::Entry>, Error> {
    let entry = now(store.get(COLLECTION, key)).unwrap().unwrap();
    let last = crate::Draft::new(&entry.value, b"");
    store.commit_blocking(Write::delete(COLLECTION, key, entry.revision, last))
}

/// Creates objects until there is no space for one; answers with their keys.
fn fill(store: &Embedded) -> Vec<String> {
    let mut keys = Vec::new();
    for number in 0.. {
        let key = format!("k{number:03}");
        let large = "v".repeat(3000);
        if store
            .commit_blocking(put(&key, Expect::Absent, &large))
            .is_err()
        {
            break;
        }
        keys.push(key);
    }
    assert!(keys.len() > 20, "{keys:?}");
    keys
}

#[test]
fn a_full_disk_is_made_free_by_deleting() {
    let platter = Platter::new();
    let store = open_limited(&platter, 250).unwrap();
    let keys = fill(&store);
    let watched = store.revision();
    let mut watcher = store.watch(COLLECTION, "", watched).unwrap();
    for (number, key) in keys.iter().enumerate() {
        // Not much more is possible than to delete.
        assert!(
            store
                .commit_blocking(put("more", Expect::Absent, &"v".repeat(4_000_000)))
                .is_err()
        );
        let gone = remove(&store, key).unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(gone.revision, watched + 1 + number as u64);
    }
    // Watchers get the last states.
    let seen = watcher.poll_changes().unwrap();
    assert_eq!(seen.len(), keys.len());
    assert!(seen.iter().all(|event| event.entry.value.len() > 3000));
    assert_eq!(list(&store, None), Vec::<String>::new());
    // What the deletes have freed can be written again, on the same disk.
    let again = keys.len() / 6;
    for key in &keys[..again] {
        let written = store.commit_blocking(put(key, Expect::Absent, &"w".repeat(3000)));
        written.unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    let revision = store.revision();
    let expected = list(&store, None);
    assert_eq!(expected.len(), again);
    drop(store);
    let store = open(&platter).unwrap();
    assert_eq!(store.revision(), revision);
    assert_eq!(list(&store, None), expected);
    // A watch of removed history returns none of it.
    let late = store.watch(COLLECTION, "", watched);
    assert!(matches!(late, Err(Error::Expired { .. })));
}

#[test]
fn space_that_comes_back_ends_the_shortage() {
    let platter = Platter::new();
    let store = open_limited(&platter, 250).unwrap();
    let keys = fill(&store);
    remove(&store, &keys[0]).unwrap();
    let large = "v".repeat(300_000);
    let refused = store.commit_blocking(put("more", Expect::Absent, &large));
    assert!(matches!(refused, Err(Error::Write(_))));
    *platter.space.lock() = Some(2000);
    create(&store, "more", &large);
    // And there is space for deletes again.
    assert!(platter.space.lock().unwrap() <= 2000 - RESERVED);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// For a power failure at any operation during deletions on a full disk: deleted objects do not exist, all other
    /// objects do.
    #[test]
    fn a_power_cut_on_a_full_disk_loses_nothing(budget in 0i64..160, choice in any::<u64>()) {
        let platter = Platter::new();
        let store = open_limited(&platter, 250).unwrap();
        let keys = fill(&store);
        platter.budget.store(budget, Ordering::SeqCst);
        let mut deleted = 0;
        for key in &keys {
            if remove(&store, key).is_err() {
                break;
            }
            deleted += 1;
        }
        let revision = store.revision();
        drop(store);
        platter.cut(choice);
        *platter.space.lock() = None;
        let store = open(&platter).unwrap();
        prop_assert!(store.revision() >= revision);
        for (number, key) in keys.iter().enumerate() {
            let found = now(store.get(COLLECTION, key)).unwrap().is_some();
            // The first one that failed may be deleted after all.
            if number != deleted {
                prop_assert_eq!(found, number > deleted, "{}", key);
            }
        }
        prop_assert!(store.commit_blocking(put("after", Expect::Absent, "x")).is_ok());
    }
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
        // The store accepts writes again.
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
