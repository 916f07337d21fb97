use serde_json::json;

use super::*;

fn blob(size: u64) -> serde_json::Value {
    json!({"mediaType": "x", "digest": format!("sha256:{}", "a".repeat(64)), "size": size})
}

#[test]
fn what_is_no_manifest_is_refused() {
    let check = |value: serde_json::Value, part: &str| {
        let error = Document::parse(value.to_string().as_bytes(), &Limits::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{value}: {error}");
    };
    check(json!({"schemaVersion": 1}), "schema version 1");
    check(json!({"schemaVersion": 2}), "either layers or manifests");
    check(
        json!({"schemaVersion": 2, "layers": [], "manifests": []}),
        "either layers or manifests",
    );
    check(
        json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "layers": [], "config": blob(1)}),
        "either layers or manifests",
    );
    check(
        json!({"schemaVersion": 2, "mediaType": "text/html", "layers": []}),
        "not supported",
    );
    check(json!({"schemaVersion": 2, "layers": []}), "no config");
    check(
        json!({"schemaVersion": 2, "layers": [{"digest": "sha256:../..", "size": 1}]}),
        "invalid digest",
    );
    check(
        json!({"schemaVersion": 2, "config": blob(1), "layers": vec![blob(1); 129]}),
        "129 layers",
    );
    check(
        json!({"schemaVersion": 2, "config": blob(1 << 40), "layers": []}),
        "configuration",
    );
    check(
        json!({"schemaVersion": 2, "config": blob(1), "layers": [blob(u64::MAX)]}),
        "bytes, more than",
    );
    check(
        json!({"schemaVersion": 2, "config": blob(1), "layers": vec![blob(16 << 30); 3]}),
        "the image has",
    );
}

#[test]
fn the_best_entry_for_a_machine_is_taken() {
    let arm = Platform {
        architecture: "arm64".to_owned(),
        os: "linux".to_owned(),
        variant: None,
    };
    let entry = |os: &str, architecture: &str, variant: Option<&str>, size: u64| {
        let mut value = blob(size);
        value["mediaType"] = json!(OCI_MANIFEST);
        value["platform"] = json!({"os": os, "architecture": architecture, "variant": variant});
        serde_json::from_value::<Descriptor>(value).unwrap()
    };
    let entries = [
        entry("windows", "arm64", None, 1),
        entry("linux", "amd64", None, 2),
        entry("linux", "arm64", Some("v9"), 3),
        entry("linux", "arm64", None, 4),
        entry("linux", "arm64", Some("v8"), 5),
    ];
    assert_eq!(select(&entries, &arm).unwrap().size, 5);
    assert_eq!(select(&entries[..4], &arm).unwrap().size, 4);
    assert!(matches!(
        select(&entries[..3], &arm),
        Err(Error::Platform(_))
    ));
    let mut without = entries[0].clone();
    without.platform = None;
    assert_eq!(select(&[without], &arm).unwrap().size, 1);
}
