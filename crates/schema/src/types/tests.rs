use super::*;

#[test]
fn every_type_parses_and_every_reference_resolves() {
    let mut count = 0;
    for id in all() {
        let structure = id.get();
        count += 1;
        for field in &structure.fields {
            fn check(ty: &Type, at: &str) {
                match ty {
                    Type::List(inner) | Type::Map(inner) => check(inner, at),
                    Type::Struct(id) => assert!(!id.get().name.is_empty(), "{at}"),
                    _ => {}
                }
            }
            check(&field.ty, field.name);
            if let Topology::Map(keys) = &field.topology {
                let Type::List(inner) = &field.ty else {
                    panic!("{}.{} is no list", structure.name, field.name)
                };
                let Type::Struct(element) = **inner else {
                    panic!("{}.{}: elements are no structs", structure.name, field.name)
                };
                for key in keys {
                    assert!(
                        element.get().field(key).is_some(),
                        "{}.{}: no key {key}",
                        structure.name,
                        field.name
                    );
                }
            }
        }
    }
    assert!(count > 700, "{count} types");
}

#[test]
fn references_are_structs_not_raw_json() {
    // A reference that is not found would silently become free-form JSON.
    for line in SOURCE.lines().filter(|l| l.starts_with('\t')) {
        let ty = line
            .split(' ')
            .nth(1)
            .unwrap_or_default()
            .trim_start_matches(['[', ']', '{', '}']);
        if ty.contains('.') && !ty.starts_with('.') {
            let simple = ty.rsplit('.').next().unwrap_or_default();
            assert!(all().any(|id| id.get().simple_name() == simple), "{line}");
        }
    }
}

#[test]
fn a_pod_is_known_with_its_merge_facts() {
    let pod = lookup("", "v1", "Pod").expect("v1 Pod");
    let Type::Struct(spec) = pod.field("spec").expect("spec").ty else {
        panic!("spec is no struct")
    };
    let spec = spec.get();
    assert_eq!(spec.go_name(), "v1.PodSpec");
    let volumes = spec.field("volumes").expect("volumes");
    assert_eq!(volumes.topology, Topology::Map(vec!["name"]));
    assert_eq!(
        volumes.patch,
        Patch {
            merge: true,
            replace: false,
            retain_keys: true,
            merge_key: Some("name")
        }
    );
    assert!(
        spec.field("nodeName")
            .is_some_and(|f| f.omit_empty && !f.pointer)
    );
    assert!(spec.field("priority").is_some_and(|f| f.pointer));
    assert!(lookup("", "v1", "Nothing").is_none());
}
