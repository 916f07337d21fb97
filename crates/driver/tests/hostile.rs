//! A driver whose API server is broken, or is another program: its calls end with an error, it asks at a bounded rate and reads a
//! bounded amount, and it continues by itself when the server is well again.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allot_driver::k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use allot_driver::kube::{self, Client, client::Body};
use allot_driver::testing::{Environment, TestClaim, TestNode};
use allot_driver::{
    Claim, Driver, Error, Failure, Plugin, Pool, Prepared, PreparedClaim, PreparedDevice, Resources,
};
use futures::StreamExt;
use futures::future::join_all;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyStream, Either, StreamBody};
use tokio::sync::watch;

const DRIVER: &str = "leds.example.com";
/// What an answer may have before the driver stops to read it, with what is on its way.
const LARGEST: usize = 65 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

type Data = <Body as http_body::Body>::Data;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How the API server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Well,
    /// Every answer is this text.
    Text(&'static str),
    /// Every answer begins with this text, and continues with this chunk without end.
    Endless(&'static str, &'static str),
    /// Every request is refused with this code.
    Refused(u16),
    /// Every watch has this event again and again, as fast as the driver reads.
    Events(&'static str),
    /// Every watch is refused with this code, everything else is answered.
    NoWatch(u16),
}

/// An API server in front of the node's, and what the driver took of it.
struct Server {
    mode: watch::Sender<Mode>,
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

impl Server {
    fn client(self: &Arc<Self>, well: Client) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, well) = (Arc::clone(&server), well.clone());
            async move { server.answer(request, well).await }
        });
        Client::new(service, "default")
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Body>,
        well: Client,
    ) -> Result<Response<impl http_body::Body<Data = Data, Error = BoxError>>, kube::Error> {
        let is_watch = request.uri().query().is_some_and(|q| q.contains("watch="));
        let mode = *self.mode.borrow();
        if mode != Mode::Well {
            self.requests.fetch_add(1, Ordering::Relaxed);
        }
        let (code, start, chunk) = match (mode, is_watch) {
            (Mode::Text(text), _) => (200, text, ""),
            (Mode::Endless(start, chunk), _) => (200, start, chunk),
            (Mode::Refused(code), _) | (Mode::NoWatch(code), true) => (code, "no", ""),
            (Mode::Events(event), true) => (200, "", event),
            (Mode::Well | Mode::Events(_) | Mode::NoWatch(_), _) => {
                let answer = well.send(request).await?;
                // A watch ends when the mode changes, so that the next one is answered in the new mode.
                let mut changed = self.mode.subscribe();
                let end = async move {
                    let _ = changed.wait_for(|now| is_watch && *now != mode).await;
                };
                return Ok(answer.map(|body| {
                    let frames = BodyStream::new(body).take_until(Box::pin(end));
                    Either::Left(StreamBody::new(frames))
                }));
            }
        };
        let (server, mut changed) = (Arc::clone(&self), self.mode.subscribe());
        let rest = futures::stream::repeat_with(move || chunk)
            .take_while(|chunk| std::future::ready(!chunk.is_empty()))
            .take_until(async move {
                let _ = changed.wait_for(|mode| *mode == Mode::Well).await;
            });
        let frames = futures::stream::iter([start]).chain(rest).map(move |part| {
            server.bytes.fetch_add(part.len(), Ordering::Relaxed);
            Ok::<_, Infallible>(Frame::data(part.into()))
        });
        let answer = Response::builder()
            .status(code)
            .body(Either::Right(StreamBody::new(frames)));
        Ok(answer.expect("an answer"))
    }
}

struct Leds;

impl Driver for Leds {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let results = claim.results(DRIVER);
        Ok(results.map(PreparedDevice::from_result).collect())
    }

    async fn unprepare(&self, _: &PreparedClaim) -> Result<(), Failure> {
        Ok(())
    }
}

fn publish(plugin: &Plugin, node: &str, devices: usize) -> Result<(), Error> {
    let devices = (0..devices).map(|index| Device {
        name: format!("led-{index}"),
        ..Device::default()
    });
    plugin.publish(Resources::pool(node, Pool::new(devices)))
}

/// The driver, with the server in front of the API.
async fn start(server: Arc<Server>, environment: Environment) -> Result<Plugin, Error> {
    let plugin = Plugin::builder(DRIVER, Leds)
        .client(server.client(environment.client))
        .node_name(&environment.node_name)
        .kubelet_dir(&environment.kubelet_dir)
        .cdi_dir(&environment.cdi_dir)
        .start()
        .await?;
    publish(&plugin, &environment.node_name, 2)?;
    Ok(plugin)
}

/// How many devices are published.
async fn published(node: &TestNode) -> usize {
    let slices = kube::Api::<ResourceSlice>::all(node.client());
    let slices = slices.list(&kube::api::ListParams::default()).await;
    let slices = slices.expect("the node's own API").items.into_iter();
    slices
        .flat_map(|slice| slice.spec.devices)
        .flatten()
        .count()
}

/// Waits until so many devices are published.
async fn until_published(node: &TestNode, count: usize, mode: Mode) {
    let wait = async {
        while published(node).await != count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.unwrap_or_else(|_| panic!("{mode:?}: {count} devices are not published"));
}

/// Tries a mode: a claim is prepared and devices are published while it lasts, and after it. `refuses`: the claim is not prepared
/// meanwhile.
async fn check(mode: Mode, refuses: bool) {
    let server = Arc::new(Server {
        mode: watch::channel(Mode::Well).0,
        requests: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
    });
    let mut node = TestNode::start().await.unwrap();
    let started = Arc::clone(&server);
    let run = node.run(move |environment| start(Arc::clone(&started), environment));
    run.await.unwrap();
    until_published(&node, 2, mode).await;

    let begun = Instant::now();
    server.mode.send_replace(mode);
    publish(node.plugin().unwrap(), "node-0", 3).unwrap();
    let claim = node.create(&TestClaim::new("led-0")).unwrap();
    for _ in 0..3 {
        let result = node.prepare_again(&claim).await;
        assert_eq!(result.is_err(), refuses, "{mode:?}: {result:?}");
    }
    if !refuses {
        until_published(&node, 3, mode).await;
    }
    let seconds = begun.elapsed().as_secs() as usize;
    let requests = server.requests.load(Ordering::Relaxed);
    // Three for the calls, each in four versions of the API; the publisher and its watch have pauses of 200 ms and more.
    let most = 30 + 12 * seconds;
    assert!(
        requests <= most,
        "{mode:?}: {requests} requests in {seconds} s"
    );
    let bytes = server.bytes.load(Ordering::Relaxed);
    assert!(
        bytes <= requests.max(1) * LARGEST,
        "{mode:?}: {bytes} bytes in {requests} answers"
    );

    server.mode.send_replace(Mode::Well);
    node.prepare_again(&claim)
        .await
        .unwrap_or_else(|error| panic!("{mode:?}: {error}"));
    until_published(&node, 3, mode).await;
    node.unprepare(&claim).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_no_objects_are_survived() {
    let texts = [
        "",
        "\u{0}\u{1}\u{2}",
        "null",
        "[]",
        "{\"items\": {\"a\": 1}}",
        "{\"metadata\": {\"uid\": [7]}, \"status\": {\"allocation\": \"x\"}, \"items\": [1, null, {}]}",
        "{\"kind\": \"Status\", \"code\": 99999999999}",
        "<html>gateway</html>",
    ];
    join_all(texts.map(|text| check(Mode::Text(text), true))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn storms_of_refusals_are_survived() {
    let codes = [400, 401, 403, 404, 410, 429, 500, 503];
    join_all(codes.map(|code| check(Mode::Refused(code), true))).await;
    let codes = [410, 429, 500];
    join_all(codes.map(|code| check(Mode::NoWatch(code), false))).await;
}

const SPACES: &str = "                                                                                               ";
const NESTED: &str =
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[";

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_end_are_survived() {
    // A huge object, and one that is nested without end.
    check(
        Mode::Endless("{\"metadata\": {\"annotations\": {\"a\": \"", SPACES),
        true,
    )
    .await;
    check(Mode::Endless("{\"items\": ", NESTED), true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_without_end_are_survived() {
    const DELETED: &str = "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"5\"}}}\n";
    let events = [DELETED, "{}\n", "\n", SPACES];
    join_all(events.map(|event| check(Mode::Events(event), false))).await;
}
