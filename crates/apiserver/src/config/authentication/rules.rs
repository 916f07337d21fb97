//! Which claims make which user, and what must hold for both, with upstream's texts for what is not valid.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_kinds::validate::domain_prefixed_path;

use super::expressions::{Expression, Purpose};
use super::written::{ClaimOrExpression, ClaimRule, Extra, Prefixed, UserRule};

/// Where an attribute of the user comes from.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// A claim, behind a prefix.
    Claim {
        claim: String,
        prefix: String,
    },
    Expression(Expression),
}

/// What must hold, and the message if it does not.
#[derive(Debug)]
pub(crate) struct Rule {
    pub expression: Expression,
    pub message: String,
}

/// What is known about an issuer while its fields are checked.
#[derive(Default)]
pub(super) struct Uses {
    pub email: bool,
    pub email_verified: bool,
}

/// A claim or an expression, as the configuration names it.
enum Source<'w> {
    Claim(&'w str),
    Expression(&'w str),
}

/// Chooses between a claim and an expression, which exclude each other. `shown` is the value in the error about both.
fn source<'w>(
    (claim, expression): (&'w str, &'w str),
    is_required: bool,
    shown: &str,
    path: &Path,
    errors: &mut ErrorList,
) -> Option<Source<'w>> {
    match (claim, expression) {
        ("", "") => {
            if is_required {
                errors.push(Error::required(path, "claim or expression is required"));
            }
            None
        }
        (claim, "") => Some(Source::Claim(claim)),
        ("", expression) => Some(Source::Expression(expression)),
        _ => {
            let detail = "claim and expression can't both be set";
            errors.push(Error::invalid(path, shown, detail));
            None
        }
    }
}

/// Compiles an expression, and notes what it reads.
fn compiled(
    text: &str,
    purpose: Purpose,
    path: &Path,
    errors: &mut ErrorList,
) -> Option<(Expression, Uses)> {
    match Expression::compile(text, purpose) {
        Ok((expression, checked)) => {
            let selects = |field: &str| checked.selects("claims", field);
            let uses = Uses {
                email: selects("email"),
                email_verified: selects("email_verified"),
            };
            Some((expression, uses))
        }
        Err(why) => {
            errors.push(Error::invalid(path, text, why));
            None
        }
    }
}

pub(super) fn claim_rules(
    written: Vec<ClaimRule>,
    uses: &mut Uses,
    path: &Path,
    errors: &mut ErrorList,
) -> (Vec<(String, String)>, Vec<Rule>) {
    let (mut required, mut rules) = (Vec::<(String, String)>::new(), Vec::new());
    let mut seen = Vec::new();
    for (index, rule) in written.into_iter().enumerate() {
        let path = path.index(index);
        let at = |name: &str| path.child(name);
        let named = (rule.claim.as_str(), rule.expression.as_str());
        match source(named, true, &rule.claim, &path, errors) {
            None => {}
            Some(Source::Claim(claim)) => {
                if !rule.message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    errors.push(Error::invalid(&at("message"), &rule.message, detail));
                }
                if required.iter().any(|(known, _)| known == claim) {
                    errors.push(Error::duplicate(&at("claim"), claim));
                }
                required.push((rule.claim, rule.required_value));
            }
            Some(Source::Expression(text)) => {
                if !rule.required_value.is_empty() {
                    let (at, detail) = (
                        at("requiredValue"),
                        "may not be specified when expression is set",
                    );
                    errors.push(Error::invalid(&at, &rule.required_value, detail));
                }
                if seen.contains(&rule.expression) {
                    errors.push(Error::duplicate(&at("expression"), text));
                    continue;
                }
                let made = compiled(text, Purpose::ClaimRule, &at("expression"), errors);
                seen.push(rule.expression);
                if let Some((expression, of_rule)) = made {
                    uses.email_verified |= of_rule.email_verified;
                    let message = rule.message;
                    rules.push(Rule {
                        expression,
                        message,
                    });
                }
            }
        }
    }
    (required, rules)
}

pub(super) fn user_rules(written: Vec<UserRule>, path: &Path, errors: &mut ErrorList) -> Vec<Rule> {
    let (mut seen, mut rules) = (Vec::new(), Vec::new());
    for (
        index,
        UserRule {
            expression: text,
            message,
        },
    ) in written.into_iter().enumerate()
    {
        let at = path.index(index).child("expression");
        if text.is_empty() {
            errors.push(Error::required(&at, ""));
        } else if seen.contains(&text) {
            errors.push(Error::duplicate(&at, &text));
        } else {
            let made = compiled(&text, Purpose::UserRule, &at, errors);
            rules.extend(made.map(|(expression, _)| Rule {
                expression,
                message,
            }));
            seen.push(text);
        }
    }
    rules
}

/// The mapping, and what its expression reads if it is one.
pub(super) fn prefixed(
    written: Prefixed,
    is_required: bool,
    path: &Path,
    errors: &mut ErrorList,
) -> Option<(Mapping, Option<Uses>)> {
    let named = (written.claim.as_str(), written.expression.as_str());
    match source(named, is_required, "", path, errors)? {
        Source::Expression(text) => {
            if let Some(prefix) = &written.prefix {
                let detail = "may not be specified when expression is set";
                errors.push(Error::invalid(&path.child("prefix"), prefix, detail));
            }
            let made = compiled(text, Purpose::Mapping, &path.child("expression"), errors);
            made.map(|(expression, uses)| (Mapping::Expression(expression), Some(uses)))
        }
        Source::Claim(_) => {
            if written.prefix.is_none() {
                let detail = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                errors.push(Error::required(&path.child("prefix"), detail));
            }
            let (claim, prefix) = (written.claim, written.prefix.unwrap_or_default());
            Some((Mapping::Claim { claim, prefix }, None))
        }
    }
}

pub(super) fn uid(
    written: ClaimOrExpression,
    path: &Path,
    errors: &mut ErrorList,
) -> Option<Mapping> {
    let named = (written.claim.as_str(), written.expression.as_str());
    match source(named, false, "", path, errors)? {
        Source::Claim(_) => Some(Mapping::Claim {
            claim: written.claim,
            prefix: String::new(),
        }),
        Source::Expression(text) => {
            let made = compiled(text, Purpose::Mapping, &path.child("expression"), errors);
            made.map(|(expression, _)| Mapping::Expression(expression))
        }
    }
}

pub(super) fn extra(
    written: Vec<Extra>,
    uses: &mut Uses,
    path: &Path,
    errors: &mut ErrorList,
) -> Vec<(String, Expression)> {
    let (mut seen, mut extra) = (Vec::<String>::new(), Vec::new());
    for (
        index,
        Extra {
            key,
            value_expression,
        },
    ) in written.into_iter().enumerate()
    {
        let path = path.index(index);
        let at = path.child("key");
        domain_prefixed_path(&key, &at, errors);
        if key != key.to_lowercase() {
            errors.push(Error::invalid(&at, &key, "must be lowercase"));
        }
        if is_reserved(&key) {
            let detail =
                "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
            errors.push(Error::invalid(&at, &key, detail));
        }
        if seen.contains(&key) {
            errors.push(Error::duplicate(&at, &key));
            continue;
        }
        seen.push(key.clone());
        let at = path.child("valueExpression");
        if value_expression.is_empty() {
            errors.push(Error::required(&at, ""));
        } else if let Some((expression, of_value)) =
            compiled(&value_expression, Purpose::Mapping, &at, errors)
        {
            uses.email_verified |= of_value.email_verified;
            extra.push((key, expression));
        }
    }
    extra
}

/// The key has a prefix that is Kubernetes' own.
fn is_reserved(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    ["kubernetes.io", "k8s.io"].iter().any(|own| {
        let before = prefix.strip_suffix(own);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    })
}
