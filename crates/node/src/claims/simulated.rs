//! Claims on simulated nodes: prepared without the drivers that never registered there.

use tokio::time::Instant;

use super::call::ClaimToPrepare;
use super::fetch::FetchedClaim;
use super::{Claims, Device};
use crate::plugins::health::UNKNOWN;

impl Claims {
    /// Whether the node acts as the driver. A driver that registered once is real, and is waited for when it is not
    /// connected.
    pub(super) fn simulates(&self, driver: &str) -> bool {
        self.simulated && !driver.is_empty() && !self.plugins.was_seen(driver)
    }

    /// Prepares claims as a driver would: every allocated device with its own CDI device.
    pub(super) fn pretend(
        &self,
        driver: &str,
        claims: &[(String, FetchedClaim)],
        wanted: &[ClaimToPrepare],
    ) {
        let mut cache = self.cache.lock();
        for ClaimToPrepare {
            namespace,
            name,
            uid,
            ..
        } in wanted
        {
            let claim = claims.iter().find(|(_, claim)| claim.uid() == uid);
            let results = claim.map(|(_, claim)| claim.results.as_slice());
            let results = results.unwrap_or_default().iter();
            let devices = results
                .filter(|(of, _)| of == driver)
                .map(|(_, device)| Device {
                    cdi_ids: vec![format!("{driver}/device={}", device.device)],
                    ..device.clone()
                });
            if let Some(info) = cache.get_mut(&(namespace.clone(), name.clone())) {
                info.drivers.insert(driver.to_owned(), devices.collect());
            }
        }
    }

    /// The health of a device; devices of simulated drivers are healthy unless reported otherwise.
    pub(super) fn health_of(
        &self,
        driver: &str,
        pool: &str,
        device: &str,
        now: Instant,
    ) -> (&'static str, String) {
        match self.plugins.health.of(driver, pool, device, now) {
            (UNKNOWN, _) if self.simulates(driver) => ("Healthy", String::new()),
            known => known,
        }
    }
}
