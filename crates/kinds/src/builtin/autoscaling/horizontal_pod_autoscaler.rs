//! Horizontal pod autoscalers.

use serde_json::Value;

use crate::object::{split_api_version, text};
use crate::registry::{BASE, Builtin, Rules, STATUS};
use crate::versions::autoscaling;
use crate::{table, validate};

pub(super) static HORIZONTAL_POD_AUTOSCALER: Builtin = Builtin {
    group: "autoscaling",
    versions: &["v2", "v1"],
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    short: &["hpa"],
    categories: &["all"],
    subresources: &[STATUS],
    rules: Rules {
        convert: Some(|_, mut object, from, to| {
            autoscaling::convert(&mut object, from, to);
            Ok(object)
        }),
        validate: validate::scaling::autoscaler,
        validate_status: Some(|object, _, errors| validate::scaling::status(object, errors)),
        validates_metadata_again: false,
        table: Some(("Name|Reference|Targets|MinPods|MaxPods|Replicas|Age", row)),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// The cells of an autoscaler in any version.
fn row(object: &Value) -> Vec<Value> {
    let (_, version) = split_api_version(text(object, &["apiVersion"]));
    let mut newest = object.clone();
    autoscaling::convert(&mut newest, version, "v2");
    table::workloads::autoscaler(&newest)
}
