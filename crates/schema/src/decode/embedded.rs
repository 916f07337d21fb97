//! Go structs that are embedded in others: their fields are those of the outer object in JSON, but Go names them in the path
//! of a type error.

use crate::types::{Field, Struct};

/// The embedded structs between a struct and a field of it, from the outside.
pub(super) fn structs(structure: &Struct, field: &Field) -> &'static [&'static str] {
    let name = field.name;
    let is_rule = matches!(name, "apiGroups" | "apiVersions" | "resources" | "scope");
    match structure.simple_name() {
        "IngressRule" if name == "http" => &["IngressRuleValue"],
        "Volume" if name != "name" => &["VolumeSource"],
        "PersistentVolumeSpec" if is_source(name) => &["PersistentVolumeSource"],
        "Probe" if matches!(name, "exec" | "grpc" | "httpGet" | "tcpSocket") => &["ProbeHandler"],
        "ConfigMapEnvSource"
        | "ConfigMapKeySelector"
        | "ConfigMapProjection"
        | "ConfigMapVolumeSource"
        | "SecretEnvSource"
        | "SecretKeySelector"
        | "SecretProjection"
            if name == "name" =>
        {
            &["LocalObjectReference"]
        }
        "EphemeralContainer" if name != "targetContainerName" => &["EphemeralContainerCommon"],
        "DeviceAllocationConfiguration"
        | "DeviceClaimConfiguration"
        | "DeviceClassConfiguration"
            if name == "opaque" =>
        {
            &["DeviceConfiguration"]
        }
        "RuleWithOperations" if is_rule => &["Rule"],
        "NamedRuleWithOperations" if is_rule => &["RuleWithOperations", "Rule"],
        "NamedRuleWithOperations" if name == "operations" => &["RuleWithOperations"],
        _ => &[],
    }
}

/// The field of a volume says where it is.
fn is_source(name: &str) -> bool {
    !matches!(
        name,
        "accessModes"
            | "capacity"
            | "claimRef"
            | "mountOptions"
            | "nodeAffinity"
            | "persistentVolumeReclaimPolicy"
            | "storageClassName"
            | "volumeAttributesClassName"
            | "volumeMode"
    )
}
