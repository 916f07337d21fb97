//! Checks of the authorizer as values.

use std::sync::Arc;

use super::{Extension, Value};
use crate::authorization::{Access, Answers, Check, Stage};

impl Answers {
    /// The variable `authorizer`.
    pub fn authorizer(self: &Arc<Self>) -> Value<'static> {
        self.value(Stage::Authorizer, Check::default())
    }

    /// The variable `authorizer.requestResource`: a check that lacks only its verb.
    pub fn resource_check(self: &Arc<Self>, check: Check) -> Value<'static> {
        self.value(Stage::Resource, check)
    }

    fn value(self: &Arc<Self>, stage: Stage, check: Check) -> Value<'static> {
        let access = Access {
            stage,
            check,
            answers: self.clone(),
        };
        Value::Extension(Arc::new(Extension::Access(Box::new(access))))
    }
}

impl Access {
    /// The check with an additional restriction.
    pub(crate) fn then(&self, stage: Stage, say: impl FnOnce(&mut Check)) -> Value<'static> {
        let mut check = self.check.clone();
        say(&mut check);
        self.answers.value(stage, check)
    }

    /// The decision, if available.
    pub(crate) fn decide(&self, verb: &str) -> Option<Value<'static>> {
        let mut check = self.check.clone();
        verb.clone_into(&mut check.verb);
        let decision = self.answers.decide(&check)?;
        Some(self.answers.value(Stage::Decision(decision), check))
    }
}
