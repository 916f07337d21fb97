use super::*;
use crate::env::DeclType;

/// Evaluates without variables: the value as text, or the error, and the cost.
fn run(source: &str) -> (String, u64) {
    let checked = Env::kubernetes()
        .with_bindings()
        .compile(source)
        .unwrap_or_else(|error| panic!("{source}: {error}"));
    let program = Program::new(&checked).unwrap_or_else(|error| panic!("{source}: {error}"));
    let outcome = program.evaluate(&[], &Limits::default());
    let text = match &outcome.result {
        Ok(value) => value.to_string(),
        Err(error) => format!("error: {error}"),
    };
    (text, outcome.cost)
}

fn check(source: &str, value: &str) {
    assert_eq!(run(source).0, value, "{source}");
}

/// Value and cost as cel-go has them.
fn check_cost(source: &str, value: &str, cost: u64) {
    assert_eq!(run(source), (value.to_owned(), cost), "{source}");
}

#[test]
fn arithmetic() {
    check("7 / 2", "3");
    check("-7 % 2", "-1");
    check("9223372036854775807 + 1", "error: integer overflow");
    check("1u - 2u", "error: unsigned integer overflow");
    check("1 / 0", "error: division by zero");
    check("1 % 0", "error: modulus by zero");
    check("'a' + 'b'", "ab");
    check("[1] + [2]", "[1, 2]");
    check(
        "timestamp('2020-01-01T00:00:00Z') + duration('25h')",
        "2020-01-02T01:00:00Z",
    );
    check(
        "string(1e21) + ' ' + string(123456.0) + ' ' + string(0.00001)",
        "1e+21 123456 1e-05",
    );
}

#[test]
fn logic_absorbs_errors() {
    check("1 / 0 == 1 || true", "true");
    check("1 / 0 == 1 && false", "false");
    check("1 / 0 == 1 || false", "error: division by zero");
    check("[0, 1].exists(x, 1 / x > 0)", "true");
    check("[0, 1].all(x, 1 / x > 0)", "error: division by zero");
}

#[test]
fn macros_are_expanded_and_evaluated() {
    check("[1, 2, 3].filter(x, x > 1).map(x, x * 2)", "[4, 6]");
    check("[1, 2].exists_one(x, x == 2)", "true");
    check("{'a': 1}.transformMap(k, v, v + 1)", "{a: 2}");
    check(
        "{'a': 'x', 'b': 'x'}.transformMapEntry(k, v, {v: k})",
        "error: insert failed: key x already exists",
    );
    check("[3, 1, 2].sortBy(x, -x)", "[3, 2, 1]");
    check("cel.bind(x, 1 / 0, true)", "true");
    check("optional.of(1).optMap(x, x + 1).value()", "2");
    check("[?optional.none(), ?optional.of(1)]", "[1]");
    check("has({'a': 1}.b)", "false");
    check("{'a': {'b': 1}}.?a.?c.orValue(7)", "7");
}

#[test]
fn strings() {
    check("'tacocat'.charAt(3)", "o");
    check("'hello'.indexOf('l', 3)", "3");
    check("'hello'.lastIndexOf('l', 2)", "2");
    check("'äöü'.substring(1, 2)", "ö");
    check("'a,b,c'.split(',', 2)", "[a, b,c]");
    check("'hello'.replace('', '-')", "-h-e-l-l-o-");
    check("strings.quote('a\\n')", "\"a\\n\"");
    check("'x'.substring(2)", "error: index out of range: 2");
    check(
        "'%s %d %.1f %x %b'.format(['a', 1, 1234.55, 255, 5])",
        "a 1 1,234.5 ff 101",
    );
    check("'abc 123'.find('[0-9]+')", "123");
    check("'\u{660}'.matches('^\\\\d$')", "false");
}

#[test]
fn lists_and_sets() {
    check("[3, 1, 2].sort()", "[1, 2, 3]");
    check("[[1], [2, 3]].flatten()", "[1, 2, 3]");
    check("[1, 2, 2].distinct()", "[1, 2]");
    check(
        "[1, 2, 3].slice(1, 9)",
        "error: cannot slice(1, 9), list is length 3",
    );
    check("[1, 2].sum() + [1, 5].max()", "8");
    check("sets.equivalent([1, 2], [2, 1, 1])", "true");
    check("lists.range(3)", "[0, 1, 2]");
    check("dyn(1.0) in [1, 2]", "true");
}

#[test]
fn kubernetes_types() {
    check("quantity('1.5Gi').isGreaterThan(quantity('1500M'))", "true");
    check("quantity('1.5Gi').isInteger()", "false");
    check("quantity('1').add(2)", "3");
    check("semver('1.2.3-a').isLessThan(semver('1.2.3'))", "true");
    check("semver('v1', true)", "1.0.0");
    check("cidr('10.0.0.0/8').containsIP('10.1.2.3')", "true");
    check(
        "ip('::ffff:1.2.3.4')",
        "error: IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed",
    );
    check("url('https://a.b:80/c?d=e').getHost()", "a.b:80");
    check("format.dns1123Label().validate('a').hasValue()", "false");
    check("quantity('1') == dyn('x')", "error: no such overload");
}

#[test]
fn costs_are_upstreams() {
    check_cost("true", "true", 0);
    check_cost("[1, 2, 3].all(x, x > 0)", "true", 16);
    check_cost("'hello world'.contains('world')", "true", 2);
    check_cost("'hello'.matches('h.*')", "true", 1);
    check_cost("quantity('1Gi') == quantity('1024Mi')", "true", 3);
    check_cost("[1, 2, 3].slice(0, 2)", "[1, 2]", 13);
    check_cost("sets.contains([1, 2, 3], [1, 2])", "true", 7);
    check_cost("1 in [1, 2, 3]", "true", 0);
    check_cost("1 + 2", "3", 1);
}

#[test]
fn limits_stop_an_evaluation() {
    let checked = Env::kubernetes()
        .with_bindings()
        .compile("lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))")
        .unwrap();
    let program = Program::new(&checked).unwrap();
    let outcome = program.evaluate(
        &[],
        &Limits {
            cost: 10_000,
            interrupted: None,
        },
    );
    let text = "operation cancelled: actual cost limit exceeded";
    assert_eq!(
        outcome.result.unwrap_err(),
        EvalError::Cancelled(text.to_owned())
    );

    let interrupted = || true;
    let outcome = program.evaluate(
        &[],
        &Limits {
            interrupted: Some(&interrupted),
            ..Limits::default()
        },
    );
    assert_eq!(
        outcome.result.unwrap_err(),
        EvalError::Cancelled("operation interrupted".to_owned())
    );
}

#[test]
fn reads_json_with_declared_types() {
    let ty = DeclType::object(
        "Spec",
        [
            ("when", DeclType::scalar(Type::Timestamp, 30)),
            ("for", DeclType::scalar(Type::Duration, 30)),
            ("ratio", DeclType::scalar(Type::Double, 0)),
            ("__dash__", DeclType::int().from_property("-")),
            (
                "__namespace__",
                DeclType::string(10).from_property("namespace"),
            ),
            ("tags", DeclType::list(DeclType::string(10), 5)),
        ],
    );
    let env = Env::kubernetes().with_object(&ty).with_variable("self", ty);
    let json = serde_json::json!({
        "when": "2020-01-01T00:00:00Z", "for": "90s", "ratio": 1, "-": 5, "tags": ["a", "b"], "hidden": 1,
        "namespace": "n",
    });
    for source in [
        "self.when.getFullYear() == 2020",
        "self.for == duration('1m30s')",
        "self.ratio == 1.0",
        "self.__dash__ == 5",
        "self.__namespace__ == 'n'",
        "has(self.namespace) && self.namespace == 'n'",
        "self.tags.exists(t, t == 'b') && self.tags == ['a', 'b']",
        "has(self.tags) && !self.?tags[?9].hasValue()",
    ] {
        let checked = env
            .compile(source)
            .unwrap_or_else(|error| panic!("{source}: {error}"));
        let program = Program::new(&checked).unwrap();
        let variables = [env.variable_type("self").unwrap().value(&json)];
        let outcome = program.evaluate(&variables, &Limits::default());
        assert!(
            matches!(outcome.result, Ok(Value::Bool(true))),
            "{source}: {:?}",
            outcome.result
        );
    }
}

#[test]
fn evaluation_is_deterministic() {
    let source = "{'b': 1, 'a': 2, 'c': 3}.map(k, k)";
    let first = run(source);
    assert!((0..20).all(|_| run(source) == first));
    assert_eq!(first.0, "[a, b, c]");
}

#[test]
fn time_zones_are_those_of_the_program() {
    let at = |zone: &str| format!("timestamp('2024-07-01T00:30:00Z').getHours('{zone}')");
    check(&at("America/New_York"), "20");
    check(&at("Asia/Kolkata"), "6");
    check(&at("-02:30"), "22");
    check(&at("Local"), "0");
    check(
        &at("america/new_york"),
        "error: unknown time zone america/new_york",
    );
    check(&at("../etc/passwd"), "error: time: invalid location name");
}

#[test]
fn authorization_is_declared_but_there_is_no_authorizer() {
    check_cost(
        "dyn('a').check('get')",
        "error: no such overload: check(string, string)",
        350_000,
    );
    check(
        "dyn('a').path('/healthz')",
        "error: no such overload: path(string, string)",
    );
    let error = Env::kubernetes()
        .compile("'a'.path('/healthz')")
        .unwrap_err();
    let text = "found no matching overload for 'path' applied to 'string.(string)'";
    assert!(error.to_string().contains(text), "{error}");
}
