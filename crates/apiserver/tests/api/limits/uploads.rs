//! Bodies that come slowly, and the seats of their requests.

use std::time::Duration;

use allot_apiserver::identity::User;
use allot_apiserver::{Limits, Server};
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::StreamBody;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::flow::{get, people, person};
use super::within;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A config map of which the second half comes when it is asked for.
struct Upload {
    /// The server has read the first half.
    begun: oneshot::Receiver<()>,
    rest: oneshot::Sender<()>,
    answered: JoinHandle<http::StatusCode>,
}

fn upload(server: &Server, user: User, path: &str, name: &str) -> Upload {
    let (begins, begun) = oneshot::channel();
    let (rest, asked) = oneshot::channel();
    let map = json!({"metadata": {"name": name}}).to_string();
    let (first, second) = map.split_at(10);
    let piece = |text: &str| {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        Ok::<_, std::io::Error>(http_body::Frame::data(bytes))
    };
    let (first, second) = (piece(first), piece(second));
    let second = futures::stream::once(async move {
        let _ = begins.send(());
        let _ = asked.await;
        second
    });
    let body = StreamBody::new(futures::stream::iter([first]).chain(second));
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body).unwrap();
    let server = server.clone();
    let answered = tokio::spawn(async move { server.handle(request, Some(user)).await.status() });
    Upload {
        begun,
        rest,
        answered,
    }
}

/// As many requests as there are seats, whose bodies did not come, were the end of service for all others.
#[tokio::test]
async fn regression_slow_uploads_give_up_their_seats() {
    let server = people(Limits {
        max_requests_inflight: 4,
        max_mutating_requests_inflight: 4,
        seated_upload: Duration::from_millis(10),
        ..Limits::default()
    })
    .await;
    let mut uploads = Vec::new();
    for at in 0..24 {
        let mut upload = upload(&server, person("slow"), MAPS, &format!("m{at}"));
        // It is read, which takes a seat.
        within(&mut upload.begun).await.unwrap();
        uploads.push(upload);
    }
    assert_eq!(get(&server, person("fast"), MAPS).await.status(), 200);
    for upload in uploads {
        upload.rest.send(()).unwrap();
        assert_eq!(within(upload.answered).await.unwrap(), 201);
    }
}

#[tokio::test]
async fn slow_uploads_of_one_user_are_bounded() {
    let server = people(Limits {
        seated_upload: Duration::from_millis(10),
        ..Limits::default()
    })
    .await;
    // The latter takes no seat at all: any number of long-running requests may run.
    let proxy = "/api/v1/namespaces/default/pods/none/proxy/x";
    for (path, code) in [(MAPS, 201), (proxy, 404)] {
        let mut uploads = Vec::new();
        let refused = loop {
            let name = format!("m{}", uploads.len());
            let mut next = upload(&server, person("slow"), path, &name);
            within(&mut next.begun).await.unwrap();
            uploads.push(next);
            // Each has no seat after a moment, until there are as many of these as one user may have.
            let ended = uploads.iter().position(|it| it.answered.is_finished());
            if let Some(ended) = ended {
                break uploads.swap_remove(ended);
            }
        };
        assert!(uploads.len() >= 64, "{path}: {}", uploads.len());
        assert_eq!(refused.answered.await.unwrap(), 429, "{path}");
        let mut other = upload(&server, person("other"), path, "other");
        within(&mut other.begun).await.unwrap();
        other.rest.send(()).unwrap();
        assert_eq!(within(other.answered).await.unwrap(), code, "{path}");
        for waiting in uploads {
            waiting.answered.abort();
            let _ = waiting.answered.await;
        }
    }
}
