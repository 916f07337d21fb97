//! Evaluating expressions on a request, within what they may cost together.

use std::borrow::Cow;
use std::sync::Arc;

use allot_apimachinery::fields::FieldSelector;
use allot_apimachinery::labels::Selector;
use allot_cel::authorization::{Answers, Check, Decision};
use allot_cel::value::{Map, Value as Cel};
use serde_json::Value;

use super::definition::Definition;
use super::request::{Request, Target};
use super::variables::Lazy;
use crate::admission::Admission;
use crate::auth::AuthorizerAttributes;
use crate::error::ApiError;
use crate::expression::{DYNAMIC, Expression};
use crate::identity::{SERVICE_ACCOUNT_PREFIX, User};
use crate::limits::of_expression;

/// What the expressions of a policy may cost together for one binding.
pub(super) const BUDGET: u64 = 10_000_000;
/// The same for match conditions.
pub(super) const CONDITIONS_BUDGET: u64 = 2_500_000;
/// The reason why an evaluation stopped.
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The result of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Evaluation {
    /// There is no expression.
    Nothing,
    /// A bool.
    Bool(bool),
    /// A string.
    Text(String),
    /// A list or an object, or why it has no form outside.
    Made(Result<Value, String>),
    /// A value of another type.
    Other,
    /// It went wrong.
    Failed(String),
}

/// What expressions are evaluated on.
pub(super) struct EvaluationContext<'a> {
    /// The new object, or null.
    pub object: &'a Value,
    /// The present object, or null.
    pub old: &'a Value,
    /// The namespace, or null.
    pub namespace: &'a Value,
    /// The attributes of the request, as in an AdmissionReview.
    pub request: &'a Value,
    /// The parameters that a binding refers to; absent if the policy has none.
    pub params: Option<&'a Value>,
    /// The policy's variables.
    pub variables: &'a [(String, Expression)],
    /// The request as a question about its resource.
    pub check: &'a Check,
    /// Cached answers of the authorizer.
    pub answers: &'a Arc<Answers>,
}

/// A request as the expressions of a policy see it.
pub(super) struct Stage<'a> {
    /// The new object in the policy's version, or null.
    pub object: Cow<'a, Value>,
    old: Cow<'a, Value>,
    namespace: &'a Value,
    request: Value,
    check: Check,
}

impl<'a> Stage<'a> {
    /// The scene of a request; the inner error means that its objects cannot be converted to the policy's version.
    ///
    /// # Errors
    /// 404 for a namespace that does not exist, and errors of the store.
    pub async fn new(
        request: &'a Request<'_>,
        target: &Target,
        object: &'a Value,
    ) -> Result<Result<Self, ApiError>, ApiError> {
        let (object, old) = match (
            request.versioned(object, target).await,
            request.old_versioned(target).await,
        ) {
            (Ok(object), Ok(old)) => (object, old),
            (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
        };
        let (group, kind) = (&request.target.kind_group, &request.target.kind);
        let is_namespace = group.is_empty() && kind == "Namespace";
        let namespace = if request.namespace.is_empty() || is_namespace {
            &Value::Null
        } else {
            let found = request.namespace_object().await?;
            found.ok_or_else(|| request.no_namespace())?
        };
        Ok(Ok(Stage {
            object,
            old,
            namespace,
            request: request.to_json(target),
            check: request.check(),
        }))
    }

    /// What a policy's expressions are evaluated on.
    pub fn scene<'s>(
        &'s self,
        definition: &'s Definition,
        params: &'s Value,
        answers: &'s Arc<Answers>,
    ) -> EvaluationContext<'s> {
        EvaluationContext {
            object: &self.object,
            old: &self.old,
            namespace: self.namespace,
            request: &self.request,
            params: definition.param_kind.as_ref().map(|_| params),
            variables: &definition.variables,
            check: &self.check,
            answers,
        }
    }
}

impl EvaluationContext<'_> {
    /// The same for match conditions, which do not see the namespace.
    pub fn of_conditions(&self) -> EvaluationContext<'_> {
        EvaluationContext {
            namespace: &Value::Null,
            ..*self
        }
    }

    /// Evaluates expressions one after the other; also returns the remaining budget.
    ///
    /// # Errors
    /// Upstream's text when they cost too much together.
    pub fn run<'e>(
        &self,
        expressions: impl Iterator<Item = Option<&'e Expression>>,
        authorizer: bool,
        budget: u64,
    ) -> Result<(Vec<Evaluation>, u64), String> {
        let lazy = Lazy::new(self.variables);
        let values = self.values(&lazy, authorizer);
        lazy.see(&values);
        // The authorizer is last: expressions that have none see the rest.
        let seen = if authorizer {
            &values[..]
        } else {
            &values[..values.len() - 2]
        };
        let mut left = budget;
        let mut all = Vec::new();
        for expression in expressions {
            let Some(expression) = expression else {
                all.push(Evaluation::Nothing);
                continue;
            };
            let program = match &expression.program {
                Ok(program) => program,
                Err(error) => {
                    all.push(Evaluation::Failed(format!("compilation error: {error}")));
                    continue;
                }
            };
            let outcome = program.evaluate(seen, &of_expression());
            let cost = outcome.cost.saturating_add(lazy.take_cost());
            left = left.checked_sub(cost).ok_or(OUT_OF_BUDGET)?;
            all.push(match outcome.result {
                Ok(Cel::Bool(value)) => Evaluation::Bool(value),
                Ok(Cel::String(text)) => Evaluation::Text(text.to_string()),
                Ok(made @ (Cel::List(_) | Cel::Map(_))) => Evaluation::Made(
                    made.check_object_names()
                        .map_err(|error| format!("type mismatch: {error}"))
                        .and_then(|()| made.to_json().map_err(|error| error.to_string())),
                ),
                Ok(_) => Evaluation::Other,
                Err(error) => Evaluation::Failed(format!(
                    "expression '{}' resulted in error: {error}",
                    expression.text
                )),
            });
        }
        Ok((all, left))
    }

    /// The values of the variables in the order in which the environment declares them.
    fn values<'v>(&'v self, lazy: &'v Lazy<'v>, authorizer: bool) -> Vec<Cel<'v>> {
        let mut values = vec![
            DYNAMIC.value(self.object),
            DYNAMIC.value(self.old),
            DYNAMIC.value(self.namespace),
            DYNAMIC.value(self.request),
        ];
        values.extend(self.params.map(|params| DYNAMIC.value(params)));
        if !self.variables.is_empty() {
            values.push(Cel::Map(Map::Source(lazy, 0)));
        }
        if authorizer {
            values.push(self.answers.authorizer());
            values.push(self.answers.resource_check(self.check.clone()));
        } else {
            // Variables that would call the authorizer fail.
            values.extend([Cel::Null, Cel::Null]);
        }
        values
    }
}

/// Evaluates again and again until no expression waits for an answer.
pub(super) async fn settle<T>(
    core: &Admission,
    user: &User,
    answers: &Answers,
    evaluate: impl Fn() -> T,
) -> T {
    loop {
        let found = evaluate();
        let wanted = answers.wanted();
        if wanted.is_empty() {
            return found;
        }
        drop(found);
        for check in wanted {
            let decision = decide(core, user, &check).await;
            answers.put(check, decision);
        }
    }
}

async fn decide(core: &Admission, user: &User, check: &Check) -> Decision {
    let account = check.account.as_ref().map(|(namespace, name)| User {
        name: format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ],
        ..User::default()
    });
    // A selector that cannot be parsed is treated as absent.
    let fields = Some(&check.fields)
        .filter(|text| !text.is_empty())
        .and_then(|text| FieldSelector::parse(text).ok());
    let labels = Some(&check.labels)
        .filter(|text| !text.is_empty())
        .and_then(|text| Selector::parse(text).ok());
    let access = AuthorizerAttributes {
        user: account.as_ref().unwrap_or(user),
        verb: &check.verb,
        is_resource: check.path.is_empty(),
        group: &check.group,
        version: if check.path.is_empty() { "*" } else { "" },
        resource: &check.resource,
        subresource: &check.subresource,
        namespace: &check.namespace,
        name: &check.name,
        path: &check.path,
        fields: fields.as_ref(),
        labels: labels.as_ref(),
    };
    match core.authorizer.decide(core, &access).await {
        Ok(decision) => Decision {
            allowed: decision.allowed(),
            reason: decision.reason().to_owned(),
            error: decision.error().unwrap_or_default(),
        },
        Err(error) => Decision {
            error: error.to_string(),
            ..Decision::default()
        },
    }
}
