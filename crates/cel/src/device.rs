//! Device selectors: the CEL environment of DRA (variable `device`) and the devices they are evaluated on.

mod attributes;
mod environment;
mod layout;
mod sites;

pub use attributes::{Attribute, Builder, Device};
pub use layout::Layouts;

use std::sync::Arc;

use environment::environment;
use sites::Quick;

use crate::{
    program::{Limits, Program},
    types::Type,
    value::{Extension, Value},
};

/// Which optional parts of the environment exist, and how much may be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Feature `DRAConsumableCapacity`: `device.allowMultipleAllocations`.
    pub consumable_capacity: bool,
    /// Feature `DRAListTypeAttributes`: list-typed attributes and `includes`.
    pub list_type_attributes: bool,
    /// Whether the expression may have been stored while other features were on: their declarations are accepted then,
    /// although no device has a list (upstream's `StoredExpressions`). The scheduler compiles this way; new expressions
    /// are validated without.
    pub stored: bool,
    /// Highest cost that an evaluation may reach.
    pub cost_limit: u64,
}

impl Default for Options {
    /// All features, and the cost limit of the API.
    fn default() -> Self {
        Self {
            consumable_capacity: true,
            list_type_attributes: true,
            stored: false,
            cost_limit: MAX_COST,
        }
    }
}

/// Highest static and run-time cost of a selector (`CELSelectorExpressionMaxCost`).
pub const MAX_COST: u64 = 1_000_000;
/// Longest selector in bytes (`CELSelectorExpressionMaxLength`).
pub const MAX_LENGTH: usize = 10 * 1024;

/// Why an expression cannot be used as a selector; the text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The expression is wrong.
    #[error("{0}")]
    Invalid(String),
    /// It is valid, but no program could be compiled. Upstream treats that as a separate error.
    #[error("{0}")]
    Internal(String),
}

/// Why a selector has no answer for a device; the text is upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EvalError(pub(crate) String);

/// A compiled selector. Cheap to evaluate and to clone, expensive to compile: compile once per expression.
#[derive(Debug, Clone)]
pub struct Selector {
    code: Arc<Code>,
    output: Type,
    max_cost: u64,
    options: Options,
}

/// The compiled forms.
#[derive(Debug)]
struct Code {
    program: Program,
    /// The equivalent tests of single attributes, if possible.
    quick: Option<Quick>,
}

/// Compiles a selector. Fails with upstream's text when it does not parse or check, or gives neither a bool nor an
/// attribute. The length and cost limits of the API are not applied here: see [`MAX_LENGTH`] and [`Selector::max_cost`].
pub fn compile(expression: &str, options: &Options) -> Result<Selector, CompileError> {
    let env = environment(options);
    let checked = env
        .compile(expression)
        .map_err(|error| CompileError::Invalid(format!("compilation failed: {error}")))?;
    let output = checked.output().clone();
    let unknown = output == Type::Any || (options.list_type_attributes && output == Type::Dyn);
    if output != Type::Bool && !unknown {
        let text = format!(
            "must evaluate to bool or the unknown type, not {}",
            output.runtime_name()
        );
        return Err(CompileError::Invalid(text));
    }
    let program = Program::new(&checked).map_err(|error| {
        CompileError::Internal(format!("program instantiation failed: {error}"))
    })?;
    let max_cost = checked.cost(env).max;
    Ok(Selector {
        code: Arc::new(Code {
            quick: Quick::new(&program),
            program,
        }),
        output,
        max_cost,
        options: *options,
    })
}

impl Selector {
    /// The highest cost that an evaluation can reach (static estimate).
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// The attributes that results can depend on, as (domain, identifier). `None`: any. The driver, the capacities and
    /// whether a device can be allocated several times may matter besides.
    pub fn attributes(&self) -> Option<Vec<(&str, &str)>> {
        self.code.quick.as_ref()?.attributes()
    }

    /// Type of the expression: bool, or dyn or any where it may be an attribute.
    pub fn output(&self) -> &Type {
        &self.output
    }

    /// Whether the device is selected.
    #[inline]
    pub fn matches(&self, device: &Device) -> Result<bool, EvalError> {
        match self.quick(device) {
            Some((selected, _)) => Ok(selected),
            None => self.evaluate_steps(device, None).0,
        }
    }

    /// As [`Self::matches`], with the cost that the evaluation had.
    pub fn matches_with_cost(&self, device: &Device) -> (Result<bool, EvalError>, u64) {
        self.evaluate(device, None)
    }

    /// Like [`Self::matches_with_cost`]; in long loops `interrupted` is called periodically, and when it returns true
    /// the evaluation fails with `operation interrupted`.
    pub fn evaluate(
        &self,
        device: &Device,
        interrupted: Option<&dyn Fn() -> bool>,
    ) -> (Result<bool, EvalError>, u64) {
        match self.quick(device) {
            Some((selected, cost)) => (Ok(selected), cost),
            None => self.evaluate_steps(device, interrupted),
        }
    }

    #[inline]
    fn quick(&self, device: &Device) -> Option<(bool, u64)> {
        let quick = self.code.quick.as_ref()?;
        if !device.is_sound(self.options.list_type_attributes) {
            return None;
        }
        quick.evaluate(device, self.options.cost_limit)
    }

    #[inline(never)]
    fn evaluate_steps(
        &self,
        device: &Device,
        interrupted: Option<&dyn Fn() -> bool>,
    ) -> (Result<bool, EvalError>, u64) {
        if let Some(problem) = device.problem(self.options.list_type_attributes) {
            return (Err(EvalError(problem)), 0);
        }
        let variables = [device.as_value()];
        let limits = Limits {
            cost: self.options.cost_limit,
            interrupted,
        };
        let outcome = self.code.program.evaluate(&variables, &limits);
        let result = match outcome.result {
            Ok(Value::Bool(selected)) => Ok(selected),
            Ok(Value::Optional(Some(inner))) if matches!(*inner, Value::Bool(_)) => {
                Ok(matches!(*inner, Value::Bool(true)))
            }
            Ok(other) => Err(EvalError(not_bool(&other))),
            Err(error) => Err(EvalError(error.to_string())),
        };
        (result, outcome.cost)
    }
}

/// Why a value is no bool. Upstream's types have different texts.
#[cold]
fn not_bool(value: &Value<'_>) -> String {
    let reason = match value {
        Value::Optional(None) => "optional.none() dereference".to_owned(),
        Value::Optional(Some(inner)) => no_conversion(inner),
        other => no_conversion(other),
    };
    format!(
        "CEL result of type {} could not be converted to bool: {reason}",
        value.type_name()
    )
}

fn no_conversion(value: &Value<'_>) -> String {
    let name = match value {
        Value::Int(_) | Value::Uint(_) => {
            return format!(
                "unsupported type conversion from '{}' to bool",
                value.type_name()
            );
        }
        Value::String(_) => {
            return "unsupported native conversion from string to 'bool'".to_owned();
        }
        Value::Type(_) => return "type conversion not supported for 'type'".to_owned(),
        Value::Double(_) => "Double",
        Value::Bytes(_) => "Bytes",
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Duration(_) => "'Duration'",
        Value::Timestamp(_) => "'Timestamp'",
        Value::Null => "'null_type'",
        Value::Quantity(_) => "'Quantity'",
        Value::Version(_) => "'Semver'",
        Value::Extension(extension) => match **extension {
            Extension::Url(_) => "'URL'",
            Extension::Ip(_) => "'IP'",
            Extension::Cidr(..) => "'CIDR'",
            Extension::Format(_) => "'Format'",
            // Selectors have no authorizer.
            Extension::Access(_) => "'Access'",
        },
        Value::Bool(_) | Value::Optional(_) => "'bool'",
    };
    format!("type conversion error from {name} to 'bool'")
}

#[cfg(test)]
mod tests;
