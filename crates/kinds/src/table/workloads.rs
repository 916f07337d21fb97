//! Rows of workload controllers.

use serde_json::{Value, json};

use crate::object::meta;
use crate::table::format::{containers, labels};

pub(crate) fn pod_template(object: &Value) -> Vec<Value> {
    let (names, images) = containers(&object["template"]["spec"]);
    let pod_labels = labels(&object["template"]["metadata"]["labels"]);
    vec![
        json!(meta(object, "name")),
        json!(names),
        json!(images),
        json!(pod_labels),
    ]
}
