//! The log, at the level that logs most, has no secret that a cluster made or was given.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use super::harness::{ALLOT, Up, directory};

const MANIFEST: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {k: WordOfTheSecret}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {k: WordOfTheConfigMap}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: s, secret: {secretName: s}}]
  containers:
  - name: c
    image: x
    command: [sh, -c, 'echo WordOfTheLog; sleep 1000']
    env: [{name: V, value: WordOfTheVariable}, {name: S, valueFrom: {secretKeyRef: {name: s, key: k}}}]
    volumeMounts: [{name: s, mountPath: /s}]
";

#[tokio::test]
async fn the_log_has_no_secret_at_any_level() {
    let directory = directory();
    let data = directory.path().join("data");
    let log = directory.path().join("log");
    let mut command = Command::new(ALLOT);
    command.env("RUST_LOG", "trace");
    let flags = [
        "--data-dir",
        data.to_str().unwrap(),
        "--log-file",
        log.to_str().unwrap(),
    ];
    let up = Up::launch_by(command, &flags).await;
    up.create(MANIFEST).await;
    up.running("p").await;
    let mut secrets: Vec<String> = Vec::new();
    let word = up.exec("p", "c", &["cat", "/s/k"]).await;
    assert_eq!(word, "WordOfTheSecret");
    let token = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    secrets.push(up.exec("p", "c", &["cat", token]).await);
    let said = up.pods().logs("p", &Default::default()).await.unwrap();
    assert_eq!(said, "WordOfTheLog\n");
    let all = Api::<Secret>::default_namespaced(up.client.clone());
    let patch = Patch::Merge(json!({"stringData": {"z": "WordOfThePatch"}}));
    all.patch("s", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let accounts = Api::<ServiceAccount>::default_namespaced(up.client.clone());
    let wanted: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let params = PostParams::default();
    let issued = accounts.create_token_request("default", &params, &wanted);
    secrets.push(issued.await.unwrap().status.unwrap().token.unwrap());
    let kubeconfig = std::fs::read_to_string(&up.kubeconfig).unwrap();
    let (_, of_admin) = kubeconfig.split_once("token: ").expect("a token");
    secrets.push(
        of_admin
            .lines()
            .next()
            .unwrap()
            .trim_matches('"')
            .to_owned(),
    );
    let keys = std::fs::read_dir(data.join("pki")).unwrap().flatten();
    let keys = keys.filter(|file| file.path().extension().is_some_and(|it| it == "key"));
    let keys: Vec<String> = keys
        .map(|file| std::fs::read_to_string(file.path()).unwrap())
        .collect();
    assert!(!keys.is_empty());
    // The lines of a key between those that begin and end it.
    let lines = keys.iter().flat_map(|key| key.lines());
    secrets.extend(
        lines
            .filter(|line| !line.starts_with('-'))
            .map(str::to_owned),
    );
    assert!(up.stop());
    for word in ["Secret", "ConfigMap", "Log", "Variable", "Patch"] {
        let word = format!("WordOfThe{word}");
        // Coded at the beginning of a field; the last characters depend on what follows.
        secrets.push(STANDARD.encode(&word)[..word.len()].to_owned());
        secrets.push(word);
    }
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("TRACE"), "nothing is logged");
    for secret in secrets {
        // Also the signature alone must not be there.
        let end = &secret[secret.len().saturating_sub(40)..];
        assert!(end.len() > 8, "{secret:?} is no secret");
        assert!(!text.contains(end), "{secret:?} is in the log");
    }
}

/// The attack: another user of the machine waits for a cluster that is started without a mask for new files, as by some init
/// scripts. It put a CA of its own into `pki`, and drivers into `plugins_registry`; files of containers could be written to as well.
#[tokio::test]
async fn regression_other_users_cannot_write_whatever_the_mask() {
    let directory = directory();
    let data = directory.path().join("data");
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$0\" \"$@\"", ALLOT]);
    let up = Up::launch_by(command, &["--data-dir", data.to_str().unwrap()]).await;
    up.create(MANIFEST).await;
    up.running("p").await;
    assert_eq!(up.exec("p", "c", &["sh", "-c", "umask"]).await, "0022\n");
    let (mut open, mut seen) = (vec![data], 0);
    while let Some(path) = open.pop() {
        let Ok(found) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        let mode = found.permissions().mode();
        assert!(found.is_symlink() || mode & 0o022 == 0, "{path:?} {mode:o}");
        seen += 1;
        // Other users cannot reach what is in a private directory. Volumes there may be written by every user of a container.
        if found.is_dir() && mode & 0o007 != 0 {
            let entries = std::fs::read_dir(&path).unwrap().flatten();
            open.extend(entries.map(|entry| entry.path()));
        }
    }
    assert!(seen > 10, "{seen}");
}
