//! Restarts of containers whose resize requires one.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::events::Kind;
use crate::pods::lifecycle;
use crate::pods::state::Phase;
use crate::pods::worker::{Worker, container_of, grace};

impl Worker {
    /// Stops the containers that are to be restarted, without waiting: the other containers go on. Each is started again as soon
    /// as it has ended. This continues with what an earlier agent began.
    pub(super) fn stop_for_restart(&mut self, pod: &Pod) {
        let due: Vec<(String, String)> = {
            let containers = self.containers.lock();
            let marked = self.restarting.iter().filter(|(name, id)| {
                let running = containers.get(*name).and_then(|state| state.running());
                running.is_some_and(|it| it.id == **id) && !self.stopping.contains(*id)
            });
            marked
                .map(|(name, id)| (name.clone(), id.clone()))
                .collect()
        };
        for (name, id) in due {
            let Some(container) = container_of(pod, &name) else {
                continue;
            };
            let message = format!("Container {name} resize requires restart");
            let events = &self.node.events;
            events.pod(pod, Some(&name), Kind::Normal, "Killing", message);
            self.stopping.insert(id.clone());
            while self.stops.try_join_next().is_some() {}
            let (node, pod) = (Arc::clone(&self.node), pod.clone());
            self.stops.spawn(async move {
                lifecycle::stop(&node, &pod, &container, &id, grace(&pod)).await;
            });
        }
    }

    /// Forgets the restarts that are complete: the container has been started again.
    pub(super) fn forget_restarts(&mut self) {
        let containers = self.containers.lock();
        self.restarting.retain(|name, id| {
            match containers.get(name).map(|state| &state.phase) {
                Some(Phase::Running(running)) => running.id == *id,
                Some(Phase::Waiting { .. }) => true,
                // The program could not be started, or has ended again: its restart policy decides.
                Some(Phase::Terminated(_)) | None => false,
            }
        });
        let restarting = &self.restarting;
        self.stopping
            .retain(|id| restarting.values().any(|marked| marked == id));
    }
}
