//! Evaluation of common device selectors on a device with 27 attributes.

use std::hint::black_box;

use allot_cel::device::{Attribute, Device, Options, compile};
use criterion::{Criterion, criterion_group, criterion_main};

const DRIVER: &str = "gpu.example.com";

fn device() -> Device {
    let mut builder = Device::builder(DRIVER)
        .attribute("model", Attribute::String("H200".into()))
        .attribute("healthy", Attribute::Bool(true))
        .version("driverVersion", "1.10.3")
        .capacity("memory", "80Gi".parse().expect("a quantity"));
    for i in 0..24 {
        builder = builder.attribute(format!("attribute{i}"), Attribute::Int(i));
    }
    builder.build()
}

const SELECTORS: [(&str, &str); 10] = [
    ("driver", r#"device.driver == "gpu.example.com""#),
    (
        "attribute",
        r#"device.attributes["gpu.example.com"].model == "H200""#,
    ),
    (
        "quantity",
        r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#,
    ),
    (
        "semver",
        r#"device.attributes["gpu.example.com"].driverVersion.compareTo(semver("1.2.0")) >= 0"#,
    ),
    (
        "matches",
        r#"device.attributes["gpu.example.com"].model.matches("^H[0-9]+$")"#,
    ),
    (
        "three",
        r#"device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "H200" && device.attributes["gpu.example.com"].healthy"#,
    ),
    (
        "in",
        r#"device.attributes["gpu.example.com"].model in ["A100", "H100", "H200"]"#,
    ),
    (
        "exists",
        r#"["A100", "H100", "H200"].exists(x, x == device.attributes["gpu.example.com"].model)"#,
    ),
    (
        "optional",
        r#"device.attributes["gpu.example.com"].?model.orValue("x") == "H200""#,
    ),
    (
        "bind",
        r#"cel.bind(a, device.attributes["gpu.example.com"], a.model == "H200" && a.healthy)"#,
    ),
];

fn evaluate(c: &mut Criterion) {
    let device = device();
    let mut group = c.benchmark_group("evaluate");
    for (name, expression) in SELECTORS {
        let selector = compile(expression, &Options::default()).expect("a selector");
        assert_eq!(selector.matches(&device), Ok(true), "{expression}");
        group.bench_function(name, |b| b.iter(|| selector.matches(black_box(&device))));
    }
    group.finish();
}

fn compilation(c: &mut Criterion) {
    c.bench_function("compile", |b| {
        b.iter(|| compile(black_box(SELECTORS[5].1), &Options::default()))
    });
}

criterion_group!(benches, evaluate, compilation);
criterion_main!(benches);
