use serde_json::json;

use super::*;

#[test]
fn shown_like_kubectl_does() {
    let taint = |value: Option<&str>| {
        let json = json!({"key": "k", "value": value, "effect": "NoSchedule"});
        Taint::new(&serde_json::from_value(json).unwrap()).to_string()
    };
    assert_eq!(taint(Some("v")), "k=v:NoSchedule");
    assert_eq!(taint(None), "k:NoSchedule");
}

#[test]
fn rules_without_fields_cover_everything() {
    let rule = |driver: Option<&str>, pool: Option<&str>, device: Option<&str>| TaintRule {
        driver: driver.map(Into::into),
        pool: pool.map(Into::into),
        device: device.map(Into::into),
        taint: Default::default(),
    };
    assert!(
        rule(None, None, None).covers_pool("d", "p") && rule(None, None, None).covers_device("x")
    );
    assert!(!rule(Some("e"), None, None).covers_pool("d", "p"));
    assert!(!rule(None, Some("q"), None).covers_pool("d", "p"));
    assert!(!rule(None, None, Some("y")).covers_device("x"));
}
