use crate::env::{DeclType, Env};

fn env() -> Env {
    let spec = DeclType::object(
        "Spec",
        [
            ("name", DeclType::string(20)),
            ("replicas", DeclType::int()),
            ("tags", DeclType::list(DeclType::string(10), 5)),
            (
                "labels",
                DeclType::map(DeclType::string(10), DeclType::string(20), 8),
            ),
        ],
    );
    Env::kubernetes()
        .with_bindings()
        .with_object(&spec)
        .with_variable("self", spec.clone())
        .with_variable("oldSelf", spec)
}

/// Type of an expression, or its errors without the lines that show the place.
fn check(source: &str, expected: &str) {
    let result = match env().compile(source) {
        Ok(checked) => checked.output().to_string(),
        Err(error) => {
            let text = error.to_string();
            let lines: Vec<_> = text
                .lines()
                .filter_map(|line| line.strip_prefix("ERROR: <input>:"))
                .collect();
            lines.join("; ")
        }
    };
    assert_eq!(result, expected, "{source}");
}

#[test]
fn the_type_of_an_expression_is_inferred() {
    check("self.replicas + 1", "int");
    check("self.tags.map(t, t.size())", "list(int)");
    check("self.labels['a'].startsWith('b')", "bool");
    check("self.?name", "optional_type(string)");
    check("self.tags[?0].orValue('x')", "string");
    check("{'a': 1}.transformMap(k, v, v > 0)", "map(string, bool)");
    check(
        "cel.bind(x, self.tags, x.filter(t, t != ''))",
        "list(string)",
    );
    check("self.tags.sortBy(t, t.size())", "list(string)");
    check("[]", "list(dyn)");
    check("type(1)", "type(int)");
}

#[test]
fn errors_are_upstreams() {
    check(
        "1 + 'a'",
        "1:3: found no matching overload for '_+_' applied to '(int, string)'",
    );
    check(
        "'a'.size(1)",
        "1:9: found no matching overload for 'size' applied to 'string.(int)'",
    );
    check("self.nope", "1:5: undefined field 'nope'");
    check(
        "nope",
        "1:1: undeclared reference to 'nope' (in container '')",
    );
    check(
        "self.nope()",
        "1:10: undeclared reference to 'nope' (in container '')",
    );
    check(
        "self.name.x",
        "1:10: type 'string' does not support field selection",
    );
    check("1 && true", "1:1: expected type 'bool' but found 'int'");
    check("[1, 'a']", "1:5: expected type 'int' but found 'string'");
    check(
        "{'a': 1, 'b': 'c'}",
        "1:15: expected type 'int' but found 'string'",
    );
    check(
        "'a'.all(x, true)",
        "1:1: expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)",
    );
    check("duration('x')", "1:10: invalid duration argument");
    check("timestamp('x')", "1:11: invalid timestamp argument");
    check("self.name.matches('[')", "1:19: invalid matches argument");
    check(
        "'%d'.format(['a'])",
        "1:14: error during formatting: decimal clause can only be used on integers, was given string",
    );
    check(
        "Spec{replicas: 'a'}",
        "1:14: expected type of field 'replicas' is 'int' but provided type is 'string'",
    );
}

#[test]
fn declared_sizes_bound_the_cost() {
    let check = |source: &str, max: u64| {
        let checked = env().compile(source).unwrap();
        assert_eq!(checked.cost(&env()).max, max, "{source}");
    };
    check("self.replicas < 5", 3);
    check("self.name == 'abc'", 3);
    check("self.tags.all(t, t.startsWith('a'))", 28);
    check("self.tags.all(t, self.tags.exists(u, u == t))", 208);
    check("self.labels.all(k, self.labels[k].size() < 5)", 75);
}
