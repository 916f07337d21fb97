//! Claims that the scheduler allocates (1.30).

use super::*;

/// Structured: a slice of one instance per node and a class of structured parameters.
fn structured() -> Fixture {
    let mut fixture = Fixture::usual();
    fixture
        .class(json!({"metadata": {"name": "k"}, "driverName": "d", "structuredParameters": true}));
    for node in ["n0", "n1"] {
        let attributes = json!([{"name": "node", "string": node}]);
        let slice = fixture.object::<ResourceSlice>(json!({
            "metadata": {"name": format!("slice-{node}")}, "nodeName": node, "driverName": "d",
            "namedResources": {"instances": [{"name": "i", "attributes": attributes}]},
        }));
        fixture.classic(Input::Slice(Observed::Applied(slice)));
    }
    fixture
}

#[test]
fn structured_claims_are_allocated_at_once_and_never_twice() {
    let mut fixture = structured();
    for name in ["a", "b", "c"] {
        fixture.claim(name, json!({}));
        fixture.pod(&format!("p{name}"), &[name]);
    }
    let outcome = fixture.run();
    let mut nodes: Vec<&str> = Vec::new();
    for action in &outcome.0 {
        let CoreAction::Bind(job) = action else {
            continue;
        };
        let (driver, allocation) = tasks(job)[0].allocation.as_ref().expect("an allocation");
        let data = allocation.resource_handles[0]
            .structured_data
            .as_ref()
            .expect("data");
        assert_eq!((driver.as_str(), &*data.node_name), ("d", &*job.node));
        assert_eq!(
            data.results[0]
                .named_resources
                .as_ref()
                .expect("a name")
                .name,
            "i"
        );
        assert!(allocation.shareable);
        nodes.push(&job.node);
    }
    nodes.sort_unstable();
    assert_eq!(nodes, ["n0", "n1"]);
    assert!(
        outcome
            .message()
            .contains("2 resourceclaim cannot be allocated for the node (unsuitable)")
    );
}

/// A structured claim with parameters is allocated on that node, or rejected with that reason.
fn check_parameters(reference: Value, parameters: Value, expected: Result<&str, &str>) {
    let mut fixture = structured();
    if !parameters.is_null() {
        let parameters = fixture.object::<ClaimParameters>(parameters);
        fixture.classic(Input::ClaimParameters(Observed::Applied(parameters)));
    }
    fixture.claim("c", json!({"spec": {"parametersRef": reference}}));
    fixture.pod("p", &["c"]);
    let outcome = fixture.run();
    match expected {
        Ok(node) => assert_eq!(
            outcome.bound().map(|b| &*b.node),
            Some(node),
            "{}",
            outcome.message()
        ),
        Err(reason) => assert!(outcome.message().contains(reason), "{}", outcome.message()),
    }
}

#[test]
fn parameters_are_looked_up() {
    let direct =
        json!({"apiGroup": "resource.k8s.io", "kind": "ResourceClaimParameters", "name": "x"});
    let vendor = json!({"apiGroup": "cats.example.com", "kind": "Cat", "name": "tom"});
    let wants = |selector: &str, from: Value| {
        json!({
            "metadata": {"name": "x", "namespace": "ns"}, "generatedFrom": from,
            "driverRequests": [{"driverName": "d", "requests": [{"namedResources": {"selector": selector}}]}],
        })
    };
    let n1 = r#"attributes.string["node"] == "n1""#;
    check_parameters(direct.clone(), wants(n1, Value::Null), Ok("n1"));
    check_parameters(
        direct.clone(),
        Value::Null,
        Err("claim parameters ns/x not found"),
    );
    check_parameters(vendor.clone(), wants(n1, vendor.clone()), Ok("n1"));
    let other = json!({"apiGroup": "cats.example.com", "kind": "Cat", "name": "jerry"});
    check_parameters(
        vendor,
        wants(n1, other),
        Err("generated claim parameters for Cat.cats.example.com ns/tom not found"),
    );
    check_parameters(
        direct,
        wants(r#"attributes.string["none"] == "x""#, Value::Null),
        Err("checking structured parameters failed: no such key: none"),
    );
}

#[test]
fn filters_of_the_class_count_too() {
    let mut fixture = structured();
    let reference = json!({"apiGroup": "resource.k8s.io", "kind": "ResourceClassParameters", "name": "x", "namespace": "ns"});
    fixture.class(json!({"metadata": {"name": "k"}, "driverName": "d", "structuredParameters": true, "parametersRef": reference}));
    fixture.claim("c", json!({}));
    fixture.pod("p", &["c"]);
    assert!(
        fixture
            .run()
            .message()
            .contains("class parameters ns/x not found")
    );
    let parameters = fixture.object::<ClassParameters>(json!({
        "metadata": {"name": "x", "namespace": "ns"},
        "vendorParameters": [{"driverName": "d", "parameters": {"a": 1}}],
        "filters": [{"driverName": "d", "namedResources": {"selector": r#"attributes.string["node"] == "n1""#}}],
    }));
    fixture.classic(Input::ClassParameters(Observed::Applied(parameters)));
    let outcome = fixture.run();
    let job = outcome.bound().expect("a binding");
    let allocation = &tasks(job)[0].allocation.as_ref().expect("an allocation").1;
    let data = allocation.resource_handles[0]
        .structured_data
        .as_ref()
        .expect("data");
    assert_eq!(
        (&*job.node, &data.vendor_class_parameters),
        ("n1", &json!({"a": 1}))
    );
}

#[test]
fn an_instance_is_free_again_when_its_claim_is_deallocated() {
    let mut fixture = structured();
    fixture.claim("a", json!({}));
    fixture.claim("b", json!({}));
    fixture.claim("c", json!({}));
    fixture.pod("p", &["a"]);
    fixture.pod("q", &["b"]);
    let outcome = fixture.run();
    let jobs: Vec<&BindJob> = outcome
        .0
        .iter()
        .filter_map(|a| match a {
            CoreAction::Bind(job) => Some(&**job),
            _ => None,
        })
        .collect();
    let task = &tasks(jobs[0])[0];
    let name = task.key.name.to_string();
    let status =
        json!({"driverName": "d", "allocation": *task.allocation.as_ref().expect("one").1});
    fixture.claim(
        &name,
        json!({"status": status, "metadata": {"finalizers": ["dra.k8s.io/delete-protection"]}}),
    );
    fixture.handle(CoreInput::Bound {
        pod: jobs[0].pod.uid.clone(),
        outcome: Ok(()),
    });
    fixture.pod("r", &["c"]);
    assert!(fixture.run().bound().is_none());
    fixture.claim(
        &name,
        json!({"metadata": {"finalizers": ["dra.k8s.io/delete-protection"]}}),
    );
    assert_eq!(
        fixture.run().bound().map(|b| b.pod.key.name.to_string()),
        Some("r".to_owned())
    );
}
