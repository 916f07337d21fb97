//! The CEL expressions of an issuer: about the claims of a token, and about the user that they make.

use std::sync::LazyLock;

use allot_cel::env::{DeclType, Env, RESERVED};
use allot_cel::program::{Checked, Limits, Program};
use allot_cel::types::Type;
use allot_cel::value::{Key, List, ListSource, Map, MapSource, Value as Cel};
use serde_json::Value;

use crate::expression::ExpressionError;
use crate::expression::types::{UNLIMITED, text, user_info};

/// What all expressions about one token may cost together; one of them may cost a tenth of it.
pub(crate) const BUDGET: u64 = 10_000_000;

/// With the variable `claims`.
static CLAIMS: LazyLock<Env> = LazyLock::new(|| {
    let any = DeclType::scalar(Type::Dyn, UNLIMITED);
    let claims = DeclType::map(text(), any, UNLIMITED);
    Env::kubernetes().with_variable("claims", claims)
});

/// With the variable `user`.
static USER: LazyLock<Env> = LazyLock::new(|| {
    let user = user_info();
    Env::kubernetes()
        .with_object(&user)
        .with_variable("user", user)
});

/// What an expression is about, and what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A value out of claims, of any type: which one is known when it is there.
    Mapping,
    /// A bool about claims.
    ClaimRule,
    /// A bool about the user.
    UserRule,
}

/// An expression that compiles.
#[derive(Debug)]
pub(crate) struct Expression {
    pub text: String,
    program: Program,
}

impl Expression {
    /// Compiles an expression; the checked form tells what it reads.
    ///
    /// # Errors
    /// Upstream's text for one that does not compile or is no bool where one is needed.
    pub(super) fn compile(text: &str, purpose: Purpose) -> Result<(Self, Checked), String> {
        let env = match purpose {
            Purpose::UserRule => &*USER,
            Purpose::Mapping | Purpose::ClaimRule => &*CLAIMS,
        };
        let checked = env
            .compile(text)
            .map_err(|error| ExpressionError::Compile(error).to_string())?;
        if purpose != Purpose::Mapping && *checked.output() != Type::Bool {
            return Err("must evaluate to bool".to_owned());
        }
        let program = Program::new(&checked)
            .map_err(|error| ExpressionError::Instantiate(error).to_string())?;
        let text = text.to_owned();
        Ok((Expression { text, program }, checked))
    }

    /// What `read` makes of the value for this `claims` or `user`. The cost is taken from the budget.
    ///
    /// # Errors
    /// Upstream's text if there is no value, and what `read` says.
    pub(crate) fn evaluate<T>(
        &self,
        variable: &Object,
        budget: &mut u64,
        read: impl FnOnce(&Cel<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let variables = [Cel::Map(Map::Source(variable, 0))];
        let limits = Limits {
            cost: Limits::default().cost.min(*budget),
            ..Limits::default()
        };
        let outcome = self.program.evaluate(&variables, &limits);
        *budget = budget.saturating_sub(outcome.cost);
        match outcome.result {
            Ok(value) => read(&value),
            Err(error) => Err(format!(
                "expression '{}' resulted in error: {error}",
                self.text
            )),
        }
    }
}

/// A string, or a list of strings; those that are empty, and null, count as absent.
///
/// # Errors
/// Upstream's text for other values.
pub(crate) fn strings(value: &Cel<'_>) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    let mut found = Vec::new();
    let mut add = |value: &Cel<'_>| {
        let text = value.as_str().ok_or_else(wrong)?;
        if !text.is_empty() {
            found.push(text.to_owned());
        }
        Ok::<_, String>(())
    };
    match value {
        Cel::Null => {}
        Cel::List(list) => list.iter().try_for_each(|item| add(&item))?,
        other => add(other)?,
    }
    Ok(found)
}

/// An object for expressions, as upstream shows JSON to them: all numbers are doubles, and names that are no identifiers are
/// also found by their escaped form.
#[derive(Debug)]
pub(crate) struct Object {
    /// Sorted by name.
    fields: Vec<(String, Node)>,
    /// A name that is escaped wrongly is not found, even if it is there.
    is_strict: bool,
}

#[derive(Debug)]
enum Node {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Nodes),
    Object(Object),
}

#[derive(Debug)]
struct Nodes(Vec<Node>);

impl Object {
    /// The variable for these claims, or for this user.
    pub(crate) fn variable(fields: &serde_json::Map<String, Value>) -> Self {
        Object {
            is_strict: true,
            ..Object::new(fields)
        }
    }

    /// The values were read with a limit for how deep they nest.
    fn new(fields: &serde_json::Map<String, Value>) -> Self {
        let fields = fields.iter();
        let fields = fields.map(|(key, value)| (key.clone(), Node::new(value)));
        let mut fields: Vec<_> = fields.collect();
        fields.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Object {
            fields,
            is_strict: false,
        }
    }
}

impl Node {
    fn new(value: &Value) -> Self {
        match value {
            Value::Null => Node::Null,
            Value::Bool(value) => Node::Bool(*value),
            Value::Number(number) => Node::Number(number.as_f64().unwrap_or(f64::NAN)),
            Value::String(text) => Node::Text(text.clone()),
            Value::Array(items) => Node::List(Nodes(items.iter().map(Node::new).collect())),
            Value::Object(fields) => Node::Object(Object::new(fields)),
        }
    }

    fn value(&self) -> Cel<'_> {
        match self {
            Node::Null => Cel::Null,
            Node::Bool(value) => Cel::Bool(*value),
            Node::Number(number) => Cel::Double(*number),
            Node::Text(text) => Cel::str(text),
            Node::List(items) => Cel::List(List::Source(items)),
            Node::Object(object) => Cel::Map(Map::Source(object, 0)),
        }
    }
}

impl ListSource for Nodes {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> Cel<'_> {
        self.0[index].value()
    }
}

impl MapSource for Object {
    fn len(&self, _part: u32) -> usize {
        self.fields.len()
    }

    fn find(&self, _part: u32, key: Key<'_>) -> Option<Cel<'_>> {
        let name = key.text();
        let unescaped = unescaped(name);
        let name = match &unescaped {
            Some(unescaped) => unescaped.as_str(),
            None if self.is_strict => return None,
            None => name,
        };
        let found = self
            .fields
            .binary_search_by(|(key, _)| key.as_str().cmp(name));
        found.ok().map(|index| self.fields[index].1.value())
    }

    fn key(&self, _part: u32, index: usize) -> &str {
        &self.fields[index].0
    }
}

/// The name that an identifier stands for, as Kubernetes escapes property names: `__dot__`, `__dash__`, `__slash__`,
/// `__underscores__`, and reserved words between underscores. None if it is escaped wrongly.
fn unescaped(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(start) = rest.find("__") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        let end = after.find('_').filter(|end| *end > 0);
        let Some(end) = end.filter(|end| after[*end..].starts_with("__")) else {
            // No sequence begins here; one may begin at the next underscore.
            out.push_str(&rest[..=start]);
            rest = &rest[start + 1..];
            continue;
        };
        out.push_str(before);
        match &after[..end] {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if RESERVED.contains(&word) && word.len() + 4 == name.len() => out.push_str(word),
            _ => return None,
        }
        rest = &after[end + 2..];
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str, claims: &Value) -> Result<String, String> {
        let (expression, _) = Expression::compile(text, Purpose::Mapping)?;
        let object = Object::variable(claims.as_object().unwrap());
        expression.evaluate(&object, &mut { BUDGET }, |value| {
            Ok(format!("{:?}", value.type_name()) + &strings(value).unwrap_or_default().join(","))
        })
    }

    #[test]
    fn names_are_unescaped_as_upstream_does() {
        for (name, expected) in [
            ("a", Some("a")),
            ("a__dot__b__slash__c__dash__d", Some("a.b/c-d")),
            ("a__underscores__b", Some("a__b")),
            ("__namespace__", Some("namespace")),
            ("x__namespace__", None),
            ("a__b__", None),
            ("a__b", Some("a__b")),
            ("____", Some("____")),
            ("___dot__", Some("_.")),
        ] {
            assert_eq!(unescaped(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn claims_are_seen_as_json_is_in_go() {
        let claims =
            json!({"n": 7, "s": "x", "a.b/c": "y", "o": {"k.l": ["z", {"m": 1}]}, "e": ["", "a"]});
        for (text, expected) in [
            ("claims.n", "\"double\""),
            ("claims.o.k__dot__l[1].m", "\"double\""),
            ("claims.s + claims.a__dot__b__slash__c", "\"string\"xy"),
            ("claims['a.b/c']", "\"string\"y"),
            ("claims.o.k__dot__l[0]", "\"string\"z"),
            ("claims.?none.orValue('n')", "\"string\"n"),
            (
                "has(claims.s) && !has(claims.t) && claims.n < 8",
                "\"bool\"",
            ),
            ("claims.e", "\"list\"a"),
            ("claims.map(k, k)", "\"list\"a.b/c,e,n,o,s"),
        ] {
            assert_eq!(value(text, &claims), Ok(expected.to_owned()), "{text}");
        }
        let missing = value("claims.none", &claims).unwrap_err();
        assert_eq!(
            missing,
            "expression 'claims.none' resulted in error: no such key: none"
        );
        let sum = value("claims.n + 1", &claims).unwrap_err();
        assert!(sum.ends_with("no such overload"), "{sum}");
    }

    /// The attack: a user who can choose claims lets an expression run through them again and again.
    #[test]
    fn an_expression_about_many_claims_ends() {
        let claims = json!({"g": vec!["g"; 2000]});
        let all = "claims.g.all(a, claims.g.all(b, claims.g.all(c, a + b != c)))";
        assert!(value(all, &claims).is_err());
        let (expression, _) =
            Expression::compile("claims.g.all(a, a != 'b')", Purpose::Mapping).unwrap();
        let object = Object::variable(claims.as_object().unwrap());
        let mut budget = 1000;
        assert!(
            expression
                .evaluate(&object, &mut budget, |_| Ok(()))
                .is_err()
        );
        assert_eq!(budget, 0);
    }
}
