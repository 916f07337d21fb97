use super::*;
use crate::validate;

const SHARE: &str = "11111111-2222-3333-4444-555555555555";

fn claim() -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"devices": {"requests": [{"name": "gpu"}, {"name": "f", "firstAvailable": [{"name": "x"}]}]}},
        "status": {},
    })
}

fn allocated() -> Value {
    let result = json!({"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "a"});
    edited(
        claim(),
        &[(
            "/status/allocation",
            json!({"devices": {"results": [result]}}),
        )],
    )
}

fn check(edits: &[(&str, Value)], old: &Value, expected: &[&str]) {
    let new = edited(allocated(), edits);
    assert_messages(
        validate::status_update(Kind::ResourceClaim, &new, old),
        expected,
    );
}

#[test]
fn allocating_and_reserving_at_once_is_fine() {
    check(
        &[(
            "/status/reservedFor",
            json!([{"resource": "pods", "name": "p", "uid": "u"}]),
        )],
        &claim(),
        &[],
    );
}

#[test]
fn consumers_are_complete_and_unique() {
    let consumer = json!({"resource": "pods", "name": "p", "uid": "u"});
    check(
        &[("/status/reservedFor", json!([{}, consumer, consumer]))],
        &claim(),
        &[
            "status.reservedFor[0].resource: Required value",
            "status.reservedFor[0].name: Required value",
            "status.reservedFor[0].uid: Required value",
            r#"status.reservedFor[2]: Duplicate value: "u""#,
        ],
    );
    check(
        &[("/status/reservedFor", repeated(&json!({}), 257))],
        &claim(),
        &["status.reservedFor: Too many: 257: must have at most 256 items"],
    );
}

#[test]
fn only_an_allocated_claim_can_be_reserved() {
    let consumer = json!([{"resource": "pods", "name": "p", "uid": "u"}]);
    check(
        &[
            ("/status/allocation", Value::Null),
            ("/status/reservedFor", consumer.clone()),
        ],
        &allocated(),
        &["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
    );
    let deleted = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let old = edited(allocated(), std::slice::from_ref(&deleted));
    check(
        &[deleted.clone(), ("/status/reservedFor", consumer.clone())],
        &old,
        &[
            "status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
        ],
    );
    let reserved = edited(old, &[("/status/reservedFor", consumer.clone())]);
    check(
        &[deleted, ("/status/reservedFor", consumer)],
        &reserved,
        &[],
    );
}

#[test]
fn an_allocation_is_immutable_but_can_go() {
    check(&[], &allocated(), &[]);
    check(&[("/status/allocation", Value::Null)], &allocated(), &[]);
    check(
        &[("/status/allocation/devices", json!({}))],
        &allocated(),
        &[
            r#"status.allocation: Invalid value: {"Devices":{"Results":null,"Config":null},"NodeSelector":null,"AllocationTimestamp":null}: field is immutable"#,
        ],
    );
}

#[test]
fn results_are_complete() {
    check(
        &[(
            "/status/allocation/devices/results",
            json!([{"request": "f/x", "shareID": SHARE}]),
        )],
        &claim(),
        &[
            "status.allocation.devices.results[0].driver: Required value",
            "status.allocation.devices.results[0].pool: Required value",
            r#"status.allocation.devices.results[0].device: Invalid value: "": LABEL"#,
        ],
    );
    let share = |id: &str, text: &str| {
        let expected =
            format!("status.allocation.devices.results[0].shareID: Invalid value: {id:?}: {text}");
        check(
            &[("/status/allocation/devices/results/0/shareID", json!(id))],
            &claim(),
            &[&expected],
        );
    };
    share("abc", "error validating uid: invalid UUID length: 3");
    share(
        &SHARE.replace('-', "x"),
        "error validating uid: invalid UUID format",
    );
    share(
        &format!("urnxUUID:{SHARE}"),
        "error validating uid: invalid urn prefix: \"urnxUUID:\"",
    );
    share(
        &format!("[{SHARE}]"),
        "error validating uid: invalid bracketed UUID format",
    );
    share(
        &format!("{{{SHARE}}}"),
        "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters",
    );
}

#[test]
fn configurations_have_a_source() {
    let config = |source: &str| json!({"source": source, "requests": ["gpu"], "opaque": {"driver": "d.example.com", "parameters": {}}});
    check(
        &[(
            "/status/allocation/devices/config",
            json!([config(""), config("FromNowhere"), config("FromClass")]),
        )],
        &claim(),
        &[
            "status.allocation.devices.config[0].source: Required value",
            r#"status.allocation.devices.config[1].source: Unsupported value: "FromNowhere": supported values: "FromClaim", "FromClass""#,
        ],
    );
    check(
        &[(
            "/status/allocation/devices/config",
            repeated(&config("FromClaim"), 65),
        )],
        &claim(),
        &["status.allocation.devices.config: Too many: 65: must have at most 64 items"],
    );
}

fn device(edits: Value) -> Value {
    let mut device = json!({"driver": "d.example.com", "pool": "p", "device": "a"});
    device
        .as_object_mut()
        .unwrap()
        .extend(edits.as_object().unwrap().clone());
    device
}

#[test]
fn device_status_is_for_allocated_devices() {
    check(
        &[("/status/devices", json!([device(json!({}))]))],
        &allocated(),
        &[],
    );
    check(
        &[(
            "/status/devices",
            json!([
                device(json!({})),
                device(json!({})),
                device(json!({"shareID": SHARE}))
            ]),
        )],
        &allocated(),
        &[
            r#"status.devices[2]: Invalid value: {"Driver":"d.example.com","Pool":"p","Device":"a","ShareID":"11111111-2222-3333-4444-555555555555"}: must be an allocated device in the claim"#,
            r#"status.devices[1]: Duplicate value: {"Driver":"d.example.com","Pool":"p","Device":"a","ShareID":""}"#,
        ],
    );
}

#[test]
fn conditions_are_well_formed() {
    let good = json!({"type": "Ready", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let conditions = |conditions: Value, expected: &[&str]| {
        let expected: Vec<_> = expected
            .iter()
            .map(|text| format!("status.devices[0].conditions{text}"))
            .collect();
        let edits = [(
            "/status/devices",
            json!([device(json!({"conditions": conditions}))]),
        )];
        check(
            &edits,
            &allocated(),
            &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    };
    conditions(json!([good]), &[]);
    conditions(
        json!([good, good]),
        &[r#"[1].type: Duplicate value: "Ready""#],
    );
    conditions(
        json!([{"type": "", "status": "Yes", "observedGeneration": -1}]),
        &[
            r#"[0].type: Invalid value: "": name part must be non-empty"#,
            r#"[0].type: Invalid value: "": QUALIFIED"#,
            r#"[0].status: Unsupported value: "Yes": supported values: "False", "True", "Unknown""#,
            "[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
            "[0].lastTransitionTime: Required value",
            "[0].reason: Required value",
        ],
    );
}

#[test]
fn addresses_are_canonical() {
    let ips = |ips: Value, expected: &[&str]| {
        let expected: Vec<_> = expected
            .iter()
            .map(|text| format!("status.devices[0].networkData.ips{text}"))
            .collect();
        let edits = [(
            "/status/devices",
            json!([device(json!({"networkData": {"ips": ips}}))]),
        )];
        check(
            &edits,
            &allocated(),
            &expected.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    };
    ips(json!(["10.9.8.7/24", "2001:db8::1/64"]), &[]);
    ips(
        json!(["10.0.0.1/8", "10.0.0.1/8"]),
        &[r#"[1]: Duplicate value: "10.0.0.1/8""#],
    );
    for ip in [
        "10.0.0.1",
        "10.0.0.1/33",
        "10.0.0/8",
        "::/129",
        "1.2.3.4/",
        "/8",
        "a/8",
        "::1%lo/64",
    ] {
        let expected = format!(
            "[0]: Invalid value: {ip:?}: must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        );
        ips(json!([ip]), &[&expected]);
    }
    for (ip, canonical) in [
        ("010.0.0.001/8", "10.0.0.1/8"),
        ("2001:0db8::1/64", "2001:db8::1/64"),
        ("::ffff:10.0.0.1/104", "10.0.0.1/8"),
        ("10.0.0.1/08", "10.0.0.1/8"),
    ] {
        let expected =
            format!("[0]: Invalid value: {ip:?}: must be in canonical form ({canonical:?})");
        ips(json!([ip]), &[&expected]);
    }
}

#[test]
fn device_data_is_limited() {
    let edits = |data: Value| [("/status/devices", json!([device(data)]))];
    check(
        &edits(
            json!({"data": [1], "networkData": {"interfaceName": "x".repeat(257), "hardwareAddress": "x".repeat(129), "ips": repeated(&json!("x"), 17)}}),
        ),
        &allocated(),
        &[
            r#"status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object"#,
            "status.devices[0].networkData.interfaceName: Too long: may not be more than 256 bytes",
            "status.devices[0].networkData.hardwareAddress: Too long: may not be more than 128 bytes",
            "status.devices[0].networkData.ips: Too many: 17: must have at most 16 items",
        ],
    );
}
