//! The addresses of services: one of each family that a service has.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{IpFamily, Status};
use allot_store::ListOptions;
use serde_json::{Value, json};

use super::{
    ADDRESSES, addresses, family_named, invalid, is_headless, kind, list, pick, ranges, static_band,
};
use crate::config::ServiceRange;
use crate::error::{ApiError, Result};
use crate::object::meta;
use crate::state::ServerState;

/// Gives a service the addresses that it lacks: those that it names, or any.
pub(super) async fn give(
    core: &ServerState,
    service: &mut Value,
    old: Option<&Value>,
    others: &[Value],
    dry_run: bool,
) -> Result<()> {
    let lacking = lacking(service, old);
    if lacking.is_empty() {
        return Ok(());
    }
    let mut taken: BTreeSet<IpAddr> = others.iter().flat_map(addresses).collect();
    let page = core.backend.list(ADDRESSES, ListOptions::default()).await?;
    let shown = page
        .entries
        .iter()
        .filter_map(|it| it.key.parse::<IpAddr>().ok());
    taken.extend(shown);
    let ranges = ranges::current(core).await?;
    // An empty text has the place of an address that is not chosen yet, also in the messages.
    let mut all = list(service, "clusterIPs").to_vec();
    while all.len() < lacking.end {
        all.push("".into());
    }
    service["spec"]["clusterIPs"] = all.into();
    for index in lacking {
        let family = family_named(&list(service, "ipFamilies")[index]);
        let named = list(service, "clusterIPs")[index]
            .as_str()
            .unwrap_or_default();
        let chosen = match named {
            "" => free(&ranges, family, &taken)
                .map(|it| it.to_string())
                .ok_or_else(|| full(service))?,
            named => {
                let named = named.to_owned();
                let own = core.config.service_addresses.of(family);
                check(&ranges, own.filter(|_| dry_run), &taken, &named).map_err(|why| {
                    let detail = format!("failed to allocate IP {named}: {why}");
                    let at = Path::new("spec").child("clusterIPs");
                    let shown = &service["spec"]["clusterIPs"];
                    invalid(
                        service,
                        ErrorList::from([Error::invalid(&at, shown, detail)]),
                    )
                })?;
                named
            }
        };
        taken.extend(chosen.parse::<IpAddr>());
        service["spec"]["clusterIPs"][index] = json!(chosen);
        if index == 0 {
            service["spec"]["clusterIP"] = chosen.into();
        }
    }
    Ok(())
}

/// Which of its addresses a service is to be given: all that has none yet, the second if it gets a second family.
fn lacking(service: &Value, old: Option<&Value>) -> Range<usize> {
    let families = list(service, "ipFamilies").len();
    if kind(service) == "ExternalName" || is_headless(service) {
        return 0..0;
    }
    match old.filter(|old| kind(old) != "ExternalName") {
        None => 0..families,
        Some(old) if is_headless(old) => 0..0,
        Some(old) => {
            let had = list(old, "ipFamilies").len();
            let had = had.max(list(old, "clusterIPs").len());
            if had == 1 && families == 2 {
                1..2
            } else {
                0..0
            }
        }
    }
}

fn full(service: &Value) -> ApiError {
    let name = meta(service, "name");
    let why = format!("failed to allocate a serviceIP for Service {name:?}: range is full");
    Status::internal(&why).into()
}

/// Why a service cannot have an address that it names. With the server's own range for a dry run, which does not look
/// at what others have.
fn check(
    ranges: &[ServiceRange],
    own: Option<ServiceRange>,
    taken: &BTreeSet<IpAddr>,
    named: &str,
) -> Result<(), String> {
    let ip = named.parse::<IpAddr>().ok();
    let inside = ip.filter(|ip| ranges.iter().any(|range| range.gives(*ip)));
    match (inside, own) {
        (Some(ip), None) if taken.contains(&ip.to_canonical()) => {
            Err("provided IP is already allocated".to_owned())
        }
        (Some(_), _) => Ok(()),
        (None, Some(own)) => Err(format!(
            "the provided IP ({named}) is not in the valid range. The range of valid IPs is {own}"
        )),
        (None, None) => Err("the provided network does not match the current range".to_owned()),
    }
}

/// An address of a family that no service has.
pub(super) fn free(
    ranges: &[ServiceRange],
    family: IpFamily,
    taken: &BTreeSet<IpAddr>,
) -> Option<IpAddr> {
    let of_family = ranges.iter().filter(|it| it.family() == family);
    let mut found = of_family.filter_map(|range| {
        let usable = range.usable();
        let upper = usable.start() + static_band(range.size(), 16, 256)..=*usable.end();
        let is_taken = |number| taken.contains(&range.address(number));
        Some(range.address(pick(upper, usable, is_taken)?))
    });
    found.next()
}
