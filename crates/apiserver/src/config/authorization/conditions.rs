//! CEL conditions on a SubjectAccessReview: a webhook is called for the requests that meet them.

use std::sync::LazyLock;

use allot_apimachinery::field::joined;
use allot_cel::env::{DeclType, Env};
use allot_cel::program::{Limits, Program};
use allot_cel::types::Type;
use allot_cel::value::Value as Cel;
use serde_json::{Map, Value};

use crate::expression::ExpressionError;
use crate::expression::types::{UNLIMITED, text, texts, texts_by_key};

/// Conditions that requests must meet; none: all requests do.
#[derive(Debug, Default)]
pub struct Conditions(Vec<Condition>);

/// One condition.
#[derive(Debug)]
pub struct Condition {
    text: String,
    program: Program,
}

fn selector(name: &str) -> DeclType {
    let requirement = DeclType::object(
        "kubernetes.SelectorRequirement",
        [("key", text()), ("operator", text()), ("values", texts())],
    );
    DeclType::object(
        name,
        [
            ("rawSelector", text()),
            ("requirements", DeclType::list(requirement, UNLIMITED)),
        ],
    )
}

/// The variable `request`: the `spec` of a review.
static REQUEST: LazyLock<DeclType> = LazyLock::new(|| {
    let resource = DeclType::object(
        "kubernetes.ResourceAttributes",
        [
            ("namespace", text()),
            ("verb", text()),
            ("group", text()),
            ("version", text()),
            ("resource", text()),
            ("subresource", text()),
            ("name", text()),
            (
                "fieldSelector",
                selector("kubernetes.FieldSelectorAttributes"),
            ),
            (
                "labelSelector",
                selector("kubernetes.LabelSelectorAttributes"),
            ),
        ],
    );
    let other = DeclType::object(
        "kubernetes.NonResourceAttributes",
        [("path", text()), ("verb", text())],
    );
    DeclType::object(
        "kubernetes.SubjectAccessReviewSpec",
        [
            ("resourceAttributes", resource),
            ("nonResourceAttributes", other),
            ("user", text()),
            ("groups", texts()),
            ("extra", texts_by_key()),
            ("uid", text()),
        ],
    )
});

static ENV: LazyLock<Env> = LazyLock::new(|| {
    Env::kubernetes()
        .with_object(&REQUEST)
        .with_variable("request", REQUEST.clone())
});

impl Condition {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Upstream's text for one that does not compile, or is no bool.
    pub fn compile(text: &str) -> Result<Self, ExpressionError> {
        let checked = ENV.compile(text).map_err(ExpressionError::Compile)?;
        if *checked.output() != Type::Bool {
            return Err(ExpressionError::ResultType {
                expected: "bool",
                found: checked.output().runtime_name(),
            });
        }
        let program = Program::new(&checked).map_err(ExpressionError::Instantiate)?;
        Ok(Condition {
            text: text.to_owned(),
            program,
        })
    }
}

impl Conditions {
    /// All of these.
    pub fn new(conditions: Vec<Condition>) -> Self {
        Conditions(conditions)
    }

    /// Whether the `spec` of a review meets all conditions. One that is not met counts more than others that fail.
    ///
    /// # Errors
    /// The errors of those that fail.
    pub(crate) fn met(&self, spec: &Value, limits: &Limits<'_>) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let spec = complete(spec);
        let variables = [REQUEST.value(&spec)];
        let mut errors = Vec::new();
        for condition in &self.0 {
            let why = match condition.program.evaluate(&variables, limits).result {
                Ok(Cel::Bool(true)) => continue,
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(other) => format!("it is a {}, and must be a bool", other.type_name()),
                Err(error) => error.to_string(),
            };
            let text = &condition.text;
            errors.push(format!(
                "cel evaluation error: expression '{text}' resulted in error: {why}"
            ));
        }
        joined(&errors).map_or(Ok(true), Err)
    }
}

/// The `spec` with its texts that are empty, which a review leaves out and expressions need not look for.
fn complete(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let add = |map: &mut Map<String, Value>, keys: &[&str], value: Value| {
        for key in keys {
            map.entry(*key).or_insert_with(|| value.clone());
        }
    };
    let empty = || Value::from("");
    if let Value::Object(spec) = &mut spec {
        add(spec, &["user", "uid"], empty());
        add(spec, &["groups"], Vec::<Value>::new().into());
        add(spec, &["extra"], Map::new().into());
        if let Some(Value::Object(asked)) = spec.get_mut("nonResourceAttributes") {
            add(asked, &["path", "verb"], empty());
        }
        if let Some(Value::Object(asked)) = spec.get_mut("resourceAttributes") {
            let keys = [
                "namespace",
                "verb",
                "group",
                "version",
                "resource",
                "subresource",
                "name",
            ];
            add(asked, &keys, empty());
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn met(expressions: &[&str], spec: &Value) -> Result<bool, String> {
        let compiled = expressions.iter().map(|it| Condition::compile(it));
        let compiled = compiled.collect::<Result<Vec<_>, _>>();
        let conditions = Conditions::new(compiled.map_err(|error| error.to_string())?);
        conditions.met(spec, &Limits::default())
    }

    #[test]
    fn conditions_see_the_review() {
        let pods = json!({"user": "ann", "resourceAttributes": {"verb": "list", "resource": "pods", "labelSelector":
            {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}}});
        let path = json!({"user": "ann", "groups": ["g"], "extra": {"k": ["v"]},
            "nonResourceAttributes": {"verb": "get", "path": "/x"}});
        for (expression, of_pods, of_path) in [
            ("has(request.resourceAttributes)", true, false),
            ("request.user == 'ann' && request.uid == ''", true, true),
            ("'g' in request.groups", false, true),
            ("request.extra.exists(k, k == 'k')", false, true),
            (
                "request.?resourceAttributes.namespace.orValue('x') == ''",
                true,
                false,
            ),
            (
                "request.?resourceAttributes.labelSelector.requirements.orValue([]).exists(r, r.key == 'a')",
                true,
                false,
            ),
            (
                "has(request.nonResourceAttributes) && request.nonResourceAttributes.path == '/x'",
                false,
                true,
            ),
        ] {
            assert_eq!(met(&[expression], &pods), Ok(of_pods), "{expression}");
            assert_eq!(met(&[expression], &path), Ok(of_path), "{expression}");
        }
    }

    #[test]
    fn one_that_is_not_met_counts_more_than_errors() {
        let spec = json!({"user": "ann"});
        let fails = "request.resourceAttributes.name == 'x'";
        assert_eq!(met(&[fails, "request.user == 'bob'"], &spec), Ok(false));
        let error = met(&[fails, "request.user == 'ann'"], &spec).unwrap_err();
        let start = format!("cel evaluation error: expression '{fails}' resulted in error: ");
        assert!(error.starts_with(&start), "{error}");
    }

    /// A group of users with long names must not keep the server busy.
    #[test]
    fn an_expression_that_costs_too_much_ends() {
        let spec = json!({"groups": vec!["g"; 2000]});
        let all = "request.groups.all(a, request.groups.all(b, request.groups.all(c, a + b != c)))";
        assert!(met(&[all], &spec).is_err());
    }

    #[test]
    fn expressions_are_bools_about_the_review() {
        for (expression, start) in [
            ("request.none == 'x'", "compilation failed: "),
            ("object.x", "compilation failed: "),
            ("request.user", "must evaluate to bool but got string"),
            ("'", "compilation failed: "),
        ] {
            let error = met(&[expression], &json!({})).expect_err(expression);
            assert!(error.starts_with(start), "{expression}: {error}");
        }
    }
}
