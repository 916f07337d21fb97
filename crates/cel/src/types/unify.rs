//! Finding out type variables.

use std::sync::Arc;

use super::Type;

/// Bindings of the type variables of an expression.
#[derive(Debug, Default)]
pub(crate) struct Unifier {
    bindings: Vec<Option<Type>>,
    /// Bindings before their last changes, to undo a failed attempt.
    trail: Vec<(u32, Option<Type>)>,
}

impl Unifier {
    /// A free type variable.
    pub(crate) fn fresh(&mut self) -> Type {
        self.bindings.push(None);
        Type::Var((self.bindings.len() - 1) as u32)
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Var(number) => self.bindings.get(*number as usize)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, variable: &Type, to: Type) {
        if let Type::Var(number) = variable {
            let old = self.bindings[*number as usize].replace(to);
            self.trail.push((*number, old));
        }
    }

    /// Whether each of `from` can be assigned to its counterpart. New bindings are kept only if all can.
    pub(crate) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mark = self.trail.len();
        let ok = self.all_assignable(from, to);
        if !ok {
            while self.trail.len() > mark {
                if let Some((number, old)) = self.trail.pop() {
                    self.bindings[number as usize] = old;
                }
            }
        }
        ok
    }

    /// Whether `from` can be assigned to `to`.
    pub(crate) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len()
            && from
                .iter()
                .zip(to)
                .all(|(from, to)| self.assignable(from, to))
    }

    fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        if matches!(to, Type::Var(_)) {
            match self.substitution(from, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if matches!(from, Type::Var(_)) {
            return self.substitution(to, from).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => {
                matches!(
                    other,
                    Type::Null
                        | Type::Opaque(..)
                        | Type::Object(_)
                        | Type::Duration
                        | Type::Timestamp
                )
            }
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) => self.assignable(a, b),
            (Type::Map(ka, va), Type::Map(kb, vb)) => {
                self.assignable(ka, kb) && self.assignable(va, vb)
            }
            (Type::Opaque(a, pa), Type::Opaque(b, pb)) => a == b && self.all_assignable(pa, pb),
            _ => from == to,
        }
    }

    /// Whether `variable` can be bound to `ty`, and whether it was bound already.
    fn substitution(&mut self, ty: &Type, variable: &Type) -> (bool, bool) {
        if ty == variable {
            return (true, true);
        }
        if let Some(known) = self.find(variable).cloned() {
            if *ty == known {
                return (true, true);
            }
            if self.assignable(ty, &known) {
                let general = most_general(ty, &known).clone();
                if self.not_within(variable, &general) {
                    self.bind(variable, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.not_within(variable, ty) {
            self.bind(variable, ty.clone());
            return (true, false);
        }
        (false, false)
    }

    fn not_within(&self, variable: &Type, ty: &Type) -> bool {
        if ty == variable {
            return false;
        }
        match ty {
            Type::Var(_) => self
                .find(ty)
                .is_none_or(|known| self.not_within(variable, known)),
            Type::List(element) => self.not_within(variable, element),
            Type::Map(key, value) => {
                self.not_within(variable, key) && self.not_within(variable, value)
            }
            Type::Type(Some(inner)) => self.not_within(variable, inner),
            Type::Opaque(_, params) => params.iter().all(|param| self.not_within(variable, param)),
            _ => true,
        }
    }

    /// `ty` with its variables replaced by their bindings; free ones become dyn if `close` is set.
    pub(crate) fn substitute(&self, ty: &Type, close: bool) -> Type {
        if let Some(known) = self.find(ty) {
            return self.substitute(known, close);
        }
        match ty {
            Type::Var(_) if close => Type::Dyn,
            Type::List(element) => Type::list(self.substitute(element, close)),
            Type::Map(key, value) => {
                Type::map(self.substitute(key, close), self.substitute(value, close))
            }
            Type::Type(Some(inner)) => Type::Type(Some(Arc::new(self.substitute(inner, close)))),
            Type::Opaque(name, params) => Type::Opaque(
                name.clone(),
                params
                    .iter()
                    .map(|param| self.substitute(param, close))
                    .collect(),
            ),
            other => other.clone(),
        }
    }
}

/// `ty` with the parameters of a declaration replaced.
pub(crate) fn instantiate(ty: &Type, replace: &mut impl FnMut(&Arc<str>) -> Type) -> Type {
    match ty {
        Type::Param(name) => replace(name),
        Type::List(element) => Type::list(instantiate(element, replace)),
        Type::Map(key, value) => {
            let key = instantiate(key, replace);
            Type::map(key, instantiate(value, replace))
        }
        Type::Type(Some(inner)) => Type::Type(Some(Arc::new(instantiate(inner, replace)))),
        Type::Opaque(name, params) => Type::Opaque(
            name.clone(),
            params
                .iter()
                .map(|param| instantiate(param, replace))
                .collect(),
        ),
        other => other.clone(),
    }
}

/// The more general of two types that unify.
pub(crate) fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if equal_or_less_specific(a, b) { a } else { b }
}

fn equal_or_less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Var(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Var(_)) {
        return false;
    }
    match (a, b) {
        (Type::Type(_), Type::Type(_)) => true,
        (Type::List(a), Type::List(b)) => equal_or_less_specific(a, b),
        (Type::Map(ka, va), Type::Map(kb, vb)) => {
            equal_or_less_specific(ka, kb) && equal_or_less_specific(va, vb)
        }
        (Type::Opaque(a, pa), Type::Opaque(b, pb)) => {
            a == b
                && pa.len() == pb.len()
                && pa
                    .iter()
                    .zip(pb.iter())
                    .all(|(a, b)| equal_or_less_specific(a, b))
        }
        _ => a == b,
    }
}
