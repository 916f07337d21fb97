//! The admission webhook about the parameters of claims and classes.

use allot_driver::webhook::Webhook;

use super::DRIVER_NAME;
use super::parameters::InterfaceConfig;

/// Adds the driver's parameters to a webhook.
#[must_use]
pub fn webhook(webhook: Webhook) -> Webhook {
    webhook.driver(DRIVER_NAME, InterfaceConfig::parse)
}
