//! The driver of the tests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use allot_driver::{
    Claim, ContainerEdits, Driver, Failure, Prepared, PreparedClaim, PreparedDevice,
};

use super::harness::DRIVER;

/// The calls of a driver, and its faults.
#[derive(Default)]
pub struct Calls {
    pub log: Mutex<Vec<String>>,
    pub prepare_fails: AtomicBool,
    /// Whether `prepare` waits for `resume`.
    pub prepare_hangs: AtomicBool,
    pub resume: tokio::sync::Notify,
}

/// A driver that records its calls.
pub struct Recording(pub Arc<Calls>);

impl Driver for Recording {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        if self.0.prepare_fails.load(Ordering::Relaxed) {
            return Err("the device is on fire".into());
        }
        if self.0.prepare_hangs.load(Ordering::Relaxed) {
            self.0.log.lock().unwrap().push("stuck".into());
            self.0.resume.notified().await;
        }
        self.0
            .log
            .lock()
            .unwrap()
            .push(format!("prepare {}", claim.reference()));
        let device = |result| {
            let env = vec![format!(
                "DEVICE={}",
                claim.results(DRIVER).next().unwrap().device
            )];
            PreparedDevice::from_result(result).edits(ContainerEdits {
                env,
                ..Default::default()
            })
        };
        Ok(claim.results(DRIVER).map(device).collect())
    }

    async fn unprepare(&self, claim: &PreparedClaim) -> Result<(), Failure> {
        self.0
            .log
            .lock()
            .unwrap()
            .push(format!("unprepare {claim}"));
        Ok(())
    }
}
