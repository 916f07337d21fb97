//! Device status in claims: whether each interface is in the pod, with its name and addresses.

use std::collections::BTreeSet;

use allot_driver::{ClaimRef, StatusQueue};
use allot_netlink::mac_text;
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, NetworkDeviceData};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::parameters::{ADDRESSES, Mode};
use super::plan::{Outcome, Planned, Plans};

/// Condition type that reports whether the interface is attached.
pub const READY: &str = "Ready";
/// Reports the state of a claim's devices, as its plan and outcomes are in the files; of a claim that is released: none.
pub(super) fn report(queue: &StatusQueue, plans: &Plans, claim: &ClaimRef) {
    let plan = plans.read(&claim.uid).unwrap_or_else(|error| {
        tracing::warn!(%claim, %error, "the plan can not be read");
        None
    });
    let interfaces = plan.iter().flat_map(|plan| &plan.interfaces);
    let devices = interfaces.map(|planned| {
        let outcome = plans.outcome(&claim.uid, &planned.key).unwrap_or_default();
        status(planned, &claim.uid, outcome)
    });
    queue.set(claim.clone(), devices.collect());
}

/// Builds the status of a device.
fn status(planned: &Planned, uid: &str, outcome: Option<Outcome>) -> AllocatedDeviceStatus {
    let (is_ready, reason, mut message) = match &outcome {
        None => (
            false,
            "Prepared",
            "the interface is made when the first container of the pod is".to_owned(),
        ),
        Some(Outcome {
            error: Some(error), ..
        }) => (false, "AttachFailed", error.clone()),
        Some(_) => (
            true,
            "Attached",
            "the interface is in the network of the pod".to_owned(),
        ),
    };
    let at = outcome.as_ref().map_or_else(Timestamp::now, |it| it.at);
    let mut network = NetworkDeviceData {
        ips: Some(planned.addresses.iter().map(ToString::to_string).collect()),
        interface_name: planned.config.interface_name.clone(),
        hardware_address: Some(match planned.config.mode {
            Mode::Macvlan => mac_text(&planned.mac(uid)),
            _ => planned.parent_mac.clone(),
        }),
    };
    if let Some(outcome) = outcome.filter(|it| it.error.is_none()) {
        network.interface_name = Some(outcome.interface_name);
        network.hardware_address = Some(outcome.hardware_address);
        network.ips = Some(outcome.ips);
    }
    // The API server rejects a status with more addresses, or with one that is there twice. A pod and the node can add any
    // number.
    if let Some(ips) = &mut network.ips {
        let mut seen = BTreeSet::new();
        ips.retain(|address| seen.insert(address.clone()));
        if ips.len() > ADDRESSES {
            let all = ips.len();
            message.push_str(&format!(
                "; the first {ADDRESSES} of {all} addresses are listed"
            ));
            ips.truncate(ADDRESSES);
        }
    }
    AllocatedDeviceStatus {
        pool: planned.pool.clone(),
        device: planned.device.clone(),
        share_id: planned.share_id.clone(),
        conditions: Some(vec![Condition {
            type_: READY.to_owned(),
            status: if is_ready { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: Time(at),
            observed_generation: None,
        }]),
        network_data: Some(network),
        ..AllocatedDeviceStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn regression_many_addresses_do_not_lose_the_status() {
        let planned: Planned = serde_json::from_value(json!({
            "key": "eth1", "pool": "n", "device": "eth1", "parent": "eth1", "parentMac": "02:00:00:00:00:01",
            "identity": {"type": "virtual", "kind": "veth", "boot": "", "index": 2, "name": "eth1", "mac": ""},
            "config": {}, "pools": [], "addresses": [], "original": {"mtu": 1500, "up": true, "addresses": []},
            "published": {"name": "eth1"},
        }))
        .expect("a plan");
        let outcome = |count: usize| {
            let mut ips: Vec<String> = (1..=count).map(|n| format!("10.0.0.{n}/24")).collect();
            ips.push("10.0.0.1/24".to_owned());
            Outcome {
                at: Timestamp::UNIX_EPOCH,
                error: None,
                interface_name: "eth1".to_owned(),
                hardware_address: "02:00:00:00:00:01".to_owned(),
                ips,
            }
        };
        let check = |count: usize, expected: usize, message: &str| {
            let status = status(&planned, "u1", Some(outcome(count)));
            let ips = status
                .network_data
                .and_then(|it| it.ips)
                .expect("addresses");
            assert_eq!(ips.len(), expected);
            assert_eq!(ips[0], "10.0.0.1/24");
            let conditions = status.conditions.expect("conditions");
            assert_eq!(conditions[0].message, message);
        };
        let attached = "the interface is in the network of the pod";
        check(16, 16, attached);
        check(
            17,
            16,
            &format!("{attached}; the first 16 of 17 addresses are listed"),
        );
    }
}
