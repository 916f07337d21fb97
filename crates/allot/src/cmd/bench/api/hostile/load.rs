//! The load of the hostile clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::task::JoinSet;

use crate::cmd::bench::api::connect::{self, Connections};

/// Connections that the lists share.
const LISTING: usize = 8;
/// The number of objects of one response on a busy connection.
const PAGE: usize = 500;

/// After a request that was not answered.
const AGAIN: Duration = Duration::from_millis(50);

/// One kind of hostility.
#[derive(Debug, Clone, Copy)]
pub enum HostileLoad {
    /// None, for comparison.
    None,
    /// This number of concurrent lists of everything, read as fast as they arrive.
    Lists(usize),
    /// This number of lists of everything that are not read.
    Unread(usize),
    /// So many connections of one user, each with a request at all times.
    Busy(usize),
}

/// A storm under way.
pub struct RunningLoad {
    clients: JoinSet<()>,
    done: Arc<AtomicUsize>,
    /// Answers that are not read.
    unread: Vec<http::Response<Body>>,
}

impl RunningLoad {
    /// Ends it; returns the number of answered requests.
    pub async fn stop(mut self) -> usize {
        self.clients.shutdown().await;
        self.done.load(Ordering::Relaxed)
    }
}

impl HostileLoad {
    /// The name of the part in the report.
    pub fn name(self) -> String {
        match self {
            HostileLoad::None => "quiet".to_owned(),
            HostileLoad::Lists(count) => format!("{count} lists"),
            HostileLoad::Unread(count) => format!("{count} unread"),
            HostileLoad::Busy(count) => format!("{count} busy"),
        }
    }

    /// Begins with it. All connections are open when this returns; lists that are not read have been answered.
    pub async fn start(
        self,
        attacker: &Connections,
        collection: &str,
    ) -> anyhow::Result<RunningLoad> {
        let mut stormy = RunningLoad {
            clients: JoinSet::new(),
            done: Arc::default(),
            unread: Vec::new(),
        };
        match self {
            HostileLoad::None => {}
            HostileLoad::Lists(count) => {
                let clients = connections(attacker, LISTING.min(count)).await?;
                for number in 0..count {
                    let client = clients[number % clients.len()].clone();
                    stormy.repeat(client, collection.to_owned());
                }
            }
            HostileLoad::Busy(count) => {
                for client in connections(attacker, count).await? {
                    stormy.repeat(client, format!("{collection}?limit={PAGE}"));
                }
            }
            HostileLoad::Unread(count) => {
                let mut asked = JoinSet::new();
                for client in connections(attacker, count).await? {
                    let path = collection.to_owned();
                    asked.spawn(async move {
                        connect::request(&client, Method::GET, &path, "", Vec::new()).await
                    });
                }
                while let Some(answer) = asked.join_next().await {
                    if let Ok(Ok(answer)) = answer {
                        stormy.done.fetch_add(1, Ordering::Relaxed);
                        stormy.unread.push(answer);
                    }
                }
            }
        }
        Ok(stormy)
    }
}

impl RunningLoad {
    /// Sends a request again and again, and reads the answers.
    fn repeat(&mut self, client: kube::Client, path: String) {
        let done = self.done.clone();
        self.clients.spawn(async move {
            loop {
                let sent = connect::request(&client, Method::GET, &path, "", Vec::new());
                let Ok(answer) = sent.await else {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                };
                let fine = answer.status().is_success();
                let mut body = answer.into_body();
                let mut whole = fine;
                // Piece by piece: the answers together are larger than the memory of this process should be.
                while let Some(frame) = body.frame().await {
                    whole &= frame.is_ok();
                }
                if whole {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
}

async fn connections(attacker: &Connections, count: usize) -> anyhow::Result<Vec<kube::Client>> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(attacker.another().await?);
    }
    Ok(clients)
}
