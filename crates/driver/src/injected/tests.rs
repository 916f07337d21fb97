use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

use super::*;

fn devices(count: usize) -> Resources {
    let devices = (0..count).map(|index| Device {
        name: format!("led-{index}"),
        ..Device::default()
    });
    Resources::pool("node-0", Pool::new(devices))
}

fn failures(text: serde_json::Value) -> Failures {
    serde_json::from_value(text).expect("failures")
}

/// Names of the published devices, each with the effect of its taint.
fn published(resources: &Resources) -> Vec<String> {
    let slices = &resources.pools["node-0"].slices;
    let devices = slices.iter().flat_map(|slice| &slice.devices);
    devices
        .map(|device| match device.taints.as_deref() {
            Some([taint]) => format!("{} {}={}", device.name, taint.key, taint.effect),
            _ => device.name.clone(),
        })
        .collect()
}

fn reports(list: &[DeviceHealth]) -> Vec<(&str, Health, &str)> {
    let reports = list.iter();
    reports
        .map(|it| (it.device.as_str(), it.health, it.message.as_str()))
        .collect()
}

#[test]
fn failed_devices_are_tainted_or_gone() {
    let failures = failures(json!({
        "led-0": {"taint": "NoSchedule"},
        "led-1": {"unplugged": true},
        "led-2": {"unhealthy": "hot"},
        "led-3": {"taint": "Sometimes"},
        "led-9": {"taint": "NoExecute"},
    }));
    assert_eq!(
        published(&apply(&devices(5), &failures)),
        [
            "led-0 allot.dev/hardware-failed=NoSchedule",
            "led-2",
            "led-3",
            "led-4"
        ]
    );
    let many = apply(&devices(128), &failures);
    let sizes = many.pools["node-0"].slices.iter();
    assert_eq!(
        sizes.map(|slice| slice.devices.len()).collect::<Vec<_>>(),
        [64, 63]
    );
    assert_eq!(apply(&devices(3), &Failures::default()), devices(3));
}

#[test]
fn failed_devices_are_unhealthy() {
    let failures = failures(json!({
        "led-0": {"taint": "NoSchedule"},
        "led-1": {"unplugged": true},
        "led-2": {"unhealthy": "hot"},
    }));
    assert_eq!(
        reports(&health(&devices(3), None, &failures, 7)),
        [
            ("led-0", Health::Healthy, ""),
            ("led-1", Health::Unhealthy, "unplugged"),
            ("led-2", Health::Unhealthy, "hot"),
        ]
    );
    let long = "é".repeat(600);
    assert_eq!(shortened(&long), "é".repeat(512));
    // A driver that reports by itself is believed about the others.
    let own = ["led-0", "led-2"].map(|device| DeviceHealth {
        pool: "node-0".into(),
        device: device.into(),
        health: Health::Unknown,
        message: "asleep".into(),
        ..DeviceHealth::default()
    });
    assert_eq!(
        reports(&health(&devices(4), Some(own.into()), &failures, 7)),
        [
            ("led-0", Health::Unknown, "asleep"),
            ("led-1", Health::Unhealthy, "unplugged"),
            ("led-2", Health::Unhealthy, "hot"),
        ]
    );
}

fn node(text: &str) -> PartialObjectMeta<Node> {
    let mut node = PartialObjectMeta::<Node>::default();
    let annotations = BTreeMap::from([(INJECTED_FAILURES.to_owned(), text.to_owned())]);
    node.metadata.annotations = Some(annotations);
    node
}

#[test]
fn an_annotation_is_for_several_drivers_and_may_be_wrong() {
    let of = |text: &str| of_node(&node(text), "leds.example.com").ok();
    let none = Some(Failures::default());
    let other = r#"{"fans.example.com": {"fan-0": {"unplugged": true}}}"#;
    assert_eq!(of(other), none);
    let own = r#"{"leds.example.com": {"led-0": {"unhealthy": "hot", "later": 1}}, "fans.example.com": 1}"#;
    let hot = failures(json!({"led-0": {"unhealthy": "hot"}}));
    assert_eq!(of(own), Some(hot));
    for wrong in ["", "[]", "{\"leds.example.com\": 1}", &"[".repeat(100_000)] {
        assert_eq!(of(wrong), None, "{wrong:.20}");
    }
    assert_eq!(
        of_node(&PartialObjectMeta::default(), "leds.example.com").ok(),
        none
    );
}

/// A typing error in the annotation brought all failed devices back.
#[test]
fn regression_failures_stay_while_their_annotation_cannot_be_read() {
    let (sender, known) = watch::channel(None);
    let learn = |node: Option<&PartialObjectMeta<Node>>| {
        let read = learn(&sender, node, "leds.example.com").is_ok();
        (read, known.borrow().clone().expect("known"))
    };
    let unplugged = failures(json!({"led-0": {"unplugged": true}}));
    let good = node(r#"{"leds.example.com": {"led-0": {"unplugged": true}}}"#);
    let wrong = node(r#"{"leds.example.com": {"led-0": {"unplugged": true}}"#);
    assert_eq!(learn(Some(&wrong)), (false, Failures::default()));
    assert_eq!(learn(Some(&good)), (true, unplugged.clone()));
    assert_eq!(learn(Some(&wrong)), (false, unplugged.clone()));
    assert_eq!(learn(Some(&node("{}"))), (true, Failures::default()));
    assert_eq!(learn(Some(&good)), (true, unplugged));
    assert_eq!(learn(None), (true, Failures::default()));
}

/// The failures that a driver knows first, if its API server gives the answers to the first requests, and then the Node;
/// `None` stands for a connection that is refused.
async fn first_known(answers: &'static [Option<u16>]) -> Failures {
    let requests = AtomicUsize::new(0);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answers.get(requests.fetch_add(1, Ordering::Relaxed));
        let (code, body) = match answer {
            Some(None) => (0, json!(null)),
            Some(Some(code)) => {
                let status = json!({"kind": "Status", "status": "Failure", "code": code});
                (*code, status)
            }
            None => {
                let text = json!({"leds.example.com": {"led-0": {"unplugged": true}}}).to_string();
                let annotations = json!({INJECTED_FAILURES: text});
                let node = json!({"metadata": {"name": "node-0", "annotations": annotations}});
                let list = json!({
                    "apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": [node],
                });
                (200, list)
            }
        };
        let watch = request
            .uri()
            .query()
            .is_some_and(|it| it.contains("watch="));
        async move {
            if watch {
                std::future::pending::<()>().await;
            }
            if code == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
            }
            let response = Response::builder()
                .status(code)
                .body(Body::from(body.to_string().into_bytes()));
            Ok(response.expect("a response"))
        }
    });
    let nodes = Api::all(Client::new(service, "default"));
    let (sender, mut failures) = watch::channel(None);
    tokio::select! {
        () = follow(nodes, "node-0", "leds.example.com", &sender) => panic!("the watch ended"),
        known = failures.wait_for(Option::is_some) => known.expect("open").clone().expect("known"),
    }
}

/// A device that had failed was there again for a while if the driver was restarted with or before the API server.
#[tokio::test(start_paused = true)]
async fn regression_failures_are_awaited_until_the_api_server_answers() {
    let unplugged = failures(json!({"led-0": {"unplugged": true}}));
    assert_eq!(first_known(&[]).await, unplugged);
    assert_eq!(first_known(&[Some(503), Some(429)]).await, unplugged);
    // For minutes.
    assert_eq!(first_known(&[None; 10]).await, unplugged);
    assert_eq!(first_known(&[Some(503); 10]).await, unplugged);
    // It may not read the Node.
    assert_eq!(first_known(&[Some(403); 50]).await, Failures::default());
}

/// A driver that cannot watch its Node for another reason publishes its devices nevertheless.
#[tokio::test(start_paused = true)]
async fn devices_are_not_held_back_by_errors() {
    assert_eq!(first_known(&[Some(400); 50]).await, Failures::default());
}
