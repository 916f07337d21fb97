//! What keeps a plugin from starting.

use std::convert::Infallible;

use super::*;
use crate::{Claim, ClaimRef, Failure, PreparedDevice};

struct Nothing;

impl Driver for Nothing {
    async fn prepare(&self, _: &Claim) -> Result<Vec<PreparedDevice>, Failure> {
        Ok(Vec::new())
    }

    async fn unprepare(&self, _: &ClaimRef) -> Result<(), Failure> {
        Ok(())
    }
}

/// The error named the socket and said "No such file or directory", and a tree had been made below the wrong root.
#[tokio::test]
async fn without_a_kubelet_the_directory_is_named_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("kubelet");
    let nobody = tower::service_fn(|_| async {
        Ok::<_, Infallible>(http::Response::new(kube::client::Body::empty()))
    });
    let result = Plugin::builder("leds.example.com", Nothing)
        .client(kube::Client::new(nobody, "default"))
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
