//! Health of devices, as their drivers report it (KEP-4680). Pods show it in their status.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use allot_model::limits::POOL_NAME;
use allot_protos::dra_health_v1::dra_resource_health_client::DraResourceHealthClient as DraResourceHealthClientV1;
use allot_protos::dra_health_v1alpha1::dra_resource_health_client::DraResourceHealthClient;
use allot_protos::dra_health_v1alpha1::{DeviceHealth, HealthStatus, NodeWatchResourcesRequest};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Plugin, Plugins};
use crate::events::shorten;

/// How long a report counts whose driver names no time.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait before a stream that ended is opened again.
const RETRY: Duration = Duration::from_secs(5);
/// Devices of a driver whose health is remembered. A node has far fewer.
const MOST: usize = 16_384;
/// Least time between two messages of a driver: each is news for every pod of the node.
const PACE: Duration = Duration::from_millis(100);
/// Health of a device without a report.
pub(crate) const UNKNOWN: &str = "Unknown";

#[derive(Debug, Clone, PartialEq)]
struct Report {
    health: &'static str,
    message: String,
    until: Instant,
}

/// The latest reports of a driver, by pool and device.
type Reports = HashMap<(String, String), Report>;

/// The latest reports.
#[derive(Debug)]
pub(crate) struct Health {
    /// By driver.
    reports: Mutex<HashMap<String, Reports>>,
    changed: watch::Sender<()>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            reports: Mutex::default(),
            changed: watch::channel(()).0,
        }
    }
}

impl Health {
    /// `Healthy`, `Unhealthy` or `Unknown`, and the driver's words.
    pub(crate) fn of(
        &self,
        driver: &str,
        pool: &str,
        device: &str,
        now: Instant,
    ) -> (&'static str, String) {
        let reports = self.reports.lock();
        let report = reports
            .get(driver)
            .and_then(|devices| devices.get(&(pool.to_owned(), device.to_owned())))
            .filter(|report| now < report.until);
        report.map_or((UNKNOWN, String::new()), |report| {
            (report.health, report.message.clone())
        })
    }

    /// Notifies about every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Records a report; devices that it does not list keep their health until that times out. Returns when the next
    /// device times out.
    fn take(&self, driver: &str, devices: Vec<DeviceHealth>, now: Instant) -> Option<Instant> {
        let mut reports = self.reports.lock();
        let known = reports.entry(driver.to_owned()).or_default();
        known.retain(|_, report| now < report.until);
        for report in devices {
            let health = match report.health() {
                HealthStatus::Healthy => "Healthy",
                HealthStatus::Unhealthy => "Unhealthy",
                HealthStatus::Unknown => UNKNOWN,
            };
            let timeout = u64::try_from(report.health_check_timeout_seconds)
                .ok()
                .filter(|seconds| *seconds > 0)
                .map_or(DEFAULT_TIMEOUT, Duration::from_secs);
            let device = report.device.unwrap_or_default();
            let key = (device.pool_name, device.device_name);
            let named = key.0.len().max(key.1.len()) <= POOL_NAME;
            if !named || (known.len() >= MOST && !known.contains_key(&key)) {
                continue;
            }
            let report = Report {
                health,
                message: shorten(report.message),
                // Timeouts of more than a day are reduced to a day.
                until: now + timeout.min(Duration::from_secs(24 * 3600)),
            };
            known.insert(key, report);
        }
        let next = known.values().map(|report| report.until).min();
        drop(reports);
        self.changed.send_replace(());
        next
    }

    /// Takes in which devices of a pool that no plugin serves are unhealthy, with a message for each; the others of
    /// the pool are healthy again.
    pub(super) fn set(&self, driver: &str, pool: &str, unhealthy: BTreeMap<String, String>) {
        // Far in the future: these reports do not expire.
        let until = Instant::now() + Duration::from_secs(100 * 365 * 24 * 3600);
        let mut reports = self.reports.lock();
        let known = reports.entry(driver.to_owned()).or_default();
        known.retain(|(of, _), _| of != pool);
        for (device, message) in unhealthy {
            let report = Report {
                health: "Unhealthy",
                message: shorten(message),
                until,
            };
            known.insert((pool.to_owned(), device), report);
        }
        drop(reports);
        self.changed.send_replace(());
    }

    fn clear(&self, driver: &str) {
        if self.reports.lock().remove(driver).is_some() {
            self.changed.send_replace(());
        }
    }
}

/// Receives health reports of a plugin until it is unregistered. A plugin without the service reports that at once, and
/// is not asked again.
pub(super) async fn follow(plugin: Arc<Plugin>, plugins: Arc<Plugins>) {
    let listen = async {
        loop {
            let over = listen(&plugin, &plugins.health).await;
            plugins.health.clear(&plugin.driver);
            match over {
                Err(status) if status.code() == tonic::Code::Unimplemented => return,
                Err(status) => tracing::debug!(driver = plugin.driver, %status, "device health"),
                Ok(()) => {}
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::select! {
        () = listen => {}
        () = plugin.gone.cancelled() => plugins.health.clear(&plugin.driver),
    }
}

/// Records the reports of one stream, until it ends.
async fn listen(plugin: &Plugin, health: &Health) -> Result<(), tonic::Status> {
    let request = NodeWatchResourcesRequest {};
    let mut client = DraResourceHealthClientV1::new(plugin.channel.clone());
    let answer = match client.node_watch_resources(request).await {
        Err(status) if status.code() == tonic::Code::Unimplemented => {
            let mut older = DraResourceHealthClient::new(plugin.channel.clone());
            older.node_watch_resources(request).await?
        }
        answer => answer?,
    };
    let mut stream = answer.into_inner();
    let mut stale: Option<Instant> = None;
    loop {
        let age = async {
            match stale {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = stream.message() => match message? {
                Some(list) => {
                    stale = health.take(&plugin.driver, list.devices, Instant::now());
                    tokio::time::sleep(PACE).await;
                }
                None => return Ok(()),
            },
            () = age => stale = health.take(&plugin.driver, Vec::new(), Instant::now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use allot_protos::dra_health_v1alpha1::DeviceIdentifier;

    use super::*;

    fn report(device: &str, health: HealthStatus, timeout: i64) -> DeviceHealth {
        DeviceHealth {
            device: Some(DeviceIdentifier {
                pool_name: "p".into(),
                device_name: device.into(),
            }),
            health: health.into(),
            health_check_timeout_seconds: timeout,
            message: "why".into(),
            ..DeviceHealth::default()
        }
    }

    #[test]
    fn reports_become_too_old_one_by_one() {
        let health = Health::default();
        let mut changes = health.subscribe();
        let start = Instant::now();
        let said = |device, now| health.of("d", "p", device, now).0;
        assert_eq!(said("a", start), "Unknown");
        let list = vec![
            report("a", HealthStatus::Healthy, 0),
            report("b", HealthStatus::Unhealthy, 60),
        ];
        let next = health.take("d", list, start);
        assert_eq!(next, Some(start + DEFAULT_TIMEOUT));
        assert!(changes.has_changed().unwrap());
        let both = |now| (said("a", now), said("b", now));
        assert_eq!(both(start), ("Healthy", "Unhealthy"));
        assert_eq!(health.of("d", "p", "b", start).1, "why");
        let later = start + DEFAULT_TIMEOUT;
        assert_eq!(both(later), ("Unknown", "Unhealthy"));
        let next = health.take("d", Vec::new(), later);
        assert_eq!(next, Some(start + DEFAULT_TIMEOUT * 2));
        changes.mark_unchanged();
        health.clear("d");
        assert!(changes.has_changed().unwrap());
        assert_eq!(said("b", later), "Unknown");
    }

    /// The attack: a driver invents devices without end. Each was remembered for a day.
    #[test]
    fn invented_devices_are_not_remembered_without_a_bound() {
        let health = Health::default();
        let now = Instant::now();
        let list = |numbers: std::ops::Range<usize>| {
            let one = |n: usize| report(&format!("d{n}"), HealthStatus::Healthy, 86_400);
            numbers.map(one).collect::<Vec<_>>()
        };
        health.take("d", list(0..10), now);
        health.take("d", list(0..3 * MOST), now);
        health.take("other", list(0..10), now);
        assert_eq!(health.reports.lock()["d"].len(), MOST);
        assert_eq!(health.of("d", "p", "d0", now).0, "Healthy");
        assert_eq!(health.of("other", "p", "d9", now).0, "Healthy");
        // What is known is still kept up to date.
        health.take("d", vec![report("d0", HealthStatus::Unhealthy, 60)], now);
        assert_eq!(health.of("d", "p", "d0", now).0, "Unhealthy");
        let long = "x".repeat(POOL_NAME + 1);
        health.take("third", vec![report(&long, HealthStatus::Healthy, 60)], now);
        assert_eq!(health.of("third", "p", &long, now).0, "Unknown");
    }
}
