//! From a request to its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{CONTENT_TYPE, LOCATION, SET_COOKIE, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::answer::{self, Answer, ForReader};
use crate::guard::{Login, Pass, Refusal};
use crate::query::{Query, name};
use crate::upstream::{Failed, get, reader};
use crate::{Dashboard, assets, classes, filter, kind, list, watch};

/// The longest body: an expression, with escapes.
const LONGEST_BODY: usize = 64 * 1024;
/// How long a body may take.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer may take, the streams apart.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a request waits for others.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Pods of one explanation.
const MOST_PODS: usize = 20;

/// Answers any request.
pub async fn answer<B>(dashboard: Arc<Dashboard>, request: Request<B>) -> Answer
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let (head, body) = request.into_parts();
    let pass = match dashboard.guard.check(&head) {
        Ok(pass) => pass,
        Err(refusal) => return refused(refusal),
    };
    // The guard has compared the cookie. What a bearer token is worth only the API server knows, and a stream begins before that
    // has answered.
    let mut for_reader = match &pass {
        Pass::File(_) | Pass::Data { .. } => dashboard.guard.login() == Login::Link,
        Pass::Enter { .. } | Pass::Move { .. } => false,
    };
    let mut answer = match pass {
        Pass::Enter { cookie, to } => {
            let mut answer = answer::whole(StatusCode::SEE_OTHER, "text/plain", "");
            for (name, value) in [(SET_COOKIE, cookie), (LOCATION, to)] {
                if let Ok(value) = HeaderValue::try_from(value) {
                    answer.headers_mut().insert(name, value);
                }
            }
            answer
        }
        Pass::Move { to } => {
            let mut answer = answer::whole(StatusCode::SEE_OTHER, "text/plain", "");
            if let Ok(to) = HeaderValue::try_from(to) {
                answer.headers_mut().insert(LOCATION, to);
            }
            answer
        }
        Pass::File(path) => assets::file(&path).unwrap_or_else(|| refused(Refusal::Missing)),
        Pass::Data { path, bearer } => {
            let client = reader(&dashboard.client, bearer);
            let query = head.uri.query();
            let is_json = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            let is_json = is_json == Some(b"application/json");
            let data = async {
                if path == "watch" {
                    return watch::answer(&dashboard, &client, query);
                }
                let body = match path == "filter" {
                    true if is_json => whole(body).await?,
                    true => return Err(Failed::Asked("no JSON".to_owned())),
                    false => Bytes::new(),
                };
                let data = data(&dashboard, &client, &path, query, &body);
                Ok(answer::json(&data.await?))
            };
            // A mistake of ours is an error of this request, and not the end of the connection.
            let data = std::panic::AssertUnwindSafe(data).catch_unwind();
            match tokio::time::timeout(PATIENCE, data).await {
                Ok(Ok(Ok(answer))) => {
                    for_reader |= path != "watch";
                    answer
                }
                Ok(Ok(Err(error))) => failed(&error),
                Ok(Err(_)) => failed(&Failed::Unreadable("it was not understood")),
                Err(_) => failed(&Failed::Late),
            }
        }
    };
    if for_reader {
        answer.extensions_mut().insert(ForReader);
    }
    answer
}

fn refused(refusal: Refusal) -> Answer {
    let mut answer = answer::error(refusal.status(), &refusal.to_string());
    if refusal == Refusal::Link {
        // For users that followed a bookmark.
        let text = format!("{refusal}\n");
        answer = answer::whole(refusal.status(), "text/plain; charset=utf-8", text);
    }
    if refusal.status() == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    answer
}

fn failed(error: &Failed) -> Answer {
    answer::error(error.status(), &error.to_string())
}

/// The whole body.
async fn whole<B>(body: B) -> Result<Bytes, Failed>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let body = std::pin::pin!(Limited::new(body, LONGEST_BODY));
    let body = tokio::time::timeout(BODY_PATIENCE, body.collect()).await;
    let body = body.map_err(|_| Failed::Late)?;
    let body = body.map_err(|_| Failed::Asked("the body is too long, or broken".to_owned()))?;
    Ok(body.to_bytes())
}

async fn data(
    dashboard: &Dashboard,
    client: &kube::Client,
    path: &str,
    query: Option<&str>,
    body: &[u8],
) -> Result<Value, Failed> {
    match path {
        "session" => session(dashboard, client).await,
        "list" => {
            let _permit = acquire(&dashboard.reads).await?;
            list::answer(dashboard, client, query).await
        }
        "classes" => {
            let permit = acquire(&dashboard.reads).await?;
            classes::answer(dashboard, client, permit).await
        }
        "filter" => {
            let permit = acquire(&dashboard.reads).await?;
            filter::answer(dashboard, client, body, permit).await
        }
        "pod" => pod(client, query).await,
        "explain" => explain(dashboard, client, query).await,
        _ => Err(Failed::Status(StatusCode::NOT_FOUND, "not found".into())),
    }
}

async fn acquire(of: &Arc<Semaphore>) -> Result<tokio::sync::OwnedSemaphorePermit, Failed> {
    let permit = tokio::time::timeout(MAX_WAIT, of.clone().acquire_owned()).await;
    permit.ok().and_then(Result::ok).ok_or(Failed::Busy)
}

/// Session information for the page; the API server is called, so that an invalid token is detected.
async fn session(dashboard: &Dashboard, client: &kube::Client) -> Result<Value, Failed> {
    let served = match get(client, "/apis/resource.k8s.io").await {
        Ok(group) => group["versions"].clone(),
        Err(Failed::Status(StatusCode::NOT_FOUND, _)) => json!([]),
        Err(error) => return Err(error),
    };
    let login = match dashboard.guard.login() {
        Login::Link => "link",
        Login::Token => "token",
    };
    let served = served.as_array().into_iter().flatten();
    let served: Vec<&Value> = served.map(|version| &version["version"]).collect();
    Ok(json!({
        "login": login, "cluster": dashboard.cluster, "namespace": client.default_namespace(),
        "served": served,
    }))
}

/// One pod, without its environment and commands.
async fn pod(client: &kube::Client, query: Option<&str>) -> Result<Value, Failed> {
    let query = Query::read(query, &["namespace", "name"]).map_err(Failed::Asked)?;
    let part = |parameter| {
        let value = query.one(parameter)?.unwrap_or_default();
        name(value)
    };
    let (namespace, name) = (
        part("namespace").map_err(Failed::Asked)?,
        part("name").map_err(Failed::Asked)?,
    );
    let url = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    get(client, &url).await.map(|found| kind::pod(&found))
}

/// Why pods have no devices.
async fn explain(
    dashboard: &Dashboard,
    client: &kube::Client,
    query: Option<&str>,
) -> Result<Value, Failed> {
    let query = Query::read(query, &["pod"]).map_err(Failed::Asked)?;
    let mut pods = Vec::new();
    for pod in query.all("pod") {
        let (namespace, pod) = pod.split_once('/').unwrap_or_default();
        let part = |text| name(text).map(str::to_owned).map_err(Failed::Asked);
        pods.push((part(namespace)?, part(pod)?));
    }
    if pods.is_empty() || pods.len() > MOST_PODS {
        let text = format!("one to {MOST_PODS} pods can be explained at a time");
        return Err(Failed::Asked(text));
    }
    let _permit = acquire(&dashboard.explanations).await?;
    let answers = (dashboard.explain)(client.clone(), pods).await;
    let answers = answers.map_err(|error| Failed::Status(StatusCode::BAD_GATEWAY, error))?;
    Ok(json!({"pods": answers}))
}

#[cfg(test)]
pub(crate) mod tests;
