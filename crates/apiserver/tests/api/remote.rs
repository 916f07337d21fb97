//! Over TLS: certificates, tokens, restart.

use std::sync::Arc;

use allot_apiserver::identity::{MASTERS, User};
use allot_apiserver::pki::{Authority, Identity};
use allot_apiserver::{Config, Server, serve};
use allot_store::{Embedded, Options};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, PostParams};
use tokio_util::sync::CancellationToken;

pub struct Remote {
    pub url: String,
    pub authority: Authority,
    tls: serve::Tls,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

/// A server on a socket, over a data directory; the token `secret` is the administrator's.
pub async fn start(directory: &std::path::Path) -> Remote {
    // A stream of the last server may hold the store for a moment after its connections have ended.
    let open = || async { Embedded::open(directory, Options::default()) };
    let backend = Arc::new(allot_testing::wait::until("the store is closed", open).await);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config {
        advertise: Some(listener.local_addr().unwrap()),
        ..Config::default()
    };
    let mut admin = User::new("admin", [MASTERS]);
    admin.uid = "admin".to_owned();
    config.tokens.insert("secret".to_owned(), admin);
    config.runtime_config = allot_apiserver::registry::RuntimeConfig::parse(
        "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true,resource.k8s.io/v1alpha3=true",
    )
    .unwrap();
    config.disabled_admission = vec!["ServiceAccount".to_owned()];
    let server = Server::new(backend, config);
    server.bootstrap().await.unwrap();
    let authority = Authority::load_or_generate(&directory.join("pki"), "ca").unwrap();
    let identity = authority
        .server(
            "kube-apiserver",
            &["localhost".to_owned()],
            &[[127, 0, 0, 1].into()],
        )
        .unwrap();
    let tls = serve::tls(&identity, Some(authority.certificate())).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve::serve(server, listener, tls.clone(), stop.clone()));
    Remote {
        url,
        authority,
        tls,
        stop,
        task,
    }
}

impl Remote {
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    fn client(&self, token: Option<&str>, certificate: Option<(&str, &[&str])>) -> kube::Client {
        let identity = certificate.map(|(user, groups)| self.authority.client(user, groups));
        self.with_credentials(token, identity.map(Result::unwrap))
    }

    fn with_credentials(&self, token: Option<&str>, identity: Option<Identity>) -> kube::Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = kube::Config::new(self.url.parse().unwrap());
        let der = rustls_pki_types::pem::PemObject::pem_slice_iter(
            self.authority.certificate().as_bytes(),
        );
        let chain: Vec<rustls_pki_types::CertificateDer<'_>> = der.map(Result::unwrap).collect();
        config.root_cert = Some(chain.into_iter().map(|it| it.to_vec()).collect());
        config.auth_info.token = token.map(|token| token.to_owned().into());
        if let Some(identity) = identity {
            let encode = |text: &str| {
                base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text)
            };
            config.auth_info.client_certificate_data = Some(encode(&identity.certificate));
            config.auth_info.client_key_data = Some(encode(&identity.key).into());
        }
        kube::Client::try_from(config).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_decide_and_state_survives() {
    let directory = tempfile::tempdir().unwrap();
    let remote = start(directory.path()).await;
    let with = |client| Api::<ConfigMap>::default_namespaced(client);
    let admin = with(remote.client(Some("secret"), None));
    let config = serde_json::from_value(serde_json::json!({"metadata": {"name": "kept"}})).unwrap();
    admin.create(&PostParams::default(), &config).await.unwrap();
    let certified = with(remote.client(None, Some(("someone", &[MASTERS]))));
    assert_eq!(
        certified
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    let code = |error: kube::Error| match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    };
    let nobody = with(remote.client(None, Some(("nobody", &[]))));
    assert_eq!(
        code(nobody.list(&ListParams::default()).await.unwrap_err()),
        403
    );
    let wrong = with(remote.client(Some("wrong"), None));
    assert_eq!(
        code(wrong.list(&ListParams::default()).await.unwrap_err()),
        401
    );
    remote.stop().await;
    let remote = start(directory.path()).await;
    let admin = remote.client(Some("secret"), None);
    assert!(
        Api::<ConfigMap>::default_namespaced(admin.clone())
            .get_opt("kept")
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(
        Api::<Namespace>::all(admin)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        4
    );
    remote.stop().await;
}

/// Upstream decides about certificates after the handshake: clients see why they are refused, and a token counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_certificate_is_no_identity_and_no_obstacle() {
    let directory = tempfile::tempdir().unwrap();
    let foreign = Authority::load_or_generate(&directory.path().join("foreign"), "ca").unwrap();
    let remote = start(&directory.path().join("data")).await;
    let identity = foreign.client("admin", &[MASTERS]).unwrap();
    let list = async |token| {
        let client = remote.with_credentials(token, Some(identity.clone()));
        let maps = Api::<ConfigMap>::default_namespaced(client);
        maps.list(&ListParams::default()).await
    };
    match list(None).await.unwrap_err() {
        kube::Error::Api(status) => {
            assert_eq!((status.code, &*status.message), (401, "Unauthorized"))
        }
        other => panic!("{other}"),
    }
    assert!(list(Some("secret")).await.unwrap().items.is_empty());
    remote.stop().await;
}

/// Behind several servers a client continues to the next one at once, while requests end that are under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_refuses_new_connections() {
    let directory = tempfile::tempdir().unwrap();
    let remote = start(directory.path()).await;
    let address = remote.url.strip_prefix("https://").unwrap().to_owned();
    // A connection that holds the server up. It is accepted before the next one, which has an answer.
    let held = tokio::net::TcpStream::connect(&address).await.unwrap();
    let namespaces = Api::<Namespace>::all(remote.client(Some("secret"), None));
    namespaces.list(&ListParams::default()).await.unwrap();
    remote.stop.cancel();
    let refused = || async {
        match tokio::net::TcpStream::connect(&address).await {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    allot_testing::wait::until("connections are refused", refused).await;
    assert!(!remote.task.is_finished());
    drop(held);
    remote.stop().await;
}

/// The authorities of clients were those of the start: a certificate of one that is no longer trusted was good until a restart,
/// and on open connections as well.
#[tokio::test(flavor = "multi_thread")]
async fn regression_other_authorities_of_clients_count_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let remote = start(directory.path()).await;
    let other = Authority::load_or_generate(&directory.path().join("other"), "ca").unwrap();
    let own = remote.client(None, Some(("first", &[MASTERS])));
    let theirs = other.client("second", &[MASTERS]).unwrap();
    let theirs = remote.with_credentials(None, Some(theirs));
    let is_known = |client: &kube::Client| {
        let namespaces = Api::<Namespace>::all(client.clone());
        async move {
            match namespaces.get("default").await {
                Ok(_) => true,
                Err(kube::Error::Api(status)) if status.code == 401 => false,
                Err(error) => panic!("{error}"),
            }
        }
    };
    assert!(is_known(&own).await);
    assert!(!is_known(&theirs).await);
    remote.tls.trust(other.certificate()).unwrap();
    assert!(!is_known(&own).await);
    assert!(is_known(&theirs).await);
    remote.tls.trust("no certificate").unwrap_err();
    assert!(is_known(&theirs).await);
    drop((own, theirs));
    remote.stop().await;
}
