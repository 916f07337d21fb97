//! Type checking: determines the type of every node and the overloads of every call, or reports errors.

use std::{collections::HashMap, sync::Arc};

use crate::{
    ast::{Ast, Comprehension, Expr, ExprKind, Id, Literal},
    env::Env,
    source::Issue,
    types::{Type, Unifier, most_general},
};

mod aggregates;
mod calls;
mod scopes;

use scopes::Scopes;

/// What a node refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A variable or a type, by its full name.
    Ident(Arc<str>),
    /// The overloads that a call may mean.
    Overloads(Vec<Arc<str>>),
}

/// Types and references of the nodes, by number.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    types: Vec<Option<Type>>,
    references: HashMap<Id, Reference>,
}

impl Facts {
    /// Type of a node.
    pub fn type_of(&self, id: Id) -> &Type {
        self.types
            .get(id as usize)
            .and_then(Option::as_ref)
            .unwrap_or(&Type::Dyn)
    }

    /// What a node refers to.
    pub fn reference(&self, id: Id) -> Option<&Reference> {
        self.references.get(&id)
    }

    /// The overloads that a call may mean.
    pub fn overloads(&self, id: Id) -> &[Arc<str>] {
        match self.references.get(&id) {
            Some(Reference::Overloads(overloads)) => overloads,
            _ => &[],
        }
    }
}

/// Checks a parsed expression. Calls of namespaced functions and qualified names are rewritten in the tree.
pub(crate) fn check(ast: &mut Ast, env: &Env) -> (Facts, Vec<Issue>) {
    let mut checker = Checker {
        env,
        positions: &ast.positions,
        facts: Facts {
            types: vec![None; ast.positions.len()],
            references: HashMap::new(),
        },
        scopes: Scopes::default(),
        unifier: Unifier::default(),
        issues: Vec::new(),
    };
    checker.check(&mut ast.expr);
    let Checker {
        mut facts,
        unifier,
        issues,
        ..
    } = checker;
    for ty in facts.types.iter_mut().flatten() {
        *ty = unifier.substitute(ty, true);
    }
    (facts, issues)
}

struct Checker<'a> {
    env: &'a Env,
    positions: &'a crate::ast::Positions,
    facts: Facts,
    scopes: Scopes,
    unifier: Unifier,
    issues: Vec<Issue>,
}

impl Checker<'_> {
    fn error(&mut self, at: Id, message: String) {
        self.issues.push(Issue {
            offset: self.positions.get(at),
            message,
        });
    }

    fn undeclared(&mut self, at: Id, name: &str) {
        self.error(
            at,
            format!("undeclared reference to '{name}' (in container '')"),
        );
    }

    fn mismatch(&mut self, at: Id, expected: &Type, found: &Type) {
        self.error(
            at,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    fn set(&mut self, id: Id, ty: Type) {
        self.facts.types[id as usize] = Some(ty);
    }

    fn get(&self, id: Id) -> Type {
        self.facts.types[id as usize].clone().unwrap_or(Type::Error)
    }

    fn check(&mut self, expr: &mut Expr) {
        match &mut expr.kind {
            ExprKind::Unspecified => self.set(expr.id, Type::Error),
            ExprKind::Literal(literal) => {
                let ty = literal_type(literal);
                self.set(expr.id, ty);
            }
            ExprKind::Ident(name) => {
                let name = name.clone();
                if !self.resolve(expr, &name) {
                    self.set(expr.id, Type::Error);
                    self.undeclared(expr.id, &name);
                }
            }
            ExprKind::Select { .. } => self.check_select(expr),
            ExprKind::Call { .. } => self.check_call(expr),
            ExprKind::List { elements, optional } => {
                let ty = self.check_list(elements, optional);
                self.set(expr.id, Type::list(ty));
            }
            ExprKind::Map(entries) => {
                let ty = self.check_map(entries);
                self.set(expr.id, ty);
            }
            ExprKind::Struct { .. } => self.check_struct(expr),
            ExprKind::Comprehension(comprehension) => {
                let ty = self.check_comprehension(comprehension);
                self.set(expr.id, ty);
            }
        }
    }

    /// Makes the node a reference to the variable or type of this name, if there is one.
    fn resolve(&mut self, expr: &mut Expr, name: &str) -> bool {
        let plain = name.strip_prefix('.').unwrap_or(name);
        let found = self.scopes.find(plain).or_else(|| {
            self.env
                .variable_type(plain)
                .map(|ty| ty.ty().clone())
                .or_else(|| self.env.type_name(plain))
        });
        let Some(ty) = found else {
            return false;
        };
        self.set(expr.id, ty);
        self.facts
            .references
            .insert(expr.id, Reference::Ident(plain.into()));
        expr.kind = ExprKind::Ident(plain.into());
        true
    }

    fn check_select(&mut self, expr: &mut Expr) {
        if let Some(name) = expr.qualified_name()
            && self.resolve(expr, &name)
        {
            return;
        }
        let ExprKind::Select {
            operand,
            field,
            test_only,
        } = &mut expr.kind
        else {
            return;
        };
        let (field, test_only) = (field.clone(), *test_only);
        let mut ty = self.check_field(expr.id, operand, &field, false);
        if test_only {
            ty = Type::Bool;
        }
        let ty = self.unifier.substitute(&ty, false);
        self.set(expr.id, ty);
    }

    /// Type of a field of the operand.
    fn check_field(&mut self, at: Id, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.unifier.substitute(&self.get(operand.id), false);
        let inner = operand.optional_inner();
        let optional = optional || inner.is_some();
        let result = match inner.unwrap_or(&operand) {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(name) => self.field_type(at, name, field).unwrap_or(Type::Error),
            variable @ Type::Var(_) => {
                self.unifier.assign(&Type::Dyn, variable);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.error(
                        at,
                        format!("type '{other}' does not support field selection"),
                    );
                }
                Type::Dyn
            }
        };
        if optional {
            Type::optional(result)
        } else {
            result
        }
    }

    fn field_type(&mut self, at: Id, object: &str, field: &str) -> Option<Type> {
        if let Some(made) = self.env.made_field(object, field) {
            if made.is_none() {
                self.error(at, format!("undefined field '{field}'"));
            }
            return made;
        }
        let Some(object) = self.env.object(object) else {
            self.error(at, format!("unexpected failed resolution of '{object}'"));
            return None;
        };
        let ty = object.field(field).map(|ty| ty.ty().clone());
        if ty.is_none() {
            self.error(at, format!("undefined field '{field}'"));
        }
        ty
    }

    /// The type that `previous` and the type of the next element have in common.
    fn join(&mut self, at: Id, previous: Option<Type>, next: Type) -> Type {
        match previous {
            None => next,
            Some(previous) if self.unifier.assign(&previous, &next) => {
                most_general(&previous, &next).clone()
            }
            // Literals of mixed types are dyn here; the validators complain about them.
            Some(_) => {
                let _ = at;
                Type::Dyn
            }
        }
    }

    /// Type of an optional element without the optional.
    fn unwrap_optional(&mut self, at: Id, ty: Type) -> Type {
        match ty.optional_inner() {
            Some(inner) => inner.clone(),
            None => {
                if !ty.is_dyn() {
                    self.mismatch(at, &Type::optional(ty.clone()), &ty);
                }
                ty
            }
        }
    }

    fn check_comprehension(&mut self, c: &mut Comprehension) -> Type {
        self.check(&mut c.range);
        self.check(&mut c.init);
        let range = self.unifier.substitute(&self.get(c.range.id), false);
        let accu = self.get(c.init.id);
        self.scopes.push(&c.accu, accu.clone());
        let two = c.var2.is_some();
        let (first, second) = match &range {
            Type::List(element) if two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Var(_) => {
                self.unifier.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(c.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push(&c.var, first);
        if let Some(var2) = &c.var2 {
            self.scopes.push(var2, second);
        }
        self.check(&mut c.condition);
        self.assert(&c.condition, &Type::Bool);
        self.check(&mut c.step);
        self.assert(&c.step, &accu);
        self.scopes.pop(if two { 2 } else { 1 });
        self.check(&mut c.result);
        self.scopes.pop(1);
        self.unifier.substitute(&self.get(c.result.id), false)
    }

    fn assert(&mut self, expr: &Expr, expected: &Type) {
        let found = self.get(expr.id);
        if !self.unifier.assign(expected, &found) {
            self.mismatch(expr.id, expected, &found);
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

#[cfg(test)]
mod tests;
