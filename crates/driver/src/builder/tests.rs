//! What keeps a plugin from starting.

use std::convert::Infallible;

use super::sockets::rolling_socket;
use super::*;
use crate::error::Error;
use crate::{Claim, Failure, Prepared, PreparedClaim};

struct Nothing;

impl Driver for Nothing {
    async fn prepare(&self, _: &Claim) -> Result<Prepared, Failure> {
        Ok(Prepared::default())
    }

    async fn unprepare(&self, _: &PreparedClaim) -> Result<(), Failure> {
        Ok(())
    }
}

/// The first claim failed, or the container runtime of the node ended.
#[tokio::test]
async fn regression_a_wrong_cdi_kind_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    for kind in ["leds.example.com/l", "leds.example.com"] {
        let started = Plugin::builder("leds.example.com", Nothing)
            .client(no_api())
            .kubelet_dir(directory.path())
            .cdi_kind(kind)
            .start();
        let error = started.await.map(drop).unwrap_err().to_string();
        assert!(error.contains("invalid CDI spec: kind: "), "{error}");
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

/// An API server that gets no requests.
fn no_api() -> kube::Client {
    let nobody = tower::service_fn(|_| async {
        Ok::<_, Infallible>(http::Response::new(kube::client::Body::empty()))
    });
    kube::Client::new(nobody, "default")
}

/// The error named the socket and said "No such file or directory", and a tree had been made below the wrong root.
#[tokio::test(start_paused = true)]
async fn without_a_kubelet_the_directory_is_named_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("kubelet");
    let result = Plugin::builder("leds.example.com", Nothing)
        .client(no_api())
        .kubelet_dir(&root)
        .cdi_dir(root.join("cdi"))
        .cdi_kind("leds.example.com/led")
        .start()
        .await;
    let Err(error) = result else {
        panic!("started without a kubelet");
    };
    assert!(matches!(&error, Error::NoKubelet(path) if *path == root.join("plugins_registry")));
    assert!(error.to_string().contains("root directory"), "{error}");
    assert!(!root.exists());
}

/// A script that started the node agent and a driver at the same moment failed by chance.
#[tokio::test(start_paused = true)]
async fn regression_a_driver_may_be_started_before_its_kubelet() {
    let directory = tempfile::tempdir().unwrap();
    let start = |timeout| {
        let builder = Plugin::builder("leds.example.com", Nothing).client(no_api());
        let builder = builder.kubelet_dir(directory.path());
        builder.kubelet_timeout(timeout).start()
    };
    assert!(matches!(
        start(Duration::ZERO).await,
        Err(Error::NoKubelet(_))
    ));
    let kubelet = async {
        tokio::time::sleep(KUBELET_TIMEOUT / 2).await;
        std::fs::create_dir(directory.path().join("plugins_registry")).unwrap();
    };
    let (started, ()) = tokio::join!(start(KUBELET_TIMEOUT), kubelet);
    started.unwrap().stop().await;
}

/// Upstream's `RollingUpdateRegistrarSocketFile`.
#[test]
fn the_socket_of_an_instance_has_a_name_that_fits() {
    let uid = "11111111-2222-3333-4444-555555555555";
    let check = |driver: &str, expected: &str| {
        let directory = Path::new("/var/lib/kubelet/plugins_registry");
        let path = rolling_socket(directory, driver, uid);
        assert_eq!(path, directory.join(expected), "{driver}");
    };
    check(
        "gpu.example.com",
        "gpu.example.com-11111111-2222-3333-4444-555555555555-reg.sock",
    );
    check(
        "a-rather-long-name.example.com",
        "a-rather-long-name.example.com-Zm_2zKpbPAc-reg.sock",
    );
    check(
        "a-name-that-is-even-longer-than-that.accelerators.example.com",
        "dra-VNiitwx4ac173AW7epJWmg-reg.sock",
    );
}
