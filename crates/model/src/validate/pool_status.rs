//! ResourcePoolStatusRequests. Upstream declares these rules at the types, which gives them other texts.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names as rules;
use serde_json::Value;

use super::{claim, conditions, meta};
use crate::limits;
use crate::shape::{self, tables};
use crate::view::View;

const MAX_CONDITIONS: usize = 10;
const MAX_POOLS: usize = 1000;
const MAX_VALIDATION_ERROR: usize = 256;

pub(super) fn create(request: &Value) -> ErrorList {
    let mut errors = meta::object_meta(
        request.at("metadata"),
        false,
        rules::dns1123_subdomain,
        &Path::new("metadata"),
    );
    let path = Path::new("spec");
    let spec = request.at("spec");
    errors.extend(driver(spec.text("driver"), &path.child("driver")));
    if let Some(pool) = spec.opt_text("poolName") {
        errors.extend(pool_name(pool, &path.child("poolName")));
    }
    if spec.has("limit") {
        let limit = spec.int("limit");
        let limit_path = path.child("limit");
        errors.extend(minimum(limit, 1, &limit_path));
        if limit > limits::POOL_STATUS_LIMIT {
            let text = format!(
                "must be less than or equal to {}",
                limits::POOL_STATUS_LIMIT
            );
            errors.push(Error::invalid(&limit_path, limit, text));
        }
    }
    errors
}

pub(super) fn update(request: &Value, old: &Value) -> ErrorList {
    let mut errors = meta::object_meta_update(
        request.at("metadata"),
        old.at("metadata"),
        &Path::new("metadata"),
    );
    let ty = shape::Ty::Struct(&tables::POOL_STATUS_REQUEST_SPEC);
    if !shape::equal(ty, request.at("spec"), old.at("spec")) {
        errors.push(Error::invalid(
            &Path::new("spec"),
            &Value::Null,
            "field is immutable",
        ));
    }
    errors
}

pub(super) fn update_status(request: &Value, old: &Value) -> ErrorList {
    let mut errors = meta::object_meta_update(
        request.at("metadata"),
        old.at("metadata"),
        &Path::new("metadata"),
    );
    let path = Path::new("status");
    let (status, old_status) = (request.at("status"), old.at("status"));
    if old.has("status") {
        // A status that was set is immutable.
        if !request.has("status") {
            errors.push(Error::invalid(&path, &Value::Null, "field is immutable"));
        } else {
            errors.extend(claim::immutable(
                tables::POOL_STATUS_REQUEST_STATUS,
                status,
                old_status,
                &path,
            ));
        }
        return errors;
    }
    if request.has("status") {
        errors.extend(self::status(status, &path));
    }
    errors
}

fn status(status: &Value, path: &Path) -> ErrorList {
    let conditions = status.list("conditions");
    let conditions_path = path.child("conditions");
    // Upstream's generated validation, which has the other rules, runs after the handwritten one.
    let mut errors = conditions::conditions(conditions, &conditions_path);
    let count_path = path.child("poolCount");
    if status.has("poolCount") {
        errors.extend(minimum(status.int("poolCount"), 0, &count_path));
    } else {
        errors.push(Error::required(&count_path, ""));
    }
    let pools = status.list("pools");
    let pools_path = path.child("pools");
    errors.extend(super::common::list(pools, MAX_POOLS, &pools_path, pool));
    if conditions.len() > MAX_CONDITIONS {
        errors.push(Error::too_many(
            &conditions_path,
            conditions.len(),
            MAX_CONDITIONS,
        ));
    }
    errors
}

fn pool(pool: &Value, path: &Path) -> ErrorList {
    let mut errors = driver(pool.text("driver"), &path.child("driver"));
    let name_path = path.child("poolName");
    match pool.text("poolName") {
        "" => errors.push(Error::required(&name_path, "")),
        name => errors.extend(pool_name(name, &name_path)),
    }
    errors.extend(minimum(
        pool.int("generation"),
        0,
        &path.child("generation"),
    ));
    if pool.has("resourceSliceCount") {
        errors.extend(minimum(
            pool.int("resourceSliceCount"),
            1,
            &path.child("resourceSliceCount"),
        ));
    }
    for key in [
        "totalDevices",
        "allocatedDevices",
        "availableDevices",
        "unavailableDevices",
    ] {
        errors.extend(minimum(pool.int(key), 0, &path.child(key)));
    }
    if let Some(node) = pool.opt_text("nodeName") {
        let texts = rules::declared_subdomain(node);
        errors.extend(super::common::invalid(&path.child("nodeName"), node, texts));
    }
    if pool.text("validationError").len() > MAX_VALIDATION_ERROR {
        errors.push(Error::too_long(
            &path.child("validationError"),
            MAX_VALIDATION_ERROR,
        ));
    }
    errors
}

fn minimum(value: i64, minimum: i64, path: &Path) -> Option<Error> {
    (value < minimum).then(|| {
        Error::invalid(
            path,
            value,
            format!("must be greater than or equal to {minimum}"),
        )
    })
}

/// A DNS subdomain in any case.
fn driver(value: &str, path: &Path) -> ErrorList {
    if value.is_empty() {
        return ErrorList::from([Error::required(path, "")]);
    }
    let mut errors = ErrorList::new();
    if value.len() > rules::DNS_SUBDOMAIN_MAX {
        let text = format!("must be no more than {} bytes", rules::DNS_SUBDOMAIN_MAX);
        errors.push(Error::invalid(path, value, text));
    }
    if !rules::is_subdomain(&value.to_lowercase()) {
        const PATTERN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
        const TEXT: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        errors.push(Error::invalid(
            path,
            value,
            rules::regex_error(TEXT, PATTERN, &["Example.com"]),
        ));
    }
    errors
}

/// DNS subdomains separated by slashes; errors name the segment.
fn pool_name(value: &str, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    if value.len() > limits::POOL_NAME {
        errors.push(Error::too_long(path, limits::POOL_NAME));
    }
    for (index, segment) in value.split('/').enumerate() {
        if segment.is_empty() {
            errors.push(Error::invalid(
                path,
                value,
                format!("segment {index}: must not be empty"),
            ));
            continue;
        }
        for text in rules::declared_subdomain(segment) {
            errors.push(Error::invalid(
                path,
                BadValue::from(segment),
                format!("segment {index}: {text}"),
            ));
        }
    }
    errors
}
