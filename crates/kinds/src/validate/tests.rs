use serde_json::json;

use super::*;

fn rules(group: &str, plural: &str) -> &'static Rules {
    let kind = crate::builtin::find(group, plural).expect("a built-in kind");
    &kind.rules
}

fn check(group: &str, plural: &str, object: Value, expected: &[&str]) {
    let found: Vec<String> = create(rules(group, plural), &object)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, expected, "{object}");
}

fn pod(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({"metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"i"}]}});
    allot_schema::defaults::apply("", "v1", "Pod", &mut pod);
    change(&mut pod);
    pod
}

#[test]
fn pods_are_checked_from_containers_to_tolerations() {
    check("", "pods", pod(|_| {}), &[]);
    check(
        "",
        "pods",
        pod(|p| p["spec"]["containers"] = json!([])),
        &["spec.containers: Required value"],
    );
    check(
        "",
        "pods",
        pod(|p| p["spec"]["containers"][0]["image"] = json!("")),
        &["spec.containers[0].image: Required value"],
    );
    check(
        "",
        "pods",
        pod(|p| {
            p["spec"]["containers"][0]["ports"] = json!([{"containerPort":70000,"protocol":"TCP"}])
        }),
        &[
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ],
    );
    check(
        "",
        "pods",
        pod(|p| {
            p["spec"]["containers"][0]["resources"] =
                json!({"requests":{"cpu":"2"},"limits":{"cpu":"1"}})
        }),
        &[
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ],
    );
    check(
        "",
        "pods",
        pod(|p| {
            p["spec"]["containers"][0]["resources"] = json!({"requests":{"example.com/x":"1"}})
        }),
        &[
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ],
    );
    check(
        "",
        "pods",
        pod(|p| p["spec"]["tolerations"] = json!([{"key":"k","operator":"Exists","value":"v"}])),
        &[
            "spec.tolerations[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
        ],
    );
    check(
        "",
        "pods",
        pod(|p| {
            p["spec"]["containers"][0]["volumeMounts"] = json!([{"name":"none","mountPath":"/x"}])
        }),
        &["spec.containers[0].volumeMounts[0].name: Not found: \"none\""],
    );
}

#[test]
fn running_pods_hardly_change() {
    let old = pod(|_| {});
    let texts = |new: Value| -> Vec<String> {
        update(rules("", "pods"), &new, &old, Part::Main)
            .iter()
            .map(|error| error.field.clone())
            .collect()
    };
    assert!(texts(pod(|p| p["spec"]["containers"][0]["image"] = json!("j"))).is_empty());
    assert!(
        texts(pod(
            |p| p["spec"]["tolerations"] = json!([{"key":"k","operator":"Exists"}])
        ))
        .is_empty()
    );
    assert_eq!(
        texts(pod(|p| p["spec"]["nodeSelector"] = json!({"a":"b"}))),
        ["spec"]
    );
    assert_eq!(
        texts(pod(|p| p["spec"]["schedulingGates"] = json!([{"name":"g"}]))),
        ["spec.schedulingGates[0].name"]
    );
}

#[test]
fn selectors_have_to_match_their_template() {
    let spec = pod(|_| {})["spec"].clone();
    let deployment = |labels: Value| {
        json!({"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"strategy":{"type":"Recreate"},
            "template":{"metadata":{"labels":labels},"spec":spec}}})
    };
    check("apps", "deployments", deployment(json!({"a":"b"})), &[]);
    check(
        "apps",
        "deployments",
        deployment(json!({"a":"c"})),
        &[
            "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`",
        ],
    );
}

#[test]
fn maps_of_data_and_their_immutability() {
    check(
        "",
        "configmaps",
        json!({"data":{"a":"1"},"binaryData":{"a":"AA=="}}),
        &["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"],
    );
    let old = json!({"immutable":true,"data":{"a":"1"}});
    let texts: Vec<String> = update(
        rules("", "configmaps"),
        &json!({"data":{"a":"2"}}),
        &old,
        Part::Main,
    )
    .iter()
    .map(ToString::to_string)
    .collect();
    assert_eq!(
        texts,
        [
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set"
        ]
    );
    check(
        "",
        "secrets",
        json!({"type":"kubernetes.io/tls","data":{}}),
        &[
            "data[tls.crt]: Required value",
            "data[tls.key]: Required value",
        ],
    );
}

#[test]
fn leases_taints_and_services() {
    check(
        "coordination.k8s.io",
        "leases",
        json!({"spec":{"leaseDurationSeconds":0,"leaseTransitions":-1}}),
        &[
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    check(
        "",
        "nodes",
        json!({"spec":{"taints":[{"key":"a","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule"}]}}),
        &[
            "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be unique by key and effect pair",
        ],
    );
    let mut service = json!({"spec":{"ports":[{"port":0}]}});
    allot_schema::defaults::apply("", "v1", "Service", &mut service);
    check(
        "",
        "services",
        service,
        &[
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
        ],
    );
}

/// What a change of a pod's spec may not change, as upstream shows it.
#[test]
fn a_forbidden_change_of_a_pod_is_a_diff() {
    let container = serde_json::json!({
        "name": "c", "image": "i", "resources": {}, "imagePullPolicy": "Always",
        "env": [{"name": "A", "value": "<1>"}],
    });
    let before =
        serde_json::json!({"containers": [container], "hostNetwork": true, "securityContext": {}});
    let mut after = before.clone();
    after["containers"][0]["env"][0]["value"] = "2".into();
    after["hostname"] = "h".into();
    let want = r#"@@ -13,7 +13,7 @@
    "Env": [
     {
      "Name": "A",
-     "Value": "\u003c1\u003e",
+     "Value": "2",
      "ValueFrom": null
     }
    ],
@@ -70,7 +70,7 @@
   "SELinuxChangePolicy": null
  },
  "ImagePullSecrets": null,
- "Hostname": "",
+ "Hostname": "h",
  "Subdomain": "",
  "SetHostnameAsFQDN": null,
  "Affinity": null,
"#;
    assert_eq!(pod_diff::diff(&before, &after), want);
    assert_eq!(pod_diff::diff(&before, &before), "");
}

#[test]
fn a_changed_selector_is_shown_in_the_order_of_its_struct() {
    let with = |selector: Value| json!({"spec": {"selector": selector}});
    let (old, expressions) = (
        with(json!({"matchLabels": {"a": "b"}})),
        json!([{"key": "k", "operator": "Exists"}]),
    );
    for (selector, shown) in [
        (
            json!({"matchExpressions": expressions, "matchLabels": {"a": "c"}}),
            r#"{"matchLabels":{"a":"c"},"matchExpressions":[{"key":"k","operator":"Exists"}]}"#,
        ),
        (Value::Null, "null"),
    ] {
        let mut errors = ErrorList::new();
        workloads::immutable_selector(&with(selector), &old, &mut errors);
        let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [format!(
                "spec.selector: Invalid value: {shown}: field is immutable"
            )]
        );
    }
}
