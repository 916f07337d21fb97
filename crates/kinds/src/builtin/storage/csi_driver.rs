//! CSI drivers.

use serde_json::Value;

use super::STORAGE;
use crate::registry::{Builtin, Generation, Rules};
use crate::{table, validate};

pub(super) static CSI_DRIVER: Builtin = Builtin {
    kind: "CSIDriver",
    plural: "csidrivers",
    rules: Rules {
        requires_version: |_| true,
        generation: Generation::FromChange,
        drop_disabled: Some(|_, driver, old| drop_limit_scaling(driver, old)),
        validate: validate::csi::driver,
        validate_update: Some(validate::csi::driver_update),
        validates_metadata_again: false,
        warnings_create: Some(unsafe_tokens),
        warnings_update: Some(|_, _| Vec::new()),
        table: Some((
            "Name|AttachRequired:boolean|PodInfoOnMount:boolean|StorageCapacity:boolean|TokenRequests|\
         RequiresRepublish:boolean|Modes|Age",
            table::storage::csi_driver,
        )),
        ..STORAGE.rules
    },
    ..STORAGE
};

/// Tokens should be among the secrets of a driver.
fn unsafe_tokens(object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let asks = spec["tokenRequests"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    let unsafe_tokens = asks && spec["serviceAccountTokenInSecrets"].is_null();
    let warning = unsafe_tokens.then(|| {
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned()
    });
    warning.into_iter().collect()
}

/// Removes the field of VolumeLimitScaling, which is off by default.
fn drop_limit_scaling(driver: &mut Value, old: &Value) {
    let key = "preventPodSchedulingIfMissing";
    if old["spec"][key].is_null()
        && let Some(spec) = driver["spec"].as_object_mut()
    {
        spec.remove(key);
    }
}
