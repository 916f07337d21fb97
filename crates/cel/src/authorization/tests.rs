use std::sync::Arc;

use super::*;
use crate::{
    env::{DeclType, Env},
    program::{Limits, Program},
    types::Type,
};

/// Evaluates; every check is answered by `decide`. The texts of errors, and of the checks that came up.
fn run(
    expression: &str,
    decide: impl Fn(&Check) -> Decision,
) -> (Result<String, String>, Vec<Check>) {
    let object = |name| DeclType::scalar(Type::object(name), 0);
    let env = Env::kubernetes()
        .with_variable("authorizer", object("kubernetes.authorization.Authorizer"))
        .with_variable(
            "authorizer.requestResource",
            object("kubernetes.authorization.ResourceCheck"),
        );
    let program = Program::new(&env.compile(expression).unwrap()).unwrap();
    let answers = Arc::new(Answers::default());
    let request = Check {
        resource: "nodes".to_owned(),
        name: "n".to_owned(),
        ..Check::default()
    };
    let variables = [answers.authorizer(), answers.resource_check(request)];
    let mut asked = Vec::new();
    loop {
        let outcome = program.evaluate(&variables, &Limits::default());
        let wanted = answers.wanted();
        if wanted.is_empty() {
            let result = outcome.result.map(|value| value.to_string());
            return (result.map_err(|error| error.to_string()), asked);
        }
        for check in wanted {
            answers.put(check.clone(), decide(&check));
            asked.push(check);
        }
    }
}

fn allowed(_: &Check) -> Decision {
    Decision {
        allowed: true,
        reason: "because".to_owned(),
        error: String::new(),
    }
}

#[test]
fn what_is_said_arrives_in_the_check() {
    let (result, asked) = run(
        "authorizer.serviceAccount('s', 'a').group('apps').resource('deployments').subresource('scale').namespace('n')\
         .name('x').fieldSelector('a=b').labelSelector('c=d').check('update').reason()",
        allowed,
    );
    assert_eq!(result.as_deref(), Ok("because"));
    let text = str::to_owned;
    let expected = Check {
        account: Some((text("s"), text("a"))),
        path: String::new(),
        group: text("apps"),
        resource: text("deployments"),
        subresource: text("scale"),
        namespace: text("n"),
        name: text("x"),
        fields: text("a=b"),
        labels: text("c=d"),
        verb: text("update"),
    };
    assert_eq!(asked, [expected]);
}

#[test]
fn a_check_is_asked_once_and_only_where_it_decides() {
    let twice = "authorizer.path('/x').check('get').allowed() && authorizer.path('/x').check('get').allowed()";
    let (result, asked) = run(twice, allowed);
    assert_eq!((result.as_deref(), asked.len()), (Ok("true"), 1));
    let (result, asked) = run(
        "true || authorizer.path('/x').check('get').allowed()",
        allowed,
    );
    assert_eq!((result.as_deref(), asked.len()), (Ok("true"), 0));
    let (_, asked) = run("authorizer.requestResource.check('get').allowed()", allowed);
    assert_eq!(
        (asked[0].resource.as_str(), asked[0].name.as_str()),
        ("nodes", "n")
    );
}

#[test]
fn refusals_and_mistakes_are_told() {
    let refuse = |_: &Check| Decision {
        error: "no".to_owned(),
        ..Decision::default()
    };
    let check = "authorizer.path('/x').check('get')";
    for (part, expected) in [
        ("allowed", "false"),
        ("errored", "true"),
        ("error", "no"),
        ("reason", ""),
    ] {
        assert_eq!(
            run(&format!("{check}.{part}()"), refuse).0.as_deref(),
            Ok(expected)
        );
    }
    for (expression, expected) in [
        (
            "authorizer.path(' ').check('get').allowed()",
            "path must not be empty",
        ),
        (
            "authorizer.group('').resource('').check('get').allowed()",
            "resource must not be empty",
        ),
        (
            "authorizer.serviceAccount('n', 'A').path('/').check('get').allowed()",
            "Invalid service account name",
        ),
        (
            "authorizer.serviceAccount('n.m', 'a').path('/').check('get').allowed()",
            "Invalid service account namespace",
        ),
        // Two checks are what one expression can afford.
        (
            "['/a', '/b', '/c'].all(p, authorizer.path(p).check('get').allowed())",
            "operation cancelled: actual cost limit exceeded",
        ),
    ] {
        assert_eq!(
            run(expression, allowed).0.unwrap_err(),
            expected,
            "{expression}"
        );
    }
}
