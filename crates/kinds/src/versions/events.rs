//! Events have one stored form and two served ones: that of the core group and that of `events.k8s.io`.

use serde_json::Value;

/// Field of `events.k8s.io`, field of the core group.
const NAMES: [(&str, &str); 8] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("related", "related"),
];

fn rename(object: &mut Value, pairs: impl Iterator<Item = (&'static str, &'static str)>) {
    let Value::Object(map) = object else { return };
    for (from, to) in pairs {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

/// The stored form of an event of `events.k8s.io`.
pub fn to_core(object: &mut Value) {
    rename(object, NAMES.into_iter());
    normalize(object, "");
}

/// A stored event as `events.k8s.io` serves it.
pub fn from_core(object: &mut Value) {
    rename(object, NAMES.into_iter().map(|(new, core)| (core, new)));
    if let Value::Object(map) = object {
        // The core group writes these always, the other group only with a value.
        for key in ["reportingController", "reportingInstance"] {
            if map
                .get(key)
                .is_some_and(|value| value.is_null() || value == "")
            {
                map.remove(key);
            }
        }
    }
    normalize(object, "events.k8s.io");
}

fn normalize(object: &mut Value, group: &str) {
    if let Some(schema) = allot_schema::types::lookup(group, "v1", "Event") {
        allot_schema::decode::normalize(object, schema);
    }
}
