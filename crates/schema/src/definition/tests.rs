use super::*;

fn widget(schema: Value) -> Value {
    json!({"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"widgets","kind":"Widget"},
        "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":schema}}]}})
}

fn check(definition: &Value, expected: &[&str]) {
    let found: Vec<String> = validate(definition)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_definition_is_completed() {
    let mut definition = widget(json!({"type":"object"}));
    default(&mut definition);
    check(&definition, &[]);
    assert_eq!(
        definition["spec"]["names"],
        json!({"plural":"widgets","kind":"Widget","singular":"widget","listKind":"WidgetList"})
    );
    assert_eq!(definition["spec"]["conversion"], json!({"strategy":"None"}));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(required_name(&definition), "widgets.example.com");
}

#[test]
fn schemas_have_to_be_structural() {
    let mut definition =
        widget(json!({"type":"object","properties":{"a":{},"b":{"type":"array"}}}));
    default(&mut definition);
    let at = "spec.validation.openAPIV3Schema";
    check(
        &definition,
        &[
            &format!(
                "{at}.properties[a].type: Required value: must not be empty for specified object fields"
            ),
            &format!("{at}.properties[b].items: Required value: must be specified"),
        ],
    );
    let mut definition = widget(
        json!({"type":"object","properties":{"a":{"type":"array","x-kubernetes-list-type":"map",
        "x-kubernetes-list-map-keys":["k"],"items":{"type":"object","properties":{"k":{"type":"string"}}}}}}),
    );
    default(&mut definition);
    check(
        &definition,
        &[&format!(
            "{at}.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
        )],
    );
}

#[test]
fn specs_need_one_storage_version_and_proper_names() {
    let mut definition = widget(json!({"type":"object"}));
    default(&mut definition);
    definition["spec"]["versions"][0]["storage"] = json!(false);
    definition["spec"]["scope"] = json!("Galaxy");
    definition["spec"]["group"] = json!("nodots");
    let texts: Vec<String> = validate(&definition)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        texts[0],
        "spec.group: Invalid value: \"nodots\": should be a domain with at least one dot"
    );
    assert_eq!(
        texts[1],
        "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\""
    );
    assert!(texts[2].ends_with("must have exactly one version marked as storage version"));
}

#[test]
fn names_are_accepted_once() {
    let mut first = widget(json!({"type":"object"}));
    default(&mut first);
    accept_names(&mut first, [], "t");
    assert!(is_true(&first, "Established") && is_true(&first, "NamesAccepted"));
    assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
    let mut second = first.clone();
    second["spec"]["names"]["plural"] = json!("gadgets");
    second["status"] = json!({});
    accept_names(&mut second, [&first], "t");
    assert!(!is_true(&second, "Established"));
    let accepted = &second["status"]["conditions"][0];
    assert_eq!(
        (accepted["reason"].as_str(), accepted["message"].as_str()),
        (
            Some("ListKindConflict"),
            Some("\"WidgetList\" is already in use")
        )
    );
}

/// Random definitions, each with the errors that upstream's validation finds (order aside; objects quoted in errors are left out).
const RANDOM: &str = include_str!("tests/definitions.jsonl");

#[test]
fn random_definitions_are_judged_as_upstream_does() {
    let whole =
        regex::Regex::new(r"(?s)Invalid value: (\[\{|\{).*?(\}\]|\}): ").expect("a pattern");
    for line in RANDOM.lines() {
        let case: Value = serde_json::from_str(line).expect("a line of JSON");
        let mut definition = case["definition"].clone();
        initial_status(&mut definition);
        default(&mut definition);
        let mut found: Vec<String> = validate(&definition)
            .iter()
            .map(|error| {
                let text = error.to_string();
                whole.replace(&text, "Invalid value: OBJECT: ").into_owned()
            })
            .filter(|text| !text.starts_with("metadata."))
            .collect();
        found.sort();
        let expected: Vec<&str> = case["errors"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        assert_eq!(found, expected, "{}", case["definition"]);
    }
}
