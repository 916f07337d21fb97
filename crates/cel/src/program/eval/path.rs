//! Reading variables and their parts.

use std::sync::Arc;

use super::{Evaluator, Local, Outcome};
use crate::{
    cost::SELECT,
    program::plan::{Choice, Node, Path, Root, Step},
    value::{Fault, Key, Value},
};

impl<'a> Evaluator<'a, '_> {
    #[inline]
    pub(super) fn path(&mut self, path: &'a Path) -> Outcome<'a> {
        let result = keep_going!(self.resolve(path));
        let is_choice = matches!(path.root, Root::Choice(_));
        match (is_choice, path.test_only) {
            (false, false) => self.spend(SELECT)?,
            (false, true) | (true, false) => {}
            (true, true) => self.spend(SELECT.wrapping_neg())?,
        }
        match result? {
            Value::Optional(value) if path.test_only => Ok(Value::Bool(value.is_some())),
            value => Ok(value),
        }
    }

    /// The value of a path without the cost of reading a variable.
    fn resolve(&mut self, path: &'a Path) -> Outcome<'a> {
        let root = match &path.root {
            Root::Variable(number) => self.variables[*number].borrowed(),
            Root::Local(slot) => self.local(*slot)?,
            Root::Value(node) => self.eval(node)?,
            Root::Choice(choice) => self.choice(choice)?,
        };
        if path.steps.is_empty() {
            return Ok(root);
        }
        let (mut value, mut optional) = match root {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => (Value::clone(&inner), true),
            other => (other, false),
        };
        if path.plain && !optional {
            return self.plain_steps(value, &path.steps);
        }
        let last = path.steps.len() - 1;
        for (i, step) in path.steps.iter().enumerate() {
            let test = path.test_only && i == last;
            let (Step::Key(_, own) | Step::Value(_, own) | Step::Node(_, own)) = step;
            optional |= *own;
            if optional {
                match self.step(&value, step, true)? {
                    Some(next) => {
                        self.spend(SELECT)?;
                        value = if test { Value::Null } else { next };
                    }
                    None => return Ok(Value::Optional(None)),
                }
            } else {
                let next = keep_going!(self.step(&value, step, test));
                self.spend(SELECT)?;
                match next? {
                    next if test => value = Value::Bool(next.is_some()),
                    Some(next) => value = next,
                    // Without a presence test a missing value is an error.
                    None => return Err(Fault::NoOverload),
                }
            }
        }
        Ok(if optional {
            Value::Optional(Some(Arc::new(value)))
        } else {
            value
        })
    }

    /// Follows keys that must exist.
    fn plain_steps(&mut self, mut value: Value<'a>, steps: &'a [Step]) -> Outcome<'a> {
        for step in steps {
            let Step::Key(key, _) = step else {
                return Err(Fault::NoOverload);
            };
            let found = match &value {
                Value::Map(map) => map.find_key(key.key()),
                _ => None,
            };
            self.spend(SELECT)?;
            match found {
                Some(next) => value = next,
                None => {
                    by_key(&value, key.key(), false)?;
                    return Err(missing_key(key.key().text()));
                }
            }
        }
        Ok(value)
    }

    fn choice(&mut self, choice: &'a Choice) -> Outcome<'a> {
        let branch = match self.eval(&choice.condition)? {
            Value::Bool(true) => &choice.then,
            Value::Bool(false) => &choice.otherwise,
            _ => return Err(Fault::new("no such overload")),
        };
        match branch {
            Node::Path(path) if !path.test_only => self.resolve(path),
            other => self.eval(other),
        }
    }

    /// One step of a path; `None` if `test` is set and the value does not exist.
    fn step(
        &mut self,
        value: &Value<'a>,
        step: &'a Step,
        test: bool,
    ) -> Result<Option<Value<'a>>, Fault> {
        match step {
            Step::Key(key, _) => by_key(value, key.key(), test),
            Step::Value(index, _) => by_value(value, index, test),
            Step::Node(node, _) => {
                let index = match node {
                    Node::Path(path) => self.resolve(path)?,
                    other => self.eval(other)?,
                };
                match &index {
                    Value::String(text) => by_key(value, Key::new(text), test),
                    Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
                        by_value(value, &index, test)
                    }
                    other => Err(Fault::new(format!(
                        "invalid qualifier type: {}",
                        other.go_type()
                    ))),
                }
            }
        }
    }

    pub(super) fn local(&mut self, slot: usize) -> Outcome<'a> {
        match &self.locals[slot] {
            Local::Set(value) => Ok(value.clone()),
            Local::Failed(fault) => Err(fault.clone()),
            Local::Unset => Err(Fault::new("no such attribute(s): unset variable")),
            Local::Lazy(init) => {
                let init = *init;
                let result = keep_going!(self.eval(init));
                self.set(slot, &result);
                result
            }
        }
    }

    fn set(&mut self, slot: usize, result: &Outcome<'a>) {
        self.locals[slot] = match result {
            Ok(value) => Local::Set(value.clone()),
            Err(fault) => Local::Failed(fault.clone()),
        };
    }
}

#[cold]
fn missing_key(key: impl std::fmt::Display) -> Fault {
    Fault::new(format!("no such key: {key}"))
}

#[inline]
fn by_key<'a>(value: &Value<'a>, key: Key<'_>, test: bool) -> Result<Option<Value<'a>>, Fault> {
    match value {
        Value::Map(map) => match map.find_key(key) {
            None if !test => Err(map
                .fault(key)
                .map_or_else(|| missing_key(key.text()), Fault::new)),
            found => Ok(found),
        },
        Value::List(_) => Err(Fault::new("unsupported index type 'string' in list")),
        _ if test => Ok(None),
        _ => Err(missing_key(key.text())),
    }
}

fn by_value<'a>(
    value: &Value<'a>,
    index: &Value<'_>,
    test: bool,
) -> Result<Option<Value<'a>>, Fault> {
    match value {
        Value::Map(map) => match map.find(index) {
            None if !test => Err(index
                .as_str()
                .and_then(|text| map.fault(Key::new(text)))
                .map_or_else(|| missing_key(index), Fault::new)),
            found => Ok(found),
        },
        Value::List(list) => {
            let found = list_index(index)?.and_then(|position| list.get(position));
            match found {
                None if !test => Err(Fault::new(format!("index out of bounds: {index}"))),
                found => Ok(found),
            }
        }
        _ if test => Ok(None),
        _ => Err(missing_key(index)),
    }
}

/// The position that an index means; `None` below zero.
fn list_index(index: &Value<'_>) -> Result<Option<usize>, Fault> {
    match *index {
        Value::Int(position) => Ok(usize::try_from(position).ok()),
        Value::Uint(position) if i64::try_from(position).is_ok() => {
            Ok(usize::try_from(position).ok())
        }
        Value::Double(position) if position.fract() == 0.0 && position.abs() < 9e15 => {
            Ok((position >= 0.0).then_some(position as usize))
        }
        Value::Uint(_) | Value::Double(_) => Err(Fault::new(format!(
            "unsupported index value {index} in list"
        ))),
        _ => Err(Fault::new(format!(
            "unsupported index type '{}' in list",
            index.type_name()
        ))),
    }
}
