//! Selectors of named resources: the CEL environment of structured parameters in Kubernetes 1.30.
//!
//! Seven variables, one map from name to value per type of attribute; their names are in lower case, unlike those of
//! the fields in the API. A missing name is an evaluation error, so expressions must guard their reads:
//!
//! ```
//! use allot_cel::named_resources::{Attribute, Instance, compile};
//!
//! let selector = compile(r#""model" in attributes.string && attributes.string["model"] == "a""#)?;
//! let instance: Instance = [("model".to_owned(), Attribute::String("a".to_owned()))].into_iter().collect();
//! assert!(selector.matches(&instance)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::{Arc, LazyLock};

use allot_apimachinery::Quantity;

use crate::{
    env::{DeclType, Env},
    program::{Limits, Program},
    semver::Version,
    types::Type,
    value::{Handle, Key, List, ListSource, Map, MapSource, Value},
};

pub use crate::device::{CompileError, EvalError};

/// Longest name of an attribute: a DNS subdomain.
const NAME_MAX: u64 = 253;
/// Sizes that the API does not limit are estimated with this.
const UNLIMITED: u64 = 1024;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// `attributes.quantity`.
    Quantity(Quantity),
    /// `attributes.bool`.
    Bool(bool),
    /// `attributes.int`.
    Int(i64),
    /// `attributes.intslice`.
    Ints(Vec<i64>),
    /// `attributes.string`.
    String(String),
    /// `attributes.stringslice`.
    Strings(Vec<String>),
    /// `attributes.version`.
    Version(Version),
}

/// The variables, in the order in which values are given to the evaluation.
const VARIABLES: [&str; 7] = [
    "attributes.quantity",
    "attributes.bool",
    "attributes.int",
    "attributes.intslice",
    "attributes.string",
    "attributes.stringslice",
    "attributes.version",
];

impl Attribute {
    fn variable(&self) -> usize {
        match self {
            Self::Quantity(_) => 0,
            Self::Bool(_) => 1,
            Self::Int(_) => 2,
            Self::Ints(_) => 3,
            Self::String(_) => 4,
            Self::Strings(_) => 5,
            Self::Version(_) => 6,
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Self::Quantity(quantity) => Value::Quantity(Handle::Borrowed(quantity)),
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::String(text) => Value::str(text),
            Self::Version(version) => Value::Version(Handle::Borrowed(version)),
            Self::Ints(_) | Self::Strings(_) => Value::List(List::Source(self)),
        }
    }
}

impl ListSource for Attribute {
    fn len(&self) -> usize {
        match self {
            Self::Ints(values) => values.len(),
            Self::Strings(values) => values.len(),
            _ => 0,
        }
    }

    fn get(&self, index: usize) -> Value<'_> {
        match self {
            Self::Ints(values) => Value::Int(values[index]),
            Self::Strings(values) => Value::str(&values[index]),
            _ => Value::Null,
        }
    }
}

/// The attributes of a resource, ready for evaluation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Instance {
    /// By variable: name and value.
    tables: [Vec<(String, Attribute)>; VARIABLES.len()],
}

impl Instance {
    fn table(&self, variable: u32) -> &[(String, Attribute)] {
        self.tables
            .get(variable as usize)
            .map_or(&[], Vec::as_slice)
    }
}

/// Each variable is a part.
impl MapSource for Instance {
    fn len(&self, variable: u32) -> usize {
        self.table(variable).len()
    }

    fn find(&self, variable: u32, key: Key<'_>) -> Option<Value<'_>> {
        let mut table = self.table(variable).iter();
        let found = table.find(|(name, _)| name == key.text());
        found.map(|(_, attribute)| attribute.value())
    }

    fn key(&self, variable: u32, index: usize) -> &str {
        &self.table(variable)[index].0
    }
}

impl FromIterator<(String, Attribute)> for Instance {
    fn from_iter<I: IntoIterator<Item = (String, Attribute)>>(attributes: I) -> Self {
        let mut this = Self::default();
        for (name, attribute) in attributes {
            this.tables[attribute.variable()].push((name, attribute));
        }
        this
    }
}

static ENVIRONMENT: LazyLock<Env> = LazyLock::new(|| {
    let (text, ints) = (DeclType::string(UNLIMITED), DeclType::int());
    let types = [
        DeclType::scalar(Type::object("kubernetes.Quantity"), 0),
        DeclType::bool(),
        ints.clone(),
        DeclType::list(ints, UNLIMITED),
        text.clone(),
        DeclType::list(text, UNLIMITED),
        DeclType::scalar(Type::object("kubernetes.Semver"), 0),
    ];
    VARIABLES
        .into_iter()
        .zip(types)
        .fold(Env::kubernetes(), |env, (name, ty)| {
            let map = DeclType::map(DeclType::string(NAME_MAX), ty, UNLIMITED);
            env.with_variable(name, map)
        })
});

/// A compiled selector. Compile once per expression.
#[derive(Debug, Clone)]
pub struct Selector {
    program: Arc<Program>,
}

/// Compiles a selector.
///
/// # Errors
/// When it does not parse or check, or does not give a bool.
pub fn compile(expression: &str) -> Result<Selector, CompileError> {
    let checked = ENVIRONMENT
        .compile(expression)
        .map_err(|error| CompileError::Invalid(format!("compilation failed: {error}")))?;
    let output = checked.output();
    if *output != Type::Bool {
        let text = format!("must evaluate to bool, not {}", output.runtime_name());
        return Err(CompileError::Invalid(text));
    }
    let program = Program::new(&checked).map_err(|error| {
        CompileError::Internal(format!("program instantiation failed: {error}"))
    })?;
    Ok(Selector {
        program: Arc::new(program),
    })
}

impl Selector {
    /// Whether the resource is selected.
    ///
    /// # Errors
    /// When the expression reads what the resource does not have, or costs too much.
    pub fn matches(&self, instance: &Instance) -> Result<bool, EvalError> {
        let variables: [Value<'_>; VARIABLES.len()] =
            std::array::from_fn(|at| Value::Map(Map::Source(instance, at as u32)));
        let outcome = self.program.evaluate(&variables, &Limits::default());
        match outcome.result {
            Ok(Value::Bool(selected)) => Ok(selected),
            Ok(other) => Err(EvalError(format!(
                "expected a bool, got {}",
                other.type_name()
            ))),
            Err(error) => Err(EvalError(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance() -> Instance {
        let attributes = [
            ("memory", Attribute::Quantity("2Gi".parse().unwrap())),
            ("fast", Attribute::Bool(true)),
            ("cores", Attribute::Int(4)),
            ("lanes", Attribute::Ints(vec![1, 2])),
            ("model", Attribute::String("a".to_owned())),
            ("zones", Attribute::Strings(vec!["x".to_owned()])),
            (
                "driver",
                Attribute::Version(Version::parse("1.2.3").unwrap()),
            ),
        ];
        attributes
            .into_iter()
            .map(|(n, a)| (n.to_owned(), a))
            .collect()
    }

    #[test]
    fn every_type_of_attribute_can_be_selected_by() {
        let check = |expression: &str, expected: Result<bool, &str>| {
            let found = compile(expression).unwrap().matches(&instance());
            let found = found.map_err(|error| error.to_string());
            assert_eq!(
                found.as_ref().map_err(|e| e.as_str()).copied(),
                expected,
                "{expression}"
            );
        };
        check("true", Ok(true));
        check(
            r#"attributes.quantity["memory"].isGreaterThan(quantity("1Gi"))"#,
            Ok(true),
        );
        check(r#"attributes.bool["fast"]"#, Ok(true));
        check(r#"attributes.int["cores"] > 4"#, Ok(false));
        check(r#"attributes.intslice["lanes"].sum() == 3"#, Ok(true));
        check(r#"attributes.string["model"].startsWith("a")"#, Ok(true));
        check(r#""x" in attributes.stringslice["zones"]"#, Ok(true));
        check(
            r#"attributes.version["driver"].isGreaterThan(semver("1.0.0"))"#,
            Ok(true),
        );
        check(r#"attributes.version["driver"].major() == 1"#, Ok(true));
        check(
            r#""none" in attributes.string && attributes.string["none"] == "x""#,
            Ok(false),
        );
        check(
            r#"attributes.string["none"] == "x""#,
            Err("no such key: none"),
        );
    }

    #[test]
    fn mistakes_are_told() {
        let check = |expression: &str, expected: &str| {
            let error = compile(expression).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("attributes.string", "must evaluate to bool, not map");
        check("noSuchVar", "undeclared reference to 'noSuchVar'");
        check(
            r#"attributes.intSlice["a"] == [1]"#,
            "undeclared reference to",
        );
        check("1 +", "Syntax error");
    }
}
