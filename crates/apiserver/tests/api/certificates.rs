//! Trust bundles and pod certificates: kinds of features that are off by default.

mod requests;

use std::time::{Duration, SystemTime};

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use allot_apiserver::identity::{NODES, User};
use allot_apiserver::pki::Authority;
use allot_apiserver::registry::RuntimeConfig;
use allot_model::features::Feature;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::{admin, send_json, with_config};

const GROUP: &str = "/apis/certificates.k8s.io/v1beta1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn server(features: &[Feature]) -> Server {
    let mut config = Config {
        runtime_config: RuntimeConfig::parse("certificates.k8s.io/v1beta1=true").unwrap(),
        disabled_admission: vec!["ServiceAccount".to_owned()],
        ..Config::default()
    };
    for feature in features {
        config.features = config.features.with(*feature, true);
    }
    with_config(config).await
}

async fn create(server: &Server, path: &str, object: Value) -> Value {
    let (code, answer) = admin(server, "POST", path, object).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

/// Sends JSON as a user; returns the code and the message.
async fn send_as(
    server: &Server,
    user: &User,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, String) {
    let (code, answer) = send_json(server, user.clone(), method, path, body).await;
    let message = answer["message"].as_str().unwrap_or_default();
    (code, message.to_owned())
}

/// Grants a user a verb for the signer `example.com/ca`, and all verbs for the objects of the group.
async fn permit(server: &Server, user: &str, verb: &str) {
    let rules = json!([
        {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/ca"], "verbs": [verb]},
        {"apiGroups": ["certificates.k8s.io"], "verbs": ["*"],
         "resources": ["clustertrustbundles", "podcertificaterequests", "podcertificaterequests/status"]},
    ]);
    let role = json!({"metadata": {"name": user}, "rules": rules});
    create(server, &format!("{RBAC}/clusterroles"), role).await;
    bind(server, user, user).await;
}

async fn bind(server: &Server, user: &str, role: &str) {
    let binding = json!({
        "metadata": {"name": user}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    });
    create(server, &format!("{RBAC}/clusterrolebindings"), binding).await;
}

#[tokio::test]
async fn the_kinds_are_served_with_their_features_only() {
    let server = server(&[Feature::ClusterTrustBundle]).await;
    let (_, list) = admin(&server, "GET", GROUP, Value::Null).await;
    let names: Vec<&str> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["clustertrustbundles"]);
    let path = format!("{GROUP}/podcertificaterequests");
    assert_eq!(admin(&server, "GET", &path, Value::Null).await.0, 404);
    let role = format!("{RBAC}/clusterroles/system:cluster-trust-bundle-discovery");
    assert_eq!(admin(&server, "GET", &role, Value::Null).await.0, 200);
    let node = User::new("system:node:n1", [NODES]);
    let path = format!("{GROUP}/clustertrustbundles");
    for (method, expected) in [("GET", 200), ("DELETE", 403)] {
        let (code, message) = send_as(&server, &node, method, &path, &Value::Null).await;
        assert_eq!(code, expected, "{message}");
    }
}

#[tokio::test]
async fn sources_of_volumes_are_dropped_without_their_features() {
    let bundle = json!({"clusterTrustBundle": {"name": "b", "path": "ca.pem"}});
    let certificate = json!({"podCertificate": {"signerName": "example.com/ca", "keyType": "ED25519", "keyPath": "key"}});
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}],
                 "volumes": [{"name": "v", "projected": {"sources": [bundle, certificate]}}]},
    });
    let template = json!({"metadata": {"name": "t"}, "template": pod});
    let all = [
        Feature::ClusterTrustBundle,
        Feature::ClusterTrustBundleProjection,
        Feature::PodCertificateRequest,
    ];
    for (features, expected) in [
        (&all[..1], json!([{}, {}])),
        (&all[..2], json!([bundle, {}])),
        (&all[2..], json!([{}, certificate])),
        (&all[..], json!([bundle, certificate])),
    ] {
        let server = server(features).await;
        let path = "/api/v1/namespaces/default/pods";
        let pod = create(&server, path, pod.clone()).await;
        let path = "/api/v1/namespaces/default/podtemplates";
        let template = create(&server, path, template.clone()).await;
        for spec in [&pod["spec"], &template["template"]["spec"]] {
            let sources = &spec["volumes"][0]["projected"]["sources"];
            assert_eq!(sources, &expected, "{features:?}");
        }
    }
    let server = server(&all).await;
    let mut escaping = pod.clone();
    escaping["spec"]["volumes"][0]["projected"]["sources"][1]["podCertificate"]["keyPath"] =
        json!("../../../etc/key");
    let (code, answer) = admin(&server, "POST", "/api/v1/namespaces/default/pods", escaping).await;
    assert_eq!(code, 422);
    assert_eq!(
        answer["message"],
        "Pod \"p\" is invalid: spec.volumes[0].projected.sources[1].podCertificate.keyPath: Invalid value: \"../../../etc/key\": must not contain '..'"
    );
}

#[tokio::test]
async fn who_writes_the_bundle_of_a_signer_may_attest_for_it() {
    let server = server(&[Feature::ClusterTrustBundle]).await;
    permit(&server, "jo", "attest").await;
    permit(&server, "kim", "sign").await;
    let (jo, kim) = (User::new("jo", ["team"]), User::new("kim", ["team"]));
    let authority = Authority::generate("ca").unwrap();
    let bundle = |name: &str, signer: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": authority.certificate()}});
    let path = format!("{GROUP}/clustertrustbundles");
    let of_signer = bundle("example.com:ca:one", "example.com/ca");
    let (code, message) = send_as(&server, &kim, "POST", &path, &of_signer).await;
    let refused = "clustertrustbundles.certificates.k8s.io \"example.com:ca:one\" is forbidden: user not permitted to attest for \
                   signerName \"example.com/ca\"";
    assert_eq!((code, message.as_str()), (403, refused));
    let (code, message) = send_as(&server, &jo, "POST", &path, &of_signer).await;
    assert_eq!(code, 201, "{message}");
    let (code, _) = send_as(&server, &jo, "POST", &path, &bundle("a.b:ca:one", "a.b/ca")).await;
    assert_eq!(code, 403);
    // One without a signer is for all users.
    let (code, message) = send_as(&server, &kim, "POST", &path, &bundle("plain", "")).await;
    assert_eq!(code, 201, "{message}");
    let one = format!("{path}/example.com:ca:one");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send_as(&server, &kim, "PATCH", &one, &label).await.0, 403);
    // The garbage collector may release it.
    let finalizers = json!({"metadata": {"finalizers": ["example.com/a"]}});
    assert_eq!(
        send_as(&server, &kim, "PATCH", &one, &finalizers).await.0,
        200
    );
    let signer = json!({"spec": {"signerName": "example.com/other"}});
    let (code, message) = send_as(&server, &User::admin(), "PATCH", &one, &signer).await;
    assert_eq!(code, 422);
    assert!(
        message
            .contains("spec.signerName: Invalid value: \"example.com/other\": field is immutable"),
        "{message}"
    );
    let selected = format!("{path}?fieldSelector=spec.signerName%3Dexample.com/ca");
    let (_, list) = admin(&server, "GET", &selected, Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
}

/// A request of the node n1 for the pod `p`, and the private key of the pod.
async fn pod_certificate_request(server: &Server) -> (Value, KeyPair) {
    let node = create(server, "/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    create(server, "/api/v1/nodes", json!({"metadata": {"name": "n2"}})).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = create(server, accounts, json!({"metadata": {"name": "a"}})).await;
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "serviceAccountName": "a", "containers": [{"name": "c", "image": "i"}]},
    });
    let pod = create(server, "/api/v1/namespaces/default/pods", pod).await;
    let key = KeyPair::generate().unwrap();
    let stub = CertificateParams::default()
        .serialize_request(&key)
        .unwrap();
    let request = json!({"metadata": {"name": "r"}, "spec": {
        "signerName": "example.com/ca", "podName": "p", "podUID": pod["metadata"]["uid"], "serviceAccountName": "a",
        "serviceAccountUID": account["metadata"]["uid"], "nodeName": "n1", "nodeUID": node["metadata"]["uid"],
        "stubPKCS10Request": STANDARD.encode(stub.der()),
    }});
    (request, key)
}

#[tokio::test]
async fn a_node_asks_for_certificates_of_its_pods_only() {
    let server = server(&[Feature::PodCertificateRequest]).await;
    let (request, _) = pod_certificate_request(&server).await;
    let node = |name: &str| User::new(format!("system:node:{name}"), [NODES]);
    let (n1, n2) = (node("n1"), node("n2"));
    let path = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
    for (user, key, value, code, expected) in [
        (
            &n2,
            "",
            "",
            403,
            "PodCertificateRequest.Spec.NodeName=\"n1\", which is not the requesting node \"n2\"",
        ),
        (&n2, "nodeName", "n2", 500, "names node UID"),
        (
            &n1,
            "nodeUID",
            "x",
            500,
            "names node UID \"x\", inconsistent with the running node",
        ),
        (
            &n1,
            "podUID",
            "x",
            500,
            "contains pod UID (\"x\") which differs from running pod",
        ),
        (
            &n1,
            "podName",
            "q",
            500,
            "while retrieving pod \"default/q\" named in the PodCertificateRequest",
        ),
        (
            &n1,
            "serviceAccountName",
            "b",
            403,
            "contains serviceAccountName (\"b\") that differs from running pod (\"a\")",
        ),
        (
            &n1,
            "serviceAccountUID",
            "x",
            500,
            "names service account UID \"x\", which differs",
        ),
    ] {
        let mut request = request.clone();
        if !key.is_empty() {
            request["spec"][key] = value.into();
        }
        let (found, message) = send_as(&server, user, "POST", path, &request).await;
        assert_eq!(found, code, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let (code, message) = send_as(&server, &n1, "POST", path, &request).await;
    assert_eq!(code, 201, "{message}");
    let one = format!("{path}/r");
    let of_node = |name: &str| format!("{path}?fieldSelector=spec.nodeName%3D{name}");
    let status = format!("{one}/status");
    for (user, method, path, expected) in [
        (&n1, "GET", &one, 200),
        (&n2, "GET", &one, 403),
        (&n1, "GET", &of_node("n1"), 200),
        (&n2, "GET", &of_node("n1"), 403),
        (&n1, "GET", &path.to_owned(), 403),
        (&n1, "DELETE", &one, 403),
        (&n1, "PATCH", &status, 403),
    ] {
        let (code, message) = send_as(&server, user, method, path, &json!({})).await;
        assert_eq!(code, expected, "{method} {path}: {message}");
    }
}

#[tokio::test]
async fn a_signer_issues_a_certificate_once_for_the_key_of_the_request() {
    let server = server(&[Feature::PodCertificateRequest]).await;
    let (request, key) = pod_certificate_request(&server).await;
    permit(&server, "signer", "sign").await;
    permit(&server, "other", "attest").await;
    let (signer, other) = (User::new("signer", ["team"]), User::new("other", ["team"]));
    let path = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
    let made = create(&server, path, request).await;
    assert_eq!(made["spec"]["maxExpirationSeconds"], 86400);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let from = Duration::from_secs(now.as_secs());
    let time = |seconds: u64| {
        let time = jiff::Timestamp::from_second((from.as_secs() + seconds) as i64).unwrap();
        time.to_string()
    };
    let issued = |key: &KeyPair, hours: u64| {
        let mut params = CertificateParams::default();
        params.not_before = (SystemTime::UNIX_EPOCH + from).into();
        params.not_after =
            (SystemTime::UNIX_EPOCH + from + Duration::from_secs(hours * 3600)).into();
        json!({"status": {
            "certificateChain": params.self_signed(key).unwrap().pem(),
            "notBefore": time(0), "notAfter": time(hours * 3600), "beginRefreshAt": time(1800),
            "conditions": [{"type": "Issued", "status": "True", "reason": "Issued", "message": "", "lastTransitionTime": time(0)}],
        }})
    };
    let status = format!("{path}/r/status");
    let good = issued(&key, 2);
    let (code, message) = send_as(&server, &other, "PATCH", &status, &good).await;
    assert_eq!(code, 422);
    let refused = "spec.signerName: Forbidden: User \"other\" is not permitted to \"sign\" for signer \"example.com/ca\"";
    assert!(message.ends_with(refused), "{message}");
    let another = KeyPair::generate().unwrap();
    let mut early = good.clone();
    early["status"]["beginRefreshAt"] = time(60).into();
    let mut later = good.clone();
    later["status"]["notBefore"] = time(60).into();
    let mut timeless = good.clone();
    timeless["status"]
        .as_object_mut()
        .unwrap()
        .remove("notAfter");
    for (wrong, expected) in [
        (
            issued(&another, 2),
            "leaf certificate was not issued to the requested public key",
        ),
        (
            issued(&key, 25),
            "leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)",
        ),
        (early, "status.beginRefreshAt: Invalid value: "),
        (
            later,
            "must be set to the NotBefore time encoded in the leaf certificate",
        ),
        (
            timeless,
            "status.notAfter: Required value: must be present and consistent with the issued certificate",
        ),
    ] {
        let (code, message) = send_as(&server, &signer, "PATCH", &status, &wrong).await;
        assert_eq!(code, 422, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let (code, message) = send_as(&server, &signer, "PATCH", &status, &good).await;
    assert_eq!(code, 200, "{message}");
    let (code, message) = send_as(&server, &signer, "PATCH", &status, &issued(&key, 3)).await;
    assert_eq!(code, 422);
    assert!(
        message.ends_with("immutable after PodCertificateRequest is issued, denied, or failed"),
        "{message}"
    );
    let spec = json!({"spec": {"podName": "q"}});
    let (code, message) = send_as(
        &server,
        &User::admin(),
        "PATCH",
        &format!("{path}/r"),
        &spec,
    )
    .await;
    assert_eq!(code, 422, "{message}");
}
