//! The variables of a policy: evaluated when they are read, once for all expressions.

use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use allot_cel::value::{Key, MapSource, Value as Cel};

use crate::expression::Expression;
use crate::limits::of_expression;

#[cfg(test)]
mod tests;

/// How many variables may be evaluated inside each other. Each has its own expression on the stack.
const MAX_CHAIN: usize = 4;
/// How deep the value of a variable may be nested.
const MAX_LEVELS: usize = 200;

/// Variables and their values so far.
#[derive(Debug)]
pub(super) struct Lazy<'a> {
    variables: &'a [(String, Expression)],
    /// Their places by name; of two with one name the last counts.
    places: HashMap<&'a str, usize>,
    cells: Vec<Cell<'a>>,
    values: OnceLock<&'a [Cel<'a>]>,
    cost: AtomicU64,
    /// How many are being evaluated.
    inside: AtomicUsize,
    /// What the outermost of them reads is being evaluated first.
    in_order: AtomicBool,
}

#[derive(Debug, Default)]
struct Cell<'a> {
    value: OnceLock<Result<Cel<'a>, String>>,
    /// Being evaluated: a variable that replaces another of its name may refer to itself.
    busy: AtomicBool,
}

impl<'a> Lazy<'a> {
    /// None of them evaluated.
    pub(super) fn new(variables: &'a [(String, Expression)]) -> Self {
        let named = variables.iter().enumerate();
        Lazy {
            variables,
            places: named.map(|(at, (name, _))| (name.as_str(), at)).collect(),
            cells: variables.iter().map(|_| Cell::default()).collect(),
            values: OnceLock::new(),
            cost: AtomicU64::new(0),
            inside: AtomicUsize::new(0),
            in_order: AtomicBool::new(false),
        }
    }

    /// Sets what the expressions of the variables see; once.
    pub(super) fn see(&self, values: &'a [Cel<'a>]) {
        // A new cell, so it is empty.
        let _ = self.values.set(values);
    }

    /// What evaluating variables has cost since the last time.
    pub(super) fn take_cost(&self) -> u64 {
        self.cost.swap(0, Ordering::Relaxed)
    }

    fn read(&self, name: &str) -> Option<&Result<Cel<'a>, String>> {
        let index = *self.places.get(name)?;
        if self.cells[index].value.get().is_none() && self.variables.len() > MAX_CHAIN {
            self.evaluate_needed(index);
        }
        self.cell(index)
    }

    fn cell(&self, index: usize) -> Option<&Result<Cel<'a>, String>> {
        let (cell, (name, expression)) = (&self.cells[index], &self.variables[index]);
        if cell.value.get().is_none() && cell.busy.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some(cell.value.get_or_init(|| self.evaluate(name, expression)))
    }

    /// Evaluates the variables that a variable may read before it is evaluated itself, if they would nest too deeply
    /// otherwise. Variables only refer to earlier ones, so the order of declaration works.
    fn evaluate_needed(&self, index: usize) {
        if self.in_order.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut needed = BTreeSet::new();
        let mut open = vec![index];
        while let Some(at) = open.pop() {
            for name in references(&self.variables[at].1.text) {
                let Some(other) = self.places.get(name).copied() else {
                    continue;
                };
                let unknown = other != index && self.cells[other].value.get().is_none();
                if unknown && needed.insert(other) {
                    open.push(other);
                }
            }
        }
        if needed.len() >= MAX_CHAIN {
            for at in needed {
                self.cell(at);
            }
        }
        self.in_order.store(false, Ordering::Relaxed);
    }

    fn evaluate(&self, name: &str, expression: &'a Expression) -> Result<Cel<'a>, String> {
        let fails = |what: &str, error: &dyn std::fmt::Display| {
            format!("composited variable {name:?} fails to {what}: {error}")
        };
        let program = match &expression.program {
            Ok(program) => program,
            Err(error) => return Err(fails("compile", error)),
        };
        if self.inside.fetch_add(1, Ordering::Relaxed) > MAX_CHAIN {
            self.inside.fetch_sub(1, Ordering::Relaxed);
            return Err(fails("evaluate", &"too many variables refer to each other"));
        }
        let values = self.values.get().copied().unwrap_or_default();
        let outcome = program.evaluate(values, &of_expression());
        self.inside.fetch_sub(1, Ordering::Relaxed);
        self.cost.fetch_add(outcome.cost, Ordering::Relaxed);
        let value = outcome.result.map_err(|error| fails("evaluate", &error))?;
        if !value.nests_within(MAX_LEVELS) {
            let why = format!("the value is nested more than {MAX_LEVELS} levels deep");
            return Err(fails("evaluate", &why));
        }
        Ok(value)
    }
}

/// The names after `variables.` in an expression. One in a string is found too, which does no harm.
fn references(text: &str) -> impl Iterator<Item = &str> {
    const OF: &str = "variables";
    text.match_indices(OF).filter_map(|(at, _)| {
        let rest = text[at + OF.len()..].trim_start().strip_prefix('.')?;
        let rest = rest.trim_start_matches('?').trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        Some(&rest[..end.unwrap_or(rest.len())])
    })
}

impl MapSource for Lazy<'_> {
    fn len(&self, _: u32) -> usize {
        self.variables.len()
    }

    fn find(&self, _: u32, key: Key<'_>) -> Option<Cel<'_>> {
        self.read(key.text())?.as_ref().ok().cloned()
    }

    fn contains(&self, _: u32, key: Key<'_>) -> bool {
        self.places.contains_key(key.text())
    }

    fn fault(&self, _: u32, key: Key<'_>) -> Option<String> {
        self.read(key.text())?.as_ref().err().cloned()
    }

    fn key(&self, _: u32, index: usize) -> &str {
        &self.variables[index].0
    }
}
