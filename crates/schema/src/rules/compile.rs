//! Compiling the rules of one place.

use allot_cel::{
    env::{DeclType, Env},
    program::Program,
    types::Type,
};

use super::field_path;
use crate::structural::{Rule, Structural};

/// A rule, ready to run.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) rule: Rule,
    pub(super) program: Result<Program, String>,
    pub(super) message: Option<Result<Program, String>>,
    /// The rule compares with the value before the update.
    pub(super) uses_old: bool,
    /// The field that an error names, relative to where the rule stands; empty for that place itself.
    pub(super) field: String,
    /// The most that one evaluation costs by estimate.
    pub(super) cost: u64,
    /// The same for the message.
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
    let wrong = "cel expression must evaluate to a bool";
    let (program, cost) = program(&env, &rule.rule, &Type::Bool, "", wrong);
    // A rule compares if it does not compile without `oldSelf`.
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

fn message(env: &Env, source: &str) -> (Result<Program, String>, u64) {
    let wrong = "messageExpression must evaluate to a string";
    program(env, source, &Type::String, "messageExpression ", wrong)
}

fn program(
    env: &Env,
    source: &str,
    wanted: &Type,
    what: &str,
    wrong: &str,
) -> (Result<Program, String>, u64) {
    let checked = match env.compile(source) {
        Ok(checked) => checked,
        Err(error) => return (Err(format!("{what}compilation failed: {error}")), 0),
    };
    if checked.output() != wanted {
        return (Err(wrong.to_owned()), 0);
    }
    let cost = checked.cost(env).max;
    (
        Program::new(&checked).map_err(|error| format!("{what}instantiation failed: {error}")),
        cost,
    )
}
