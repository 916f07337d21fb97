//! Literals of lists, maps and messages.

use super::Checker;
use crate::{
    ast::{Entry, Expr, ExprKind},
    types::Type,
};

impl Checker<'_> {
    pub(super) fn check_list(&mut self, elements: &mut [Expr], optional: &[usize]) -> Type {
        let mut joined = None;
        for (i, element) in elements.iter_mut().enumerate() {
            self.check(element);
            let mut ty = self.get(element.id);
            if optional.contains(&i) {
                ty = self.unwrap_optional(element.id, ty);
            }
            joined = Some(self.join(element.id, joined, ty));
        }
        joined.unwrap_or_else(|| self.unifier.fresh())
    }

    pub(super) fn check_map(&mut self, entries: &mut [Entry<Expr>]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(&mut entry.key);
            let key = self.get(entry.key.id);
            keys = Some(self.join(entry.key.id, keys, key));
            self.check(&mut entry.value);
            let mut value = self.get(entry.value.id);
            if entry.optional {
                value = self.unwrap_optional(entry.value.id, value);
            }
            values = Some(self.join(entry.value.id, values, value));
        }
        let keys = keys.unwrap_or_else(|| self.unifier.fresh());
        let values = values.unwrap_or_else(|| self.unifier.fresh());
        Type::map(keys, values)
    }

    pub(super) fn check_struct(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ExprKind::Struct { type_name, fields } = &mut expr.kind else {
            return;
        };
        let name = type_name.strip_prefix('.').unwrap_or(type_name).to_owned();
        let found = self.scopes.find(&name).or_else(|| {
            self.env
                .variable_type(&name)
                .map(|ty| ty.ty().clone())
                .or_else(|| self.env.type_name(&name))
        });
        let ty = match found {
            None => {
                let name = type_name.clone();
                self.undeclared(id, &name);
                self.set(id, Type::Error);
                return;
            }
            Some(Type::Type(Some(inner))) if matches!(*inner, Type::Object(_)) => (*inner).clone(),
            Some(Type::Type(Some(inner))) => {
                self.error(
                    id,
                    format!("'{}' is not a message type", inner.runtime_name()),
                );
                Type::Error
            }
            Some(other) => {
                self.error(id, format!("'{}' is not a type", other.runtime_name()));
                Type::Error
            }
        };
        self.set(id, ty);
        for field in fields {
            self.check(&mut field.value);
            let declared = self
                .field_type(field.id, &name, &field.key)
                .unwrap_or(Type::Error);
            let mut given = self.get(field.value.id);
            if field.optional {
                given = self.unwrap_optional(field.value.id, given);
            }
            if !self.unifier.assign(&declared, &given) {
                let message = format!(
                    "expected type of field '{}' is '{declared}' but provided type is '{given}'",
                    field.key
                );
                self.error(field.id, message);
            }
        }
    }
}
