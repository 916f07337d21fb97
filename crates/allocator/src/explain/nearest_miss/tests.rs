use k8s_openapi::api::resource::v1 as api;
use serde_json::json;

use allot_cel::device::Layouts;

use super::*;

fn parts(expression: &str, expected: &[&str]) {
    assert_eq!(conjuncts(expression), expected);
}

#[test]
fn conjuncts_are_what_is_joined_by_and() {
    parts("a && b", &["a", "b"]);
    parts("(a && (b && c))", &["a", "b", "c"]);
    parts("a && (b || c)", &["a", "b || c"]);
    parts("a || b && c", &["a || b && c"]);
    parts("x == \"a && b\"", &["x == \"a && b\""]);
    parts("x == 'it\\'s && so'", &["x == 'it\\'s && so'"]);
    parts("(a) && (b)", &["a", "b"]);
    parts("a.?b.orValue(1) == 1 && c", &["a.?b.orValue(1) == 1", "c"]);
    parts("a ? b && c : d", &["a ? b && c : d"]);
    parts("", &[""]);
}

fn described(expression: &str) -> String {
    let device: api::Device = serde_json::from_value(json!({
        "name": "gpu-3",
        "attributes": {"model": {"string": "t4"}, "numa": {"int": 0}, "driverVersion": {"version": "1.2.0"}},
        "capacity": {"memory": {"value": "40Gi"}},
    }))
    .unwrap();
    let features = Features::default();
    let cache = SelectorCache::new();
    let device = Device::new(&features, &Layouts::new(), "gpu.example.com", &device, None);
    let selector = cache.compile(&features, expression);
    describe(&features, &cache, &selector, "gpu.example.com", &device).1
}

#[test]
fn the_value_that_is_wrong_is_named() {
    for (expression, expected) in [
        (
            "device.capacity[\"gpu.example.com\"].memory.compareTo(quantity(\"80Gi\")) >= 0",
            "memory 40Gi, selector needs >= 80Gi",
        ),
        (
            "device.capacity[\"gpu.example.com\"].memory.isGreaterThan(quantity(\"40Gi\"))",
            "memory 40Gi, selector needs > 40Gi",
        ),
        (
            "device.attributes[\"gpu.example.com\"].model == \"a100\"",
            "model t4, selector needs == a100",
        ),
        (
            "device.attributes[\"gpu.example.com\"].model in [\"a100\", \"h100\"]",
            "model t4, selector needs in [\"a100\", \"h100\"]",
        ),
        (
            "device.driver == \"gpu.example.com\" && device.attributes[\"gpu.example.com\"].numa > 0",
            "numa 0, selector needs > 0",
        ),
        (
            "device.attributes[\"gpu.example.com\"].driverVersion.isGreaterThan(semver(\"1.10.0\"))",
            "driverVersion 1.2.0, selector needs > 1.10.0",
        ),
        (
            "device.driver == \"other\"",
            "driver gpu.example.com, selector needs == other",
        ),
        (
            "device.attributes[\"gpu.example.com\"].?rack.orValue(\"none\") == \"r1\"",
            "rack missing, selector needs == r1",
        ),
        (
            "device.attributes[\"gpu.example.com\"].model.startsWith(\"a\")",
            "model t4, selector needs `device.attributes[\"gpu.example.com\"].model.startsWith(\"a\")`",
        ),
        ("false", "selector needs `false`"),
    ] {
        assert_eq!(described(expression), expected);
    }
}
