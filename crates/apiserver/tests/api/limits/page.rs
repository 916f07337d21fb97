//! The page beside the API is under the same limits.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use allot_apiserver::Limits;
use allot_apiserver::mount::{Mount, Page};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use http::Response;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

use super::{Behind, answer, end, head, write};

/// A body without an end.
fn endless() -> Page {
    let piece = || Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; 64 << 10])));
    BodyExt::boxed_unsync(StreamBody::new(stream::repeat_with(piece).boxed()))
}

/// A server with a page that fails, waits or never ends, by path.
async fn start(limits: Limits) -> Behind {
    let behind = Behind::start(limits).await;
    behind.server.mount(Mount::new(
        "/page",
        Arc::new(|request: http::Request<hyper::body::Incoming>| {
            let path = request.uri().path().to_owned();
            assert_ne!(path, "/page/fails-at-once");
            async move {
                assert_ne!(path, "/page/fails");
                match path.as_str() {
                    "/page/endless" => Response::new(endless()),
                    "/page/waits" => futures::future::pending().await,
                    _ => Response::new(BodyExt::boxed_unsync(Full::new(Bytes::from_static(
                        b"page",
                    )))),
                }
            }
            .boxed()
        }),
    ));
    behind
}

#[tokio::test(flavor = "multi_thread")]
async fn regression_a_page_that_panics_or_waits_ends_alone() {
    let limits = Limits {
        request_timeout: Duration::from_secs(4),
        ..Limits::default()
    };
    let behind = start(limits).await;
    // All on one connection, which a panic would have ended.
    let mut stream = behind.tls("http/1.1").await;
    for (path, code) in [
        ("/page/fails", "500"),
        ("/page/fails-at-once", "500"),
        ("/page/waits", "504"),
        ("/page/", "200"),
    ] {
        write(&mut stream, head("GET", path, "jane", "").as_bytes()).await;
        let text = answer(&mut stream).await;
        assert!(
            text.starts_with(&format!("HTTP/1.1 {code}")),
            "{path}: {text}"
        );
    }
    assert_eq!(behind.metric("apiserver_request_panics_total").await, 2.0);
    behind.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn regression_a_page_that_is_not_read_ends() {
    let limits = Limits {
        stall_timeout: Duration::from_millis(500),
        ..Limits::default()
    };
    let behind = start(limits).await;
    let mut stream = behind.tls("http/1.1").await;
    write(
        &mut stream,
        head("GET", "/page/endless", "jane", "").as_bytes(),
    )
    .await;
    behind
        .wait_for("allot_apiserver_abandoned_answers_total", |it| it == 1.0)
        .await;
    end(&mut stream).await;
    behind.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn regression_the_host_of_a_page_is_not_ambiguous() {
    let behind = start(Limits::default()).await;
    for hosts in ["", "Host: a\r\nHost: b\r\n"] {
        let mut stream = behind.tls("http/1.1").await;
        let request = format!("GET /page/ HTTP/1.1\r\n{hosts}\r\n");
        write(&mut stream, request.as_bytes()).await;
        let text = answer(&mut stream).await;
        assert!(text.starts_with("HTTP/1.1 400"), "{hosts:?}: {text}");
    }
    behind.stop().await;
}
