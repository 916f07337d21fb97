//! Persistent volumes.

use serde_json::{Value, json};

use crate::object::child_mut;
use crate::registry::{Builtin, CLUSTER, Rules, STATUS};
use crate::request::Part;
use crate::{table, validate, warnings};

pub(super) static PERSISTENT_VOLUME: Builtin = Builtin {
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    short: &["pv"],
    subresources: &[STATUS],
    rules: Rules {
        initialize: Some(|volume| {
            let now = crate::object::now();
            volume["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        }),
        prepare_update: Some(|volume, old, part| {
            if part == Part::Status {
                record_transition(volume, old);
            }
        }),
        validate: validate::storage::volume,
        validate_update: Some(validate::storage::volume_update),
        checks_metadata_change: |_| false,
        warnings: warnings::volume,
        delete_returns_object: |_| true,
        table: Some((
            "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|VolumeMode::1",
            table::storage::volume,
        )),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// Records when the phase of a volume changed, unless the request says when.
fn record_transition(volume: &mut Value, old: &Value) {
    const TIME: &str = "lastPhaseTransitionTime";
    let phase = |volume: &Value| {
        let phase = volume["status"]["phase"].as_str().unwrap_or_default();
        match phase {
            "" => "Pending".to_owned(),
            phase => phase.to_owned(),
        }
    };
    let (sent, known) = (&volume["status"][TIME], &old["status"][TIME]);
    let time = match phase(volume) == phase(old) {
        true if sent.is_null() => known.clone(),
        false if sent.is_null() || sent == known => crate::object::now().into(),
        _ => return,
    };
    let status = child_mut(volume, "status");
    match time {
        Value::Null => status.remove(TIME),
        time => status.insert(TIME.to_owned(), time),
    };
}
