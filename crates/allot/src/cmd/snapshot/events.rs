//! Events about pods: what the claim controller, schedulers and kubelets said last.

use http::Request;
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use serde_json::Value;

use super::read::{Page, path};

/// Most pages of events that are read.
const PAGES: usize = 20;

/// A warning about a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodEvent {
    /// Its reason, `FailedPrepareDynamicResources`.
    pub reason: String,
    /// What happened.
    pub message: String,
    /// How often.
    pub count: u64,
    /// When it happened last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
}

/// The warnings among `objects` about a pod, the newest first, each text once.
pub fn of_pod(objects: &[Value], namespace: &str, name: &str, uid: &str) -> Vec<PodEvent> {
    let about = |event: &&Value| {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        let same = |pointer: &str, wanted: &str| text(pointer) == Some(wanted);
        let is_event = same("/kind", "Event") && same("/type", "Warning");
        // Those of `events.k8s.io` name their object in another field.
        ["/involvedObject", "/regarding"].iter().any(|object| {
            is_event
                && same(&format!("{object}/kind"), "Pod")
                && same(&format!("{object}/namespace"), namespace)
                && same(&format!("{object}/name"), name)
                && text(&format!("{object}/uid")).is_none_or(|of| of == uid)
        })
    };
    let mut events: Vec<PodEvent> = objects.iter().filter(about).map(event).collect();
    events.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| a.message.cmp(&b.message)));
    let mut told = Vec::new();
    events.retain(|e| {
        let is_new = !told.contains(&e.message);
        told.push(e.message.clone());
        is_new
    });
    events
}

fn event(event: &Value) -> PodEvent {
    let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let time = |pointer: &str| event.pointer(pointer)?.as_str()?.parse::<Timestamp>().ok();
    let times = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/deprecatedLastTimestamp",
        "/eventTime",
        "/firstTimestamp",
    ];
    let counts = ["/series/count", "/count", "/deprecatedCount"];
    let count = counts.iter().find_map(|c| event.pointer(c)?.as_u64());
    let message = match text("message") {
        note if note.is_empty() => text("note"),
        message => message,
    };
    PodEvent {
        reason: text("reason"),
        message,
        count: count.unwrap_or(1),
        last: times.iter().find_map(|t| time(t)),
    }
}

/// The events about pods of a namespace, or of all; about one pod if it is named. Unreadable ones are left out, with a
/// warning.
pub async fn read(client: &Client, namespace: Option<&str>, pod: Option<&str>) -> Vec<Value> {
    let path = path("v1", "events", namespace);
    let pod = pod.map_or(String::new(), |name| format!(",involvedObject.name={name}"));
    let fields = format!("involvedObject.kind=Pod,type=Warning{pod}").replace('=', "%3D");
    let mut events = Vec::new();
    let mut next = String::new();
    for _ in 0..PAGES {
        let url = format!("{path}?limit=500&fieldSelector={fields}&continue={next}");
        let Ok(request) = Request::get(url).body(Vec::new()) else {
            break;
        };
        let page: Page = match client.request(request).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) => {
                let of = namespace.map_or(String::new(), |name| format!(" of {name}"));
                eprintln!("warning: events{of} are left out: {}", status.message);
                break;
            }
            Err(error) => {
                eprintln!("warning: events are left out: {error}");
                break;
            }
        };
        for mut item in page.items {
            item["kind"] = "Event".into();
            item["apiVersion"] = "v1".into();
            events.push(item);
        }
        if page.metadata.next.is_empty() {
            break;
        }
        next = page.metadata.next;
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn warnings_about_a_pod_are_reported_once_and_the_newest_first() {
        let event = |name: &str, uid: &str, message: &str, last: &str| {
            json!({"kind": "Event", "type": "Warning", "reason": "Failed", "message": message,
                "involvedObject": {"kind": "Pod", "namespace": "n", "name": name, "uid": uid},
                "count": 3, "lastTimestamp": last})
        };
        let newer = json!({"kind": "Event", "type": "Warning", "reason": "Failed", "note": "later",
            "regarding": {"kind": "Pod", "namespace": "n", "name": "p", "uid": "u"},
            "series": {"count": 7, "lastObservedTime": "2026-01-03T00:00:00.000000Z"}});
        let objects = [
            event("p", "u", "early", "2026-01-01T00:00:00Z"),
            event("p", "u", "early", "2026-01-02T00:00:00Z"),
            event("p", "before", "of another life", "2026-01-02T00:00:00Z"),
            event("q", "u", "of another pod", "2026-01-02T00:00:00Z"),
            newer,
        ];
        let told: Vec<String> = of_pod(&objects, "n", "p", "u")
            .iter()
            .map(|e| format!("{} x{} {}", e.message, e.count, e.last.expect("a time")))
            .collect();
        let expected = [
            "later x7 2026-01-03T00:00:00Z",
            "early x3 2026-01-02T00:00:00Z",
        ];
        assert_eq!(told, expected);
    }
}
