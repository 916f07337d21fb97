//! Values as upstream's messages show them: in kube-apiserver's internal form, where fields have Go's names and come in
//! the order of the struct, and none is omitted.

use allot_apimachinery::field::BadValue;
use allot_apimachinery::quote::go_json;
use allot_schema::types::{Field, Struct, Type, lookup};
use serde_json::Value;

/// Types that have no other form inside.
const SHARED: &str = "io.k8s.apimachinery.";
/// Names that Go writes in a way of their own.
const NAMES: [(&str, &str); 10] = [
    ("awsElasticBlockStore", "AWSElasticBlockStore"),
    ("cephfs", "CephFS"),
    ("fc", "FC"),
    ("gcePersistentDisk", "GCEPersistentDisk"),
    ("iqn", "IQN"),
    ("iscsi", "ISCSI"),
    ("iscsiInterface", "ISCSIInterface"),
    ("pdName", "PDName"),
    ("rbd", "RBD"),
    ("storageos", "StorageOS"),
];
/// The struct that has the fields of another one among its own, which have numbers of their own there.
const WITH_EMBEDDED: &str = "io.k8s.api.core.v1.PersistentVolumeSpec";
/// Its fields in the order of the internal struct.
const EMBEDDED: [&str; 31] = [
    "capacity",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "hostPath",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "flexVolume",
    "cinder",
    "cephfs",
    "fc",
    "flocker",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "local",
    "storageos",
    "csi",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];
/// Another struct whose internal form has its fields in an order of its own.
const TRUST_BUNDLE: &str = "io.k8s.api.core.v1.ClusterTrustBundleProjection";
const OF_TRUST_BUNDLE: [&str; 5] = ["name", "signerName", "labelSelector", "optional", "path"];
/// Words that Go capitalises at the beginning of a name; longer ones come first.
const CAPITALS: [(&str, &str); 12] = [
    ("cidrs", "CIDRs"),
    ("http", "HTTP"),
    ("api", "API"),
    ("csi", "CSI"),
    ("dns", "DNS"),
    ("nfs", "NFS"),
    ("tls", "TLS"),
    ("ttl", "TTL"),
    ("uid", "UID"),
    ("url", "URL"),
    ("fs", "FS"),
    ("ip", "IP"),
];

/// The value at a place in an object of a kind.
pub(crate) fn shown(
    (group, version, kind): (&str, &str, &str),
    place: &[&str],
    value: &Value,
) -> BadValue {
    let mut found = lookup(group, version, kind);
    for name in place {
        let field = found.and_then(|structure| structure.field(name));
        found = field.and_then(|field| inner(&field.ty));
    }
    let Some(structure) = found else {
        return value.into();
    };
    let mut out = String::new();
    match value {
        Value::Array(items) => list(&mut out, items, |out, item| whole(out, item, structure)),
        value => whole(&mut out, value, structure),
    }
    BadValue::raw(out)
}

/// A label selector.
pub(crate) fn selector(value: &Value) -> BadValue {
    shown(("apps", "v1", "Deployment"), &["spec", "selector"], value)
}

/// The struct in a field, or in the list that it has.
fn inner(ty: &Type) -> Option<&'static Struct> {
    match ty {
        Type::Struct(id) => Some(id.get()),
        Type::List(element) => inner(element),
        _ => None,
    }
}

fn list(out: &mut String, items: &[Value], write: impl Fn(&mut String, &Value)) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(']');
}

fn whole(out: &mut String, value: &Value, structure: &'static Struct) {
    if structure.name.starts_with(SHARED) {
        let mut bytes = Vec::new();
        crate::ordered::object(&mut bytes, value, Some(structure));
        out.push_str(&String::from_utf8_lossy(&bytes));
        return;
    }
    let mut fields: Vec<&Field> = structure.fields.iter().collect();
    fields.sort_by_key(|field| match structure.name {
        WITH_EMBEDDED => EMBEDDED.iter().position(|name| *name == field.name),
        TRUST_BUNDLE => OF_TRUST_BUNDLE.iter().position(|name| *name == field.name),
        _ => Some(usize::from(field.proto)),
    });
    out.push('{');
    for (index, field) in fields.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push('"');
        out.push_str(&go_name(field.name));
        out.push_str("\":");
        member(out, &value[field.name], field);
    }
    out.push('}');
}

fn member(out: &mut String, value: &Value, field: &'static Field) {
    let zero = match (&field.ty, value) {
        (Type::Struct(id), value) if !(field.pointer && value.is_null()) => {
            return whole(out, value, id.get());
        }
        (Type::List(element), Value::Array(items)) => {
            return list(out, items, |out, item| match inner(element) {
                Some(structure) => whole(out, item, structure),
                None => out.push_str(&go_json(item)),
            });
        }
        (_, value) if !value.is_null() => return out.push_str(&go_json(value)),
        _ if field.pointer => "null",
        (Type::String, _) => "\"\"",
        (Type::Bool, _) => "false",
        (Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString, _) => "0",
        (Type::Quantity, _) => "\"0\"",
        _ => "null",
    };
    out.push_str(zero);
}

/// The Go name of a field.
fn go_name(name: &str) -> String {
    if let Some((_, written)) = NAMES.iter().find(|(known, _)| *known == name) {
        return (*written).to_owned();
    }
    let is_word =
        |rest: &str| rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_uppercase());
    for (word, written) in CAPITALS {
        if let Some(rest) = name.strip_prefix(word).filter(|rest| is_word(rest)) {
            return format!("{written}{rest}");
        }
    }
    let mut chars = name.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(kind: (&str, &str, &str), place: &[&str], value: Value, expected: &str) {
        assert_eq!(shown(kind, place, &value).to_string(), expected);
    }

    #[test]
    fn sources_of_volumes_stand_among_the_fields_of_their_volume() {
        let shown = shown(
            ("storage.k8s.io", "v1", "VolumeAttachment"),
            &["spec"],
            &json!({"source": {"inlineVolumeSpec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1"}, "gcePersistentDisk": {"pdName": "x"},
            }}}),
        );
        let shown = shown.to_string();
        for part in [
            r#"{"Capacity":{"storage":"1"},"GCEPersistentDisk":{"PDName":"x","FSType":"","Partition":0,"ReadOnly":false},"#,
            r#""AWSElasticBlockStore":null,"HostPath":null,"Glusterfs":null,"NFS":null,"RBD":null,"Quobyte":null,"ISCSI":null,"#,
            r#""CephFS":null,"FC":null,"Flocker":null,"#,
            r#""StorageOS":null,"CSI":null,"AccessModes":["ReadWriteOnce"],"ClaimRef":null,"#,
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }

    #[test]
    fn fields_have_gos_names_and_order_and_none_is_left_out() {
        check(
            ("storage.k8s.io", "v1", "VolumeAttachment"),
            &["spec"],
            json!({"nodeName": "n", "attacher": "d", "source": {"persistentVolumeName": "v"}}),
            r#"{"Attacher":"d","Source":{"PersistentVolumeName":"v","InlineVolumeSpec":null},"NodeName":"n"}"#,
        );
        check(
            ("storage.k8s.io", "v1", "CSINode"),
            &["spec", "drivers"],
            json!({"name": "d", "nodeID": "x"}),
            r#"{"Name":"d","NodeID":"x","TopologyKeys":null,"Allocatable":null}"#,
        );
        check(
            ("networking.k8s.io", "v1", "ServiceCIDR"),
            &["spec"],
            json!({"cidrs": ["10.0.0.0/8"]}),
            r#"{"CIDRs":["10.0.0.0/8"]}"#,
        );
    }

    #[test]
    fn selectors_have_one_form() {
        check(
            ("apps", "v1", "Deployment"),
            &["spec", "selector"],
            json!({"matchExpressions": [], "matchLabels": {"a": "b"}}),
            r#"{"matchLabels":{"a":"b"},"matchExpressions":[]}"#,
        );
    }
}
