//! Events of `events.k8s.io`, which are stored in the form of the core group.

use serde_json::Value;

use crate::builtin::core::event::{COMPUTED, SELECTABLE};
use crate::registry::{BASE, Builtin, MetadataErrors, Rules, StoredForm, UnsupportedField};
use crate::versions::events;
use crate::{table, validate};

pub(super) static EVENT: Builtin = Builtin {
    group: "events.k8s.io",
    kind: "Event",
    plural: "events",
    short: &["ev"],
    stored_with: Some(("", "events")),
    rules: Rules {
        create_on_update: true,
        has_no_dependents: true,
        // The conversion from and to the core group's form has normalized it.
        normalize: Some(|_, _| {}),
        stored_form: Some(StoredForm {
            read: events::from_core,
            write: events::to_core,
        }),
        validate: validate::event::validate_new_style,
        validate_create: Some(|stored, errors| {
            let mut event = stored.clone();
            events::from_core(&mut event);
            validate::event::validate_new_style(&event, errors);
        }),
        validate_update: Some(validate::event::update_new_style),
        metadata_errors: MetadataErrors::AfterInvolvedObject,
        // Those without are from before that field.
        checks_metadata_change: |event| !event["eventTime"].is_null(),
        validates_metadata_again: false,
        selectable: SELECTABLE,
        computed_fields: COMPUTED,
        renamed_fields: RENAMED,
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Last Seen|Type|Reason|Object|Subobject::1|Source::1|Message|First Seen::1|Count::1|Name::1",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// The fields that the group gives other names, as they are stored and as it calls them; it has none for the component
/// that older events name.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject.kind", "regarding.kind"),
    ("involvedObject.namespace", "regarding.namespace"),
    ("involvedObject.name", "regarding.name"),
    ("involvedObject.uid", "regarding.uid"),
    ("involvedObject.apiVersion", "regarding.apiVersion"),
    (
        "involvedObject.resourceVersion",
        "regarding.resourceVersion",
    ),
    ("involvedObject.fieldPath", "regarding.fieldPath"),
    ("reportingComponent", "reportingController"),
    ("source", ""),
];

/// The cells are computed from the stored form.
fn row(event: &Value) -> Vec<Value> {
    let mut core = event.clone();
    events::to_core(&mut core);
    table::cluster::event(&core)
}
