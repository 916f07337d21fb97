//! Claims that every token must have, of any user: of the issuer, about the audience and about the time.

use std::sync::Arc;

use allot_apimachinery::quote::quote;
use serde_json::{Map, Value};

use super::keys::KeySet;
use super::token::{self, Token};
use crate::config::TokenIssuer;

const SECOND: i128 = 1_000_000_000;
/// The time by which clocks may differ for a token that is not valid yet, as upstream.
const LEEWAY: i128 = 60 * SECOND;

/// Verifies a token of `issuer` by its algorithm, its signature and its claims. The configuration has the algorithms and the
/// audiences.
///
/// # Errors
/// Upstream's texts.
pub(super) async fn verify(
    token: &Token<'_>,
    keys: &Arc<KeySet>,
    issuer: &str,
    config: &TokenIssuer,
) -> Result<(), String> {
    let now = jiff::Timestamp::now();
    token.check_algorithm(&config.algorithms)?;
    keys.verify(token).await?;
    check(issuer, &config.audiences, &token.claims, now)
}

/// Whether a token of an issuer with these claims is valid at this time, for one of the audiences.
///
/// # Errors
/// Upstream's texts.
fn check(
    issuer: &str,
    accepted: &[String],
    claims: &Map<String, Value>,
    now: jiff::Timestamp,
) -> Result<(), String> {
    let failed = |why: String| format!("oidc: failed to unmarshal claims: {why}");
    for key in ["iss", "sub", "nonce", "at_hash"] {
        text(claims, key).map_err(failed)?;
    }
    let audiences = audiences(claims).map_err(failed)?;
    let ends = time(claims, "exp").map_err(failed)?;
    time(claims, "iat").map_err(failed)?;
    let begins = match claims.get("nbf") {
        None | Some(Value::Null) => None,
        Some(_) => time(claims, "nbf").map_err(failed)?,
    };
    check_sources(claims)?;
    if token::issuer(claims) != Some(issuer) {
        let (own, found) = (quote(issuer), quote(text(claims, "iss")?));
        return Err(format!(
            "oidc: id token issued by a different provider, expected {own} got {found}"
        ));
    }
    if !audiences.iter().any(|it| accepted.contains(it)) {
        let found = token::quoted(&audiences);
        return Err(match accepted {
            [one] => format!("oidc: expected audience {} got {found}", quote(one)),
            several => {
                let mut several = several.to_vec();
                several.sort_unstable();
                let several = token::quoted(&several);
                format!("oidc: expected audience in {several} got {found}")
            }
        });
    }
    let now = now.as_nanosecond();
    // One without an end has ended.
    if ends.is_none_or(|ends| i128::from(ends) * SECOND < now) {
        let ends = jiff::Timestamp::from_second(ends.unwrap_or_default());
        let ends = ends.map_or_else(|_| "unknown".to_owned(), |it| it.to_string());
        return Err(format!("oidc: token is expired (Token Expiry: {ends})"));
    }
    match begins {
        Some(begins) if now + LEEWAY < i128::from(begins) * SECOND => {
            Err("oidc: current time before the nbf (not before) time".to_owned())
        }
        _ => Ok(()),
    }
}

/// The text of a claim, as Go reads it: null is the empty one.
///
/// # Errors
/// Go's words for a value of another type.
pub(super) fn text<'c>(claims: &'c Map<String, Value>, key: &str) -> Result<&'c str, String> {
    match claims.get(key) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(mistyped(other, "string")),
    }
}

/// Go's words for a value of the wrong type.
pub(super) fn mistyped(value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// A text or a list of texts, as Go reads either.
///
/// # Errors
/// Go's words for other values.
pub(super) fn texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(one) => Ok(vec![one.clone()]),
        Value::Array(items) => {
            let items = items.iter().map(|item| match item {
                Value::String(text) => Ok(text.clone()),
                Value::Null => Ok(String::new()),
                _ => Err(mistyped(value, "string")),
            });
            items.collect()
        }
        other => Err(mistyped(other, "string")),
    }
}

fn audiences(claims: &Map<String, Value>) -> Result<Vec<String>, String> {
    claims.get("aud").map_or(Ok(Vec::new()), texts)
}

/// Seconds since 1970: a number, or the text of one, as Go reads it. What follows the point does not count.
fn time(claims: &Map<String, Value>, key: &str) -> Result<Option<i64>, String> {
    let Some(value) = claims.get(key) else {
        return Ok(None);
    };
    let number = match value {
        Value::Number(number) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|it| it as i64)),
        Value::String(text) => {
            let whole = text.parse::<i64>().ok();
            let is_number = !text.is_empty()
                && text
                    .bytes()
                    .all(|it| it.is_ascii_digit() || b"+-.eE".contains(&it));
            let real = text.parse::<f64>().ok().filter(|_| is_number);
            whole.or(real.map(|it| it as i64))
        }
        _ => return Err(mistyped(value, "json.Number")),
    };
    let number = number.map(Some);
    number.ok_or_else(|| "json: invalid number literal".to_owned())
}

/// Claims that are kept elsewhere name a place each.
fn check_sources(claims: &Map<String, Value>) -> Result<(), String> {
    let names = match claims.get("_claim_names") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(names)) => names,
        Some(other) => {
            let why = mistyped(other, "map[string]string");
            return Err(format!("oidc: failed to unmarshal claims: {why}"));
        }
    };
    for name in names.keys() {
        let source = text(names, name)?;
        if source.is_empty() {
            return Err("oidc: failed to obtain source from claim name".to_owned());
        }
        if claims
            .get("_claim_sources")
            .is_none_or(|it| !it[source].is_object())
        {
            return Err("oidc: source does not exist".to_owned());
        }
    }
    Ok(())
}
