//! What an expression may refer to: variables, object types, functions, and how large the values of variables can be.
//!
//! [`Env::kubernetes`] is the environment that Kubernetes 1.36 uses everywhere; add the variables of your rules to it:
//!
//! ```
//! use allot_cel::{env::{DeclType, Env}, program::{Limits, Program}, value::Value};
//!
//! let spec = DeclType::object("Spec", [("replicas", DeclType::int()), ("name", DeclType::string(20))]);
//! let env = Env::kubernetes().with_object(&spec).with_variable("self", spec);
//! let ast = env.compile("self.replicas < 5 && self.name.startsWith('a')").map_err(|error| error.to_string())?;
//! assert_eq!(ast.output().to_string(), "bool");
//! assert_eq!(ast.cost(&env).max, 6);
//!
//! let program = Program::new(&ast).map_err(|error| error.to_string())?;
//! let object = serde_json::json!({"replicas": 3, "name": "abc"});
//! let variables = [env.variable_type("self").unwrap().value(&object)];
//! let outcome = program.evaluate(&variables, &Limits::default());
//! assert!(matches!(outcome.result, Ok(Value::Bool(true))));
//! # Ok::<(), String>(())
//! ```

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use crate::types::{OPERATION, Type};

pub use crate::decl_type::{DeclType, RESERVED, Shape};

/// One signature of a function.
#[derive(Debug, Clone)]
pub(crate) struct Overload {
    pub(crate) id: Arc<str>,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
}

/// A variable and the type it is declared with.
#[derive(Debug, Clone)]
pub struct Variable {
    /// The name by which expressions refer to the variable.
    pub name: Arc<str>,
    /// Its type with the sizes that its values can have.
    pub ty: DeclType,
}

/// The declarations for expressions. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Env {
    functions: Arc<HashMap<Arc<str>, Vec<Overload>>>,
    variables: Vec<Variable>,
    objects: HashMap<Arc<str>, DeclType>,
    /// Objects of patches can be created.
    patches: bool,
    /// `cel.bind` gives a name to a value.
    bindings: bool,
}

/// The type of an object that is applied; its parts are `Object.spec` and so on.
const APPLIED: &str = "Object";

/// Whether objects of this type are created by expressions.
pub(crate) fn is_made(name: &str) -> bool {
    let rest = name.strip_prefix(APPLIED);
    name == OPERATION || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// `function | overload | member or global | arguments | result`, in the order in which overloads are tried.
static FUNCTIONS: &str = include_str!("env/functions.txt");

static KUBERNETES: LazyLock<Arc<HashMap<Arc<str>, Vec<Overload>>>> = LazyLock::new(|| {
    let mut functions: HashMap<Arc<str>, Vec<Overload>> = HashMap::new();
    for line in FUNCTIONS.lines() {
        let mut parts = line.split(" | ");
        let mut part = || parts.next().unwrap_or_default().trim();
        let (name, id, style, args, result) = (part(), part(), part(), part(), part());
        let overload = Overload {
            id: id.into(),
            member: style == "member",
            args: args
                .split("; ")
                .filter(|arg| !arg.is_empty())
                .map(Type::parse)
                .collect(),
            result: Type::parse(result),
        };
        functions.entry(name.into()).or_default().push(overload);
    }
    Arc::new(functions)
});

impl Env {
    /// The functions and types of the Kubernetes 1.36 base environment, without variables.
    ///
    /// Upstream has two environments: expressions in new objects may use what the previous release knew, so that it can
    /// be returned to, and those in stored objects everything. In 1.36 they are the same, because the base environment
    /// last grew in 1.34 and what device selectors got since depends on feature gates alone; so there is one here.
    pub fn kubernetes() -> Self {
        Self {
            functions: KUBERNETES.clone(),
            variables: Vec::new(),
            objects: HashMap::new(),
            patches: false,
            bindings: false,
        }
    }

    /// With `cel.bind`, which among the expressions of Kubernetes only device selectors have.
    #[must_use]
    pub fn with_bindings(mut self) -> Self {
        self.bindings = true;
        self
    }

    pub(crate) fn has_bindings(&self) -> bool {
        self.bindings
    }

    /// With the types of patches: `JSONPatch`, and `Object`, `Object.spec` and so on with any fields; and with
    /// `jsonpatch.escapeKey`.
    #[must_use]
    pub fn with_patches(mut self) -> Self {
        self.patches = true;
        let overload = Overload {
            id: "string_jsonpatch_escapeKey_string".into(),
            member: false,
            args: vec![Type::String],
            result: Type::String,
        };
        self.with_overload("jsonpatch.escapeKey", overload)
    }

    /// The type of a field of an object that an expression creates; `None` for other objects.
    pub(crate) fn made_field(&self, object: &str, field: &str) -> Option<Option<Type>> {
        if !self.patches || !is_made(object) {
            return None;
        }
        Some(match (object, field) {
            (OPERATION, "op" | "path" | "from") => Some(Type::String),
            (OPERATION, "value") => Some(Type::Dyn),
            (OPERATION, _) => None,
            _ => Some(Type::Dyn),
        })
    }

    /// With a variable. Values are given to the evaluation in the order of declaration.
    #[must_use]
    pub fn with_variable(mut self, name: &str, ty: DeclType) -> Self {
        self.variables.push(Variable {
            name: name.into(),
            ty,
        });
        self
    }

    /// With the fields of an object type and of all object types inside it.
    #[must_use]
    pub fn with_object(mut self, ty: &DeclType) -> Self {
        self.add_objects(ty);
        self
    }

    /// Adds a field to an object type that the environment has, for expressions that are compiled from now on. Variables
    /// of the type see it as well.
    pub fn add_field(&mut self, object: &str, field: &str, ty: DeclType) {
        if let Some(object) = self.objects.get_mut(object) {
            object.add_field(field, ty);
        }
    }

    fn add_objects(&mut self, ty: &DeclType) {
        match ty.shape() {
            Shape::Object { name, fields } => {
                if self.objects.insert(name.clone(), ty.clone()).is_none() {
                    for field in fields.values() {
                        self.add_objects(field);
                    }
                }
            }
            Shape::List(element) => self.add_objects(element),
            Shape::Map(key, value) => {
                self.add_objects(key);
                self.add_objects(value);
            }
            Shape::Scalar => {}
        }
    }

    /// With a further signature of a function.
    #[must_use]
    pub(crate) fn with_overload(mut self, name: &str, overload: Overload) -> Self {
        Arc::make_mut(&mut self.functions)
            .entry(name.into())
            .or_default()
            .push(overload);
        self
    }

    pub(crate) fn function(&self, name: &str) -> Option<&[Overload]> {
        self.functions
            .get(name.strip_prefix('.').unwrap_or(name))
            .map(Vec::as_slice)
    }

    /// Number of a variable, as evaluations count them.
    pub fn variable(&self, name: &str) -> Option<usize> {
        self.variables
            .iter()
            .position(|variable| &*variable.name == name)
    }

    /// The type that a variable is declared with.
    pub fn variable_type(&self, name: &str) -> Option<&DeclType> {
        self.variable(name).map(|number| &self.variables[number].ty)
    }

    /// The variables in the order of declaration.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The object type of this name.
    pub fn object(&self, name: &str) -> Option<&DeclType> {
        self.objects.get(name)
    }

    /// The type that a type name denotes as a value.
    pub(crate) fn type_name(&self, name: &str) -> Option<Type> {
        let inner = match name {
            "bool" => Type::Bool,
            "bytes" => Type::Bytes,
            "double" => Type::Double,
            "google.protobuf.Duration" => Type::Duration,
            "google.protobuf.Timestamp" => Type::Timestamp,
            "int" => Type::Int,
            "list" => Type::list(Type::Dyn),
            "map" => Type::map(Type::Dyn, Type::Dyn),
            "null_type" => Type::Null,
            "string" => Type::String,
            "type" => Type::Type(None),
            "uint" => Type::Uint,
            "net.IP" | "net.CIDR" => Type::parse(name),
            "optional_type" => Type::Opaque("optional_type".into(), Arc::new([])),
            _ if self.patches && is_made(name) => Type::Object(name.into()),
            _ => Type::Object(self.objects.get_key_value(name)?.0.clone()),
        };
        Some(Type::Type(Some(Arc::new(inner))))
    }
}
