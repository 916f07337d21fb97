//! Binding conditions (KEP-5007): pods are bound when the driver has reported that their devices are ready. Modelled
//! GPUs are ready immediately; a real driver would check the device, or prepare it if that takes long.

use allot_driver::Failure;
use allot_driver::binding::{Binder, Readiness, WaitingDevice};

use crate::Gpus;

/// The condition that a pod waits for.
pub(crate) const CONDITION: &str = "BindingConditions";
/// The condition that causes the scheduler to release the allocation.
pub(crate) const FAILURE: &str = "BindingFailureConditions";

impl Binder for Gpus {
    async fn make_ready(&self, device: &WaitingDevice) -> Result<Readiness, Failure> {
        let name = &device.result().device;
        Ok(match self.devices.contains_key(name) {
            true => Readiness::Ready,
            false => Readiness::failed("Unknown", format!("{name} does not exist")),
        })
    }
}
