//! Ranges of the cluster IPs of services.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use super::{DEPRECATED, NETWORKING, SINCE, VERSIONS};
use crate::object::strings;
use crate::registry::{ALL_METADATA, Builtin, Rules, STATUS};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{IMMUTABLE, internal, ip, list};

pub(super) static SERVICE_CIDR: Builtin = Builtin {
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    namespaced: false,
    versions: VERSIONS,
    since: SINCE,
    deprecated: DEPRECATED,
    subresources: &[STATUS],
    rules: Rules {
        status_keeps: ALL_METADATA,
        status_ignores_deletion: true,
        validate,
        validate_update: Some(validate_update),
        validates_metadata_again: false,
        table: Some(("Name|CIDRs|Age", row)),
        ..NETWORKING.rules
    },
    ..NETWORKING
};

/// Checks the ranges of services.
fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec").child("cidrs"));
    let ranges = list(spec, "cidrs");
    if ranges.is_empty() {
        errors.push(Error::required(&path, "at least one CIDR required"));
        return;
    }
    if ranges.len() > 2 {
        let shown = internal::shown(("networking.k8s.io", "v1", "ServiceCIDR"), &["spec"], spec);
        errors.push(Error::invalid(&path, shown, "may only hold up to 2 values"));
        return;
    }
    for (index, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default();
        if let Some(detail) = range_text(range) {
            errors.push(Error::invalid(&path.index(index), range, detail));
        }
    }
    let families: Vec<bool> = ranges
        .iter()
        .filter_map(Value::as_str)
        .filter(|range| ip::range_text(range) != Some(ip::CIDR_TEXT))
        .map(|range| range.contains(':'))
        .collect();
    if families.len() == 2 && families[0] == families[1] {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(Error::invalid(&path, &spec["cidrs"], detail));
    }
}

fn range_text(range: &str) -> Option<String> {
    if let Some(why) = ip::range_text(range) {
        return Some(why.to_owned());
    }
    let (address, length) = ip::sloppy_range(range)?;
    let canonical = format!("{address}/{length}");
    (canonical != range).then(|| format!("must be in canonical form (\"{canonical}\")"))
}

/// Validates an update of a ServiceCIDR: a second family may be added.
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("cidrs");
    let (now, before) = (list(&object["spec"], "cidrs"), list(&old["spec"], "cidrs"));
    let mut fixed = |index: usize| {
        if now[index] != before[index] {
            errors.push(Error::invalid(&path.index(index), &now[index], IMMUTABLE));
        }
    };
    match (before.len(), now.len()) {
        (had, has) if had == has => (0..had).for_each(fixed),
        (1, 2) => {
            fixed(0);
            validate(object, errors);
        }
        _ => {
            let ranges = &object["spec"]["cidrs"];
            // A list that was sent empty is no absent one.
            let ranges = match ranges.is_null() && crate::empties::has(&path) {
                true => serde_json::json!([]),
                false => ranges.clone(),
            };
            errors.push(Error::invalid(&path, &ranges, IMMUTABLE));
        }
    }
}

fn row(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(strings(&object["spec"]["cidrs"]).join(",")),
        age(object),
    ]
}
