//! The catalogue as a whole, and what is wrong with models that are not like it.

use allot_hardware::{Model, names, source};
use serde_json::{Value, json};

#[test]
fn every_model_has_its_own_name_and_devices() {
    let mut sorted: Vec<&str> = names().collect();
    sorted.sort_unstable();
    assert_eq!(names().collect::<Vec<_>>(), sorted, "in order");
    for name in names() {
        let model =
            Model::parse(source(name).expect(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(model.name, name);
        let node = model.expand("node-0", 0).expect(name);
        assert!(
            node.slices.iter().any(|slice| !slice.devices.is_empty()),
            "{name}"
        );
        assert_eq!(
            node,
            model.expand("node-0", 0).expect(name),
            "{name} is the same again"
        );
        assert!(!model.classes.is_empty(), "{name}");
    }
}

#[test]
fn the_partitions_of_an_h100_are_complete() {
    let model = allot_hardware::find("h100-mig").expect("in the catalogue");
    let node = model.expand("n", 0).expect("expands");
    assert_eq!(node.slices.len(), 9, "counters, and one slice for each GPU");
    assert_eq!(node.slices[0].counters.len(), 8);
    let devices = &node.slices[1].devices;
    assert_eq!(devices.len(), 26);
    let find = |name: &str| {
        devices
            .iter()
            .find(|device| device["name"] == name)
            .expect(name)
    };
    let part = find("gpu-0-mig-3g40gb-9-4");
    assert_eq!(part["attributes"]["profile"]["string"], "3g.40gb");
    assert_eq!(part["capacity"]["multiprocessors"]["value"], "60");
    let counters = &part["consumesCounters"][0]["counters"];
    assert_eq!(counters["copy-engines"]["value"], "3");
    assert_eq!(counters["memory"]["value"], "40192Mi");
    let slices: Vec<&str> = counters
        .as_object()
        .expect("a map")
        .keys()
        .filter_map(|name| name.strip_prefix("memory-slice-"))
        .collect();
    assert_eq!(slices, ["4", "5", "6", "7"]);
    assert_eq!(
        part["consumesCounters"][0]["counterSet"],
        "gpu-0-counter-set"
    );
}

/// A small model with something replaced.
#[track_caller]
fn check(from: &str, to: &str, expected: &str) {
    const MODEL: &str = "
name: small
title: A small model
sources: [{from: nowhere, facts: all}]
tables: {bus: ['1', '2']}
pools:
- driver: d.example.com
  slices:
  - devices:
    - each: [i in 0..2]
      name: d-{i}
      attributes: [{bus: '{bus[i]}', version: {version: 1.0.0}}]
      capacity: {memory: 1Gi}
";
    Model::parse(MODEL).expect("as it is");
    let text = MODEL.replace(from, to);
    assert_ne!(text, MODEL, "{from} is there");
    let error = Model::parse(&text).expect_err(to).to_string();
    assert!(error.contains(expected), "{to}: {error}");
}

#[test]
fn errors_name_the_place_and_the_reason() {
    check(
        "name: d-{i}",
        "name: d-{j}",
        "pools[0].slices[0].devices[0].name: unknown name \"j\"",
    );
    check(
        "name: d-{i}",
        "name: d",
        "pools[0].slices: device \"d\" is there twice",
    );
    check(
        "0..2",
        "0..3",
        "devices[0].attributes: no element 2 in a list of 2",
    );
    check(
        "i in 0..2",
        "i",
        "devices[0].each[0]: \"i\" is no loop: expected NAME in LIST",
    );
    check(
        "i in 0..2",
        "'i in bus[0]'",
        "each[0]: \"bus[0]\" is no list",
    );
    check(
        "i in 0..2",
        "k in 0..4000, j in 0..4000, i in 0..2",
        "loops have more than 16384 rounds",
    );
    check(
        "{version: 1.0.0}",
        "{semver: 1.0.0}",
        "attributes.version: unknown type \"semver\"",
    );
    check(
        "1Gi",
        "[]",
        "capacity.memory: expected a quantity, found []",
    );
    for (member, name) in [
        ("env", "A-B"),
        ("set", "1A"),
        ("consumed", "A_{i"),
        ("env", "A_{}"),
    ] {
        check(
            "- driver: d.example.com",
            &format!("- driver: d.example.com\n  prepare: {{{member}: {{'{name}': name}}}}"),
            &format!("pools[0].prepare: {name:?} is no name of an environment variable"),
        );
    }
    check("title:", "titel:", "unknown field");
    check("title: A small model", "", "missing field");
    check(
        "sources: [{from: nowhere, facts: all}]",
        "sources: []",
        "sources: must name at least one",
    );
    check(
        "name: small",
        "name: Small",
        "name: must have lower case letters",
    );
    check(
        "  - devices:",
        "  - counters: [{set: a}]\n    devices:",
        "slices[0]: must have either devices or counters",
    );
    check("pools:", "pools: [", "line ");
    let large = "#".repeat(2 << 20);
    assert!(
        Model::parse(&large)
            .expect_err("too large")
            .to_string()
            .contains("bytes")
    );
    let deep = format!("a: {}", "[".repeat(100_000));
    Model::parse(&deep).expect_err("too deep");
}

#[test]
fn the_driver_of_a_model_accepts_the_kinds_of_parameters_that_the_real_one_knows() {
    let accepts = |model: &str, driver: &str, version: &str, kind: &str| {
        let model = allot_hardware::find(model).expect("in the catalogue");
        let parameters = json!({"apiVersion": version, "kind": kind});
        model.prepare(driver).expect(driver).accepts(&parameters)
    };
    let nvidia = |version, kind| accepts("gpu-shared", "gpu.nvidia.com", version, kind);
    assert_eq!(nvidia("resource.nvidia.com/v1beta1", "GpuConfig"), Ok(()));
    assert!(nvidia("resource.nvidia.com/v1beta1", "Gpu").is_err());
    assert!(nvidia("example.com/v1beta1", "GpuConfig").is_err());
    assert!(nvidia("v1", "GpuConfig").is_err());
    assert!(nvidia("", "").is_err());
    let none = accepts("example-cpu", "cpu.example.com", "v1", "CpuConfig");
    assert_eq!(none, Err("opaque parameters are not allowed".to_owned()));
    // What is not known about a driver is not made up.
    assert_eq!(accepts("tpu-v5e", "tpu.google.com", "v1", "Any"), Ok(()));
}

/// A model accepted what the real driver refuses: a misspelled field had no effect.
#[test]
fn regression_the_driver_of_a_model_refuses_unknown_fields_where_they_are_known() {
    let accepts = |fields: Value| {
        let model = allot_hardware::find("gpu-shared").expect("in the catalogue");
        let mut parameters =
            json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"});
        parameters["sharing"] = fields;
        let prepare = model.prepare("gpu.nvidia.com").expect("its driver");
        prepare.accepts(&parameters)
    };
    let unknown = |path: &str| Err(format!("strict decoding error: unknown field {path:?}"));
    let slices = json!({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}});
    assert_eq!(accepts(slices), Ok(()));
    // By device: its members have no fixed names.
    let limits = json!({"defaultPerDevicePinnedMemoryLimit": {"0": "1Gi", "a.b": "2Gi"}});
    assert_eq!(
        accepts(json!({"strategy": "MPS", "mpsConfig": limits})),
        Ok(())
    );
    assert_eq!(accepts(Value::Null), Ok(()));
    assert_eq!(accepts(json!({"strategi": 1})), unknown("sharing.strategi"));
    assert_eq!(
        accepts(json!({"timeSlicingConfig": {"intervall": "Long"}})),
        unknown("sharing.timeSlicingConfig.intervall")
    );
    assert_eq!(
        accepts(json!({"timeSlicingConfig.interval": "Long"})),
        unknown("sharing.timeSlicingConfig.interval")
    );
    // Every kind that the catalogue names has known fields.
    for model in names().filter_map(allot_hardware::find) {
        for driver in model.drivers() {
            let prepare = model.prepare(driver).expect(driver);
            for kind in prepare.parameters.iter().flatten() {
                let is_known = prepare.fields.contains_key(kind);
                assert!(
                    is_known,
                    "{}: the fields of {kind} are not known",
                    model.name
                );
            }
        }
    }
}

#[test]
fn the_fields_are_those_of_a_kind_that_is_accepted() {
    let text = source("example-cpu").expect("in the catalogue");
    let fields = "parameters: []\n    fields: {cpu.example.com/CpuConfig: [cores]}";
    let error = Model::parse(&text.replace("parameters: []", fields)).expect_err("not accepted");
    let error = error.to_string();
    assert!(error.contains("pools[0].prepare.fields"), "{error}");
}

#[test]
fn a_kind_of_parameters_has_a_group() {
    let text = source("example-cpu").expect("in the catalogue");
    for wrong in ["GpuConfig", "/GpuConfig", "example.com/", "a/v1/Kind"] {
        let text = text.replace("parameters: []", &format!("parameters: [{wrong}]"));
        let error = Model::parse(&text).expect_err(wrong).to_string();
        assert!(error.contains("pools[0].prepare.parameters"), "{error}");
    }
}
