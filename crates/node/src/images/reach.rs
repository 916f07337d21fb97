//! Whether a registry can be reached at all, answered quickly: a pod that can run without its image does not wait for
//! an unreachable network.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use allot_apimachinery::metadata_service::is_metadata_service;
use allot_images::Endpoint;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

/// How long a pod waits for the answer. A later answer is for the next pod.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long the connection is tried.
const LONGEST: Duration = Duration::from_secs(5);
/// How long an answer counts.
const REMEMBERED: Duration = Duration::from_secs(30);
/// Most answers that are remembered: pods choose the names.
const MOST: usize = 1000;
/// Limit of concurrent name lookups, each of which takes a thread.
static LOOKUPS: Semaphore = Semaphore::const_new(8);
/// Shared by all nodes of the process.
static KNOWN: LazyLock<Mutex<HashMap<String, Known>>> = LazyLock::new(Mutex::default);

struct Known {
    since: Instant,
    answer: watch::Receiver<Option<bool>>,
}

/// Whether any of these servers accepts a connection.
pub(super) async fn any(endpoints: &[Endpoint]) -> bool {
    let mut answers: FuturesUnordered<_> = endpoints.iter().map(one).collect();
    while let Some(answer) = answers.next().await {
        if answer {
            return true;
        }
    }
    false
}

async fn one(endpoint: &Endpoint) -> bool {
    let address = address(endpoint);
    let mut answer = {
        let mut known = KNOWN.lock();
        known.retain(|_, known| known.since.elapsed() < REMEMBERED);
        let near = is_near(&address);
        match known.get(&address).filter(|_| !near) {
            Some(known) => known.answer.clone(),
            None => {
                let answer = ask(address.clone());
                // A server on this machine answers at once, and may have been started a moment ago.
                if known.len() < MOST && !near {
                    let since = Instant::now();
                    let answer = answer.clone();
                    known.insert(address, Known { since, answer });
                }
                answer
            }
        }
    };
    let answered = tokio::time::timeout(PATIENCE, answer.wait_for(Option::is_some)).await;
    matches!(answered, Ok(Ok(answer)) if *answer == Some(true))
}

fn ask(address: String) -> watch::Receiver<Option<bool>> {
    let (sender, answer) = watch::channel(None);
    tokio::spawn(async move {
        let Ok(_one) = LOOKUPS.acquire().await else {
            return;
        };
        let connected = tokio::time::timeout(LONGEST, connect(&address)).await;
        sender.send_replace(Some(matches!(connected, Ok(Ok(_)))));
    });
    answer
}

/// Connects to a server, but never to the metadata service of a cloud: pods choose the names.
async fn connect(address: &str) -> std::io::Result<TcpStream> {
    let found = tokio::net::lookup_host(address).await?;
    let permitted: Vec<_> = found.filter(|it| !is_metadata_service(it.ip())).collect();
    TcpStream::connect(permitted.as_slice()).await
}

/// Host and port of a server.
fn address(endpoint: &Endpoint) -> String {
    let authority = &endpoint.authority;
    let parsed = authority.parse::<http::uri::Authority>();
    if parsed.is_ok_and(|it| it.port().is_some()) {
        return authority.clone();
    }
    format!("{authority}:{}", if endpoint.plain_http { 80 } else { 443 })
}

fn is_near(address: &str) -> bool {
    address.starts_with("localhost:")
        || address
            .parse::<std::net::SocketAddr>()
            .is_ok_and(|address| address.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(authority: &str) -> Endpoint {
        Endpoint {
            authority: authority.to_owned(),
            plain_http: true,
            ca_file: None,
            mirror: false,
        }
    }

    #[tokio::test]
    async fn a_server_counts_when_it_accepts_connections() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = endpoint(&listener.local_addr().unwrap().to_string());
        // Bound, so that no other process gets the port, and not listened on.
        let gone = tokio::net::TcpSocket::new_v4().unwrap();
        gone.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let missing = endpoint(&gone.local_addr().unwrap().to_string());
        assert!(any(std::slice::from_ref(&there)).await);
        assert!(!any(std::slice::from_ref(&missing)).await);
        assert!(any(&[missing, there]).await);
        assert!(!any(&[]).await);
    }

    /// The attack: a pod names the metadata service as its registry, and learns from an event whether it can be reached.
    #[tokio::test]
    async fn metadata_services_are_not_connected_to() {
        for address in ["169.254.169.254:80", "[::ffff:100.100.100.200]:80"] {
            let error = connect(address).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        }
    }

    #[test]
    fn ports_are_those_of_the_protocol() {
        for (authority, plain_http, expected) in [
            ("registry.example.com", false, "registry.example.com:443"),
            ("registry.example.com", true, "registry.example.com:80"),
            ("localhost:5000", true, "localhost:5000"),
            ("[::1]:5000", true, "[::1]:5000"),
            ("[::1]", true, "[::1]:80"),
        ] {
            let endpoint = Endpoint {
                plain_http,
                ..endpoint(authority)
            };
            assert_eq!(address(&endpoint), expected);
        }
        assert!(is_near("[::1]:80") && is_near("127.0.0.2:5000") && is_near("localhost:1"));
        assert!(!is_near("registry.example.com:443"));
    }
}
