use super::*;

fn labels(text: &str) -> Labels {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

fn check(selector: &str, object: &str, expected: bool) {
    assert_eq!(
        Selector::parse(selector).unwrap().matches(&labels(object)),
        expected,
        "{selector} on {object}"
    );
}

#[test]
fn string_form_matches() {
    check("", "", true);
    check("a=b", "a=b", true);
    check("a==b,c!=d", "a=b", true);
    check("a!=b", "a=b", false);
    check("a in (b, c)", "a=c", true);
    check("a notin (b,c)", "x=y", true);
    check("a", "a=", true);
    check("!a", "a=1", false);
    check("a>3,a<5", "a=4", true);
    check("a>3", "a=x", false);
    check("a in (,b)", "a=", true);
    check("a=", "a=", true);
    check("in in (in)", "in=in", true);
}

#[test]
fn prints_sorted() {
    assert_eq!(
        Selector::parse("z,a in (y,x),!b,c>1").unwrap().to_string(),
        "a in (x,y),!b,c>1,z"
    );
}

#[test]
fn errors_are_upstreams() {
    let check = |selector: &str, text: &str| {
        assert_eq!(Selector::parse(selector).unwrap_err().to_string(), text)
    };
    check("a=b=c", "found '=', expected: ',' or 'end of string'");
    check(
        "a in b",
        "unable to parse requirement: found 'b' expected: '('",
    );
    check("a,", "found '', expected: identifier after ','");
    check(
        "(",
        "found '(', expected: !, identifier, or 'end of string'",
    );
    check(
        "a ! b",
        "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt",
    );
    check(
        "a>x",
        "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
    );
    assert!(Selector::parse("a in (b").is_err());
    assert!(Selector::parse("-x=1").is_err());
}

#[test]
fn json_form() {
    let json = serde_json::json!({
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["d"]}, {"key": "e", "operator": "Exists"}]
    });
    let selector = LabelSelector::from_json(&json).unwrap();
    assert!(selector.validate(&Path::new("spec")).is_empty());
    let selector = selector.to_selector().unwrap();
    assert!(selector.matches(&labels("a=b,e=1")));
    assert!(!selector.matches(&labels("a=b,c=d,e=1")));
    assert!(!Selector::nothing().matches(&labels("")));

    let bad = LabelSelector {
        match_expressions: vec![LabelSelectorRequirement {
            key: "k".to_owned(),
            operator: "In".to_owned(),
            values: vec![],
        }],
        ..LabelSelector::default()
    };
    assert_eq!(
        bad.validate(&Path::new("s"))[0].to_string(),
        "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
    );
    assert_eq!(
        bad.to_selector().unwrap_err().to_string(),
        "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
    );
}
