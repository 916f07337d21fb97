//! Whatever JSON comes in: nothing panics, and the canonical form is stable.

use proptest::prelude::*;

use super::*;
use crate::kind::Version;
use crate::shape::{self, tables};
use crate::{authorize, convert, defaults, strategy, table, validate};

/// Arbitrary JSON that has the members of a kind more often than chance would have it.
fn value_for(ty: shape::Ty, depth: u32) -> BoxedStrategy<Value> {
    let junk = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[{"a": null}]])),
    ];
    let typed: BoxedStrategy<Value> = match ty {
        shape::Ty::Text => prop_oneof![
            "[a-z]{0,3}(/[a-z]{0,3}){0,2}".prop_map(Value::from),
            Just(json!("All")),
            Just(json!("ExactCount")),
            Just(json!("1.2.3")),
            Just(json!("NoExecute")),
        ]
        .boxed(),
        shape::Ty::Int => any::<i64>().prop_map(Value::from).boxed(),
        shape::Ty::Bool => any::<bool>().prop_map(Value::from).boxed(),
        shape::Ty::Quantity => prop_oneof![
            "-?[0-9]{1,20}(\\.[0-9]{1,4})?(Ki|Mi|Gi|m|n|k|E|e3)?".prop_map(Value::from),
            (0..100_i64).prop_map(Value::from)
        ]
        .boxed(),
        shape::Ty::Time => prop_oneof![
            Just(json!("2026-01-02T03:04:05.6+01:00")),
            Just(json!("never"))
        ]
        .boxed(),
        shape::Ty::Struct(_) | shape::Ty::List(_) | shape::Ty::Map(_) if depth == 0 => {
            Just(Value::Null).boxed()
        }
        shape::Ty::Struct(shape) => shape
            .fields
            .iter()
            .map(|field| {
                let member = value_for(field.ty, depth - 1);
                (
                    Just(field.json.to_owned()),
                    prop::option::weighted(0.6, member),
                )
            })
            .collect::<Vec<_>>()
            .prop_map(|members| {
                members
                    .into_iter()
                    .filter_map(|(key, member)| Some((key, member?)))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            })
            .boxed(),
        shape::Ty::List(item) => prop::collection::vec(value_for(*item, depth - 1), 0..3)
            .prop_map(Value::from)
            .boxed(),
        shape::Ty::Map(item) => {
            prop::collection::btree_map("[a-z]{0,2}(/[a-z])?", value_for(*item, depth - 1), 0..3)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into())
                .boxed()
        }
        shape::Ty::Raw | shape::Ty::Meta => {
            Just(json!({"name": "x", "namespace": "y", "resourceVersion": "1"})).boxed()
        }
    };
    prop_oneof![12 => typed, 1 => junk].boxed()
}

fn object() -> impl Strategy<Value = (Kind, Value)> {
    prop::sample::select(Kind::ALL.to_vec())
        .prop_flat_map(|kind| (Just(kind), value_for(tables::of(kind), 9)))
}

fn pair() -> impl Strategy<Value = (Kind, Value, Value)> {
    prop::sample::select(Kind::ALL.to_vec()).prop_flat_map(|kind| {
        (
            Just(kind),
            value_for(tables::of(kind), 9),
            value_for(tables::of(kind), 9),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics((kind, new, old) in pair()) {
        let features = Features::default();
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        for version in kind.versions() {
            let mut value = new.clone();
            defaults::default(kind, *version, &mut value, now);
            let Ok(mut value) = convert::convert(kind, *version, kind.hub(), value) else { continue };
            strategy::prepare_for_update(kind, &mut value, &old, &features, now);
            validate::update(kind, &value, &old, &features);
            validate::create(kind, &value, &features);
            strategy::prepare_for_status_update(kind, &mut value, &old, &features);
            validate::status_update(kind, &value, &old);
            let caller = authorize::Caller { user: "system:serviceaccount:a:b", extra: &Default::default() };
            authorize::status_checks(&value, &old, "update", caller, &features);
            table::row(kind, &value, now);
            strategy::prepare_for_create(kind, &mut value, &features);
        }
    }

    #[test]
    fn the_canonical_form_is_stable((kind, value) in object()) {
        let mut once = value;
        convert::normalize(kind, &mut once);
        let mut twice = once.clone();
        convert::normalize(kind, &mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn other_versions_lose_nothing((kind, value) in object()) {
        let mut value = value;
        convert::normalize(kind, &mut value);
        for version in kind.versions() {
            let there = convert::convert(kind, kind.hub(), *version, value.clone());
            let Ok(there) = there else { continue };
            let mut back = convert::convert(kind, *version, kind.hub(), there).unwrap();
            let mut expected = value.clone();
            expected["apiVersion"] = json!(kind.hub().api_version());
            if *version == Version::V1Beta1 {
                forget(kind, &mut expected);
                forget(kind, &mut back);
            }
            convert::normalize(kind, &mut back);
            convert::normalize(kind, &mut expected);
            prop_assert_eq!(back, expected);
        }
    }
}

/// What v1beta1 cannot say: an exact request with nothing in it, a false or empty choice of nodes; and what cannot be
/// in an object that was decoded: members of the wrong type where the structure differs.
fn forget(kind: Kind, value: &mut Value) {
    let devices = match kind {
        Kind::ResourceClaim => value.pointer_mut("/spec/devices"),
        Kind::ResourceClaimTemplate => value.pointer_mut("/spec/spec/devices"),
        Kind::ResourceSlice => value.get_mut("spec"),
        _ => None,
    };
    let Some(devices) = devices else { return };
    if kind == Kind::ResourceSlice {
        let Some(spec) = devices.as_object_mut() else {
            return;
        };
        spec.retain(|key, member| {
            !(key == "nodeName" && *member == "" || key == "allNodes" && *member == false)
        });
        return;
    }
    for request in devices
        .get_mut("requests")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Some(map) = request.as_object_mut() else {
            continue;
        };
        let keep = map
            .get("exactly")
            .is_some_and(|exactly| exactly.is_object() && convert::is_exact_v1beta1(exactly));
        if !keep {
            map.remove("exactly");
        }
    }
}
