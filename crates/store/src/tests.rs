//! Tests of the store: laws against a model, restarts, watches, a failing disk.

mod crash;
mod law;
mod restart;
mod watching;

use crate::{Backend, Draft, Embedded, Expect, ListOptions, Options, Write};

const COLLECTION: &str = "things";

fn draft(text: &str) -> Draft {
    Draft::new(format!("{text}@").as_bytes(), b"")
}

fn put(key: &str, expect: Expect, text: &str) -> Write {
    Write::put(COLLECTION, key, expect, draft(text))
}

/// Creates a key; returns its revision.
fn create(store: &Embedded, key: &str, text: &str) -> u64 {
    store
        .commit_blocking(put(key, Expect::Absent, text))
        .unwrap()
        .revision
}

fn update(store: &Embedded, key: &str, revision: u64, text: &str) -> u64 {
    store
        .commit_blocking(put(key, Expect::Revision(revision), text))
        .unwrap()
        .revision
}

fn delete(store: &Embedded, key: &str, revision: u64) -> u64 {
    store
        .commit_blocking(Write::delete(COLLECTION, key, revision, draft("gone")))
        .unwrap()
        .revision
}

/// The future of an embedded read is ready at once.
fn now<T>(future: impl std::future::Future<Output = T>) -> T {
    futures::executor::block_on(future)
}

fn list(store: &Embedded, at: Option<u64>) -> Vec<String> {
    let page = now(store.list(
        COLLECTION,
        ListOptions {
            at,
            ..ListOptions::default()
        },
    ))
    .unwrap();
    page.entries
        .iter()
        .map(|entry| format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value)))
        .collect()
}

fn in_memory() -> Embedded {
    Embedded::in_memory(Options::default())
}
