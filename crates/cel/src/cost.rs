//! Static cost: the least and the most that an evaluation can cost, from the sizes that values can have.
//!
//! The numbers decide whether the API admits an expression, so they equal upstream's (cel-go's estimator with the
//! Kubernetes cost tables), including its peculiarities.

use std::{collections::HashMap, sync::Arc};

use crate::{
    ast::{Comprehension, Expr, ExprKind, Id, Literal},
    checker::Facts,
    env::Env,
    types::Type,
};

mod calls;

pub(crate) use crate::size::times_factor;
pub use crate::size::{Cost, Size};

/// Cost of reading a variable or a field.
pub(crate) const SELECT: u64 = 1;
/// Cost of an authorization check.
pub(crate) const AUTHORIZATION_CHECK: u64 = 350_000;
/// Cost of creating a list.
pub(crate) const LIST: u64 = 10;
/// Cost of creating a map.
pub(crate) const MAP: u64 = 30;
/// Cost of creating a message.
pub(crate) const STRUCT: u64 = 40;
/// Cost of looking at one character of a string.
pub(crate) const PER_CHAR: f64 = 0.1;
/// Cost of one character of a regular expression.
pub(crate) const PER_REGEX_CHAR: f64 = 0.25;

/// A path from a variable to a part of its value.
type Path = Vec<Arc<str>>;

/// Sizes of the keys (or indexes) and values of a list or map.
#[derive(Debug, Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Size,
    value: Size,
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self {
            is_list: self.is_list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

/// A variable that a macro declares.
struct Local {
    name: Arc<str>,
    path: Path,
    size: Option<Size>,
    entries: Option<Entries>,
}

/// The cost range of a checked expression.
pub(crate) fn estimate(expr: &Expr, facts: &Facts, env: &Env) -> Cost {
    let mut estimator = Estimator {
        facts,
        env,
        paths: HashMap::new(),
        locals: Vec::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    estimator.cost(expr)
}

struct Estimator<'a> {
    facts: &'a Facts,
    env: &'a Env,
    paths: HashMap<Id, Path>,
    locals: Vec<Local>,
    sizes: HashMap<Id, Size>,
    entries: HashMap<Id, Entries>,
}

/// Inputs of the cost of a call: a node, or the elements of one.
struct Node<'e> {
    path: Option<Path>,
    ty: Type,
    expr: Option<&'e Expr>,
    size: Option<Size>,
}

impl<'a> Estimator<'a> {
    fn cost(&mut self, expr: &Expr) -> Cost {
        match &expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) => Cost::ZERO,
            ExprKind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.clone()],
                };
                self.paths.insert(expr.id, path);
                Cost::fixed(SELECT)
            }
            ExprKind::Select {
                operand,
                test_only: true,
                ..
            } => self.cost(operand),
            ExprKind::Select { operand, field, .. } => {
                let mut sum = self.cost(operand);
                if matches!(
                    self.facts.type_of(operand.id),
                    Type::Map(..) | Type::Object(_)
                ) {
                    sum = sum + Cost::fixed(SELECT);
                }
                let mut path = self.path(operand);
                path.push(field.clone());
                self.paths.insert(expr.id, path);
                sum
            }
            ExprKind::Call {
                function,
                target,
                args,
            } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements, .. } => {
                let mut sum = Cost::ZERO;
                let mut value = Size::nothing(elements.is_empty());
                for element in elements {
                    sum = sum + self.cost(element);
                    value = value.union(self.size_or_unknown(element));
                }
                let entries = Entries {
                    is_list: true,
                    key: Size::fixed(1),
                    value,
                };
                self.entries.insert(expr.id, entries);
                sum + Cost::fixed(LIST)
            }
            ExprKind::Map(map) => {
                let mut sum = Cost::ZERO;
                let (mut key, mut value) =
                    (Size::nothing(map.is_empty()), Size::nothing(map.is_empty()));
                for entry in map {
                    sum = sum + self.cost(&entry.key) + self.cost(&entry.value);
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(
                    expr.id,
                    Entries {
                        is_list: false,
                        key,
                        value,
                    },
                );
                sum + Cost::fixed(MAP)
            }
            ExprKind::Struct { fields, .. } => {
                let sum = fields
                    .iter()
                    .fold(Cost::ZERO, |sum, field| sum + self.cost(&field.value));
                sum + Cost::fixed(STRUCT)
            }
            ExprKind::Comprehension(c) if is_binding(c) => self.binding(expr, c),
            ExprKind::Comprehension(c) => self.comprehension(expr, c),
        }
    }

    fn binding(&mut self, expr: &Expr, c: &Comprehension) -> Cost {
        let sum = self.cost(&c.range) + self.cost(&c.init);
        self.push_local(&c.accu, &c.init);
        let sum = sum + self.cost(&c.result);
        self.locals.pop();
        self.copy_sizes(expr, &c.result);
        sum
    }

    fn comprehension(&mut self, expr: &Expr, c: &Comprehension) -> Cost {
        let mut sum = self.cost(&c.range) + self.cost(&c.init);
        self.push_local(&c.accu, &c.init);
        let entries = self.entries_of(&c.range);
        let is_list = entries.map_or(
            matches!(self.facts.type_of(c.range.id), Type::List(_)),
            |e| e.is_list,
        );
        let key = entries.map(|entries| entries.key);
        let value = entries.map(|entries| entries.value);
        let range_path = self.path(&c.range);
        let mut push = |name: &Arc<str>, step: &str, size: Option<Size>| {
            let mut path = range_path.clone();
            path.push(step.into());
            self.locals.push(Local {
                name: name.clone(),
                path,
                size,
                entries: None,
            });
        };
        match (&c.var2, is_list) {
            (Some(var2), true) => {
                push(&c.var, "@indices", key);
                push(var2, "@items", value);
            }
            (Some(var2), false) => {
                push(&c.var, "@keys", key);
                push(var2, "@values", value);
            }
            (None, true) => push(&c.var, "@items", value),
            (None, false) => push(&c.var, "@keys", key),
        }
        let condition = self.cost(&c.condition);
        let step = self.cost(&c.step);
        let variables = if c.var2.is_some() { 2 } else { 1 };
        self.locals.truncate(self.locals.len() - variables);
        sum = sum + self.cost(&c.result);
        self.locals.pop();
        let count = self.size_or_unknown(&c.range);
        sum = sum + count.times_cost(step + condition);
        match &c.init.kind {
            ExprKind::Literal(_) => {
                let size = self.size(&c.init);
                self.set_size(expr.id, size);
            }
            ExprKind::List { .. } | ExprKind::Map(_) => {
                self.set_size(expr.id, Some(count));
                if let Some(entries) = self.entries_of(&c.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        sum
    }

    fn push_local(&mut self, name: &Arc<str>, value: &Expr) {
        let local = Local {
            name: name.clone(),
            path: self.path(value),
            size: self.size(value),
            entries: self.entries_of(value),
        };
        self.locals.push(local);
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| &*local.name == name)
    }

    fn path(&self, expr: &Expr) -> Path {
        if let ExprKind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn set_size(&mut self, id: Id, size: Option<Size>) {
        if let Some(size) = size {
            self.sizes.insert(id, size);
        }
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        let size = self.size(from);
        self.set_size(to.id, size);
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(to.id, entries);
        }
    }

    /// Size of the value of a node, if known.
    fn size(&mut self, expr: &Expr) -> Option<Size> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        let literal = match &expr.kind {
            ExprKind::Literal(Literal::String(text)) => Some(text.chars().count()),
            ExprKind::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            ExprKind::Literal(_) => Some(1),
            ExprKind::List { elements, .. } => Some(elements.len()),
            ExprKind::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(size) = literal {
            return Some(Size::fixed(size as u64));
        }
        if let Some(size) = self.declared_size(&self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.facts.type_of(expr.id)) {
            return Some(Size::fixed(1));
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    /// Size that the declaration of a variable gives to a part of it.
    fn declared_size(&self, path: &[Arc<str>]) -> Option<Size> {
        let (root, steps) = path.split_first()?;
        // Upstream's estimator for the rules of custom resources takes any identifier alone, such as the name of a type, for
        // the value that the rule is about.
        let own = || self.env.variable_type("self").filter(|_| steps.is_empty());
        let mut ty = self.env.variable_type(root).or_else(own)?;
        for step in steps {
            ty = ty.step(step)?;
        }
        Some(ty.size())
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Size {
        self.size(expr).unwrap_or(Size::UNKNOWN)
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            ExprKind::Ident(name) => self.local(name)?.entries,
            _ => None,
        }
    }

    fn node<'e>(&mut self, expr: &'e Expr) -> Node<'e> {
        let path = self.path(expr);
        let hidden = path
            .first()
            .is_some_and(|root| &**root == crate::ast::ACCUMULATOR);
        Node {
            path: (!hidden && !path.is_empty()).then_some(path),
            ty: self.facts.type_of(expr.id).clone(),
            expr: Some(expr),
            size: self.size(expr),
        }
    }
}

/// Whether the loop is an expansion of `cel.bind`: over an empty list, with its own variable.
fn is_binding(c: &Comprehension) -> bool {
    matches!(&c.range.kind, ExprKind::List { elements, .. } if elements.is_empty())
        && matches!(c.condition.kind, ExprKind::Literal(Literal::Bool(false)))
}

/// Whether all values of the type have the same size.
fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        other => other.optional_inner().is_some_and(is_scalar),
    }
}
