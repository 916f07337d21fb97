//! Intel RDT settings of plugins.

use allot_cdi::IntelRdt;
use allot_protos::nri::{Field, LinuxRdt, OptionalBool, OptionalRepeatedString, OptionalString};
use serde_json::{Value, json};

use super::super::linux;
use super::{container, oci};
use crate::rdt;
use crate::spec::Isolation;

/// They were refused as not supported, although the node applies those of CDI.
#[test]
fn regression_intel_rdt_settings_are_applied() {
    let text = |value: &str| {
        Some(OptionalString {
            value: value.to_owned(),
        })
    };
    let check = |wanted: LinuxRdt, expected: Value| {
        let mut spec = container();
        spec.intel_rdt = Some(IntelRdt {
            clos_id: Some("gold".to_owned()),
            ..IntelRdt::default()
        });
        // It is not known before the container is started: they were refused as those of an agent without root.
        spec.isolation = Isolation::None;
        let set = linux::intel_rdt(&wanted, &mut spec, |_, isolation| match isolation {
            Isolation::Namespaces => Ok(()),
            _ => Err(rdt::Unavailable::NotRoot),
        });
        set.expect("settings");
        let settings = oci(&spec).pointer("/linux/intelRdt").cloned();
        assert_eq!(settings.unwrap_or_default(), expected);
    };
    let schemata = OptionalRepeatedString {
        value: vec!["L3:0=f".to_owned()],
    };
    check(
        LinuxRdt {
            schemata: Some(schemata.clone()),
            ..LinuxRdt::default()
        },
        json!({"closID": "gold", "enableMonitoring": false, "schemata": ["L3:0=f"]}),
    );
    check(
        LinuxRdt {
            clos_id: text("silver"),
            ..LinuxRdt::default()
        },
        json!({"closID": "silver", "enableMonitoring": false}),
    );
    let remove = LinuxRdt {
        remove: true,
        ..LinuxRdt::default()
    };
    check(remove.clone(), Value::Null);
    check(
        LinuxRdt {
            enable_monitoring: Some(OptionalBool { value: true }),
            ..remove
        },
        json!({"closID": "c", "enableMonitoring": true}),
    );
    let wanted = LinuxRdt {
        clos_id: text("info"),
        schemata: Some(schemata),
        ..LinuxRdt::default()
    };
    let name = |wanted: &IntelRdt, _| rdt::check_group(wanted);
    let refused = linux::intel_rdt(&wanted, &mut container(), name);
    let (field, reason) = refused.expect_err("no group");
    assert_eq!(field, Field::RdtClosId);
    assert_eq!(reason, rdt::Unavailable::Name("info".to_owned()));
}
