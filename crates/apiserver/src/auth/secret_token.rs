//! The tokens that the controller of service accounts writes into secrets of type `kubernetes.io/service-account-token`.
//!
//! They last for as long as can be requested: an administrator ends them by another token in the secret or by a label,
//! and sees by another label whether they are still used (KEP-2799).

use allot_store::{Expect, Write};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::ToSpan;
use jiff::tz::TimeZone;

use super::token::Bound;
use super::token_use::{Metrics, TokenUse};
use crate::error::Result;
use crate::object::{child_mut, items, meta, text};
use crate::state::ServerState;
use crate::{storage, versions};

const SECRETS: &str = "secrets";
const ACCOUNTS: &str = "serviceaccounts";
const TYPE: &str = "kubernetes.io/service-account-token";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";

/// Checks that a token with the longest life is the one in its secret and has not been marked as invalid, and notes the
/// day of its use in the secret.
///
/// # Errors
/// Upstream's text.
pub(super) async fn check(
    core: &ServerState,
    bound: &Bound,
    token: &str,
    (metrics, told): (&Metrics, &mut TokenUse),
) -> std::result::Result<(), String> {
    let Some((name, _)) = bound.secret.as_ref().filter(|_| bound.lasts) else {
        return Ok(());
    };
    let key = format!("{}/{name}", bound.namespace);
    let paths = ["type", "data.token", "metadata.labels"];
    let secret = core.stored_parts(SECRETS, &key, &paths).await;
    let secret = secret.map_err(|error| error.to_string())?;
    let secret = secret.unwrap_or_default();
    if text(&secret, &["type"]) != TYPE {
        return Ok(());
    }
    if text(&secret, &["data", "token"]) != STANDARD.encode(token) {
        return Err("Token does not match server's copy".to_owned());
    }
    let label = |name| text(&secret, &["metadata", "labels", name]);
    let today = jiff::Timestamp::now().to_zoned(TimeZone::UTC).date();
    // As upstream: the clock of another server may be ahead.
    let days = [Some(today), today.checked_add(1.day()).ok()];
    let is_noted = days
        .iter()
        .flatten()
        .any(|it| it.to_string() == label(LAST_USED));
    if !is_noted && let Err(error) = note_use(core, &key, &today.to_string()).await {
        tracing::debug!(?error, secret = key, "the use of a token is not noted");
    }
    let (namespace, account) = (&bound.namespace, &bound.account.0);
    let subject = bound.subject();
    if label(INVALID_SINCE).is_empty() {
        let key = format!("{namespace}/{account}");
        let found = core.stored_parts(ACCOUNTS, &key, &["secrets"]).await;
        let found = found.ok().flatten().unwrap_or_default();
        let automatic = items(&found["secrets"])
            .iter()
            .any(|it| it["name"] == name.as_str());
        metrics.in_secret(told, &subject, name, automatic);
        return Ok(());
    }
    metrics.invalidated(told, &subject, namespace, name);
    Err(format!(
        "the token in secret {namespace}/{name} for service account {namespace}/{account} has been marked invalid. Use \
        tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label \
        from the secret to temporarily allow use of this token"
    ))
}

/// Labels the secret with the day. If it changes meanwhile, the next use does.
async fn note_use(core: &ServerState, key: &str, today: &str) -> Result<()> {
    let registry = core.registry.load_full();
    let Some(resource) = registry.get("", SECRETS) else {
        return Ok(());
    };
    let Some(entry) = core.backend.get(SECRETS, key).await? else {
        return Ok(());
    };
    let mut secret = versions::load(resource, &entry.value)?;
    if meta(&secret.object, "deletionTimestamp").is_empty() {
        let labels = child_mut(&mut secret.object["metadata"], "labels");
        labels.insert(LAST_USED.to_owned(), today.into());
        let draft = storage::draft_owned(&secret.object, &secret.owners);
        let expected = Expect::Revision(entry.revision);
        let write = Write::put(SECRETS, entry.key.clone(), expected, draft);
        core.backend.commit(write).await?;
    }
    Ok(())
}
