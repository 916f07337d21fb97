//! `GET`: one object, and lists.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::quote::quote;
use allot_store::{Entry, Error as StoreError, ListOptions};
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use base64::{DecodeError, Engine, alphabet};
use http::Response;
use serde_json::json;

use super::options::invalid;
use crate::body::Body;
use crate::context::Call;
use crate::encode::{Listing, Respond as _};
use crate::error::{ApiError, Result};
use crate::numbers::{parse_int, parse_uint};
use crate::request::Query;
use crate::select::Selection;

pub(super) async fn get(call: Call<'_>) -> Result<Response<Body>> {
    call.check_path_name()?;
    if call.request.query.flag("export") {
        return Err(ApiError::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        ));
    }
    if let Some(version) = call.request.query.text("resourceVersion") {
        let wanted = if call.resource.rules.reads_from_store {
            parse_version(version)?
        } else {
            watched_version(version)?
        };
        let current = call.core.backend.revision();
        if wanted > current {
            return Err(ApiError::future_version(wanted, current));
        }
    }
    let entry = call
        .core
        .backend
        .get(&call.resource.collection, &call.key()?)
        .await?;
    let entry = entry.ok_or_else(|| call.not_found())?;
    call.check_shape()?;
    let entry = call.converted(entry).await?;
    call.view()
        .object_response(200, &entry, call.media, call.table_options())
}

/// A resourceVersion in a list or get.
fn parse_version(text: &str) -> Result<u64> {
    parse_uint(text).map_err(|error| {
        let why = version_error(text, &error);
        ApiError::bad_request(format!("invalid resource version: {why}"))
    })
}

/// A resourceVersion where a watch begins, or of a get that upstream answers from its cache.
///
/// # Errors
/// 500, as upstream.
pub(super) fn watched_version(text: &str) -> Result<u64> {
    parse_uint(text).map_err(|error| ApiError::unknown(version_error(text, &error)))
}

/// Upstream's text for a resourceVersion that is no number.
fn version_error(text: &str, error: &str) -> String {
    format!("resourceVersion: Invalid value: {}: {error}", quote(text))
}

/// Go ignores surplus bits of continue tokens.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    NO_PAD.with_decode_allow_trailing_bits(true),
);

const TOO_OLD_TO_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Where a paged list continues.
struct Continue {
    /// The revision of the list, `None` for the newest.
    revision: Option<u64>,
    after: String,
}

impl Continue {
    fn encode(revision: Option<u64>, start: &str) -> String {
        let rv = revision.and_then(|revision| i64::try_from(revision).ok());
        let rv = rv.unwrap_or(-1);
        URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": rv, "start": start}).to_string())
    }

    fn decode(token: &str) -> Result<Self> {
        let bad = |why: String| {
            ApiError::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = LENIENT.decode(token).map_err(|error| {
            let at = match error {
                DecodeError::InvalidByte(at, _)
                | DecodeError::InvalidLastSymbol { offset: at, .. } => at,
                // The rest of a group of four is one character, which is too few for a byte.
                _ => token.len() / 4 * 4,
            };
            bad(format!("illegal base64 data at input byte {at}"))
        })?;
        let value = allot_schema::decode::decode_json(&bytes, None)
            .map_err(|error| bad(error.to_string()))?
            .value;
        let version = value["v"].as_str().unwrap_or_default();
        if version != "meta.k8s.io/v1" {
            return Err(bad(format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        let revision = value["rv"].as_i64().unwrap_or_default();
        if revision == 0 {
            let why = "incorrect encoded start resourceVersion (version meta.k8s.io/v1)";
            return Err(bad(why.to_owned()));
        }
        let start = value["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            let why = "encoded start key empty (version meta.k8s.io/v1)";
            return Err(bad(why.to_owned()));
        }
        if !is_clean(start) {
            return Err(bad(start.to_owned()));
        }
        Ok(Continue {
            revision: u64::try_from(revision).ok(),
            after: start.to_owned(),
        })
    }
}

/// Whether a key is as a path in its shortest form, with or without the leading slash.
fn is_clean(key: &str) -> bool {
    key.strip_prefix('/')
        .unwrap_or(key)
        .split('/')
        .all(|part| !matches!(part, "" | "." | ".."))
}

/// The time limit in seconds and the size of a page, if they are given. As upstream, an empty text is no number.
///
/// # Errors
/// 400 for what is no number.
pub(super) fn numbers(query: &Query) -> Result<(Option<i64>, Option<i64>)> {
    let seconds = query.get("timeoutSeconds").map(parse_int).transpose()?;
    let limit = query.get("limit").map(parse_int).transpose()?;
    Ok((seconds, limit))
}

/// Checks the parameters that lists and watches share.
pub(super) fn validate_options(query: &Query, watch: bool) -> Result<()> {
    let mut errors = ErrorList::new();
    let path = Path::new("resourceVersionMatch");
    let version = query.get("resourceVersion").unwrap_or_default();
    let matching = query.get("resourceVersionMatch").unwrap_or_default();
    let mut initial = query
        .get("sendInitialEvents")
        .map(|value| !matches!(value, "false" | "0" | ""));
    let mut matching = matching;
    if watch && initial.is_none() && matching.is_empty() && matches!(version, "" | "0") {
        // A watch from no version begins with what exists.
        (initial, matching) = (Some(true), "NotOlderThan");
    }
    if watch {
        if initial.is_some() && matching != "NotOlderThan" {
            let text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(Error::forbidden(&path, text));
        }
        if !matching.is_empty() {
            if initial.is_none() {
                errors.push(Error::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if matching != "NotOlderThan" {
                errors.push(Error::not_supported(&path, matching, &["NotOlderThan"]));
            }
            if query.text("continue").is_some() {
                errors.push(Error::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
        }
    } else {
        if !matching.is_empty() {
            if version.is_empty() {
                let text = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(Error::forbidden(&path, text));
            }
            if query.text("continue").is_some() {
                errors.push(Error::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                errors.push(Error::not_supported(
                    &path,
                    matching,
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            if matching == "Exact" && version == "0" {
                let text = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(Error::forbidden(&path, text));
            }
        }
        if initial.is_some() {
            errors.push(Error::forbidden(
                &Path::new("sendInitialEvents"),
                "sendInitialEvents is forbidden for list",
            ));
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(invalid("ListOptions", &errors))
    }
}

pub(super) async fn list(call: Call<'_>) -> Result<Response<Body>> {
    let (entries, meta) = page(&call).await?;
    call.check_shape()?;
    respond(&call, entries, meta).await
}

/// The answer with a list; a large one is streamed and takes a share of the memory limit.
pub(super) async fn respond(
    call: &Call<'_>,
    entries: Vec<Arc<Entry>>,
    meta: serde_json::Value,
) -> Result<Response<Body>> {
    let listing = Listing {
        resource: call.resource.clone(),
        version: call.version.clone(),
        media: call.media,
        options: call.table_options(),
        meta,
        entries,
    };
    if listing.is_small() {
        return listing.whole();
    }
    if call.request.in_process {
        return listing.stream().await;
    }
    let share = call.core.answers.reserve(listing.cost()).await?;
    let mut response = listing.stream().await?;
    response.body_mut().reserve(Box::new(share));
    Ok(response)
}

/// The objects that a request on a collection selects, and the metadata of their list.
pub(super) async fn page(call: &Call<'_>) -> Result<(Vec<Arc<Entry>>, serde_json::Value)> {
    let query = &call.request.query;
    let (_, limit) = numbers(query)?;
    let limit = limit.unwrap_or(0).max(0);
    // Upstream converts the numbers before it parses the selectors.
    let selectors = Selection::read(query)?;
    // A deletion of a collection may have the parameter as well.
    validate_options(query, query.flag("watch"))?;
    let selection = Selection::of(&call.resource, &call.version, selectors)?
        .sharded(&call.core.config.features, query)?;
    let version = query.text("resourceVersion");
    let exact = query.get("resourceVersionMatch") == Some("Exact");
    let token = query.text("continue");
    let from = token.map(Continue::decode).transpose()?;
    if token.is_some() && version.is_some_and(|version| version != "0") {
        return Err(ApiError::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    let mut at = None;
    let mut limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if let Some(version) = version {
        let wanted = parse_version(version)?;
        let current = call.core.backend.revision();
        if wanted > current {
            return Err(ApiError::future_version(wanted, current));
        }
        if wanted == 0 {
            // With resourceVersion 0 the list is served whole from memory, as in upstream.
            limit = 0;
        } else if exact || limit > 0 && query.text("resourceVersionMatch").is_none() {
            // A page at a version is of that version unless the client accepts newer ones.
            at = Some(wanted);
        }
    }
    if let Some(from) = &from {
        at = from.revision;
    }
    let prefix = call.list_prefix(&selection)?;
    let filtered = !selection.is_everything();
    let options = ListOptions {
        prefix: &prefix,
        after: from.as_ref().map(|from| from.after.as_str()),
        at,
        limit: if filtered { 0 } else { limit },
    };
    let mut page = call
        .core
        .backend
        .list(&call.resource.collection, options)
        .await
        .map_err(|error| match error {
            StoreError::Expired { .. } if let Some(from) = &from => {
                let mut status = Status::expired(TOO_OLD_TO_CONTINUE);
                let token = Continue::encode(None, &from.after);
                status.metadata.insert("continue".to_owned(), token.into());
                ApiError::from(status)
            }
            StoreError::Expired { .. } => {
                Status::expired("The resourceVersion for the provided list is too old.").into()
            }
            other => other.into(),
        })?;
    page.entries = call.all_converted(page.entries).await?;
    let mut more = page.remaining > 0;
    if filtered {
        let end = page.entries.last().map(|entry| entry.key.clone());
        page.entries = select(call, &selection, page.entries).await;
        if limit > 0 && page.entries.len() >= limit {
            page.entries.truncate(limit);
            // Whether the next objects match is not checked.
            more = page.entries.last().map(|entry| &entry.key) != end.as_ref();
        }
    }
    let mut meta = call.list_meta(page.revision);
    if let Some(info) = selection.shard_info() {
        meta["shardInfo"] = info;
    }
    if more && let Some(last) = page.entries.last() {
        meta["continue"] = Continue::encode(Some(page.revision), &last.key).into();
        if !filtered {
            meta["remainingItemCount"] = page.remaining.into();
        }
    }
    Ok((page.entries, meta))
}

/// The entries that match; others on the same thread get their turn in between.
async fn select(
    call: &Call<'_>,
    selection: &Selection,
    entries: Vec<Arc<Entry>>,
) -> Vec<Arc<Entry>> {
    const TURN: usize = 512;
    let mut selected = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        if index % TURN == TURN - 1 {
            tokio::task::yield_now().await;
        }
        if call.selects(selection, &entry) {
            selected.push(entry);
        }
    }
    selected
}

impl Call<'_> {
    /// The metadata of a list that is complete.
    pub(super) fn list_meta(&self, revision: u64) -> serde_json::Value {
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if self.resource.custom.is_some() && self.media.shape == crate::negotiate::Shape::Whole {
            // Lists of custom objects are untyped upstream and show the field even when it is empty.
            meta["continue"] = "".into();
        }
        meta
    }

    /// The keys that can match, as a prefix.
    ///
    /// # Errors
    /// 500 for a namespace that no key can have.
    pub(super) fn list_prefix(&self, selection: &Selection) -> Result<String> {
        self.check_path_namespace("")?;
        let namespace = match (self.namespace(), &selection.namespace) {
            ("", Some(namespace)) if self.resource.namespaced => namespace,
            (namespace, _) => namespace,
        };
        Ok(match namespace {
            "" => String::new(),
            namespace => format!("{namespace}/"),
        })
    }

    /// The stored version matches the selectors and the name of the path, if there is one (old watch paths).
    pub(super) fn selects(&self, selection: &Selection, entry: &allot_store::Entry) -> bool {
        let named = self.name();
        (named.is_empty() || entry.key.rsplit('/').next() == Some(named))
            && selection.matches(&self.resource, entry)
    }
}
