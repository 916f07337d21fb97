use super::*;

/// A rule written as `verbs|groups|resources|names`, or `verbs|url|paths`; `-` is the core group.
fn rule(text: &str) -> Rule {
    let parts: Vec<&str> = text.split('|').collect();
    let words = |at: usize| -> Vec<String> {
        let words = parts
            .get(at)
            .copied()
            .unwrap_or_default()
            .split_whitespace();
        words.map(|word| word.replace('-', "")).collect()
    };
    if parts[1] == "url" {
        return Rule {
            verbs: words(0),
            urls: words(2),
            ..Rule::default()
        };
    }
    Rule {
        verbs: words(0),
        api_groups: words(1),
        resources: words(2),
        resource_names: words(3),
        ..Rule::default()
    }
}

fn check(held: &[&str], wanted: &str, expected: &[&str]) {
    let held: Vec<Rule> = held.iter().map(|text| rule(text)).collect();
    let missing = describe(missing(&held, &[rule(wanted)]));
    assert_eq!(missing, expected, "{held:?} {wanted}");
}

#[test]
fn a_part_is_covered_by_one_rule_or_not_at_all() {
    check(&["get list|-|pods"], "get|-|pods", &[]);
    check(&["get|-|pods", "list|-|pods"], "get list|-|pods", &[]);
    check(
        &["get|-|pods"],
        "get list watch|-|pods",
        &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#],
    );
    check(&["*|*|*"], "get|apps|deployments/scale|web", &[]);
    check(&["*|*|*"], "*|*|*", &[]);
    check(
        &["get list|*|*"],
        "*|*|*",
        &[r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#],
    );
}

#[test]
fn names_and_subresources_narrow_a_rule() {
    check(&["get|-|pods"], "get|-|pods|a", &[]);
    check(&["get|-|pods|a b"], "get|-|pods|a", &[]);
    check(
        &["get|-|pods|a"],
        "get|-|pods",
        &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
    );
    check(&["get|-|*/log"], "get|-|pods/log", &[]);
    check(
        &["get|-|pods"],
        "get|-|pods/log",
        &[r#"{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}"#],
    );
}

#[test]
fn paths_are_covered_by_prefixes() {
    check(&["get|url|/api/*"], "get|url|/api/v1", &[]);
    check(&["get|url|*"], "get|url|/x/*", &[]);
    check(&["get|url|/a**"], "get|url|/ab", &[]);
    check(
        &["get|url|/api"],
        "get|url|/api/v1",
        &[r#"{NonResourceURLs:["/api/v1"], Verbs:["get"]}"#],
    );
    // Everything on resources is nothing on paths.
    check(
        &["*|*|*"],
        "*|url|*",
        &[r#"{NonResourceURLs:["*"], Verbs:["*"]}"#],
    );
}

/// A rule of a few kilobytes with a thousand groups, resources and verbs has a thousand million parts.
#[test]
fn regression_a_rule_with_many_parts_costs_a_bounded_amount_of_work() {
    let many =
        |letter: char| -> Vec<String> { (0..1000).map(|it| format!("{letter}{it}")).collect() };
    let wanted = Rule {
        verbs: many('v'),
        api_groups: many('g'),
        resources: many('r'),
        ..Rule::default()
    };
    let found = missing(&[rule("get|-|pods")], std::slice::from_ref(&wanted));
    assert!(
        found.more && found.parts.len() < 20_000,
        "{}",
        found.parts.len()
    );
    let text = describe(found).join("\n");
    assert!(text.len() < 2 * MOST_TEXT, "{}", text.len());
    assert!(text.ends_with("\nand more"), "{text}");
    // Even what is held is not compared without an end.
    let found = missing_within(&[rule("*|*|*")], &[wanted], 1_000_000);
    assert!(found.parts.is_empty() && !found.is_empty());
}
