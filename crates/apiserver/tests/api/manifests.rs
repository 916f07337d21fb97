//! Policies and webhooks from files.

use std::path::Path;
use std::sync::Arc;

use allot_apiserver::Server;
use allot_apiserver::config::{AdmissionOptions, Config};
use allot_model::features::{Feature, Features};
use allot_store::{Embedded, Options};
use allot_testing::wait::until;
use serde_json::{Value, json};

use crate::admin;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn policy(name: &str, resources: &str, expression: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: [{resources}]}}]}}
  validations: [{{expression: \"{expression}\", message: told by {name}}}]
---
# Its binding.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: of-{name}}}
spec: {{policyName: {name}, validationActions: [Deny]}}
"
    )
}

async fn start(directory: &Path) -> Result<Server, String> {
    let config = Config {
        admission: AdmissionOptions {
            validating_policies: Some(directory.to_owned()),
            ..AdmissionOptions::default()
        },
        features: Features::default().with(Feature::ManifestBasedAdmissionControlConfig, true),
        ..Config::default()
    };
    let backend = Arc::new(Embedded::in_memory(Options::default()));
    let server = Server::new(backend, config);
    let started = server.bootstrap().await;
    started.map(|()| server).map_err(|error| error.0.message)
}

/// Creates a config map in a dry run; returns the message of an error.
async fn dry_run_create(server: &Server, name: &str) -> String {
    let map = json!({"metadata": {"name": name}});
    let (_, answer) = admin(server, "POST", &format!("{MAPS}?dryRun=All"), map).await;
    answer["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn policies_in_files_count_from_the_start_and_when_they_change() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        // As a whole: a part of it would be no policy.
        let (temporary, file) = (directory.path().join("t"), directory.path().join(name));
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, file).unwrap();
    };
    let maps = policy(
        "maps.static.k8s.io",
        "configmaps",
        "object.metadata.name != 'a'",
    );
    write("a.yaml", &maps);
    write("ignored.txt", "no: policy");
    let server = start(directory.path()).await.unwrap();
    assert!(
        dry_run_create(&server, "a")
            .await
            .ends_with("told by maps.static.k8s.io")
    );
    assert_eq!(dry_run_create(&server, "b").await, "");
    // They are not in the API.
    let path = format!("{GROUP}/validatingadmissionpolicies");
    let (_, list) = admin(&server, "GET", &path, Value::Null).await;
    assert_eq!(list["items"], json!([]));

    let guard = policy(
        "guard.static.k8s.io",
        "validatingadmissionpolicies",
        "false",
    );
    write("b.YML", &guard);
    let own = || {
        json!({
            "metadata": {"name": "own"}, "spec": {
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]},
                "validations": [{"expression": "true"}],
            },
        })
    };
    let dry = format!("{path}?dryRun=All");
    until("the policy guards policies", || async {
        let (_, answer) = admin(&server, "POST", &dry, own()).await;
        let message = answer["message"].as_str().unwrap_or_default();
        match message.ends_with("told by guard.static.k8s.io") {
            true => Ok(()),
            false => Err(answer),
        }
    })
    .await;
    // What is wrong changes nothing, and what is removed ends.
    write("c.json", "{\"kind\": \"Pod\"}");
    std::fs::remove_file(directory.path().join("c.json")).unwrap();
    std::fs::remove_file(directory.path().join("a.yaml")).unwrap();
    until("the policy is gone", || async {
        match dry_run_create(&server, "a").await {
            message if message.is_empty() => Ok(()),
            message => Err(message),
        }
    })
    .await;
    let (code, _) = admin(&server, "POST", &dry, own()).await;
    assert_ne!(code, 201);
    // What was taken over is counted, and the last of it told.
    let (_, metrics) = admin(&server, "GET", "/metrics", Value::Null).await;
    let metrics = metrics.as_str().unwrap();
    let begin = "apiserver_manifest_admission_config_controller_";
    let plugin = "plugin=\"ValidatingAdmissionPolicy\"";
    let taken = format!("{begin}automatic_reloads_total{{");
    let labels = format!("{plugin},status=\"success\"}}");
    let line = metrics
        .lines()
        .find(|line| line.starts_with(&taken) && line.contains(&labels))
        .unwrap();
    let count: u32 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(count >= 3, "{line}");
    let info = format!("{begin}last_config_info{{");
    let infos = metrics
        .lines()
        .filter(|line| line.starts_with(&info) && line.contains(plugin));
    assert_eq!(infos.count(), 1);

    // Names of files are reserved.
    let mut binding = json!({"metadata": {"name": "x.static.k8s.io"}, "spec": {"policyName": "own", "validationActions": ["Deny"]}});
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    let (code, answer) = admin(&server, "POST", &bindings, binding.clone()).await;
    let message = answer["message"].as_str().unwrap();
    assert_eq!(code, 422, "{message}");
    assert!(
        message.contains("are reserved for static manifest-based configurations"),
        "{message}"
    );
    binding["metadata"]["name"] = "x".into();
    assert_eq!(admin(&server, "POST", &bindings, binding).await.0, 201);
}

#[tokio::test]
async fn a_server_does_not_start_with_files_that_are_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.yaml");
    let good = policy("p.static.k8s.io", "pods", "true");
    for (text, expected) in [
        (good.replace("p.static.k8s.io", "p"), "\"p\" in file \""),
        (good.replace("spec:\n", "spec:\n  more: 1\n"), "unknown field \"spec.more\""),
        (
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: w.static.k8s.io}\n".to_owned(),
            "unsupported resource type *v1.ValidatingWebhookConfiguration",
        ),
        (good.replace("spec:\n", "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n"), "spec.paramKind is not supported for static manifests"),
        (good.replace("policyName: p.", "policyName: q."), "references policy \"q.static.k8s.io\" which does not exist in the manifest directory"),
        (good.replace("\"true\"", "\"1 +\""), "ValidatingAdmissionPolicy \"p.static.k8s.io\": spec.validations[0].expression: Invalid value"),
        (format!("{good}---\n{good}"), "duplicate name \"p.static.k8s.io\" found in file"),
        ("kind: List\napiVersion: v1\nitems: [{kind: Pod, apiVersion: v1}]".to_owned(), "no kind \"Pod\" is registered for version \"v1\""),
        ("a: [".to_owned(), "error loading "),
    ] {
        std::fs::write(&file, &text).unwrap();
        let Err(error) = start(directory.path()).await else {
            panic!("it starts with {text}");
        };
        let begin = "couldn't init admission plugin \"ValidatingAdmissionPolicy\": failed to load static manifests from";
        assert!(error.starts_with(begin) && error.contains(expected), "{error}");
    }
    std::fs::remove_file(file).unwrap();
    let list = "kind: ValidatingAdmissionPolicyList\napiVersion: admissionregistration.k8s.io/v1\nitems: []\n";
    std::fs::write(directory.path().join("b.json"), list).unwrap();
    assert!(start(directory.path()).await.is_ok());
}
