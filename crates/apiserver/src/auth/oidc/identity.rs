//! The user that the claims of a token make.

use std::collections::BTreeMap;

use allot_apimachinery::quote::quote;
use allot_cel::value::Value as Cel;
use serde_json::{Map, Value, json};

use super::claims::{mistyped, text, texts};
use crate::auth::token_webhook::{LARGEST, size};
use crate::config::TokenIssuer;
use crate::config::authentication::{BUDGET, Expression, Mapping, Object, Rule, strings};
use crate::identity::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

/// The key of the name of the token in the extra attributes.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

type Claims = Map<String, Value>;

/// What expressions see, and what they may still cost.
struct Evaluation {
    variable: Object,
    budget: u64,
}

impl Evaluation {
    fn of(fields: &Map<String, Value>, budget: u64) -> Self {
        Evaluation {
            variable: Object::variable(fields),
            budget,
        }
    }

    fn value<T>(
        &mut self,
        expression: &Expression,
        read: impl FnOnce(&Cel<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        expression.evaluate(&self.variable, &mut self.budget, read)
    }

    /// All of the rules hold.
    fn check(&mut self, rules: &[Rule]) -> Result<(), String> {
        for Rule {
            expression,
            message,
        } in rules
        {
            let holds = self.value(expression, |value| match value {
                Cel::Bool(holds) => Ok(*holds),
                _ => Err("validation expression must return a boolean".to_owned()),
            })?;
            if !holds {
                let text = &expression.text;
                return Err(format!("validation expression '{text}' failed: {message}"));
            }
        }
        Ok(())
    }
}

/// The user of a token whose signature, issuer, audience and time are right.
///
/// # Errors
/// Upstream's texts: the claims make no user, or a rule does not hold.
pub(super) fn user(issuer: &TokenIssuer, claims: &Claims) -> Result<User, String> {
    let mut evaluation = Evaluation::of(claims, BUDGET);
    let mut user = User {
        name: name(issuer, claims, &mut evaluation)?,
        groups: groups(issuer, claims, &mut evaluation)?,
        uid: uid(issuer, claims, &mut evaluation)?,
        extra: extra(issuer, claims, &mut evaluation)?,
    };
    if size(&user) > LARGEST {
        return Err("oidc: the user of the token has too many attributes".to_owned());
    }
    for (claim, wanted) in &issuer.required {
        if !claims.contains_key(claim) {
            return Err(format!(
                "oidc: required claim {claim} not present in ID token"
            ));
        }
        let found =
            text(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
        if found != wanted {
            return Err(format!(
                "oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}"
            ));
        }
    }
    let failed = |why: String| format!("oidc: error evaluating claim validation expression: {why}");
    evaluation.check(&issuer.claim_rules).map_err(failed)?;
    if !issuer.user_rules.is_empty() {
        let info = json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra});
        let info = info.as_object().cloned().unwrap_or_default();
        let failed =
            |why: String| format!("oidc: error evaluating user info validation rule: {why}");
        let mut evaluation = Evaluation::of(&info, evaluation.budget);
        evaluation.check(&issuer.user_rules).map_err(failed)?;
    }
    if user.name != ANONYMOUS && !user.in_group(UNAUTHENTICATED) {
        user.add_group(AUTHENTICATED);
    }
    Ok(user)
}

fn name(
    issuer: &TokenIssuer,
    claims: &Claims,
    evaluation: &mut Evaluation,
) -> Result<String, String> {
    let (claim, prefix) = match &issuer.username {
        Mapping::Claim { claim, prefix } => (claim, prefix),
        Mapping::Expression(expression) => {
            let name = evaluation.value(expression, |value| {
                let text = value.as_str().map(str::to_owned);
                text.ok_or_else(|| "username claim expression must return a string".to_owned())
            });
            let name = name.map_err(|why| {
                format!("oidc: error evaluating username claim expression: {why}")
            })?;
            return match name.is_empty() {
                true => Err("oidc: empty username via CEL expression is not allowed".to_owned()),
                false => Ok(name),
            };
        }
    };
    let name = present(claims, claim)
        .map_err(|why| format!("oidc: parse username claims {}: {why}", quote(claim)))?;
    if claim == "email" {
        match claims.get("email_verified") {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false) | Value::Null) => {
                return Err("oidc: email not verified".to_owned());
            }
            Some(other) => {
                let why = mistyped(other, "bool");
                return Err(format!("oidc: parse 'email_verified' claim: {why}"));
            }
        }
    }
    Ok(format!("{prefix}{name}"))
}

fn groups(
    issuer: &TokenIssuer,
    claims: &Claims,
    evaluation: &mut Evaluation,
) -> Result<Vec<String>, String> {
    match &issuer.groups {
        None => Ok(Vec::new()),
        Some(Mapping::Claim { claim, prefix }) => match claims.get(claim) {
            Some(value) => {
                let groups = texts(value)
                    .map_err(|why| format!("oidc: parse groups claim {}: {why}", quote(claim)))?;
                let groups = groups.into_iter().map(|group| format!("{prefix}{group}"));
                Ok(groups.collect())
            }
            None => Ok(Vec::new()),
        },
        Some(Mapping::Expression(expression)) => evaluation
            .value(expression, strings)
            .map_err(|why| format!("oidc: error evaluating group claim expression: {why}")),
    }
}

fn uid(
    issuer: &TokenIssuer,
    claims: &Claims,
    evaluation: &mut Evaluation,
) -> Result<String, String> {
    match &issuer.uid {
        None => Ok(String::new()),
        Some(Mapping::Claim { claim, .. }) => present(claims, claim)
            .map(str::to_owned)
            .map_err(|why| format!("oidc: parse uid claim {}: {why}", quote(claim))),
        Some(Mapping::Expression(expression)) => {
            let uid = evaluation.value(expression, |value| {
                let text = value.as_str().map(str::to_owned);
                text.ok_or_else(|| "uid claim expression must return a string".to_owned())
            });
            uid.map_err(|why| format!("oidc: error evaluating uid claim expression: {why}"))
        }
    }
}

fn extra(
    issuer: &TokenIssuer,
    claims: &Claims,
    evaluation: &mut Evaluation,
) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut extra = BTreeMap::new();
    // One of another type is as good as none.
    if let Some(id) = claims.get("jti").and_then(Value::as_str)
        && !id.is_empty()
    {
        extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    }
    for (key, expression) in &issuer.extra {
        let values = evaluation.value(expression, strings).map_err(|why| {
            let text = &expression.text;
            format!("oidc: error evaluating extra claim expression: {text}: {why}")
        })?;
        if !values.is_empty() {
            extra.insert(key.clone(), values);
        }
    }
    Ok(extra)
}

/// The text of a claim that has to be there.
fn present<'c>(claims: &'c Claims, claim: &str) -> Result<&'c str, String> {
    match claims.contains_key(claim) {
        true => text(claims, claim),
        false => Err("claim not present".to_owned()),
    }
}
