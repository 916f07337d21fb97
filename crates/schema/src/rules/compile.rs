//! Compilation of the validation rules of one schema.

use allot_cel::{
    env::{DeclType, Env},
    program::{CompileError, Program},
    types::Type,
};

use super::field_path;
use crate::structural::{Rule, Structural};

/// Why a rule or its message cannot be evaluated; the texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub(super) enum RuleError {
    /// `of` is empty for the rule, and names the message expression otherwise.
    #[error("{of}compilation failed: {error}")]
    Compile {
        of: &'static str,
        error: CompileError,
    },
    #[error("{of}instantiation failed: {error}")]
    Instantiate {
        of: &'static str,
        error: CompileError,
    },
    #[error("cel expression must evaluate to a bool")]
    NotBool,
    #[error("messageExpression must evaluate to a string")]
    NotString,
}

/// A rule, ready to run.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) rule: Rule,
    pub(super) program: Result<Program, RuleError>,
    pub(super) message: Option<Result<Program, RuleError>>,
    /// Whether the rule reads `oldSelf`, the value before the update.
    pub(super) uses_old: bool,
    /// The field that an error names, relative to the schema with the rule; empty for the value itself.
    pub(super) field: String,
    /// The estimated maximum cost of one evaluation of the rule.
    pub(super) cost: u64,
    /// The estimated maximum cost of one evaluation of the message.
    pub(super) message_cost: u64,
}

pub(super) fn compile(schema: &Structural, decl: &DeclType) -> Vec<Compiled> {
    let base = Env::kubernetes()
        .with_object(decl)
        .with_variable("self", decl.clone());
    schema
        .rules
        .iter()
        .filter(|rule| !rule.rule.trim().is_empty())
        .map(|rule| compile_rule(rule, schema, decl, &base))
        .collect()
}

fn compile_rule(rule: &Rule, schema: &Structural, decl: &DeclType, base: &Env) -> Compiled {
    let old = match rule.optional_old_self {
        Some(true) => DeclType::scalar(Type::optional(decl.ty().clone()), 0),
        _ => decl.clone(),
    };
    let env = base.clone().with_variable("oldSelf", old);
    let (program, cost) = program(&env, &rule.rule, &Type::Bool, "", RuleError::NotBool);
    // A rule that does not compile without `oldSelf` reads it.
    let uses_old = program.is_ok() && base.compile(&rule.rule).is_err();
    let message = (program.is_ok() && !rule.message_expression.is_empty())
        .then(|| message(&env, &rule.message_expression));
    let message_cost = message.as_ref().map_or(0, |(_, cost)| *cost);
    let field = field_path::resolve(&rule.field_path, schema, true);
    Compiled {
        rule: rule.clone(),
        program,
        message: message.map(|(program, _)| program),
        uses_old,
        field: field.map(|(named, _)| named).unwrap_or_default(),
        cost,
        message_cost,
    }
}

fn message(env: &Env, source: &str) -> (Result<Program, RuleError>, u64) {
    let of = "messageExpression ";
    program(env, source, &Type::String, of, RuleError::NotString)
}

/// The program of an expression that must evaluate to the type `output`, and its estimated maximum cost.
fn program(
    env: &Env,
    source: &str,
    output: &Type,
    of: &'static str,
    wrong_output: RuleError,
) -> (Result<Program, RuleError>, u64) {
    let checked = match env.compile(source) {
        Ok(checked) => checked,
        Err(error) => return (Err(RuleError::Compile { of, error }), 0),
    };
    if checked.output() != output {
        return (Err(wrong_output), 0);
    }
    let program = Program::new(&checked);
    let program = program.map_err(|error| RuleError::Instantiate { of, error });
    (program, checked.cost(env).max)
}
