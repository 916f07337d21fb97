//! Compiled expressions: a tree of steps whose names, constants and overloads are resolved.

use std::sync::Arc;

use crate::{
    ast::{Ast, Expr, ExprKind, Literal},
    checker::{Facts, check},
    cost::{self, Cost},
    env::Env,
    parser,
    source::{Issue, Source},
    types::Type,
    validate,
    value::{Fault, Handle, Value},
};

mod call_cost;
mod eval;
mod plan;
mod quick;

pub(crate) use quick::{Field, FieldPath, Fields, Quick, Use};

use plan::Node;

/// Why an expression cannot be compiled: upstream's text, each problem with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(pub(crate) String);

/// Why an evaluation has no result, with upstream's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The expression went wrong.
    #[error("{0}")]
    Failed(String),
    /// The evaluation cost more than allowed, or was interrupted.
    #[error("{0}")]
    Cancelled(String),
}

/// A parsed and type-checked expression.
#[derive(Debug, Clone)]
pub struct Checked {
    ast: Ast,
    facts: Facts,
    variables: Vec<Arc<str>>,
}

impl Env {
    /// Parses, checks and validates an expression.
    pub fn compile(&self, source: &str) -> Result<Checked, CompileError> {
        let fail = |issues: &[Issue]| CompileError(Source::new(source).render(issues));
        let (mut ast, issues) = parser::parse(source, self.has_bindings());
        if !issues.is_empty() {
            return Err(fail(&issues));
        }
        let (facts, issues) = check(&mut ast, self);
        if !issues.is_empty() {
            return Err(fail(&issues));
        }
        let issues = validate::validate(&ast, &facts);
        if !issues.is_empty() {
            return Err(fail(&issues));
        }
        let variables = self
            .variables()
            .iter()
            .map(|variable| variable.name.clone())
            .collect();
        Ok(Checked {
            ast,
            facts,
            variables,
        })
    }
}

impl Checked {
    /// Type of the expression.
    pub fn output(&self) -> &Type {
        self.facts.type_of(self.ast.expr.id)
    }

    /// Whether the expression reads this field of a variable, in one of the ways to write that: `v.f`, `v.?f` or `has(v.f)`.
    ///
    /// ```
    /// use allot_cel::env::{DeclType, Env};
    /// use allot_cel::types::Type;
    ///
    /// let claims = DeclType::map(DeclType::string(9), DeclType::scalar(Type::Dyn, 9), 9);
    /// let env = Env::kubernetes().with_variable("claims", claims);
    /// let selects = |text: &str| env.compile(text).unwrap().selects("claims", "email");
    /// assert!(selects("claims.email + 'x'") && selects("[1].all(x, has(claims.email))"));
    /// assert!(selects("claims.?email.orValue('')"));
    /// assert!(!selects("claims.emails") && !selects("claims.sub.email") && !selects("claims['email']"));
    /// ```
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        selects(&self.ast.expr, variable, field)
    }

    /// The least and the most that an evaluation can cost.
    pub fn cost(&self, env: &Env) -> Cost {
        cost::estimate(&self.ast.expr, &self.facts, env)
    }
}

fn selects(expr: &Expr, variable: &str, field: &str) -> bool {
    let within = |expr: &Expr| selects(expr, variable, field);
    let is_variable =
        |expr: &Expr| matches!(&expr.kind, ExprKind::Ident(name) if **name == *variable);
    let is_field = |expr: &Expr| matches!(&expr.kind, ExprKind::Literal(Literal::String(text)) if **text == *field);
    match &expr.kind {
        ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => false,
        ExprKind::Select {
            operand,
            field: name,
            ..
        } => **name == *field && is_variable(operand) || within(operand),
        ExprKind::Call {
            function,
            target,
            args,
        } => {
            let is_optional = &**function == "_?._" && target.is_none();
            let selected = match &args[..] {
                [operand, name] if is_optional => is_variable(operand) && is_field(name),
                _ => false,
            };
            selected || args.iter().any(within) || target.as_deref().is_some_and(within)
        }
        ExprKind::List { elements, .. } => elements.iter().any(within),
        ExprKind::Map(entries) => entries
            .iter()
            .any(|it| within(&it.key) || within(&it.value)),
        ExprKind::Struct { fields, .. } => fields.iter().any(|it| within(&it.value)),
        ExprKind::Comprehension(it) => [&it.range, &it.init, &it.condition, &it.step, &it.result]
            .into_iter()
            .any(within),
    }
}

/// Limits of an evaluation.
#[derive(Clone, Copy)]
pub struct Limits<'h> {
    /// The highest cost.
    pub cost: u64,
    /// Called periodically in loops; the evaluation stops when it returns true.
    pub interrupted: Option<&'h dyn Fn() -> bool>,
}

impl Default for Limits<'_> {
    /// The cost limit of one rule in Kubernetes (`PerCallLimit`), and no interruption.
    fn default() -> Self {
        Self {
            cost: 1_000_000,
            interrupted: None,
        }
    }
}

/// The result of an evaluation.
#[derive(Debug, Clone)]
pub struct Outcome<'a> {
    /// The value, or why there is none.
    pub result: Result<Value<'a>, EvalError>,
    /// What the evaluation cost.
    pub cost: u64,
}

/// An expression ready for evaluation. Can be shared between threads.
#[derive(Debug)]
pub struct Program {
    root: Node,
    locals: usize,
}

impl Program {
    /// Compiles a checked expression. Fails on constants that cannot be evaluated.
    pub fn new(checked: &Checked) -> Result<Self, CompileError> {
        let (root, locals) = plan::plan(&checked.ast.expr, &checked.facts, &checked.variables)
            .map_err(|error| CompileError(error.to_string()))?;
        Ok(Self { root, locals })
    }

    /// The program as a tree of tests, if possible.
    pub(crate) fn quick(&self) -> Option<Quick> {
        Quick::new(&self.root)
    }

    /// Evaluates with the values of the variables, in the order in which the environment declares them.
    pub fn evaluate<'a>(&'a self, variables: &'a [Value<'a>], limits: &Limits<'_>) -> Outcome<'a> {
        let (result, cost) = eval::evaluate(&self.root, self.locals, variables, limits);
        let result = result.map_err(|fault| match fault {
            Fault::NoOverload => EvalError::Failed("no such overload".to_owned()),
            Fault::Error(text) => EvalError::Failed(text.into_owned()),
            Fault::Cancelled(text) => EvalError::Cancelled(text.into_owned()),
        });
        Outcome { result, cost }
    }
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Handle::Shared(text.clone())),
        Literal::Bytes(bytes) => Value::Bytes(Handle::Shared(bytes.clone())),
    }
}

#[cfg(test)]
mod tests;
