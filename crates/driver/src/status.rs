//! The queue of device statuses that wait to be written to their claims.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::AccessError;
use crate::claim::ClaimRef;
use crate::controls::Controls;

/// Maximum number of claims that wait; a node has fewer.
const WAITING: usize = 4096;
/// Delay before failed updates are retried.
const RETRY: Duration = Duration::from_secs(2);
/// Maximum attempts for one update.
const ATTEMPTS: u32 = 30;

/// Device statuses that wait to be written, the newest of each claim: preparing a claim need not wait for the API server. Made
/// before the plugin, so that [`crate::Driver::prepare`] can use it, and written by [`StatusQueue::run`].
///
/// ```
/// use allot_driver::{ClaimRef, StatusQueue};
///
/// let queue = StatusQueue::default();
/// // In the driver:
/// queue.set(ClaimRef::default(), Vec::new());
/// // Beside the plugin: tokio::spawn(async move { queue.run(&plugin.controls()).await });
/// ```
#[derive(Debug, Clone, Default)]
pub struct StatusQueue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<BTreeMap<ClaimRef, Update>>,
    changed: Notify,
}

#[derive(Debug)]
struct Update {
    devices: Vec<AllocatedDeviceStatus>,
    attempts: u32,
    /// When it is written. An update that failed waits, also while others are set.
    due: Instant,
}

impl StatusQueue {
    /// Sets the statuses of a claim's devices, as [`crate::Plugin::set_device_status`] takes them; replaces those that wait.
    pub fn set(&self, claim: ClaimRef, devices: Vec<AllocatedDeviceStatus>) {
        let update = Update {
            devices,
            attempts: 0,
            due: Instant::now(),
        };
        let mut waiting = self.shared.waiting.lock();
        if waiting.len() >= WAITING && !waiting.contains_key(&claim) {
            tracing::warn!(%claim, "too many claims wait: the status of its devices is not written");
            return;
        }
        waiting.insert(claim, update);
        drop(waiting);
        self.shared.changed.notify_one();
    }

    /// Writes statuses as they are set. A failed update is retried, unless the claim is gone or the API server rejects it.
    /// Never returns.
    pub async fn run(&self, controls: &Controls) {
        self.write_to(controls).await;
    }

    /// Takes the updates that are to be written now.
    fn take_due(&self) -> BTreeMap<ClaimRef, Update> {
        let now = Instant::now();
        let mut waiting = self.shared.waiting.lock();
        let all = std::mem::take(&mut *waiting);
        let (due, later) = all.into_iter().partition(|(_, update)| update.due <= now);
        *waiting = later;
        due
    }

    async fn write_to(&self, claims: &impl Claims) {
        loop {
            for (claim, update) in self.take_due() {
                let Err(error) = claims.write(&claim, update.devices.clone()).await else {
                    continue;
                };
                match judge(&error) {
                    Verdict::Gone => tracing::debug!(%claim, %error, "the claim is gone"),
                    Verdict::Rejected => {
                        tracing::warn!(%claim, %error, "the status of the claim's devices is rejected");
                    }
                    Verdict::Retry if update.attempts + 1 >= ATTEMPTS => {
                        tracing::warn!(%claim, %error, "the status of the claim's devices is not written");
                    }
                    Verdict::Retry => {
                        tracing::debug!(%claim, %error, "the status of the claim's devices is not written yet");
                        let again = Update {
                            attempts: update.attempts + 1,
                            due: Instant::now() + RETRY,
                            ..update
                        };
                        // A newer one replaces it.
                        let mut waiting = self.shared.waiting.lock();
                        waiting.entry(claim).or_insert(again);
                    }
                }
            }
            let next = self.shared.waiting.lock().values().map(|it| it.due).min();
            let retry = async {
                match next {
                    None => std::future::pending().await,
                    Some(due) => tokio::time::sleep_until(due).await,
                }
            };
            tokio::select! {
                () = self.shared.changed.notified() => {}
                () = retry => {}
            }
        }
    }
}

/// Where statuses are written to.
trait Claims: Sync {
    fn write(
        &self,
        claim: &ClaimRef,
        devices: Vec<AllocatedDeviceStatus>,
    ) -> impl Future<Output = Result<(), AccessError>> + Send;
}

impl Claims for Controls {
    async fn write(
        &self,
        claim: &ClaimRef,
        devices: Vec<AllocatedDeviceStatus>,
    ) -> Result<(), AccessError> {
        self.set_device_status(claim, devices).await
    }
}

enum Verdict {
    /// The claim does not exist any longer, or is another one.
    Gone,
    /// Another attempt has the same result.
    Rejected,
    Retry,
}

fn judge(error: &AccessError) -> Verdict {
    match error {
        AccessError::Kube(kube::Error::Api(status)) => match status.code {
            404 | 409 => Verdict::Gone,
            400 | 422 => Verdict::Rejected,
            _ => Verdict::Retry,
        },
        _ => Verdict::Retry,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    fn claim(name: &str) -> ClaimRef {
        ClaimRef {
            name: name.to_owned(),
            ..ClaimRef::default()
        }
    }

    fn device(name: &str) -> Vec<AllocatedDeviceStatus> {
        vec![AllocatedDeviceStatus {
            device: name.to_owned(),
            ..AllocatedDeviceStatus::default()
        }]
    }

    fn answer(code: u16) -> AccessError {
        let status = kube::core::Status {
            code,
            ..kube::core::Status::default()
        };
        AccessError::Kube(kube::Error::Api(Box::new(status)))
    }

    /// Passes on what is written, and answers the first updates with these codes.
    struct Server {
        codes: Mutex<std::collections::VecDeque<u16>>,
        seen: mpsc::UnboundedSender<String>,
    }

    impl Claims for Server {
        async fn write(
            &self,
            _: &ClaimRef,
            devices: Vec<AllocatedDeviceStatus>,
        ) -> Result<(), AccessError> {
            let _ = self.seen.send(devices[0].device.clone());
            match self.codes.lock().pop_front() {
                Some(code) => Err(answer(code)),
                None => Ok(()),
            }
        }
    }

    /// The devices that are written, until there are `count`, when the API server answers the first ones with these codes.
    async fn written(queue: &StatusQueue, codes: &[u16], count: usize) -> Vec<String> {
        let (sender, mut seen) = mpsc::unbounded_channel();
        let server = Server {
            codes: Mutex::new(codes.iter().copied().collect()),
            seen: sender,
        };
        let collect = async {
            let mut all = Vec::new();
            while all.len() < count {
                all.extend(seen.recv().await);
            }
            all
        };
        tokio::select! {
            () = queue.write_to(&server) => unreachable!("it never returns"),
            all = collect => all,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_status_of_each_claim_is_written() {
        let queue = StatusQueue::default();
        queue.set(claim("a"), device("old"));
        queue.set(claim("a"), device("new"));
        queue.set(claim("b"), device("other"));
        assert_eq!(written(&queue, &[], 2).await, ["new", "other"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_updates_are_retried_and_rejected_ones_are_not() {
        let queue = StatusQueue::default();
        for (name, code) in [("gone", 404), ("invalid", 422), ("busy", 500)] {
            queue.set(claim(name), device(&code.to_string()));
        }
        // In the order of the claims: busy, gone, invalid; then the first one again.
        let all = written(&queue, &[500, 404, 422], 4).await;
        assert_eq!(all, ["500", "404", "422", "500"]);
    }

    /// Refuses the status of one claim, and passes on what is written.
    struct Refusing(mpsc::UnboundedSender<String>);

    impl Claims for Refusing {
        async fn write(
            &self,
            claim: &ClaimRef,
            _: Vec<AllocatedDeviceStatus>,
        ) -> Result<(), AccessError> {
            let _ = self.0.send(claim.name.clone());
            match claim.name == "busy" {
                true => Err(answer(500)),
                false => Ok(()),
            }
        }
    }

    /// Each new status was an attempt for all that had failed, and after 30 of them they were dropped.
    #[tokio::test(start_paused = true)]
    async fn regression_new_statuses_do_not_use_up_the_attempts_of_others() {
        let (sender, mut seen) = mpsc::unbounded_channel();
        let (server, queue) = (Refusing(sender), StatusQueue::default());
        let set = async {
            let (start, mut busy) = (Instant::now(), 0);
            queue.set(claim("busy"), device("a"));
            for number in 0..100 {
                let name = format!("claim-{number}");
                queue.set(claim(&name), device("b"));
                while let Some(written) = seen.recv().await
                    && written != name
                {
                    busy += 1;
                }
            }
            assert_eq!((busy, start.elapsed()), (1, Duration::ZERO));
            assert_eq!(seen.recv().await.as_deref(), Some("busy"));
            assert_eq!(start.elapsed(), RETRY);
        };
        tokio::select! {
            () = queue.write_to(&server) => unreachable!("it never returns"),
            () = set => {}
        }
    }

    #[tokio::test]
    async fn the_queue_is_bounded() {
        let queue = StatusQueue::default();
        for number in 0..=WAITING {
            queue.set(claim(&number.to_string()), Vec::new());
        }
        assert_eq!(queue.shared.waiting.lock().len(), WAITING);
    }
}
