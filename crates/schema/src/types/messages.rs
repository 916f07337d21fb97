//! The protobuf messages of types: which field a number is, and which fields are in a message inside.
//!
//! Go embeds some structs: their fields are among those of the enclosing type in JSON, and a message of their own in
//! protobuf.

use super::{Field, Struct, StructId, by_name};

/// The message of a type.
#[derive(Debug)]
pub(crate) struct Message {
    /// The name of the type that has the fields in JSON.
    pub(crate) of: &'static str,
    /// By number.
    slots: Vec<Option<Slot>>,
}

/// The meaning of a field number of a message.
#[derive(Debug)]
pub(crate) enum Slot {
    /// A field.
    Field(&'static Field),
    /// A message whose fields are among those of the type in JSON.
    Part(Message),
}

impl Message {
    pub(super) fn new(schema: &'static Struct) -> Self {
        Self::named(schema, schema.simple_name())
    }

    fn named(schema: &'static Struct, of: &'static str) -> Self {
        let Some(embedded) = embedded(schema) else {
            return Self::with(schema, of, |_| true);
        };
        let own = |name: &str| embedded.own.contains(&name);
        let mut message = Self::with(schema, of, own);
        let part = match embedded.shared {
            true => Self::with(schema, of, |name| !own(name)),
            false => Self::named(embedded.schema, of),
        };
        message.set(usize::from(embedded.number), Slot::Part(part));
        message
    }

    fn with(schema: &'static Struct, of: &'static str, belongs: impl Fn(&str) -> bool) -> Self {
        let slots = Vec::new();
        let mut message = Self { of, slots };
        for field in schema.fields.iter().filter(|field| belongs(field.name)) {
            // Kind and version of an object are not part of its message; other fields have their numbers.
            let is_head = matches!(field.name, "kind" | "apiVersion");
            let number = usize::from(field.proto);
            if number != 0 && !(is_head && message.slot(field.proto.into()).is_some()) {
                message.set(number, Slot::Field(field));
            }
        }
        message
    }

    fn set(&mut self, number: usize, slot: Slot) {
        if self.slots.len() <= number {
            self.slots.resize_with(number + 1, || None);
        }
        self.slots[number] = Some(slot);
    }

    /// The meaning of a field number; `None` for an unknown field.
    pub(crate) fn slot(&self, number: u64) -> Option<&Slot> {
        let number = usize::try_from(number).ok()?;
        self.slots.get(number)?.as_ref()
    }

    /// What all numbers stand for, in their order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (u64, &Slot)> {
        let numbered = (0u64..).zip(&self.slots);
        numbered.filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }
}

/// The embedded message of a type.
struct Embedded {
    /// The number of the field that holds it.
    number: u16,
    /// The fields of the type that are not in it.
    own: &'static [&'static str],
    /// The type that has its fields: another one, or the one around it.
    schema: &'static Struct,
    /// The fields of the embedded message are only known by the enclosing type.
    shared: bool,
}

/// The embedded message of a type, if it has one.
fn embedded(schema: &'static Struct) -> Option<Embedded> {
    let (number, own): (u16, &'static [&'static str]) = match schema.simple_name() {
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
        "IngressRule" => (2, &["host"]),
        "RuleWithOperations" => (2, &["operations"]),
        "NamedRuleWithOperations" => (2, &["resourceNames"]),
        _ => return None,
    };
    let other = match schema.simple_name() {
        "NamedRuleWithOperations" => {
            let (package, _) = schema.name.rsplit_once('.')?;
            let (group, _) = package.rsplit_once('.')?;
            // The older versions use that of the first stable one.
            by_name(&format!("{package}.RuleWithOperations"))
                .or_else(|| by_name(&format!("{group}.v1.RuleWithOperations")))
        }
        _ => None,
    };
    Some(Embedded {
        number,
        own,
        schema: other.map_or(schema, StructId::get),
        shared: other.is_none(),
    })
}
