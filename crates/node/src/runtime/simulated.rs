//! Containers that only exist as state: for clusters of thousands of nodes in one process.

use std::collections::HashMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Exec, Found, Running, Runtime, Start, StartError};
use crate::shim::spec::Exit;

/// Pod annotation: containers end by themselves after this many seconds.
pub const RUN_SECONDS: &str = "simulated.allot.dev/run-seconds";
/// Pod annotation: with this exit code instead of 0.
pub const EXIT_CODE: &str = "simulated.allot.dev/exit-code";

/// The runtime without processes.
#[derive(Debug, Default)]
pub struct Simulated {
    containers: Mutex<HashMap<String, watch::Sender<Option<Exit>>>>,
}

fn end(sender: &watch::Sender<Option<Exit>>, code: i32) {
    sender.send_if_modified(|exit| {
        let first = exit.is_none();
        if first {
            *exit = Some(Exit {
                code,
                finished: Timestamp::now(),
                oom_killed: false,
            });
        }
        first
    });
}

impl Runtime for Simulated {
    fn name(&self) -> &str {
        "simulated"
    }

    fn has_network(&self) -> bool {
        false
    }

    fn limitations(&self) -> Vec<String> {
        vec!["containers are simulated: no process runs".into()]
    }

    fn start(&self, start: Start) -> BoxFuture<'_, Result<Running, StartError>> {
        let Start {
            id, annotations, ..
        } = start;
        let (sender, exit) = watch::channel(None);
        let number = |key: &str| {
            annotations
                .get(key)
                .and_then(|text| text.parse::<f64>().ok())
        };
        if let Some(seconds) = number(RUN_SECONDS).filter(|seconds| (0.0..1e9).contains(seconds)) {
            let code = number(EXIT_CODE).unwrap_or(0.0) as i32;
            let sender = sender.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
                end(&sender, code);
            });
        }
        self.containers.lock().insert(id.clone(), sender);
        std::future::ready(Ok(Running {
            id,
            started: Timestamp::now(),
            image_id: String::new(),
            user: None,
            given: None,
            exit,
        }))
        .boxed()
    }

    fn recover(&self) -> BoxFuture<'_, Vec<Found>> {
        std::future::ready(Vec::new()).boxed()
    }

    fn stop(&self, id: String, _: Duration) -> BoxFuture<'_, ()> {
        if let Some(sender) = self.containers.lock().get(&id) {
            end(sender, 143);
        }
        std::future::ready(()).boxed()
    }

    fn remove(&self, id: &str) {
        self.containers.lock().remove(id);
    }

    fn attach(&self, _: &str) -> BoxFuture<'static, std::io::Result<tokio::net::UnixStream>> {
        let text = "simulated containers have no processes";
        let error = std::io::Error::new(std::io::ErrorKind::Unsupported, text);
        std::future::ready(Err(error)).boxed()
    }

    fn exec(
        &self,
        _: &str,
        _: Vec<String>,
        _: bool,
        _: bool,
    ) -> BoxFuture<'static, std::io::Result<Exec>> {
        let text = "simulated containers have no processes";
        let error = std::io::Error::new(std::io::ErrorKind::Unsupported, text);
        std::future::ready(Err(error)).boxed()
    }
}
