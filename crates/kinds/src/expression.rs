//! The CEL expressions of policies and webhooks: their environments and result types.

pub mod types;

use std::sync::{LazyLock, OnceLock};

use allot_cel::env::{DeclType, Env};
use allot_cel::program::{CompileError, Program};
use allot_cel::types::Type;

pub use types::DYNAMIC;
use types::{UNLIMITED, namespace, request};

/// The required result type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultType {
    /// A bool.
    Bool,
    /// A string.
    Text,
    /// A string or null.
    TextOrNull,
    /// The operations of a JSON patch.
    Operations,
    /// An apply configuration.
    Applied,
    /// Any type.
    Anything,
}

/// Why an expression has no program; the texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The expression does not parse or type-check.
    #[error("compilation failed: {0}")]
    Compile(CompileError),
    /// The expression has another result type than required.
    #[error("must evaluate to {expected} but got {found}")]
    ResultType {
        /// The required type.
        expected: &'static str,
        /// The type of the expression.
        found: String,
    },
    /// A constant in the expression cannot be evaluated.
    #[error("program instantiation failed: {0}")]
    Instantiate(CompileError),
}

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    /// The source text.
    pub text: String,
    /// The compiled program.
    pub program: Result<Program, ExpressionError>,
}

/// Compiles the expressions of one policy or webhook; its variables are declared in order.
pub struct Compiler {
    /// With and without the authorizer.
    envs: [Env; 2],
    /// The first one with the types of patches, since most policies have none.
    patches: OnceLock<Env>,
    has_variables: bool,
}

impl Compiler {
    /// Creates a compiler for expressions with or without `params` and `variables`.
    pub fn new(params: bool, variables: bool) -> Self {
        Compiler {
            envs: [true, false].map(|authorizer| environment(params, variables, authorizer)),
            patches: OnceLock::new(),
            has_variables: variables,
        }
    }

    /// Compiles an expression.
    pub fn compile(&self, text: &str, wanted: ResultType, authorizer: bool) -> Expression {
        self.checked(text, wanted, authorizer).0
    }

    /// Compiles a variable; later expressions can refer to it even if it does not compile.
    pub fn variable(&mut self, name: &str, text: &str) -> Expression {
        let (expression, ty) = self.checked(text, ResultType::Anything, true);
        if self.has_variables {
            for env in &mut self.envs {
                declare(env, name, ty.as_ref());
            }
            self.patches = OnceLock::new();
        }
        expression
    }

    fn checked(
        &self,
        text: &str,
        wanted: ResultType,
        authorizer: bool,
    ) -> (Expression, Option<Type>) {
        let [full, reduced] = &self.envs;
        let env = match (wanted, authorizer) {
            (ResultType::Operations | ResultType::Applied, _) => {
                self.patches.get_or_init(|| full.clone().with_patches())
            }
            (_, true) => full,
            (_, false) => reduced,
        };
        let (program, ty) = match env.compile(text) {
            Err(error) => (Err(ExpressionError::Compile(error)), None),
            Ok(checked) => match check_result(checked.output(), wanted) {
                Err(error) => (Err(error), None),
                Ok(()) => {
                    let ty = checked.output().clone();
                    let program = Program::new(&checked).map_err(ExpressionError::Instantiate);
                    (program, Some(ty))
                }
            },
        };
        let text = text.to_owned();
        (Expression { text, program }, ty)
    }
}

/// The type of `variables`.
const VARIABLES: &str = "kubernetes.variables";

/// Declares a variable in an environment with [variables](with_variables), and replaces an earlier declaration; a
/// variable that does not compile has a dynamic type.
pub fn declare(env: &mut Env, name: &str, ty: Option<&Type>) {
    let ty = ty.map_or(Type::Dyn, |ty| seen_through_variable(ty, MAX_TYPE));
    env.add_field(VARIABLES, name, DeclType::scalar(ty, UNLIMITED));
}

/// Checks that an expression has the required result type.
fn check_result(found: &Type, wanted: ResultType) -> Result<(), ExpressionError> {
    let (suits, expected) = match wanted {
        ResultType::Anything => (true, ""),
        ResultType::Bool => (*found == Type::Bool, "bool"),
        ResultType::Text => (*found == Type::String, "string"),
        ResultType::TextOrNull => (
            matches!(found, Type::String | Type::Null),
            "one of [string null_type]",
        ),
        ResultType::Operations => (
            *found == Type::list(Type::object("JSONPatch")),
            "list(JSONPatch)",
        ),
        ResultType::Applied => (*found == Type::object("Object"), "Object"),
    };
    if suits {
        return Ok(());
    }
    Err(ExpressionError::ResultType {
        expected,
        found: found.runtime_name(),
    })
}

/// The maximum depth of the type of a variable. Otherwise variables that contain each other could nest types as deep
/// as the number of variables.
const MAX_TYPE: usize = 32;

/// The type of a variable in expressions: upstream loses types that are not plain data.
fn seen_through_variable(ty: &Type, levels: usize) -> Type {
    let Some(below) = levels.checked_sub(1) else {
        return Type::Dyn;
    };
    let seen = |ty| seen_through_variable(ty, below);
    match ty {
        Type::List(element) => Type::list(seen(element)),
        Type::Map(key, value) => Type::map(seen(key), seen(value)),
        Type::Any
        | Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => ty.clone(),
        _ => Type::Dyn,
    }
}

/// Variables that every expression has, for objects of any kind.
static BASE: LazyLock<Env> = LazyLock::new(|| base(&DYNAMIC));

/// `object`, `oldObject`, `namespaceObject`, `request`.
fn base(object: &DeclType) -> Env {
    let (namespace, request) = (namespace(), request());
    Env::kubernetes()
        .with_object(&namespace)
        .with_object(&request)
        .with_object(object)
        .with_variable("object", object.clone())
        .with_variable("oldObject", object.clone())
        .with_variable("namespaceObject", namespace)
        .with_variable("request", request)
}

/// The environment for type checking the expressions of a policy against the types of an object and of the parameters,
/// if any. Upstream does not declare `authorizer.requestResource` in it.
pub fn typed(object: &DeclType, params: Option<&DeclType>) -> Env {
    let mut env = base(object);
    if let Some(params) = params {
        env = env
            .with_object(params)
            .with_variable("params", params.clone());
    }
    let authorizer = Type::object("kubernetes.authorization.Authorizer");
    env.with_variable("authorizer", DeclType::scalar(authorizer, 0))
}

/// An environment for a policy that [declares](declare) variables.
pub fn with_variables(env: Env) -> Env {
    let none = || DeclType::object(VARIABLES, std::iter::empty());
    // Two types of one name: that of the variable is looked up by name, and the other one grows in place.
    env.with_object(&none()).with_variable("variables", none())
}

/// Creates an environment; values are passed in the order of `Scene::values` in `admission::dynamic`.
fn environment(params: bool, variables: bool, authorizer: bool) -> Env {
    let mut env = BASE.clone();
    if params {
        env = env.with_variable("params", DYNAMIC.clone());
    }
    if variables {
        env = with_variables(env);
    }
    if authorizer {
        let object = |name| DeclType::scalar(Type::object(name), 0);
        env = env
            .with_variable("authorizer", object("kubernetes.authorization.Authorizer"))
            .with_variable(
                "authorizer.requestResource",
                object("kubernetes.authorization.ResourceCheck"),
            );
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One environment was made for each variable, with all variables before it.
    #[test]
    fn regression_variables_share_an_environment() {
        let mut compiler = Compiler::new(false, true);
        let first = compiler.variable("v0", "1");
        assert!(first.program.is_ok());
        for at in 1..5000 {
            let text = format!("variables.v{} + 1", at - 1);
            let variable = compiler.variable(&format!("v{at}"), &text);
            assert!(variable.program.is_ok(), "{:?}", variable.program.err());
        }
        let fails = |compiler: &Compiler, text: &str, wanted, authorizer| {
            compiler.compile(text, wanted, authorizer).program.err()
        };
        for authorizer in [true, false] {
            let compile = |text: &str| fails(&compiler, text, ResultType::Bool, authorizer);
            assert_eq!(compile("variables.v4999 > 0"), None);
            assert!(compile("variables.v5000 > 0").is_some());
            assert!(compile("variables.v4999 == 'x'").is_some());
            let asks = compile("authorizer.path('/x').check('get').allowed()");
            assert_eq!(asks.is_none(), authorizer);
        }
        let patch = "[JSONPatch{op: 'add', path: '/x', value: variables.v1}]";
        assert_eq!(fails(&compiler, patch, ResultType::Operations, true), None);
        // The last declaration of a name counts, also after patches have been compiled.
        compiler.variable("v1", "'text'");
        compiler.variable("new", "'text'");
        for wanted in [ResultType::Operations, ResultType::Applied] {
            let text = match wanted {
                ResultType::Operations => "[JSONPatch{op: variables.v1, path: variables.new}]",
                _ => "Object{x: variables.v1 + variables.new}",
            };
            assert_eq!(fails(&compiler, text, wanted, true), None);
        }
    }
}
