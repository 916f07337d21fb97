//! Workloads of files.

use serde_json::{Value, json};

use super::*;

/// What is said of a workload with so many replicas, each with a device, where there are three; and whether all fit.
fn told(replicas: u32, more: Vec<Value>) -> (String, bool) {
    told_of(json!({"name": "web"}), replicas, more)
}

/// The same of a workload with this metadata.
fn told_of(metadata: Value, replicas: u32, more: Vec<Value>) -> (String, bool) {
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"replicas": replicas, "template": {"spec": templated()}}});
    of_workload(&cluster(more), &workload, false)
}

/// Two nodes with three devices, and more.
fn cluster(more: Vec<Value>) -> Vec<Value> {
    let mut objects = vec![
        node("a"),
        node("b"),
        class("true"),
        slice("a", json!([{"name": "x"}])),
        slice("b", json!([{"name": "x"}, {"name": "y"}])),
        template(),
    ];
    objects.extend(more);
    objects
}

#[test]
fn the_replicas_that_fit_are_counted() {
    let (text, fits) = told(3, Vec::new());
    assert_eq!(
        text,
        "Deployment default/web: 3 of 3 replicas fit\n  1 on a, 2 on b\n"
    );
    assert!(fits);
    let (text, fits) = told(5, Vec::new());
    let first = "Deployment default/web: 3 of 5 replicas fit\n  1 on a, 2 on b\npod default/web-3 fits on none of 2 nodes\n";
    assert!(text.starts_with(first) && !fits, "{text}");
    assert!(text.contains("in use: 1 by pod default/web-"), "{text}");
}

#[test]
fn quotas_count_for_replicas() {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"}, "spec": {},
        "status": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "2"}, "used": {}}});
    let (text, fits) = told(3, vec![quota]);
    assert!(
        text.starts_with("Deployment default/web: 2 of 3 replicas fit\n") && !fits,
        "{text}"
    );
    assert!(
        text.contains("is not let in: claim \"c\" of it cannot be made: exceeded quota: q"),
        "{text}"
    );
}

/// A pod of the Deployment `web`, with the claim that was made for it.
fn own(name: &str, claim: &str, node: Option<&str>) -> Value {
    let mut own = pod(name, json!({"resourceClaimTemplateName": "t"}));
    own["metadata"]["labels"] = json!({"pod-template-hash": "7f"});
    own["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1",
        "kind": "ReplicaSet", "name": "web-7f", "uid": "r", "controller": true}]);
    own["spec"]["nodeName"] = json!(node);
    own["status"] = json!({"phase": if node.is_some() { "Running" } else { "Pending" },
        "resourceClaimStatuses": [{"name": "c", "resourceClaimName": claim}]});
    own
}

/// A claim that was made for a pod, with a device.
fn made(name: &str, node: &str, pod: &str) -> Value {
    let mut made = held(name, node, json!(["x"]), Some(pod));
    made["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": true}]);
    made
}

/// Two pods of the Deployment `web`, each with a device.
fn running() -> Vec<Value> {
    vec![
        own("web-7f-a", "one", Some("a")),
        made("one", "a", "web-7f-a"),
        own("web-7f-b", "two", Some("b")),
        made("two", "b", "web-7f-b"),
    ]
}

/// As its author wrote it, a Deployment has no UID: `explain -f` counted its pods a second time.
#[test]
fn regression_a_deployment_without_uid_is_the_one_with_its_name() {
    let (text, fits) = told(4, running());
    let first = "Deployment default/web: 2 on nodes, 1 of 2 more fit\n  1 on b\n";
    assert!(text.starts_with(first) && !fits, "{text}");
    let (text, fits) = told(2, running());
    assert_eq!(text, "Deployment default/web: 2 on nodes, no more wanted\n");
    assert!(fits);
    let (text, _) = told(1, running());
    assert_eq!(text, "Deployment default/web: 2 on nodes, no more wanted\n");
    // Another one has its pods for itself.
    let (text, _) = told_of(json!({"name": "other"}), 2, running());
    let first = "Deployment default/other: 1 of 2 replicas fit\n  1 on b\n";
    assert!(text.starts_with(first), "{text}");
    // Pods of other kinds name their owner themselves.
    let mut objects = cluster(running());
    for pod in objects.iter_mut().filter(|object| object["kind"] == "Pod") {
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1",
            "kind": "StatefulSet", "name": "web", "uid": "s", "controller": true}]);
    }
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": {"spec": templated()}}});
    let (text, fits) = of_workload(&objects, &set, false);
    let all = "StatefulSet default/web: 2 on nodes, 1 of 1 more fit\n  1 on b\n";
    assert_eq!(text, all);
    assert!(fits);
}

/// They were counted as if they stayed, whatever the file says.
#[test]
fn regression_pods_of_another_template_make_way() {
    let told = |change: &dyn Fn(&mut Value)| {
        let mut web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 3, "template": {"spec": templated()}}});
        change(&mut web);
        of_workload(&cluster(running()), &web, false)
    };
    let pointer = "/spec/template/spec/containers/0";
    let (text, fits) = told(&|web| {
        web.pointer_mut(pointer).expect("a container")["resources"] =
            json!({"requests": {"cpu": "7"}});
    });
    let first = "Deployment default/web: 2 of 3 replicas fit, in place of 2 on nodes that need something else\n  1 on a, 1 on b\n";
    assert!(text.starts_with(first) && !fits, "{text}");
    let (text, _) = told(&|web| {
        web["spec"]["template"]["spec"]["resources"] = json!({"requests": {"cpu": "7"}});
    });
    assert!(text.starts_with(first), "{text}");
    // What does not decide where a pod goes makes no difference, nor does a template that is not rolled out.
    let stay = "Deployment default/web: 2 on nodes, 1 of 1 more fit\n  1 on b\n";
    let (text, _) = told(&|web| {
        web.pointer_mut(pointer).expect("a container")["image"] = json!("newer");
    });
    assert_eq!(text, stay);
    let (text, _) = told(&|web| {
        web["spec"]["paused"] = json!(true);
        web["spec"]["template"]["spec"]["nodeSelector"] = json!({"none": "has it"});
    });
    assert!(
        text.starts_with("Deployment default/web: 2 on nodes, 0 of 1 more fit"),
        "{text}"
    );
}

/// What admission adds for a RuntimeClass looked like a node selector that the template has no longer.
#[test]
fn regression_the_node_selector_of_a_runtime_class_is_no_other_template() {
    let mut objects = cluster(running());
    for pod in objects.iter_mut().filter(|object| object["kind"] == "Pod") {
        pod["spec"]["runtimeClassName"] = json!("sandboxed");
        pod["spec"]["nodeSelector"] = json!({"sandbox": "true"});
    }
    let mut web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": {"spec": templated()}}});
    web["spec"]["template"]["spec"]["runtimeClassName"] = json!("sandboxed");
    let (text, fits) = of_workload(&objects, &web, false);
    assert_eq!(text, "Deployment default/web: 2 on nodes, no more wanted\n");
    assert!(fits);
}

#[test]
fn the_pods_that_a_workload_has_are_not_in_its_way() {
    let metadata = json!({"name": "web", "uid": "w"});
    let (text, fits) = told_of(metadata.clone(), 4, running());
    let first = "Deployment default/web: 2 on nodes, 1 of 2 more fit\n  1 on b\n";
    assert!(text.starts_with(first) && !fits, "{text}");
    let (text, fits) = told_of(metadata.clone(), 2, running());
    assert_eq!(text, "Deployment default/web: 2 on nodes, no more wanted\n");
    assert!(fits);
    // The one that waits is tried itself, and is not counted twice.
    let mut waiting = running();
    waiting.push(own("web-7f-c", "three", None));
    let mut three = claim("three", request(json!({})));
    three["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod",
        "name": "web-7f-c", "uid": "web-7f-c", "controller": true}]);
    waiting.push(three);
    let (text, fits) = told_of(metadata, 3, waiting);
    let all = "Deployment default/web: 2 on nodes, 1 of 1 more fit\n  1 on b\n";
    assert_eq!(text, all);
    assert!(fits);
}
