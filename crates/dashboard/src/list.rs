//! Lists, page by page, of what the page shows.

use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::Dashboard;
use crate::kind::Kind;
use crate::query::{Query, mark, name};
use crate::upstream::{Failed, get};

/// Default and maximum page size.
pub const PAGE: usize = 500;

/// A page of a list.
pub struct Page {
    /// The version of the API.
    pub version: &'static str,
    /// The objects.
    pub items: Vec<Value>,
    /// The resource version of the list, from which it can be watched.
    pub mark: String,
    /// The token for the next page; empty on the last.
    pub next: String,
    /// How many objects remain, as far as the server reports that.
    pub remaining: u64,
}

/// What to list.
#[derive(Debug, Clone, Copy)]
pub struct ListRequest<'a> {
    /// The kind.
    pub kind: Kind,
    /// The namespace; all when absent.
    pub namespace: Option<&'a str>,
    /// The token of the page before.
    pub next: Option<&'a str>,
    /// How many objects.
    pub limit: usize,
}

/// Requests a page.
///
/// # Errors
/// The API server refuses, does not have the kind, or does not answer.
pub async fn page(
    dashboard: &Dashboard,
    client: &kube::Client,
    wanted: ListRequest<'_>,
) -> Result<Page, Failed> {
    let mut missing = None;
    for version in dashboard.versions.of(wanted.kind) {
        let mut url = wanted.kind.url(version, wanted.namespace);
        url += &format!("limit={}", wanted.limit);
        if let Some(next) = wanted.next {
            url += "&continue=";
            url.extend(utf8_percent_encode(next, NON_ALPHANUMERIC));
        }
        match get(client, &url).await {
            Ok(list) => {
                dashboard.versions.set(wanted.kind, Some(version));
                return Ok(read(wanted.kind, version, list));
            }
            Err(error @ Failed::Status(StatusCode::NOT_FOUND, _)) => {
                dashboard.versions.set(wanted.kind, None);
                missing.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(missing.unwrap_or(Failed::Silent))
}

fn read(kind: Kind, version: &'static str, mut list: Value) -> Page {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &list["metadata"];
    let (mark, next) = (
        text(&metadata["resourceVersion"]),
        text(&metadata["continue"]),
    );
    let remaining = metadata["remainingItemCount"].as_u64().unwrap_or_default();
    let mut items = match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    items.iter_mut().for_each(|object| kind.project(object));
    Page {
        version,
        items,
        mark,
        next,
        remaining,
    }
}

/// Answers `api/list`.
///
/// # Errors
/// As [`page`]; or the query is wrong.
pub async fn answer(
    dashboard: &Dashboard,
    client: &kube::Client,
    query: Option<&str>,
) -> Result<Value, Failed> {
    let query = Query::read(query, &["kind", "namespace", "limit", "continue"]);
    let query = query.map_err(Failed::Asked)?;
    let one = |parameter| query.one(parameter).map_err(Failed::Asked);
    let kind = one("kind")?.and_then(Kind::from_name);
    let kind = kind.ok_or_else(|| Failed::Asked("no such kind".to_owned()))?;
    let namespace = one("namespace")?.map(name).transpose();
    let next = one("continue")?.map(mark).transpose();
    let limit = one("limit")?.map(str::parse::<usize>).transpose();
    let limit = limit.map_err(|_| Failed::Asked("limit is no number".to_owned()))?;
    let wanted = ListRequest {
        kind,
        namespace: namespace.map_err(Failed::Asked)?,
        next: next.map_err(Failed::Asked)?,
        limit: limit.unwrap_or(PAGE).clamp(1, PAGE),
    };
    let page = page(dashboard, client, wanted).await?;
    Ok(json!({
        "version": page.version, "items": page.items, "resourceVersion": page.mark,
        "continue": page.next, "remaining": page.remaining,
    }))
}
