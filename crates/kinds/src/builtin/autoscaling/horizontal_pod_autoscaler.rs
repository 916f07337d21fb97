//! Horizontal pod autoscalers.

use serde_json::{Value, json};

use crate::object::{self, meta, split_api_version, text};
use crate::registry::{BASE, Builtin, Rules, STATUS};
use crate::table::age;
use crate::table::format::number;
use crate::versions::autoscaling;

mod metrics;
mod validation;

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
        validate: |autoscaler, errors| validation::validate(autoscaler, &Value::Null, errors),
        validate_update: Some(validation::validate),
        validate_status: Some(|object, _, errors| validation::validate_status(object, errors)),
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
    cells(&newest)
}

fn cells(object: &Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let target = &spec["scaleTargetRef"];
    let reference = format!(
        "{}/{}",
        object::text(target, &["kind"]),
        object::text(target, &["name"])
    );
    let min = spec["minReplicas"]
        .as_i64()
        .map_or("<unset>".to_owned(), |min| min.to_string());
    vec![
        json!(meta(object, "name")),
        json!(reference),
        json!(targets(spec, status)),
        json!(min),
        number(&spec["maxReplicas"]),
        number(&status["currentReplicas"]),
        age(object),
    ]
}

/// The first two metrics of an autoscaler: current and target values.
fn targets(spec: &Value, status: &Value) -> String {
    const SHOWN: usize = 2;
    let amount = |target: &Value| -> Option<String> {
        let percent = target["averageUtilization"].as_i64();
        let value = ["averageValue", "value"]
            .iter()
            .find_map(|key| target[*key].as_str());
        value
            .map(str::to_owned)
            .or_else(|| percent.map(|percent| format!("{percent}%")))
    };
    let metrics = spec["metrics"].as_array().map_or(&[][..], Vec::as_slice);
    let texts: Vec<String> = metrics
        .iter()
        .enumerate()
        .map(|(index, metric)| {
            let kind = object::text(metric, &["type"]);
            let key = kind[..kind.len().min(1)].to_ascii_lowercase() + kind.get(1..).unwrap_or("");
            let (wanted, found) = (&metric[&key], &status["currentMetrics"][index][&key]);
            let now = amount(&found["current"]).unwrap_or_else(|| "<unknown>".to_owned());
            let goal = amount(&wanted["target"]).unwrap_or_else(|| "<auto>".to_owned());
            match key.as_str() {
                "resource" | "containerResource" => {
                    format!("{}: {now}/{goal}", object::text(wanted, &["name"]))
                }
                "external" | "object" if wanted["target"]["averageValue"].is_string() => {
                    format!("{now}/{goal} (avg)")
                }
                "external" | "object" | "pods" => format!("{now}/{goal}"),
                _ => "<unknown type>".to_owned(),
            }
        })
        .collect();
    match texts.len() {
        0 => "<none>".to_owned(),
        count if count > SHOWN => {
            format!("{} + {} more...", texts[..SHOWN].join(", "), count - SHOWN)
        }
        _ => texts.join(", "),
    }
}
