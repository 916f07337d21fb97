use super::*;

fn role(name: &str, labels: &str, rules: &str, selects: Option<&str>) -> Arc<ClusterRole> {
    let rule =
        |resource: &str| json!({"verbs": ["get"], "apiGroups": [""], "resources": [resource]});
    let mut role = json!({
        "metadata": {"name": name, "labels": {}},
        "rules": rules.split_whitespace().map(rule).collect::<Vec<_>>(),
    });
    for label in labels.split_whitespace() {
        role["metadata"]["labels"][label] = "true".into();
    }
    match selects {
        Some("") => role["aggregationRule"] = json!({"clusterRoleSelectors": [{}]}),
        Some(label) => {
            let selector = json!({"matchLabels": {label: "true"}});
            role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        }
        None => {}
    }
    Arc::new(serde_json::from_value(role).unwrap())
}

fn check(all: &[Arc<ClusterRole>], expected: Option<&str>) {
    let found = aggregated(&all[0], all).map(|rules| {
        let resources = rules
            .iter()
            .flat_map(|rule| rule.resources.clone().unwrap_or_default());
        resources.collect::<Vec<_>>().join(" ")
    });
    assert_eq!(found.as_deref(), expected);
}

#[test]
fn rules_are_collected_by_name_and_once() {
    let whole = role("whole", "", "old", Some("part"));
    let parts = [
        whole.clone(),
        role("b", "part", "pods secrets", None),
        role("a", "part", "pods nodes", None),
        role("c", "other", "events", None),
    ];
    check(&parts, Some("pods nodes secrets"));
    check(&[whole], Some(""));
    check(&[role("plain", "", "pods", None)], None);
}

#[test]
fn a_role_is_no_part_of_itself() {
    check(&[role("a", "x", "pods", Some("x"))], Some(""));
    check(
        &[
            role("a", "x", "pods", Some("")),
            role("b", "x", "nodes", Some("")),
        ],
        Some("nodes"),
    );
}
