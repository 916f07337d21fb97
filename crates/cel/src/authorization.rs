//! Authorization checks in expressions.
//!
//! An evaluation cannot wait for an answer, and this crate has no authorizer. So checks are looked up in [`Answers`];
//! the first missing one ends the evaluation, and the caller fetches the answer and evaluates again:
//!
//! ```
//! use std::sync::Arc;
//! use allot_cel::authorization::{Answers, Check, Decision};
//! use allot_cel::{env::{DeclType, Env}, program::{Limits, Program}, types::Type, value::Value};
//!
//! let authorizer = DeclType::scalar(Type::object("kubernetes.authorization.Authorizer"), 0);
//! let env = Env::kubernetes().with_variable("authorizer", authorizer);
//! let ast = env.compile("authorizer.group('').resource('pods').check('list').allowed()").map_err(|e| e.to_string())?;
//! let program = Program::new(&ast).map_err(|e| e.to_string())?;
//! let answers = Arc::new(Answers::default());
//! let variables = [answers.authorizer()];
//! let evaluate = || program.evaluate(&variables, &Limits::default()).result;
//!
//! assert!(evaluate().is_err());
//! for check in answers.wanted() {
//!     assert_eq!((check.resource.as_str(), check.verb.as_str()), ("pods", "list"));
//!     answers.put(check, Decision { allowed: true, ..Decision::default() });
//! }
//! assert!(matches!(evaluate(), Ok(Value::Bool(true))));
//! # Ok::<(), String>(())
//! ```

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The attributes of the request that is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Check {
    /// Namespace and name of a service account; the requesting user if absent.
    pub account: Option<(String, String)>,
    /// The path of a non-resource check.
    pub path: String,
    /// API group.
    pub group: String,
    /// Plural name.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Name of the object, or empty.
    pub name: String,
    /// Field selector, or empty.
    pub fields: String,
    /// Label selector, or empty.
    pub labels: String,
    /// The verb of the request: `get`, `list`, and so on, or an HTTP method in lower case for a path.
    pub verb: String,
}

/// The answer of the authorizer to a [`Check`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// An authorizer allows the request. False also when none has an opinion.
    pub allowed: bool,
    /// Why, or why not.
    pub reason: String,
    /// What went wrong with asking, or empty.
    pub error: String,
}

/// Known answers, and checks that wait for one.
#[derive(Debug, Default)]
pub struct Answers(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: HashMap<Check, Decision>,
    wanted: Vec<Check>,
}

impl Answers {
    /// The checks that were requested since the last call. Where there are some, evaluations have ended because of
    /// them and have to be repeated.
    pub fn wanted(&self) -> Vec<Check> {
        std::mem::take(&mut self.inner().wanted)
    }

    /// Notes an answer.
    pub fn put(&self, check: Check, decision: Decision) {
        self.inner().known.insert(check, decision);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No code under the lock can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn decide(&self, check: &Check) -> Option<Decision> {
        let mut inner = self.inner();
        let known = inner.known.get(check).cloned();
        if known.is_none() {
            inner.wanted.push(check.clone());
        }
        known
    }
}

/// A check that is being put together, or its answer.
#[derive(Debug, Clone)]
pub struct Access {
    pub(crate) stage: Stage,
    pub(crate) check: Check,
    pub(crate) answers: Arc<Answers>,
}

/// The stage of a check that is being built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    Authorizer,
    Path,
    Group,
    Resource,
    Decision(Decision),
}

impl Access {
    /// Name of the type in expressions.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => "kubernetes.authorization.Authorizer",
            Stage::Path => "kubernetes.authorization.PathCheck",
            Stage::Group => "kubernetes.authorization.GroupCheck",
            Stage::Resource => "kubernetes.authorization.ResourceCheck",
            Stage::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    /// Name of the type in Go.
    pub(crate) fn go_type(&self) -> &'static str {
        match self.stage {
            Stage::Authorizer => "library.authorizerVal",
            Stage::Path => "library.pathCheckVal",
            Stage::Group => "library.groupCheckVal",
            Stage::Resource => "library.resourceCheckVal",
            Stage::Decision(_) => "library.decisionVal",
        }
    }
}

/// Upstream's values are not equal to anything, not even to themselves.
impl PartialEq for Access {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
