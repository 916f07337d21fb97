//! Whether pods can get a network, and of which kind.

use std::time::Duration;

use super::{Obstacle, Sandboxes};
use crate::cni;
use crate::config::{NetworkSettings, PodNetwork};
use crate::runtime::Condition;
use crate::shim::spec::Isolation;

impl Sandboxes {
    /// Waits until [`Self::follow`] has read the configuration and asked the plugins for the first time.
    pub(crate) async fn looked(&self) {
        let before = initial(self.shared.as_ref());
        let mut condition = self.condition.subscribe();
        let looked = condition.wait_for(|now| self.shared.is_some() || *now != before);
        // It cannot fail: the sender is here.
        let _ = looked.await;
    }

    /// Keeps the condition up to date.
    pub(crate) async fn follow(&self, period: Duration) {
        use inotify::WatchMask;
        let mask = WatchMask::CLOSE_WRITE | WatchMask::MOVE | WatchMask::DELETE | WatchMask::CREATE;
        if self.shared.is_some() {
            return std::future::pending().await;
        }
        loop {
            // Before it is read: a change in between is not missed. The directory may come later.
            let mut changes = crate::watching::changes(&self.settings.conf_dir, mask).ok();
            self.look().await;
            let changed = async {
                match &mut changes {
                    Some(changes) => crate::watching::next(changes).await,
                    None => std::future::pending().await,
                }
            };
            // A directory that is removed has no more changes.
            let _ = tokio::time::timeout(period, changed).await;
        }
    }

    /// Reads the configuration and asks the plugins once.
    pub(super) async fn look(&self) {
        if self.shared.is_some() {
            return;
        }
        let ready = match cni::find(&self.settings.conf_dir) {
            Ok(network) => self.client.status(&network).await,
            Err(error) => Err(error),
        };
        let ready = ready.map_err(|error| explained(&error));
        self.condition.send_if_modified(|condition| {
            let now = of_plugins(ready);
            let news = *condition != now;
            *condition = now;
            news
        });
    }
}

/// The condition before anything was read. A Node whose pods wait for their network is not ready until then.
pub(super) fn initial(shared: Option<&String>) -> Condition {
    match shared {
        Some(reason) => Condition {
            ready: Ok(()),
            network: Err(reason.clone()),
            waits: false,
        },
        None => {
            let error = cni::Error::from(cni::ConfigError::NotRead);
            of_plugins(Err(explained(&error)))
        }
    }
}

/// The condition of a node whose pods have their networks by plugins.
fn of_plugins(ready: Result<(), String>) -> Condition {
    Condition {
        network: ready.clone(),
        ready,
        waits: true,
    }
}

/// Why pods share the network of the host, if they do.
pub(super) fn shared(settings: &NetworkSettings, isolation: Isolation) -> Option<String> {
    if let Some(reason) = &settings.unavailable {
        return Some(reason.clone());
    }
    match settings.mode {
        PodNetwork::Host => return Some("--pod-network is host".to_owned()),
        // A directory that cannot be read counts as one: the Node's condition has the error.
        PodNetwork::Auto if !cni::is_configured(&settings.conf_dir) => {
            let directory = settings.conf_dir.display();
            return Some(format!("there is no CNI configuration in {directory}"));
        }
        PodNetwork::Auto | PodNetwork::Cni => {}
    }
    match isolation {
        Isolation::Namespaces => None,
        _ => Some("pod networks need an agent that runs as root".to_owned()),
    }
}

/// The kubelet's message about a runtime with this network.
fn explained(error: &cni::Error) -> String {
    format!(
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin \
         returns error: {error}"
    )
}

pub(super) fn not_ready(error: &cni::Error) -> Obstacle {
    Obstacle {
        reason: "NetworkNotReady",
        message: format!("network is not ready: {}", explained(error)),
    }
}
