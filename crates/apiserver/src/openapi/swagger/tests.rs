use super::*;

const GROUP: &str = "ext.example.com";

/// A document with a path, and the definitions.
fn document(definitions: &Value) -> Value {
    let thing = json!({"$ref": "#/definitions/Thing"});
    json!({
        "paths": {"/apis/ext.example.com/v1/things": {"get": {"responses": {"200": {"schema": thing}}}}},
        "definitions": definitions,
    })
}

fn reduced(document: &Value) -> Result<Value> {
    reduce(document.to_string().as_bytes(), GROUP, "v1")
}

fn thing(schema: Value) -> Result<Value> {
    let made = reduced(&document(&json!({"Thing": schema})))?;
    Ok(made["definitions"]["Thing"].clone())
}

#[test]
fn only_own_paths_and_what_they_use_is_taken_over() {
    let own = |kind: &str| json!({"group": GROUP, "kind": kind, "version": "v1"});
    let mut all = document(&json!({
        "Thing": {"type": ["object"], "properties": {"part": {"$ref": "#/definitions/Part", "type": "object"}}, "more": 1},
        "Part": {"items": {"$ref": "#/definitions/Part"}, "type": "array", "x-more": {"a": [1, "b"]}},
        "Kind": {KINDS: [own("Kind"), {"group": "apps", "kind": "Deployment", "version": "v1"}, 5]},
        "Other": {"type": "string"},
    }));
    let operation = json!({"operationId": "x", "responses": {}, KINDS: {"group": "", "kind": "Pod", "version": "v1"}});
    for path in [
        "/api/v1/pods",
        "/apis/ext.example.com/v10/things",
        "/apis/ext.example.com/",
        "/apis/other/v1/things",
    ] {
        all["paths"][path] = json!({"get": operation});
    }
    all["paths"]["/apis/ext.example.com/v1/others"] = json!({"post": operation});
    let expected = json!({
        "paths": {
            "/apis/ext.example.com/v1/others": {"post": {"operationId": "x", "responses": {}}},
            "/apis/ext.example.com/v1/things": {"get": {"responses": {
                "200": {"description": "", "schema": {"$ref": "#/definitions/Thing"}},
            }}},
        },
        "definitions": {
            "Kind": {KINDS: [own("Kind")]},
            "Part": {"items": {"$ref": "#/definitions/Part"}, "type": "array", "x-more": {"a": [1, "b"]}},
            "Thing": {"type": "object", "properties": {"part": {"$ref": "#/definitions/Part"}}},
        },
    });
    assert_eq!(reduced(&all), Ok(expected));
    let empty = json!({"paths": {}, "definitions": {}});
    assert_eq!(reduced(&json!({"kind": "Status"})), Ok(empty));
}

/// What the parser of kubectl refuses would keep it from reading any schema.
#[test]
fn schemas_are_such_as_clients_read() {
    for (schema, expected) in [
        (
            json!({"type": "array"}),
            json!({"type": "array", "items": {}}),
        ),
        (
            json!({"type": "array", "items": [{}, {}]}),
            json!({"type": "array", "items": {}}),
        ),
        (json!({"type": ["string", "null"]}), json!({})),
        (
            json!({"type": "string", "nullable": true, "oneOf": [5]}),
            json!({"type": "string"}),
        ),
        (
            json!({"type": "file", "format": "x"}),
            json!({"format": "x"}),
        ),
        (
            json!({"$ref": "", "type": "string"}),
            json!({"type": "string"}),
        ),
        (
            json!({"additionalProperties": false, "default": null}),
            json!({"additionalProperties": false}),
        ),
    ] {
        assert_eq!(thing(schema.clone()), Ok(expected), "{schema}");
    }
}

#[test]
fn a_document_that_clients_could_not_read_is_refused() {
    for (schema, expected) in [
        (json!(5), Refused::Type("schema")),
        (json!({"type": 5}), Refused::Type("type")),
        (json!({"properties": []}), Refused::Type("properties")),
        (json!({"properties": {"a": "b"}}), Refused::Type("schema")),
        (json!({"maxLength": 1.5}), Refused::Type("maxLength")),
        (json!({"required": ["a", 1]}), Refused::Type("required")),
        (json!({"description": ["a"]}), Refused::Type("description")),
        (json!({"$ref": 5}), Refused::Type("$ref")),
        (json!({"$ref": "#/definitions/Nothing"}), Refused::Reference),
        (
            json!({"$ref": "https://192.0.2.1/a.json"}),
            Refused::Reference,
        ),
        (json!({"$ref": "#/paths/~1api"}), Refused::Reference),
        (json!({"description": "a\u{7f}"}), Refused::Characters),
        (json!({"default": {"\u{feff}": 1}}), Refused::Characters),
        (json!({"properties": {"a\u{0}": {}}}), Refused::Characters),
        (json!({"enum": [["\u{9f}"]]}), Refused::Characters),
        (json!({"properties": {"a".repeat(2000): {}}}), Refused::Size),
        (json!({"description": "a".repeat(MOST)}), Refused::Size),
    ] {
        let text: String = schema.to_string().chars().take(80).collect();
        assert_eq!(thing(schema), Err(expected), "{text}");
    }
    for wrong in ["", "nul", "{\"paths\": ", "\u{0}"] {
        assert_eq!(reduce(wrong.as_bytes(), GROUP, "v1"), Err(Refused::Syntax));
    }
    assert_eq!(reduced(&json!({"paths": []})), Err(Refused::Type("paths")));
}

#[test]
fn parameters_are_such_as_clients_read() {
    let with = |parameter: Value| {
        let mut all = document(&json!({"Thing": {}}));
        all["paths"]["/apis/ext.example.com/v1/things"]["get"]["parameters"] = json!([parameter]);
        let made = reduced(&all)?;
        Ok(made["paths"]["/apis/ext.example.com/v1/things"]["get"]["parameters"][0].clone())
    };
    for (parameter, expected) in [
        (
            json!({"name": "a", "in": "path", "type": "file", "schema": {"type": 5}, "required": false}),
            json!({"name": "a", "in": "path", "type": "string", "required": true}),
        ),
        (
            json!({"name": "a", "in": "body", "type": "x", "schema": {}}),
            json!({"name": "a", "in": "body", "schema": {}}),
        ),
    ] {
        assert_eq!(with(parameter), Ok(expected));
    }
    for parameter in [
        json!({"name": "a"}),
        json!({"in": "query"}),
        json!({"name": "a", "in": "formData"}),
        json!({"name": "a", "in": "body"}),
        json!("a"),
    ] {
        let refused = Err(Refused::Type("parameter"));
        assert_eq!(with(parameter.clone()), refused, "{parameter}");
    }
}

/// Whatever nests deeply, whole documents do not: clients read 128 levels.
#[test]
fn a_deep_document_is_refused_and_deeper_ones_do_not_exhaust_the_stack() {
    let nested = |open: &str, close: &str, levels: usize| {
        format!(
            "{{\"paths\": {{\"/apis/ext.example.com/v1/a\": {{\"get\": {{\"responses\": {{\"200\": {{\"schema\": {}{{}}{}}}}}}}}}}}}}",
            open.repeat(levels),
            close.repeat(levels)
        )
    };
    for (open, close) in [
        ("{\"items\": ", "}"),
        ("{\"properties\": {\"a\": ", "}}"),
        ("{\"allOf\": [", "]}"),
        ("{\"x-a\": ", "}"),
        ("{\"default\": {\"a\": ", "}}"),
        ("{\"additionalProperties\": ", "}"),
    ] {
        let read = |levels| reduce(nested(open, close, levels).as_bytes(), GROUP, "v1");
        assert!(read(8).is_ok(), "{open}");
        assert_eq!(read(100_000), Err(Refused::Syntax), "{open}");
    }
    let deep = nested("{\"items\": ", "}", 100);
    let read = reduce(deep.as_bytes(), GROUP, "v1");
    assert_eq!(read, Err(Refused::Depth));
}

/// The attack: a small document that becomes a large one, by a parameter that is used many times.
#[test]
fn parameters_that_are_written_out_count_each_time() {
    let text = "a".repeat(64 << 10);
    let used = vec![json!({"$ref": "#/parameters/large"}); 1000];
    let mut all = document(&json!({"Thing": {}}));
    all["parameters"] = json!({"large": {"name": "a", "in": "query", "description": text}});
    let get = &mut all["paths"]["/apis/ext.example.com/v1/things"]["get"];
    get["parameters"] = used[..10].into();
    assert!(reduced(&all).is_ok());
    all["paths"]["/apis/ext.example.com/v1/things"]["get"]["parameters"] = used.into();
    assert_eq!(reduced(&all), Err(Refused::Size));
}

#[test]
fn parameters_are_those_of_requests() {
    let mut all = document(&json!({"Thing": {}}));
    all["parameters"] = json!({"same": {"$ref": "#/parameters/same"}});
    for reference in [
        "#/parameters/same",
        "#/parameters/none",
        "#/definitions/Thing",
    ] {
        let get = &mut all["paths"]["/apis/ext.example.com/v1/things"]["get"];
        get["parameters"] = json!([{"$ref": reference}]);
        assert!(reduced(&all).is_err(), "{reference}");
    }
}
