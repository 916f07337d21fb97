//! Which address families a service has: those that it names, or those of the cluster.

use allot_apimachinery::IpFamily;
use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use super::{HEADLESS, family_named, invalid, kind, list};
use crate::builtin::service_address_errors;
use crate::config::ServiceAddresses;
use crate::error::Result;
use crate::object::text;
use crate::validate::ip;

/// Fills in the missing IP families of a service. `cluster` has the families that services can have addresses of.
pub(super) fn set_defaults(
    cluster: &ServiceAddresses,
    service: &mut Value,
    old: Option<&Value>,
) -> Result<()> {
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
    infer(cluster, service, &mut families, &mut errors);
    if !errors.is_empty() {
        return Err(invalid(service, errors));
    }
    let single = service["spec"]["ipFamilyPolicy"] == "SingleStack";
    // Endpoints of a headless service without a selector can be of families that the cluster does not have.
    let free = headless && !selects;
    if !free {
        let errors = check_families(cluster, service, &families);
        if !errors.is_empty() {
            return Err(invalid(service, errors));
        }
    }
    if families.is_empty() {
        families.push(cluster.family().name().into());
    }
    if families.len() == 1 && !single && (free || cluster.is_dual_stack()) {
        let first = family_named(&families[0]);
        families.push(first.other().name().into());
    }
    service["spec"]["ipFamilies"] = families.into();
    Ok(())
}

/// Adds the families of the addresses that a service names.
fn infer(
    cluster: &ServiceAddresses,
    service: &Value,
    families: &mut Vec<Value>,
    errors: &mut ErrorList,
) {
    for (index, address) in list(service, "clusterIPs").iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        if address == HEADLESS {
            break;
        }
        // The addresses are valid, and match the families that are there.
        let Some(ip) = ip::sloppy(address).filter(|_| index >= families.len()) else {
            continue;
        };
        let family = IpFamily::of(ip);
        if cluster.of(family).is_some() {
            families.push(family.name().into());
        } else {
            let at = Path::new("spec").child("clusterIPs").index(index);
            let detail = format!("{} is not configured on this cluster", family.name());
            errors.push(Error::invalid(&at, &service["spec"]["clusterIPs"], detail));
        }
    }
}

/// The errors of a service that needs families which the cluster does not have.
fn check_families(cluster: &ServiceAddresses, service: &Value, families: &[Value]) -> ErrorList {
    let (mut errors, path) = (ErrorList::new(), Path::new("spec"));
    const BOTH: &str = "RequireDualStack";
    if service["spec"]["ipFamilyPolicy"] == BOTH && !cluster.is_dual_stack() {
        let detail = "this cluster is not configured for dual-stack services";
        errors.push(Error::invalid(&path.child("ipFamilyPolicy"), BOTH, detail));
    }
    for (index, family) in families.iter().enumerate() {
        if !cluster.ranges().any(|it| family == it.family().name()) {
            let at = path.child("ipFamilies").index(index);
            errors.push(Error::invalid(
                &at,
                family,
                "not configured on this cluster",
            ));
        }
    }
    errors
}

/// Whether a service with the preference for two families names no other ones and no other addresses than before: it is not
/// changed, so that a cluster which gets a second family, or loses it, leaves the service as it is.
fn keeps_preference(service: &Value, old: &Value) -> bool {
    let policy = &old["spec"]["ipFamilyPolicy"];
    service["spec"]["ipFamilyPolicy"] == "PreferDualStack"
        && (policy.is_null() || policy == "PreferDualStack")
        && kind(service) == kind(old)
        && ["clusterIPs", "ipFamilies"]
            .iter()
            .all(|key| list(service, key) == list(old, key))
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
            } else if !single && !now.is_empty() && now.len() < before.len() {
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
