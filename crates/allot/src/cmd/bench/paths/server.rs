//! Requests to the API server.

use allot_apiserver::Body;
use allot_apiserver::identity::User;
use allot_reflector::PROTOBUF;
use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyDataStream, BodyExt as _, Empty};
use serde_json::{Value, json};

use super::api::{Api, CLAIMS, JSON, PODS, allocated, pod_path};
use super::{Operation, Path};
use crate::cmd::bench::api::objects::Kind;

pub(super) const PATHS: &[Path] = &[
    Path::new("create a pod", 40, create_pod),
    Path::new("create a claim", 40, create_claim),
    Path::new("allocate a claim", 40, allocate_claim),
    Path::new("bind a pod", 40, bind_pod),
    Path::new("patch a pod's status", 40, patch_status),
    Path::new("update a pod", 40, update_pod),
    Path::new("apply a deployment", 20, apply),
    Path::new("delete a pod", 40, delete_pod),
    Path::new("create an event", 40, create_event),
    Path::new("create a custom object", 40, create_custom),
    Path::new("get a pod", 200, get_pod),
    Path::new("get a pod in protobuf", 100, get_protobuf),
    Path::new("list 200 pods", 10, list_pods),
    Path::new("list 200 pods as a table", 10, list_table),
    Path::new("review access", 100, review_access),
    Path::new("deliver a change", 40, deliver),
];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// One operation after the other, numbered.
fn each(
    api: Api,
    mut operation: impl FnMut(&Api, usize) -> anyhow::Result<()> + 'static,
) -> Operation {
    let mut next = 0;
    Box::new(move |times| {
        for _ in 0..times {
            operation(&api, next)?;
            next += 1;
        }
        Ok(())
    })
}

fn with_pods(count: usize) -> anyhow::Result<Api> {
    let api = Api::new()?;
    for number in 0..count {
        api.create(PODS, &Kind::Pods.object(number))?;
    }
    Ok(api)
}

fn create_pod(_: usize) -> anyhow::Result<Operation> {
    Ok(each(Api::new()?, |api, number| {
        api.create(PODS, &Kind::Pods.object(number))
    }))
}

fn create_claim(_: usize) -> anyhow::Result<Operation> {
    Ok(each(Api::new()?, |api, number| {
        api.create(CLAIMS, &Kind::Claims.object(number))
    }))
}

fn allocate_claim(count: usize) -> anyhow::Result<Operation> {
    let api = Api::new()?;
    for number in 0..count {
        api.create(CLAIMS, &Kind::Claims.object(number))?;
    }
    Ok(each(api, |api, number| {
        let path = format!("{CLAIMS}/{}/status", Kind::name_of(number));
        api.send("PATCH", &path, STRATEGIC, &allocated(number))
            .map(drop)
    }))
}

fn bind_pod(count: usize) -> anyhow::Result<Operation> {
    Ok(each(with_pods(count)?, |api, number| {
        let target = json!({"kind": "Node", "name": "node-1"});
        let binding = json!({"metadata": {"name": Kind::name_of(number)}, "target": target});
        api.create(&format!("{}/binding", pod_path(number)), &binding)
    }))
}

fn patch_status(count: usize) -> anyhow::Result<Operation> {
    Ok(each(with_pods(count)?, |api, number| {
        let path = format!("{}/status", pod_path(number));
        let conditions = ["PodScheduled", "Initialized", "Ready"]
            .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}));
        let status =
            json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions}});
        api.send("PATCH", &path, STRATEGIC, &status).map(drop)
    }))
}

fn update_pod(count: usize) -> anyhow::Result<Operation> {
    let api = with_pods(count)?;
    let pods = (0..count).map(|number| {
        let mut pod = api.get(&pod_path(number))?;
        pod["metadata"]["labels"]["changed"] = json!("true");
        anyhow::Ok(pod)
    });
    let pods: Vec<Value> = pods.collect::<Result<_, _>>()?;
    Ok(each(api, move |api, number| {
        api.send("PUT", &pod_path(number), JSON, &pods[number])
            .map(drop)
    }))
}

fn apply(_: usize) -> anyhow::Result<Operation> {
    Ok(each(Api::new()?, |api, number| {
        let path = "/apis/apps/v1/namespaces/default/deployments/bench?fieldManager=bench";
        let template = json!({
            "metadata": {"labels": {"app": "bench"}},
            "spec": {"containers": [{
                "name": "main",
                "image": format!("registry.example/app:{number}"),
                "ports": [{"containerPort": 80}, {"containerPort": 443}],
            }]},
        });
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "bench", "labels": {"version": number.to_string()}},
            "spec": {"selector": {"matchLabels": {"app": "bench"}}, "template": template},
        });
        api.send("PATCH", path, APPLY, &deployment).map(drop)
    }))
}

fn delete_pod(count: usize) -> anyhow::Result<Operation> {
    Ok(each(with_pods(count)?, |api, number| {
        let path = format!("{}?gracePeriodSeconds=0", pod_path(number));
        api.send("DELETE", &path, JSON, &Value::Null).map(drop)
    }))
}

fn create_event(_: usize) -> anyhow::Result<Operation> {
    Ok(each(Api::new()?, |api, number| {
        let event = json!({
            "metadata": {"name": format!("event-{number}"), "namespace": "default"},
            "regarding": {"kind": "Pod", "namespace": "default", "name": format!("pod-{number}")},
            "type": "Normal",
            "reason": "Scheduled",
            "action": "Binding",
            "note": format!("Successfully assigned default/pod-{number} to node-1"),
            "reportingController": "default-scheduler",
            "reportingInstance": "default-scheduler-1",
            "eventTime": "2026-01-01T00:00:00.000000Z",
        });
        api.create("/apis/events.k8s.io/v1/namespaces/default/events", &event)
    }))
}

fn create_custom(_: usize) -> anyhow::Result<Operation> {
    let api = Api::new()?;
    let rule = json!({"rule": "self.least <= self.most", "message": "least must not exceed most"});
    let spec = json!({
        "type": "object",
        "required": ["least"],
        "properties": {
            "least": {"type": "integer", "minimum": 0},
            "most": {"type": "integer", "default": 10},
            "tags": {"type": "array", "maxItems": 16, "items": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 32}},
        },
        "x-kubernetes-validations": [rule],
    });
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ranges.bench.example.com"},
        "spec": {
            "group": "bench.example.com",
            "scope": "Namespaced",
            "names": {"plural": "ranges", "singular": "range", "kind": "Range", "listKind": "RangeList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    api.create(DEFINITIONS, &definition)?;
    let mut events = watch(&api, DEFINITIONS)?;
    let established = api.block_on(async {
        while let Some(Ok(event)) = events.next().await {
            if String::from_utf8_lossy(&event).contains("InitialNamesAccepted") {
                return true;
            }
        }
        false
    });
    anyhow::ensure!(established, "the watch of definitions ended");
    // The same task makes the registry with it next.
    let ranges = "/apis/bench.example.com/v1/namespaces/default/ranges";
    let mut served = false;
    for _ in 0..10_000 {
        served = api.get(ranges).is_ok();
        if served {
            break;
        }
        api.block_on(tokio::task::yield_now());
    }
    anyhow::ensure!(served, "custom objects are not served");
    Ok(each(api, move |api, number| {
        let range = json!({
            "apiVersion": "bench.example.com/v1",
            "kind": "Range",
            "metadata": {"name": format!("range-{number}")},
            "spec": {"least": 1, "tags": ["one", "two"]},
        });
        api.create(ranges, &range)
    }))
}

/// Reads the same path again and again.
fn read(api: Api, path: String, media: &'static str) -> Operation {
    each(api, move |api, _| {
        api.send("GET", &path, media, &Value::Null).map(drop)
    })
}

fn get_pod(_: usize) -> anyhow::Result<Operation> {
    Ok(read(with_pods(1)?, pod_path(0), JSON))
}

fn get_protobuf(_: usize) -> anyhow::Result<Operation> {
    Ok(read(with_pods(1)?, pod_path(0), PROTOBUF))
}

fn list_pods(_: usize) -> anyhow::Result<Operation> {
    Ok(read(with_pods(200)?, PODS.to_owned(), JSON))
}

fn list_table(_: usize) -> anyhow::Result<Operation> {
    let media = "application/json;as=Table;v=v1;g=meta.k8s.io";
    Ok(read(with_pods(200)?, PODS.to_owned(), media))
}

fn review_access(_: usize) -> anyhow::Result<Operation> {
    Ok(each(Api::new()?, |api, _| {
        let attributes = json!({"namespace": "default", "verb": "get", "resource": "pods"});
        let spec = json!({
            "user": "system:kube-scheduler",
            "groups": ["system:authenticated"],
            "resourceAttributes": attributes,
        });
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        api.create(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            &review,
        )
    }))
}

/// The events of a collection, from the present objects on.
fn watch(api: &Api, collection: &str) -> anyhow::Result<BodyDataStream<Body>> {
    let request = http::Request::get(format!("{collection}?watch=true&resourceVersion=0"))
        .body(Empty::<Bytes>::new())?;
    let response = api.block_on(api.server.handle(request, Some(User::admin())));
    Ok(response.into_body().into_data_stream())
}

/// A change of an object, with its way to a watcher.
fn deliver(_: usize) -> anyhow::Result<Operation> {
    let api = with_pods(1)?;
    let mut events = watch(&api, PODS)?;
    // The pod as it was.
    api.block_on(events.next());
    Ok(each(api, move |api, number| {
        let labels = json!({"metadata": {"labels": {"number": number.to_string()}}});
        api.send("PATCH", &pod_path(0), STRATEGIC, &labels)?;
        let event = api.block_on(events.next());
        anyhow::ensure!(matches!(event, Some(Ok(_))), "the watch ended");
        Ok(())
    }))
}
