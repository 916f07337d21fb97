//! Extended resources that nothing in the cluster has.

use serde_json::{Value, json};

use super::*;

/// `Insufficient example.com/gpu` was all, of a resource that nothing in the cluster has.
#[test]
fn regression_an_extended_resource_that_nothing_has_is_named() {
    let asks = |name: &str| {
        let mut pod = user();
        pod["spec"]["resourceClaims"] = Value::Null;
        pod["spec"]["containers"][0]["resources"] =
            json!({"limits": {name: 1}, "requests": {name: 1}});
        pod
    };
    let mut class = class("true");
    class["spec"]["extendedResourceName"] = json!("example.com/gpu");
    let of = |name: &str, more: &[Value]| {
        let mut objects = vec![node("a"), asks(name)];
        objects.extend_from_slice(more);
        explained(&objects)
    };
    let nothing =
        "no node has example.com/gpu, and no device class has it as its extendedResourceName\n";
    let text = of("example.com/gpu", &[]);
    assert!(text.contains(nothing), "{text}");
    let text = of("example.com/gpus", &[class.clone()]);
    assert!(
        text.contains("extendedResourceName; did you mean example.com/gpu?\n"),
        "{text}"
    );
    let text = of("example.com/gpu", &[class]);
    assert!(!text.contains("no node has"), "{text}");
}
