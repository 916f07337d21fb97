//! Which address families a service has. The cluster has one, IPv4; services without an address may name both.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use super::{HEADLESS, invalid, kind, list};
use crate::builtin::service_address_errors;
use crate::error::Result;
use crate::object::text;

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// Fills in the missing IP families of a service.
pub(super) fn set_defaults(service: &mut Value, old: Option<&Value>) -> Result<()> {
    if kind(service) == "ExternalName" || old.is_some_and(|old| keeps_preference(service, old)) {
        return Ok(());
    }
    let headless = text(service, &["spec", "clusterIP"]) == HEADLESS;
    let selects = service["spec"]["selector"]
        .as_object()
        .is_some_and(|selector| !selector.is_empty());
    if service["spec"]["ipFamilyPolicy"].is_null() {
        service["spec"]["ipFamilyPolicy"] = match old.map(|old| &old["spec"]["ipFamilyPolicy"]) {
            Some(policy) if policy.is_string() => policy.clone(),
            _ if headless && !selects => "RequireDualStack".into(),
            _ => "SingleStack".into(),
        };
    }
    let errors = service_address_errors(service);
    if !errors.is_empty() {
        return Err(invalid(service, errors));
    }
    let mut errors = fit_policy(service, old);
    let mut families = list(service, "ipFamilies").to_vec();
    for (index, address) in list(service, "clusterIPs").iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        if address == HEADLESS {
            break;
        }
        if index >= families.len() {
            if address.contains(':') {
                let at = Path::new("spec").child("clusterIPs").index(index);
                let detail = "IPv6 is not configured on this cluster";
                errors.push(Error::invalid(&at, &service["spec"]["clusterIPs"], detail));
            } else {
                families.push("IPv4".into());
            }
        }
    }
    if !errors.is_empty() {
        return Err(invalid(service, errors));
    }
    if headless && !selects {
        if families.is_empty() {
            families.push("IPv4".into());
        }
        if families.len() < 2 && service["spec"]["ipFamilyPolicy"] != "SingleStack" {
            let other = FAMILIES.into_iter().find(|family| families[0] != *family);
            families.extend(other.map(Value::from));
        }
        service["spec"]["ipFamilies"] = families.into();
        return Ok(());
    }
    let path = Path::new("spec");
    if service["spec"]["ipFamilyPolicy"] == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(Error::invalid(
            &path.child("ipFamilyPolicy"),
            "RequireDualStack",
            detail,
        ));
    }
    for (index, family) in families.iter().enumerate() {
        if family != "IPv4" {
            let detail = "not configured on this cluster";
            errors.push(Error::invalid(
                &path.child("ipFamilies").index(index),
                family,
                detail,
            ));
        }
    }
    if !errors.is_empty() {
        return Err(invalid(service, errors));
    }
    if families.is_empty() {
        families.push("IPv4".into());
    }
    service["spec"]["ipFamilies"] = families.into();
    Ok(())
}

/// A service that follows the cluster's families, and names no new ones, is not changed.
fn keeps_preference(service: &Value, old: &Value) -> bool {
    let (new, old) = (&service["spec"], &old["spec"]);
    new["ipFamilyPolicy"] == "PreferDualStack"
        && ["ipFamilyPolicy", "clusterIPs", "ipFamilies"]
            .iter()
            .all(|key| new[key] == old[key])
}

/// Checks the numbers of families and addresses against the policy.
fn fit_policy(service: &mut Value, old: Option<&Value>) -> ErrorList {
    let at = Path::new("spec").child("ipFamilyPolicy");
    let mut errors = ErrorList::new();
    let policy = service["spec"]["ipFamilyPolicy"].clone();
    let single = policy == "SingleStack";
    if let Some(old) = old {
        let parts = [
            (
                "clusterIPs",
                "must be 'SingleStack' to release the secondary cluster IP",
            ),
            (
                "ipFamilies",
                "must be 'SingleStack' to release the secondary IP family",
            ),
        ];
        for (key, detail) in parts {
            let (now, before) = (list(service, key), list(old, key));
            if single && now == before && now.len() > 1 {
                service["spec"][key] = json!([now[0]]);
            } else if !single && now.len() == 1 && before.len() > 1 && now[0] == before[0] {
                errors.push(Error::invalid(&at, &policy, detail));
            }
        }
    }
    if single {
        for (key, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if list(service, key).len() == 2 {
                let detail = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.push(Error::invalid(&at, &policy, detail));
            }
        }
    }
    errors
}
