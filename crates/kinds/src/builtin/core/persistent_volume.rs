//! Persistent volumes.

use serde_json::json;

use crate::registry::{Builtin, CLUSTER, Rules, STATUS};
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
