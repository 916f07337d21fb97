use serde_json::json;

use super::*;

fn check(group: &str, version: &str, kind: &str, object: Value, expected: Value) {
    let schema = types::lookup(group, version, kind).expect("known kind");
    let mut object = decode::decode_value(object, schema).expect("decodes").value;
    apply(group, version, kind, &mut object);
    assert_eq!(object, expected);
    let once = object.clone();
    apply(group, version, kind, &mut object);
    assert_eq!(object, once, "defaulting twice changes nothing");
}

#[test]
fn a_pod_with_everything_left_open() {
    check(
        "",
        "v1",
        "Pod",
        json!({"metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"i","ports":[{"containerPort":80}],
            "livenessProbe":{"httpGet":{"port":80}},"resources":{"limits":{"cpu":"1"}}}],
            "volumes":[{"name":"v"},{"name":"c","configMap":{"name":"c"}}]}}),
        json!({"metadata":{"name":"p"},"spec":{
            "containers":[{"name":"a","image":"i","imagePullPolicy":"Always","ports":[{"containerPort":80,"protocol":"TCP"}],
                "livenessProbe":{"httpGet":{"port":80,"path":"/","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},
                "resources":{"limits":{"cpu":"1"},"requests":{"cpu":"1"}},
                "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],
            "volumes":[{"name":"v","emptyDir":{}},{"name":"c","configMap":{"name":"c","defaultMode":420}}],
            "dnsPolicy":"ClusterFirst","restartPolicy":"Always","securityContext":{},"terminationGracePeriodSeconds":30,
            "schedulerName":"default-scheduler","enableServiceLinks":true},"status":{}}),
    );
}

#[test]
fn regression_conditions_of_failed_pods_have_a_status_in_jobs_and_cron_jobs() {
    let job = json!({
        "template": {"spec": {}},
        "podFailurePolicy": {"rules": [{"action": "Count", "onPodConditions": [{"type": "T"}]}]},
    });
    let condition = "/podFailurePolicy/rules/0/onPodConditions/0/status";
    let mut object = json!({"spec": job});
    apply("batch", "v1", "Job", &mut object);
    assert_eq!(object["spec"].pointer(condition).unwrap(), "True");
    let mut object = json!({"spec": {"jobTemplate": {"spec": job}}});
    apply("batch", "v1", "CronJob", &mut object);
    let job = &object["spec"]["jobTemplate"]["spec"];
    assert_eq!(job.pointer(condition).unwrap(), "True");
}

#[test]
fn images_are_pulled_by_tag() {
    for (image, policy) in [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("r.example.com:5000/a", "Always"),
        ("Name", "IfNotPresent"),
        ("a b", "IfNotPresent"),
        ("a:1", "IfNotPresent"),
        ("r.example.com:5000/a@sha256:00", "IfNotPresent"),
        (&"a".repeat(247), "Always"),
        (&"a".repeat(248), "IfNotPresent"),
        (&format!("r.io/{}", "a".repeat(255)), "Always"),
        (&format!("r.io/{}", "a".repeat(256)), "IfNotPresent"),
    ] {
        let mut pod = json!({"spec":{"containers":[{"name":"a","image":image}]}});
        apply("", "v1", "Pod", &mut pod);
        assert_eq!(
            pod["spec"]["containers"][0]["imagePullPolicy"], policy,
            "{image}"
        );
    }
}

#[test]
fn services_know_their_target_ports() {
    check(
        "",
        "v1",
        "Service",
        json!({"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}),
        json!({"metadata":{"name":"s"},"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":80}],
            "type":"ClusterIP","sessionAffinity":"None","internalTrafficPolicy":"Cluster"},"status":{"loadBalancer":{}}}),
    );
}

#[test]
fn secrets_take_clear_text() {
    check(
        "",
        "v1",
        "Secret",
        json!({"metadata":{"name":"s"},"data":{"a":"eA=="},"stringData":{"b":"y"}}),
        json!({"metadata":{"name":"s"},"type":"Opaque","data":{"a":"eA==","b":"eQ=="}}),
    );
}

#[test]
fn access_and_storage_kinds() {
    check(
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
        json!({"metadata":{"name":"b"},"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u"},{"kind":"ServiceAccount","name":"s","namespace":"n"}]}),
        json!({"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},
            "subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"u"},{"kind":"ServiceAccount","name":"s","namespace":"n"}]}),
    );
    check(
        "storage.k8s.io",
        "v1",
        "StorageClass",
        json!({"metadata":{"name":"s"},"provisioner":"p"}),
        json!({"metadata":{"name":"s"},"provisioner":"p","reclaimPolicy":"Delete","volumeBindingMode":"Immediate"}),
    );
}
