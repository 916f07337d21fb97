//! Events of the core group, in whose form those of `events.k8s.io` are stored.

use serde_json::Value;

use crate::object::text;
use crate::registry::{BASE, Builtin, ComputedField, MetadataErrors, Rules, UnsupportedField};
use crate::{table, validate};

pub(super) static EVENT: Builtin = Builtin {
    kind: "Event",
    plural: "events",
    short: &["ev"],
    rules: Rules {
        create_on_update: true,
        has_no_dependents: true,
        validate: validate::event::validate,
        metadata_errors: MetadataErrors::Alone,
        checks_metadata_change: |_| false,
        validates_metadata_again: false,
        selectable: SELECTABLE,
        computed_fields: COMPUTED,
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Last Seen|Type|Reason|Object|Subobject::1|Source::1|Message|First Seen::1|Count::1|Name::1",
            table::cluster::event,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// The fields of field selectors, for both groups of events.
pub(in crate::builtin) const SELECTABLE: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// The component that an event is from, for both groups of events.
pub(in crate::builtin) const COMPUTED: &[ComputedField] = &[ComputedField {
    name: "source",
    reads: &["source.component", "reportingComponent"],
    value: source,
}];

fn source(event: &Value) -> String {
    let component = text(event, &["source", "component"]);
    let source = if component.is_empty() {
        text(event, &["reportingComponent"])
    } else {
        component
    };
    source.to_owned()
}
