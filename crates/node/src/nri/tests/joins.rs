//! What plugins are told that join while containers are started and changed, and after the agent was started again.

use std::os::fd::AsFd as _;

use allot_protos::nri::{ContainerUpdate, UpdateContainersRequest};
use allot_testing::wait::until_true;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use super::*;
use crate::runtime::{Exec, Running, Runtime, Start, StartError};
use crate::runtime::{ReportedResources, RuntimeError};
use crate::spec::{Limits, PodLimits};

/// It had been told neither of the creation nor of the container.
#[tokio::test]
async fn regression_a_plugin_joins_before_a_container_is_created_or_after_it_was_started() {
    let node = Node::new().await;
    node.pod("u1").await.expect("a pod");
    let sync_block = node.nri.block_plugin_sync().await;
    let joins = async {
        let (_plugin, told) = Fake::register(&node, "00", 0).await;
        told
    };
    let starts = async {
        until_true("the plugin waits", || {
            node.nri.plugin_sync.try_read().is_err()
        })
        .await;
        let wanted = node.nri.create(&container("u1", "c1")).await;
        wanted.expect("no plugin refuses");
        node.nri.starting("c1").await.expect("no plugin refuses");
        assert!(node.nri.turn().await.is_empty());
        drop(sync_block);
    };
    let (told, ()) = futures::join!(joins, starts);
    let found = told.iter().flat_map(|it| &it.containers);
    assert_eq!(found.map(|it| it.id.as_str()).collect::<Vec<_>>(), ["c1"]);
}

/// An agent that was started again told plugins that the limits of each pod have changed, or only half of it.
#[tokio::test]
async fn regression_the_limits_of_a_pod_are_told_when_they_change() {
    let node = Node::new().await;
    node.pod("u1").await.expect("a pod");
    let (plugin, _) = Fake::register(&node, "00", 0).await;
    node.until_joined(1).await;
    let called = plugin.serve(|_, _| Ok(Vec::new()));
    let change = async |pids| {
        called.lock().clear();
        let limits = PodLimits {
            pids: Some(pids),
            ..PodLimits::default()
        };
        node.nri.update_pod("u1", limits).await.expect("told");
        node.nri.updated_pod("u1", limits).await;
        called.lock().clone()
    };
    let both = ["UpdatePodSandbox", "PostUpdatePodSandbox"];
    assert_eq!(change(7).await, both);
    assert!(change(7).await.is_empty());
    // What the next agent finds; the pod says by now that it is to have others.
    std::mem::take(&mut *node.nri.known.lock());
    node.nri.read_records();
    let mut sandbox = describe::sandbox_of(&owner("u1"));
    sandbox.annotations.insert("a".to_owned(), "b".to_owned());
    let linux = sandbox.linux.get_or_insert_default();
    linux.pod_resources = Some(resources::of_pod(PodLimits::default()));
    node.nri.know(sandbox);
    assert!(change(7).await.is_empty());
    assert_eq!(change(8).await, both);
    assert_eq!(
        node.nri.known.lock().pods["u1"].sandbox.annotations.len(),
        1
    );
}

/// A runtime whose kernel is busy.
struct Busy;

impl Runtime for Busy {
    fn name(&self) -> &str {
        "busy"
    }

    fn limitations(&self) -> Vec<String> {
        Vec::new()
    }

    fn start(&self, _: Start) -> BoxFuture<'_, Result<Running, StartError>> {
        std::future::pending().boxed()
    }

    fn recover(&self) -> BoxFuture<'_, Vec<Found>> {
        std::future::pending().boxed()
    }

    fn update(
        &self,
        _: &str,
        _: Limits,
    ) -> BoxFuture<'_, Result<Option<ReportedResources>, RuntimeError>> {
        std::future::pending().boxed()
    }

    fn stop(&self, _: String, _: Duration) -> BoxFuture<'_, ()> {
        std::future::pending().boxed()
    }

    fn remove(&self, _: &str) {}

    fn exec(
        &self,
        _: &str,
        _: Vec<String>,
        _: bool,
        _: bool,
    ) -> BoxFuture<'static, std::io::Result<Exec>> {
        std::future::pending().boxed()
    }

    fn attach(&self, _: &str) -> BoxFuture<'static, std::io::Result<UnixStream>> {
        std::future::pending().boxed()
    }
}

/// Other events waited as long as the kernel did.
#[tokio::test(start_paused = true)]
async fn regression_updates_that_are_not_carried_out_in_time_fail() {
    let node = Node::with(Arc::new(Busy)).await;
    node.pod("u1").await.expect("a pod");
    for id in ["c1", "c2"] {
        let wanted = node.nri.create(&container("u1", id)).await;
        wanted.expect("no plugin refuses");
    }
    let update = |id: &str| ContainerUpdate {
        container_id: id.to_owned(),
        ..ContainerUpdate::default()
    };
    let request = UpdateContainersRequest {
        update: vec![update("c1"), update("c2")],
        ..UpdateContainersRequest::default()
    };
    let begun = tokio::time::Instant::now();
    let failed = node.nri.update_unasked(&request.encode_to_vec()).await;
    assert_eq!(failed.expect("read").len(), 2);
    assert!(begun.elapsed() < 2 * UPDATE, "{:?}", begun.elapsed());
}

/// The agent waited for a program that does not accept connections.
#[tokio::test]
async fn regression_a_socket_with_a_full_queue_is_in_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("nri.sock");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    let address = SocketAddrUnix::new(&path).expect("an address");
    rustix::net::bind(socket.as_fd(), &address).expect("bound");
    rustix::net::listen(socket.as_fd(), 0).expect("listens");
    let mut waiting = Vec::new();
    while let Ok(stream) = UnixStream::connect(&path).await {
        waiting.push(stream);
    }
    let error = Listener::bind(&path).await.expect_err("in use").to_string();
    assert!(error.contains("another program listens there"), "{error}");
    drop(socket);
    Listener::bind(&path).await.expect("it is left over");
}
