//! Messages that are not visible in JSON: Go embeds them, so that their fields are among those of the enclosing type.

use allot_schema::types::{self, Struct};

/// The embedded message of a type.
pub(super) struct Embedded {
    /// The number of the field that holds it.
    pub(super) number: u64,
    /// The fields of the type that are not in it.
    pub(super) own: &'static [&'static str],
    /// The type that has its fields: another one, or the one around it.
    pub(super) schema: &'static Struct,
    /// The fields of the embedded message are only known by the enclosing type.
    pub(super) shared: bool,
}

/// The embedded message of a type, if it has one.
pub(super) fn of(schema: &'static Struct) -> Option<Embedded> {
    let (number, own): (u64, &'static [&'static str]) = match schema.simple_name() {
        "Volume" => (2, &["name"]),
        "PersistentVolumeSpec" => (
            2,
            &[
                "capacity",
                "accessModes",
                "claimRef",
                "persistentVolumeReclaimPolicy",
                "storageClassName",
                "mountOptions",
                "volumeMode",
                "nodeAffinity",
                "volumeAttributesClassName",
            ],
        ),
        "Probe" => (
            1,
            &[
                "initialDelaySeconds",
                "timeoutSeconds",
                "periodSeconds",
                "successThreshold",
                "failureThreshold",
                "terminationGracePeriodSeconds",
            ],
        ),
        "EphemeralContainer" => (1, &["targetContainerName"]),
        "ConfigMapEnvSource" | "SecretEnvSource" => (1, &["optional"]),
        "ConfigMapKeySelector" | "SecretKeySelector" => (1, &["key", "optional"]),
        "ConfigMapProjection" | "SecretProjection" => (1, &["items", "optional"]),
        "ConfigMapVolumeSource" => (1, &["items", "defaultMode", "optional"]),
        "DeviceClaimConfiguration" => (2, &["requests"]),
        "DeviceClassConfiguration" => (1, &[]),
        "DeviceAllocationConfiguration" => (3, &["source", "requests"]),
        "RuleWithOperations" => (2, &["operations"]),
        "NamedRuleWithOperations" => (2, &["resourceNames"]),
        _ => return None,
    };
    let other = match schema.simple_name() {
        "NamedRuleWithOperations" => {
            let (package, _) = schema.name.rsplit_once('.')?;
            types::by_name(&format!("{package}.RuleWithOperations"))
        }
        _ => None,
    };
    Some(Embedded {
        number,
        own,
        schema: other.map_or(schema, types::StructId::get),
        shared: other.is_none(),
    })
}
