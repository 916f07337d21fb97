use serde_json::json;

use super::*;
use crate::builtin::registry;
use crate::registry::RuntimeConfig;
use allot_model::features::Release;

fn with_defaults(group: &str, version: &str, kind: &str, mut object: Value) -> Value {
    allot_schema::defaults::apply(group, version, kind, &mut object);
    object
}

fn pod(tolerations: Value) -> Value {
    let spec = json!({"containers": [{"name": "c", "image": "i"}], "tolerations": tolerations});
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
    with_defaults("", "v1", "Pod", pod)
}

fn texts(errors: &ErrorList) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The errors of a new object, or of a changed one.
fn errors_of(plural: &str, on: bool, new: &Value, old: Option<&Value>) -> Vec<String> {
    let release = Release::new(36);
    let features = Features::of(release).with(Feature::TaintTolerationComparisonOperators, on);
    let config = RuntimeConfig::parse("api/all=true").expect("a configuration");
    let registry = registry(&config, release);
    let resource = registry
        .iter()
        .find(|it| it.plural == plural)
        .expect(plural);
    texts(&match old {
        Some(old) => {
            let mut new = new.clone();
            new["metadata"]["resourceVersion"] = json!("1");
            validate_kind_update(&features, resource, &new, old, Part::Main)
        }
        None => validate_create(&features, resource, new),
    })
}

const NOT_SUPPORTED: &str =
    "operator: Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\"";

#[test]
fn comparison_operators_need_their_feature_or_an_object_that_has_one() {
    let greater = json!([{"key": "sla", "operator": "Gt", "value": "950"}]);
    let unsupported = vec![format!("spec.tolerations[0].{NOT_SUPPORTED}")];
    let (plain, comparing) = (pod(json!([])), pod(greater.clone()));
    assert_eq!(errors_of("pods", false, &comparing, None), unsupported);
    assert_eq!(errors_of("pods", true, &comparing, None), [""; 0]);
    // An addition to a pod that has none, and one that has.
    assert_eq!(
        errors_of("pods", false, &comparing, Some(&plain)),
        unsupported
    );
    assert_eq!(errors_of("pods", true, &comparing, Some(&plain)), [""; 0]);
    assert_eq!(
        errors_of("pods", false, &comparing, Some(&comparing)),
        [""; 0]
    );
    // Templates are at other paths.
    let path = "spec.jobTemplate.spec.template.spec.tolerations[0].";
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}], "tolerations": greater, "restartPolicy": "Never",
    });
    let cron_job = json!({
        "metadata": {"name": "j", "namespace": "n"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": spec}}}},
    });
    let cron_job = with_defaults("batch", "v1", "CronJob", cron_job);
    let unsupported = vec![format!("{path}{NOT_SUPPORTED}")];
    assert_eq!(errors_of("cronjobs", false, &cron_job, None), unsupported);
    assert_eq!(errors_of("cronjobs", true, &cron_job, None), [""; 0]);
}

#[test]
fn the_values_of_comparison_operators_are_integers_of_64_bits() {
    let canonical = "must be a valid decimal integer in canonical form";
    let parsing = |why: &str| format!("strconv.ParseInt: parsing {why}");
    for (value, expected) in [
        ("-9223372036854775808", vec![]),
        ("0", vec![]),
        (
            "",
            vec![
                "must be non-empty".to_owned(),
                parsing("\"\": invalid syntax"),
            ],
        ),
        ("0950", vec![canonical.to_owned()]),
        ("+5", vec![canonical.to_owned()]),
        ("-0", vec![canonical.to_owned()]),
        (
            "1.5",
            vec![canonical.to_owned(), parsing("\"1.5\": invalid syntax")],
        ),
        (
            "9223372036854775808",
            vec![parsing("\"9223372036854775808\": value out of range")],
        ),
    ] {
        // Errors of other tolerations keep their places around those of the values.
        let tolerations = json!([
            {"key": "a", "operator": "Exists", "value": "v"},
            {"key": "b", "operator": "Lt", "value": value},
            {"key": "c", "operator": "In"},
        ]);
        let path = "spec.tolerations";
        let mut all = vec![format!(
            "{path}[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'"
        )];
        all.extend(
            expected
                .iter()
                .map(|text| format!("{path}[1].value: Invalid value: {value:?}: {text}")),
        );
        all.push(format!(
            "{path}[2].operator: Unsupported value: \"In\": supported values: \"Equal\", \"Exists\""
        ));
        assert_eq!(errors_of("pods", true, &pod(tolerations), None), all);
    }
}

/// RuntimeClasses are validated without the options of pods, as in upstream.
#[test]
fn runtime_classes_have_no_comparison_operators() {
    let class = json!({
        "metadata": {"name": "r"}, "handler": "h",
        "scheduling": {"tolerations": [{"key": "k", "operator": "Gt", "value": "1"}]},
    });
    let expected = format!("scheduling.tolerations[0].{NOT_SUPPORTED}");
    assert_eq!(errors_of("runtimeclasses", true, &class, None), [expected]);
}
