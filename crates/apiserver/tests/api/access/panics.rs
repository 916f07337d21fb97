//! A panic during a request is reported to its client, counted, and does not affect others.

use std::sync::Arc;

use allot_apiserver::{Config, Server};
use allot_store::{
    Backend, Embedded, Entry, Error, ListOptions, Options, Page, Size, Watcher, Write,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::admin;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A store with an unreadable key.
struct Broken(Embedded);

impl Backend for Broken {
    fn revision(&self) -> u64 {
        self.0.revision()
    }

    fn get<'a>(
        &'a self,
        collection: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Entry>>, Error>> {
        assert!(!key.ends_with("/broken"), "the store is broken");
        self.0.get(collection, key)
    }

    fn list<'a>(
        &'a self,
        collection: &'a str,
        options: ListOptions<'a>,
    ) -> BoxFuture<'a, Result<Page, Error>> {
        self.0.list(collection, options)
    }

    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Entry>, Error>> {
        self.0.commit(write)
    }

    fn watch(&self, collection: &str, prefix: &str, from: u64) -> Result<Watcher, Error> {
        self.0.watch(collection, prefix, from)
    }

    fn counts(&self) -> Vec<(Arc<str>, usize)> {
        self.0.counts()
    }

    fn size(&self, collection: &str) -> Size {
        self.0.size(collection)
    }
}

#[tokio::test]
async fn a_request_that_panics_ends_alone() {
    let backend = Arc::new(Broken(Embedded::in_memory(Options::default())));
    let server = Server::new(backend, Config::default());
    server.bootstrap().await.unwrap();
    let said = "This request caused apiserver to panic. Look in the logs for details.\n";
    let path = format!("{MAPS}/broken");
    for (method, body) in [
        ("GET", Value::Null),
        ("PATCH", json!({"data": {"a": "b"}})),
        ("DELETE", Value::Null),
    ] {
        let (code, answer) = admin(&server, method, &path, body).await;
        assert_eq!((code, answer.as_str()), (500, Some(said)), "{method}");
    }
    let map = json!({"metadata": {"name": "whole"}});
    assert_eq!(admin(&server, "POST", MAPS, map).await.0, 201);
    let (code, metrics) = admin(&server, "GET", "/metrics", Value::Null).await;
    assert_eq!(code, 200);
    let text = metrics.as_str().unwrap_or_default();
    let counted = "apiserver_request_panics_total 3\n";
    assert!(text.contains(counted), "{text}");
}
