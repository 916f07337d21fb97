//! Requests and watches of the simulated API, with everything that can go wrong on the way.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;

use super::api::{Api, Refusal, Release, Watch, Who, id};

type Answer = UnsyncBoxBody<Bytes, std::io::Error>;

/// The API as one process sees it.
#[derive(Clone)]
pub struct Peer {
    api: Api,
    who: Who,
    alive: Arc<AtomicBool>,
}

enum Fault {
    None,
    /// The request is not carried out.
    Before,
    /// The request is carried out, but the answer is lost.
    After,
}

impl Peer {
    /// A new process.
    pub fn new(api: &Api, who: Who) -> Self {
        Self {
            api: api.clone(),
            who,
            alive: Arc::new(AtomicBool::new(true)),
        }
    }

    /// A client for it.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// The process dies: it gets no further responses. Requests that it has already sent may still arrive
    /// ([`State::late`]).
    ///
    /// [`State::late`]: super::api::State::late
    pub fn kill(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }

    async fn still_alive(&self) {
        if !self.alive.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// A request reaches the API: of a process that died meanwhile only some do.
    async fn arrive(&self) {
        if self.alive.load(Ordering::Relaxed) {
            return;
        }
        let arrives = {
            let mut s = self.api.0.lock();
            let late = s.late;
            late > 0 && s.rng.random_range(0..100) < late
        };
        if !arrives {
            std::future::pending::<()>().await;
        }
    }

    async fn handle(self, request: Request<Body>) -> Response<Answer> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|b| b.to_bytes());
        let body = body.unwrap_or_default();
        let (fault, there, back) = {
            let mut s = self.api.0.lock();
            let percent = s.faults;
            let faults = percent > 0;
            let fault = match s.rng.random_range(0..100) {
                n if n < percent / 2 => Fault::Before,
                n if n < percent && parts.method != Method::GET => Fault::After,
                _ => Fault::None,
            };
            // Most requests take a moment, some take long.
            let slow = faults && s.rng.random_range(0..10) == 0;
            let longest = if slow { 2000 } else { 20 };
            let mut delay = || Duration::from_millis(s.rng.random_range(0..longest));
            (fault, delay(), delay())
        };
        tokio::time::sleep(there).await;
        self.arrive().await;
        if matches!(fault, Fault::Before) {
            return failure(StatusCode::INTERNAL_SERVER_ERROR, "injected before");
        }
        let path: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
        let query = parts.uri.query().unwrap_or_default();
        let (before, release) = {
            let s = self.api.0.lock();
            (s.version, s.release)
        };
        let response = if query.contains("watch=true") {
            self.watch(&path, query)
        } else if parts.method == Method::GET && !release.kinds().any(|(c, ..)| path.contains(&c)) {
            discovery(parts.uri.path(), release)
        } else {
            self.carry_out(&parts.method, &path, &parts.headers, &body)
        };
        {
            let mut s = self.api.0.lock();
            let deaths = s.deaths;
            let alive = self.alive.load(Ordering::Relaxed);
            if alive && s.version > before && s.rng.random_range(0..1000) < deaths {
                self.kill();
                s.dead.push(self.who);
            }
        }
        if matches!(fault, Fault::After) {
            return failure(StatusCode::GATEWAY_TIMEOUT, "injected after");
        }
        tokio::time::sleep(back).await;
        self.still_alive().await;
        response
    }

    fn watch(&self, path: &[&str], query: &str) -> Response<Answer> {
        let collection = path.last().copied().unwrap_or_default().to_owned();
        let from = query
            .split('&')
            .find_map(|p| p.strip_prefix("resourceVersion="))
            .and_then(|v| v.parse::<u64>().ok())
            .unwrap_or(0);
        let mut s = self.api.0.lock();
        let breaks = s.breaks;
        if s.rng.random_range(0..100) < breaks {
            return failure(StatusCode::GONE, "too old resource version");
        }
        let (sender, mut receiver) = unbounded_channel::<String>();
        for (version, kind, line) in &s.log {
            if *version > from && *kind == collection {
                let _ = sender.send(line.clone());
            }
        }
        s.watches.push(Watch { collection, sender });
        let seed: u64 = s.rng.random();
        drop(s);
        // Events are late, each by its own time, but in order; sometimes the connection breaks, or history is gone.
        let (out, lines) = unbounded_channel::<Result<Frame<Bytes>, std::io::Error>>();
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(seed);
            while let Some(line) = receiver.recv().await {
                tokio::time::sleep(Duration::from_millis(rng.random_range(0..60))).await;
                // Some of them with the history gone.
                match rng.random_range(0..3000) {
                    n if n < 2 * breaks => return,
                    n if n < 3 * breaks => {
                        let gone = status(StatusCode::GONE, "history was compacted");
                        let line = format!("{}\n", json!({"type": "ERROR", "object": gone}));
                        let _ = out.send(Ok(Frame::data(Bytes::from(line))));
                        return;
                    }
                    _ => {}
                }
                if out.send(Ok(Frame::data(Bytes::from(line)))).is_err() {
                    return;
                }
            }
        });
        let stream =
            futures::stream::unfold(lines, |mut l| async { l.recv().await.map(|f| (f, l)) });
        Response::new(StreamBody::new(stream).boxed_unsync())
    }

    fn carry_out(
        &self,
        method: &Method,
        path: &[&str],
        headers: &http::HeaderMap,
        body: &[u8],
    ) -> Response<Answer> {
        // .../[namespaces/NS/]COLLECTION[/NAME[/SUBRESOURCE]]
        let mut rest = &path[if path[0] == "api" { 2 } else { 3 }..];
        let mut namespace = "";
        if rest.len() > 2 && rest[0] == "namespaces" {
            namespace = rest[1];
            rest = &rest[2..];
        }
        let collection = rest[0];
        let (name, sub) = (
            rest.get(1).copied(),
            rest.get(2).copied().unwrap_or_default(),
        );
        let at = id(collection, namespace, name.unwrap_or_default());
        let mut body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        if *method == Method::POST && name.is_none() && !namespace.is_empty() {
            body["metadata"]["namespace"] = namespace.into();
        }
        let strategic = headers
            .get("content-type")
            .is_some_and(|c| c.as_bytes().starts_with(b"application/strategic"));
        let done = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
        let result = match (method, name, sub) {
            (&Method::POST, None, _) if collection == "events" => Ok(body),
            (_, Some(_), _) if collection == "events" => Ok(done),
            (&Method::GET, None, _) => return self.list(collection),
            (&Method::GET, Some(_), _) => self.api.get(&at).ok_or(Refusal::NotFound),
            (&Method::POST, Some(_), "binding") => self.bind(&at, &body).map(|()| done),
            (&Method::POST, None, _) => self.api.create(collection, body),
            (&Method::PATCH, Some(_), sub) => {
                self.api.patch(&at, sub == "status", &body, strategic)
            }
            (&Method::PUT, Some(_), "status") => self.api.put_status(&at, &body),
            (&Method::DELETE, Some(_), _) => {
                let uid = body["preconditions"]["uid"].as_str();
                self.api.delete(&at, uid).map(|left| left.unwrap_or(done))
            }
            _ => {
                return failure(StatusCode::METHOD_NOT_ALLOWED, "not part of the simulation");
            }
        };
        match result {
            Ok(object) => answer(&object),
            Err(Refusal::NotFound) => failure(StatusCode::NOT_FOUND, "not found"),
            Err(Refusal::Conflict) => failure(StatusCode::CONFLICT, "the object has been modified"),
            Err(Refusal::Exists) => exists(),
            Err(Refusal::Invalid) => failure(StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
        }
    }

    fn bind(&self, at: &super::api::Id, body: &Value) -> Result<(), Refusal> {
        let mut pod = self.api.get(at).ok_or(Refusal::NotFound)?;
        let same = body["metadata"]["uid"] == pod["metadata"]["uid"];
        let version = &body["metadata"]["resourceVersion"];
        let same = same && (version.is_null() || *version == pod["metadata"]["resourceVersion"]);
        let leaving = !pod["metadata"]["deletionTimestamp"].is_null();
        if !pod["spec"]["nodeName"].is_null() || !same || leaving {
            return Err(Refusal::Conflict);
        }
        pod["spec"]["nodeName"] = body["target"]["name"].clone();
        self.api.put(at.clone(), pod).map(|_| ())
    }

    fn list(&self, collection: &str) -> Response<Answer> {
        let items = self.api.all(collection);
        let version = self.api.0.lock().version.to_string();
        answer(&json!({
            "kind": "List",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version},
            "items": items,
        }))
    }
}

/// What the API says it serves.
fn discovery(path: &str, release: Release) -> Response<Answer> {
    let group = path.strip_prefix("/apis/").unwrap_or_default();
    let version =
        |group: &str, v: &str| json!({"groupVersion": format!("{group}/{v}"), "version": v});
    let of_dra = |v: &str| version("resource.k8s.io", v);
    let served = ["resource.k8s.io/", "scheduling.k8s.io/"];
    let has = |group: &str| release.kinds().any(|(_, _, v)| v == group);
    let is_served = served.iter().any(|g| group.starts_with(g)) && has(group);
    match path {
        "/version" => answer(&json!({
            "major": "1", "minor": release.minor.to_string(), "gitVersion": format!("v1.{}.0", release.minor),
            "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        })),
        "/apis" => {
            let mut groups = vec![json!({
                "name": "resource.k8s.io",
                "versions": release.versions.iter().map(|v| of_dra(v)).collect::<Vec<_>>(),
                "preferredVersion": of_dra(release.versions[0]),
            })];
            let of_groups = release.kinds().find(|(c, ..)| *c == "podgroups");
            if let Some((name, v)) = of_groups.as_ref().and_then(|(_, _, v)| v.split_once('/')) {
                let version = version(name, v);
                groups.push(
                    json!({"name": name, "versions": [version], "preferredVersion": version}),
                );
            }
            answer(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        _ if is_served => {
            let of = release.kinds().filter(|(_, _, v)| *v == group);
            let resources: Vec<Value> = of
                .map(|(c, k, _)| json!({"name": c, "kind": k, "namespaced": c.starts_with("resourceclaim") || c == "podgroups", "singularName": "", "verbs": ["list", "watch"]}))
                .collect();
            answer(
                &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources}),
            )
        }
        _ => failure(StatusCode::NOT_FOUND, "not served"),
    }
}

fn whole(object: &Value) -> Answer {
    Full::new(Bytes::from(object.to_string()))
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn answer(object: &Value) -> Response<Answer> {
    Response::new(whole(object))
}

fn status(code: StatusCode, text: &str) -> Value {
    let reason = match code {
        StatusCode::CONFLICT => "Conflict",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::GONE => "Expired",
        _ => "Simulated",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": text, "reason": reason,
        "code": code.as_u16(),
    })
}

fn failure(code: StatusCode, text: &str) -> Response<Answer> {
    let mut response = Response::new(whole(&status(code, text)));
    *response.status_mut() = code;
    response
}

fn exists() -> Response<Answer> {
    let mut status = status(StatusCode::CONFLICT, "it exists already");
    status["reason"] = "AlreadyExists".into();
    let mut response = Response::new(whole(&status));
    *response.status_mut() = StatusCode::CONFLICT;
    response
}

impl tower::Service<Request<Body>> for Peer {
    type Response = Response<Answer>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // On its own: a request that was sent does not stop where its sender does.
        let handled = tokio::spawn(self.clone().handle(request));
        Box::pin(async move {
            match handled.await {
                Ok(response) => Ok(response),
                Err(_) => std::future::pending().await,
            }
        })
    }
}
