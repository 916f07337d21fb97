//! How the addresses and families of a service may change: the second comes and goes, the first stays.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use crate::validate::{list, text};

/// Why a first address or family is refused.
const FIXED: &str = "may not change once set";

/// Checks what a service, which is not and was not of type ExternalName, has done with its addresses and families.
pub(super) fn validate_change(spec: &Value, before: &Value, errors: &mut ErrorList) {
    let external = |spec: &Value| text(spec, "type") == "ExternalName";
    if external(spec) || external(before) {
        return;
    }
    let (is_headless, was_headless) = (headless(spec), headless(before));
    if is_headless && was_headless {
        return;
    }
    addresses(spec, before, errors);
    // From and to no address, families may change; the addresses tell what is wrong.
    if is_headless == was_headless {
        families(spec, before, errors);
    }
}

fn headless(spec: &Value) -> bool {
    matches!(list(spec, "clusterIPs"), [only] if only == "None")
}

fn addresses(spec: &Value, before: &Value, errors: &mut ErrorList) {
    let (now, had) = (list(spec, "clusterIPs"), list(before, "clusterIPs"));
    let at = Path::new("spec").child("clusterIPs");
    if now.len() == had.len() {
        for index in (0..now.len()).filter(|index| now[*index] != had[*index]) {
            errors.push(Error::invalid(&at.index(index), &spec["clusterIPs"], FIXED));
        }
        return;
    }
    if now.is_empty() {
        let detail = "primary clusterIP can not be unset";
        errors.push(Error::invalid(&at.index(0), &spec["clusterIPs"], detail));
    }
    if !now.is_empty() && !had.is_empty() && now[0] != had[0] {
        errors.push(Error::invalid(&at.index(0), &spec["clusterIPs"], FIXED));
    }
    if now.len() == 1 && now.len() < had.len() {
        released(spec, "clusterIP", errors);
    }
}

fn families(spec: &Value, before: &Value, errors: &mut ErrorList) {
    let (now, had) = (list(spec, "ipFamilies"), list(before, "ipFamilies"));
    let first = Path::new("spec").child("ipFamilies").index(0);
    if now.len() == had.len() {
        for _ in now.iter().zip(had).filter(|(now, had)| now != had) {
            errors.push(Error::invalid(&first, &spec["ipFamilies"], FIXED));
        }
        return;
    }
    let fewer = now.len() < had.len();
    if fewer && list(spec, "clusterIPs").is_empty() {
        let detail = "primary ipFamily can not be unset";
        errors.push(Error::invalid(&first, &spec["ipFamilies"], detail));
    }
    if !now.is_empty() && !had.is_empty() && now[0] != had[0] {
        // Upstream shows the addresses here.
        errors.push(Error::invalid(&first, &spec["clusterIPs"], FIXED));
    }
    if fewer && now.len() == 1 {
        released(spec, "ipFamily", errors);
    }
}

/// Only a service that wants one family can lose the second.
fn released(spec: &Value, what: &str, errors: &mut ErrorList) {
    if spec["ipFamilyPolicy"] != "SingleStack" {
        let at = Path::new("spec").child("ipFamilyPolicy");
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.push(Error::invalid(&at, &spec["ipFamilyPolicy"], detail));
    }
}
