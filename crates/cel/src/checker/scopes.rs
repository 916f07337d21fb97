//! Variables that macros declare.

use std::sync::Arc;

use crate::types::Type;

#[derive(Debug, Default)]
pub(super) struct Scopes(Vec<(Arc<str>, Type)>);

impl Scopes {
    pub(super) fn push(&mut self, name: &Arc<str>, ty: Type) {
        self.0.push((name.clone(), ty));
    }

    pub(super) fn pop(&mut self, count: usize) {
        self.0.truncate(self.0.len() - count);
    }

    pub(super) fn find(&self, name: &str) -> Option<Type> {
        self.0
            .iter()
            .rev()
            .find(|(known, _)| &**known == name)
            .map(|(_, ty)| ty.clone())
    }
}
