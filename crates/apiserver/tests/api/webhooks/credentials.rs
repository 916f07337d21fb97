//! How the server proves itself to admission webhooks.

use allot_apiserver::Server;
use allot_apiserver::config::{AdmissionOptions, Config, Credentials, WebhookOptions};
use allot_apiserver::pki::Authority;
use serde_json::json;

use super::{Hooks, MUTATING, VALIDATING, install, judge, map, webhook};
use crate::with_config;

/// A server that calls webhooks as the users in these texts of kubeconfig files, and the directory of the files.
async fn server(mutating: &str, validating: &str) -> (Server, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = |name: &str, text: &str| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        let credentials = Credentials::read(&file).unwrap();
        WebhookOptions {
            credentials,
            manifests: None,
        }
    };
    let config = Config {
        admission: AdmissionOptions {
            mutating_webhooks: options("mutating", mutating),
            validating_webhooks: options("validating", validating),
            ..AdmissionOptions::default()
        },
        ..Config::default()
    };
    let server = with_config(config).await;
    (server, directory)
}

#[tokio::test]
async fn webhooks_see_the_user_of_their_name() {
    let hooks = Hooks::start(judge).await;
    let mutating = format!(
        "users:\n- name: 127.0.0.1:{}\n  user: {{token: for-this}}\n- name: '*'\n  user: {{token: for-all}}\n",
        hooks.port
    );
    let validating = "users: [{name: '*', user: {username: u, password: p}}]";
    let (server, _directory) = server(&mutating, validating).await;
    for kind in [MUTATING, VALIDATING] {
        install(
            &server,
            kind,
            "w",
            &[webhook("w", hooks.url("/ok"), json!({}))],
        )
        .await;
    }
    assert_eq!(map(&server, "a").await, (201, String::new()));
    let proofs = std::mem::take(&mut *hooks.proofs.lock());
    assert_eq!(proofs, ["Bearer for-this", "Basic dTpw"]);
}

#[tokio::test]
async fn a_webhook_can_ask_for_a_certificate() {
    let authority = Authority::generate("clients").unwrap();
    let hooks = Hooks::requiring_client_ca(&authority, judge).await;
    let identity = authority.client("server", &[]).unwrap();
    let users = "users: [{name: '*', user: {client-certificate: c.pem, client-key: k.pem}}]";
    let (server, directory) = server(users, "users: [{name: '*', user: {tokenFile: nope}}]").await;
    let hook = || webhook("w", hooks.url("/ok"), json!({}));
    install(&server, MUTATING, "w", &[hook()]).await;
    // The file may come later than the server.
    let (code, why) = map(&server, "a").await;
    assert!(
        code == 500 && why.ends_with("c.pem: no such file or directory"),
        "{why}"
    );
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("c.pem", &identity.certificate);
    write("k.pem", &identity.key);
    assert_eq!(map(&server, "a").await, (201, String::new()));
    install(&server, VALIDATING, "w", &[hook()]).await;
    let (code, why) = map(&server, "a").await;
    let begin = "Internal error occurred: failed calling webhook \"w.example.com\": could not get REST client: open ";
    assert!(code == 500 && why.starts_with(begin), "{why}");
    write("nope", "t");
    // It is called without a certificate, which it demands.
    assert_eq!(map(&server, "a").await.0, 500);
}
