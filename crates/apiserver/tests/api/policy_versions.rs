//! The versions of mutating admission policies, by release and `--runtime-config`.

use allot_apiserver::registry::RuntimeConfig;
use allot_apiserver::{Config, Server};
use allot_model::features::{Features, Release};
use serde_json::{Value, json};

use crate::{admin, with_config};

const GROUP: &str = "/apis/admissionregistration.k8s.io";
/// Serves the versions that are not served by default as well.
const ALL: &str =
    "admissionregistration.k8s.io/v1beta1=true,admissionregistration.k8s.io/v1alpha1=true";

async fn server_with(minor: u8, versions: &str) -> Server {
    let config = Config {
        features: Features::of(Release::new(minor)),
        runtime_config: RuntimeConfig::parse(versions).unwrap(),
        ..Config::default()
    };
    with_config(config).await
}

/// The versions in which a resource is served, with the hash of the stored version, in the order of the group.
async fn served_versions(server: &Server, plural: &str) -> Vec<(String, String)> {
    let group = admin(server, "GET", GROUP, Value::Null).await.1;
    let mut found = Vec::new();
    for version in group["versions"].as_array().unwrap() {
        let version = version["version"].as_str().unwrap();
        let path = format!("{GROUP}/{version}");
        let list = admin(server, "GET", &path, Value::Null).await.1;
        let resources = list["resources"].as_array().unwrap();
        let resource = resources.iter().find(|it| it["name"] == plural);
        found.extend(resource.map(|it| {
            let hash = it["storageVersionHash"].as_str().unwrap();
            (version.to_owned(), hash.to_owned())
        }));
    }
    found
}

#[tokio::test]
async fn releases_have_the_versions_of_their_time() {
    // Upstream's hashes of the two stored versions.
    let (beta, stable) = ("LYmCf+UMVdg=", "mHCkTKpUTrE=");
    for (minor, asked, expected) in [
        (31, ALL, vec![]),
        (34, "", vec![]),
        (34, ALL, vec!["v1beta1", "v1alpha1"]),
        (36, "", vec!["v1"]),
        (36, ALL, vec!["v1", "v1beta1", "v1alpha1"]),
        (37, ALL, vec!["v1", "v1beta1", "v1alpha1"]),
    ] {
        let server = server_with(minor, asked).await;
        let found = served_versions(&server, "mutatingadmissionpolicies").await;
        let (versions, hashes): (Vec<String>, Vec<String>) = found.into_iter().unzip();
        assert_eq!(versions, expected, "1.{minor} {asked}");
        let hash = if minor < 37 { beta } else { stable };
        assert!(hashes.iter().all(|it| it == hash), "1.{minor}: {hashes:?}");
        let validating = served_versions(&server, "validatingadmissionpolicies").await;
        assert_eq!(validating.len(), 1, "1.{minor}: {validating:?}");
    }
}

fn policy(version: &str) -> Value {
    let expression =
        format!(r#"[JSONPatch{{op: "add", path: "/data", value: {{"by": "{version}"}}}}]"#);
    json!({
        "apiVersion": format!("admissionregistration.k8s.io/{version}"),
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": version},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
            }]},
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    })
}

/// A policy is one object in all versions, and works whatever version it was written in.
#[tokio::test]
async fn policies_work_in_every_version() {
    let versions = ["v1", "v1beta1", "v1alpha1"];
    for version in versions {
        let server = server_with(36, ALL).await;
        let path = format!("{GROUP}/{version}/mutatingadmissionpolicies");
        let (code, created) = admin(&server, "POST", &path, policy(version)).await;
        assert_eq!(code, 201, "{created}");
        assert_eq!(created["spec"]["failurePolicy"], "Fail");
        let owner = &created["metadata"]["managedFields"][0]["apiVersion"];
        assert_eq!(*owner, created["apiVersion"]);
        for other in versions {
            let path = format!("{GROUP}/{other}/mutatingadmissionpolicies");
            for path in [format!("{path}/{version}"), path] {
                let (code, found) = admin(&server, "GET", &path, Value::Null).await;
                let api_version = format!("admissionregistration.k8s.io/{other}");
                assert_eq!((code, &found["apiVersion"]), (200, &json!(api_version)));
            }
        }
        let path = format!("{GROUP}/{version}/mutatingadmissionpolicybindings");
        let binding = json!({
            "metadata": {"name": "b"},
            "spec": {"policyName": version, "paramRef": {"name": "p", "namespace": "default"}},
        });
        let (_, bound) = admin(&server, "POST", &path, binding).await;
        // Only the oldest version has a default for this field.
        let missing = match version {
            "v1alpha1" => json!("Deny"),
            _ => Value::Null,
        };
        assert_eq!(
            bound["spec"]["paramRef"]["parameterNotFoundAction"], missing,
            "{bound}"
        );
        let binding = json!({"metadata": {"name": "c"}, "spec": {"policyName": version}});
        assert_eq!(admin(&server, "POST", &path, binding).await.0, 201);
        let map = json!({"metadata": {"name": "m"}});
        let path = "/api/v1/namespaces/default/configmaps";
        let (code, map) = admin(&server, "POST", path, map).await;
        assert_eq!((code, &map["data"]["by"]), (201, &json!(version)), "{map}");
    }
}
