//! Clients that note what they ask and what they are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::{AsyncBufReadExt, TryStreamExt};
use http::Method;
use kube::Client;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::model::{Action, Event, Operation, Outcome, Version};

const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// Few keys, so that clients meet.
const KEYS: u64 = 6;
/// The key of the last write.
pub const END: &str = "k-end";

/// What all clients note together.
#[derive(Clone, Default)]
pub struct Recorder {
    /// Orders beginnings and ends.
    clock: Arc<AtomicU64>,
    /// Tells the values of all writes apart.
    writes: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
    operations: Arc<Mutex<Vec<Operation>>>,
}

/// The server did not answer, or not in a way that says what happened.
#[derive(Debug)]
pub struct Gone;

fn version(object: &Value) -> Version {
    Version {
        revision: object["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        value: object["data"]["value"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    }
}

fn key(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

impl Recorder {
    /// Ends the work of all clients.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Everything that was noted.
    pub fn take(&self) -> Vec<Operation> {
        std::mem::take(&mut self.operations.lock())
    }

    /// Waits until so many operations were acknowledged.
    pub async fn until_acknowledged(&self, count: usize) {
        let reached = || {
            let operations = self.operations.lock();
            operations.iter().filter(|it| it.acknowledged()).count() >= count
        };
        while !reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Sends a request; records the operation with the result of `read` for the answer.
    async fn run(
        &self,
        client: &Client,
        action: Action,
        request: http::Request<Vec<u8>>,
        read: impl FnOnce(Value) -> Outcome,
    ) -> Result<Outcome, Gone> {
        let begin = self.tick();
        let answer: Result<Value, kube::Error> = client.request(request).await;
        let outcome = match answer {
            Ok(value) => read(value),
            Err(kube::Error::Api(status)) if status.code == 404 => Outcome::Absent,
            // Nothing happened, according to the server.
            Err(kube::Error::Api(status)) if status.code < 500 => Outcome::Refused,
            Err(_) => Outcome::Unknown,
        };
        self.operations.lock().push(Operation {
            begin,
            end: self.tick(),
            action,
            outcome: outcome.clone(),
        });
        match outcome {
            Outcome::Unknown => Err(Gone),
            known => Ok(known),
        }
    }

    /// Lists everything; answers the revision of the list.
    pub async fn list(&self, client: &Client) -> Result<u64, Gone> {
        let outcome = self
            .run(
                client,
                Action::List,
                request(Method::GET, PATH, &Value::Null),
                |list| {
                    let items = list["items"].as_array().into_iter().flatten();
                    let items: BTreeMap<String, Version> = items
                        .map(|item| (key(item), version(item)))
                        .filter(|(key, _)| key.starts_with("k-"))
                        .collect();
                    Outcome::Listed(version(&list).revision, items)
                },
            )
            .await?;
        match outcome {
            Outcome::Listed(revision, _) => Ok(revision),
            _ => Err(Gone),
        }
    }

    async fn get(&self, client: &Client, key: &str) -> Result<Option<Version>, Gone> {
        let path = format!("{PATH}/{key}");
        let action = Action::Get(key.to_owned());
        let request = request(Method::GET, &path, &Value::Null);
        let outcome = self
            .run(client, action, request, |object| {
                Outcome::Version(version(&object))
            })
            .await?;
        Ok(match outcome {
            Outcome::Version(version) => Some(version),
            _ => None,
        })
    }

    async fn create(&self, client: &Client, key: &str) -> Result<(), Gone> {
        let value = self.value();
        let object = json!({"metadata": {"name": key}, "data": {"value": value}});
        let action = Action::Create(key.to_owned(), value);
        self.run(
            client,
            action,
            request(Method::POST, PATH, &object),
            |object| Outcome::Version(version(&object)),
        )
        .await?;
        Ok(())
    }

    fn value(&self) -> String {
        format!("v{}", self.writes.fetch_add(1, Ordering::SeqCst))
    }

    /// The write that ends the logs of the watchers.
    pub async fn end(&self, client: &Client) -> Result<(), Gone> {
        self.create(client, END).await
    }

    /// Performs random operations until stopped or the server has ended.
    pub async fn work(&self, client: Client, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        while !self.stopped.load(Ordering::SeqCst) {
            let key = format!("k-{}", random.random_range(0..KEYS));
            if self
                .step(&client, &key, random.random_range(0..10))
                .await
                .is_err()
            {
                return;
            }
        }
    }

    async fn step(&self, client: &Client, key: &str, choice: u32) -> Result<(), Gone> {
        let path = format!("{PATH}/{key}");
        match choice {
            0..=2 => self.create(client, key).await?,
            3..=4 => {
                if let Some(seen) = self.get(client, key).await? {
                    let value = self.value();
                    let object = json!({
                        "metadata": {"name": key, "resourceVersion": seen.revision.to_string()},
                        "data": {"value": value},
                    });
                    let action = Action::Update(key.to_owned(), value, Some(seen.revision));
                    let request = request(Method::PUT, &path, &object);
                    self.run(client, action, request, |object| {
                        Outcome::Version(version(&object))
                    })
                    .await?;
                }
            }
            5..=6 => {
                let value = self.value();
                let patch = json!({"data": {"value": value}});
                let action = Action::Update(key.to_owned(), value, None);
                let request = request(Method::PATCH, &path, &patch);
                self.run(client, action, request, |object| {
                    Outcome::Version(version(&object))
                })
                .await?;
            }
            7 => {
                if let Some(seen) = self.get(client, key).await? {
                    let options =
                        json!({"preconditions": {"resourceVersion": seen.revision.to_string()}});
                    let action = Action::Delete(key.to_owned(), seen.revision);
                    let request = request(Method::DELETE, &path, &options);
                    self.run(client, action, request, |_| Outcome::Deleted)
                        .await?;
                }
            }
            8 => drop(self.get(client, key).await?),
            _ => drop(self.list(client).await?),
        }
        Ok(())
    }
}

fn request(method: Method, path: &str, body: &Value) -> http::Request<Vec<u8>> {
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(body)
        .expect("a valid request")
}

/// What a watch that begins after a revision delivers, until it ends or the last write comes.
pub async fn watch(client: Client, from: u64) -> Vec<Event> {
    let path = format!("{PATH}?watch=true&resourceVersion={from}");
    let mut events = Vec::new();
    let Ok(stream) = client
        .request_stream(request(Method::GET, &path, &Value::Null))
        .await
    else {
        return events;
    };
    let mut lines = stream.lines();
    while let Ok(Some(line)) = lines.try_next().await {
        // A kill may cut the last line.
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            break;
        };
        let object = &event["object"];
        let key = key(object);
        let kind = event["type"].as_str().unwrap_or_default();
        assert!(kind != "ERROR", "a watch from {from} was refused: {object}");
        if !key.starts_with("k-") {
            continue;
        }
        let Version { revision, value } = version(object);
        let last = key == END;
        events.push(Event {
            kind: kind.to_owned(),
            key,
            revision,
            value,
        });
        if last {
            break;
        }
    }
    events
}
