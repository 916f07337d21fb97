//! A small Kubernetes API in memory: just what the scheduler uses, with faults. Deterministic, unlike a real server.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Collections by path, and the kind of what is in them.
const KINDS: [(&str, &str); 14] = [
    ("nodes", "Node"),
    ("pods", "Pod"),
    ("resourceclaims", "ResourceClaim"),
    ("resourceslices", "ResourceSlice"),
    ("deviceclasses", "DeviceClass"),
    ("poddisruptionbudgets", "PodDisruptionBudget"),
    ("namespaces", "Namespace"),
    ("resourceclasses", "ResourceClass"),
    ("resourceclaimtemplates", "ResourceClaimTemplate"),
    ("podschedulings", "PodScheduling"),
    ("podschedulingcontexts", "PodSchedulingContext"),
    ("resourceclaimparameters", "ResourceClaimParameters"),
    ("resourceclassparameters", "ResourceClassParameters"),
    ("events", "Event"),
];

/// What there is: objects by collection and name.
pub type Objects = BTreeMap<Id, Value>;

/// What has to hold after every write; says what does not.
type Invariants = fn(&Objects) -> Option<String>;

/// A release with the kinds of before 1.31.
#[derive(Debug, Clone, Copy)]
pub struct Classic {
    /// `v1alpha1` or `v1alpha2`.
    pub version: &'static str,
    /// The minor version.
    pub minor: u32,
}

/// Collection, and namespace and name.
pub type Id = (String, String);
type Answer = UnsyncBoxBody<Bytes, std::io::Error>;

struct Watch {
    collection: String,
    sender: UnboundedSender<String>,
}

/// The state of the API.
pub struct State {
    objects: Objects,
    classic: Option<Classic>,
    invariants: Invariants,
    log: VecDeque<(u64, String, String)>,
    version: u64,
    watches: Vec<Watch>,
    rng: StdRng,
    /// Chance of a fault per request, in percent.
    pub faults: u32,
    /// What was written, for comparing runs.
    pub trace: Vec<String>,
    /// A broken invariant.
    pub broken: Option<String>,
}

/// The API; cheap to clone.
#[derive(Clone)]
pub struct Api(pub Arc<Mutex<State>>);

enum Fault {
    None,
    /// The request is not carried out.
    Before,
    /// The request is carried out, but the answer is lost.
    After,
}

impl Api {
    /// An empty API.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            objects: BTreeMap::new(),
            classic: None,
            invariants: devices_are_held_once,
            log: VecDeque::new(),
            version: 100,
            watches: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
            faults: 0,
            trace: Vec::new(),
            broken: None,
        })))
    }

    /// As an old release, with other invariants.
    pub fn classic(self, classic: Classic, invariants: Invariants) -> Self {
        {
            let mut state = self.0.lock();
            state.classic = Some(classic);
            state.invariants = invariants;
        }
        self
    }

    /// A client for it.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    async fn handle(self, request: Request<Body>) -> Response<Answer> {
        let (parts, body) = request.into_parts();
        let body = body
            .collect()
            .await
            .map(|b| b.to_bytes())
            .unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let watching = query.contains("watch=true");
        let (fault, delay) = {
            let mut s = self.0.lock();
            let percent = s.faults;
            let fault = match s.rng.random_range(0..100) {
                n if n < percent / 2 => Fault::Before,
                n if n < percent && parts.method != Method::GET => Fault::After,
                _ => Fault::None,
            };
            (fault, s.rng.random_range(0..20u64))
        };
        tokio::time::sleep(Duration::from_millis(delay)).await;
        if matches!(fault, Fault::Before) {
            return failure(StatusCode::INTERNAL_SERVER_ERROR, "injected before");
        }
        let path: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
        let response = if let Some(answer) = self.discover(&path) {
            answer
        } else if watching {
            self.watch(&path, &query)
        } else {
            self.write(&parts.method, &path, &parts.headers, &body)
        };
        if matches!(fault, Fault::After) {
            return failure(StatusCode::GATEWAY_TIMEOUT, "injected after");
        }
        let delay = self.0.lock().rng.random_range(0..20u64);
        tokio::time::sleep(Duration::from_millis(delay)).await;
        response
    }

    fn watch(&self, path: &[&str], query: &str) -> Response<Answer> {
        let collection = path.last().copied().unwrap_or_default().to_owned();
        let from = query
            .split('&')
            .find_map(|p| p.strip_prefix("resourceVersion="))
            .and_then(|v| v.parse::<u64>().ok())
            .unwrap_or(0);
        let mut s = self.0.lock();
        let faults = s.faults;
        if faults > 0 && s.rng.random_range(0..100) < 5 {
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
        // Events are late, each by its own time, but in order; sometimes the connection breaks.
        let (out, lines) = unbounded_channel::<Result<Frame<Bytes>, std::io::Error>>();
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(seed);
            while let Some(line) = receiver.recv().await {
                tokio::time::sleep(Duration::from_millis(rng.random_range(0..60))).await;
                if faults > 0 && rng.random_range(0..200) == 0 {
                    return;
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

    fn write(
        &self,
        method: &Method,
        path: &[&str],
        headers: &http::HeaderMap,
        body: &[u8],
    ) -> Response<Answer> {
        // .../[namespaces/NS/]COLLECTION[/NAME[/SUBRESOURCE]]
        let mut rest: Vec<&str> = path
            .iter()
            .skip(if path[0] == "api" { 2 } else { 3 })
            .copied()
            .collect();
        let mut namespace = "";
        if rest.len() > 2 && rest[0] == "namespaces" {
            namespace = rest[1];
            rest.drain(..2);
        }
        let (collection, name, sub) = (
            rest[0],
            rest.get(1).copied(),
            rest.get(2).copied().unwrap_or_default(),
        );
        let id = |name: &str| (collection.to_owned(), format!("{namespace}/{name}"));
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let strategic = headers
            .get("content-type")
            .is_some_and(|c| c.as_bytes().starts_with(b"application/strategic"));
        match (method, name, sub) {
            (&Method::GET, None, _) => self.list(collection),
            (&Method::GET, Some(name), _) => match self.get(collection, namespace, name) {
                Some(object) => answer(&object),
                None => failure(StatusCode::NOT_FOUND, "not found"),
            },
            (&Method::POST, Some(name), "binding") => {
                let Some(mut pod) = self.get("pods", namespace, name) else {
                    return failure(StatusCode::NOT_FOUND, "not found");
                };
                if !pod["spec"]["nodeName"].is_null()
                    || body["metadata"]["uid"] != pod["metadata"]["uid"]
                {
                    return failure(StatusCode::CONFLICT, "already assigned");
                }
                pod["spec"]["nodeName"] = body["target"]["name"].clone();
                self.put(id(name), pod);
                answer(&json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            (&Method::POST, None, _) if collection == "events" => answer(&body),
            (&Method::POST, None, _) => {
                let mut body = body;
                if !namespace.is_empty() {
                    body["metadata"]["namespace"] = namespace.into();
                }
                if body["metadata"]["name"].is_null() {
                    let prefix = body["metadata"]["generateName"]
                        .as_str()
                        .unwrap_or_default();
                    body["metadata"]["name"] =
                        format!("{prefix}{:05}", self.0.lock().version).into();
                }
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                if self.get(collection, namespace, name).is_some() {
                    return failure(StatusCode::CONFLICT, "already exists");
                }
                answer(&self.create(collection, body))
            }
            (&Method::PATCH, Some(name), sub) => {
                let Some(old) = self.get(collection, namespace, name) else {
                    return failure(StatusCode::NOT_FOUND, "not found");
                };
                let meta = &body["metadata"];
                let differs =
                    |field: &str| !meta[field].is_null() && meta[field] != old["metadata"][field];
                if differs("resourceVersion") || differs("uid") {
                    return failure(StatusCode::CONFLICT, "the object has been modified");
                }
                let mut new = old.clone();
                let mut patch = body.clone();
                if sub == "status" {
                    patch = json!({"status": body["status"]});
                }
                merge(&mut new, &patch, strategic);
                if sub.is_empty() && !old["status"].is_null() {
                    new["status"] = old["status"].clone();
                }
                if let Some(errors) = self.refusal(collection, sub, &new, &old) {
                    return failure(StatusCode::UNPROCESSABLE_ENTITY, &errors);
                }
                answer(&self.put(id(name), new))
            }
            (&Method::DELETE, Some(name), _) => {
                let Some(object) = self.get(collection, namespace, name) else {
                    return failure(StatusCode::NOT_FOUND, "not found");
                };
                let wanted = &body["preconditions"]["uid"];
                if !wanted.is_null() && *wanted != object["metadata"]["uid"] {
                    return failure(StatusCode::CONFLICT, "another object");
                }
                self.delete(collection, namespace, name);
                answer(&json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            _ => failure(StatusCode::METHOD_NOT_ALLOWED, "not part of the simulation"),
        }
    }

    fn discover(&self, path: &[&str]) -> Option<Response<Answer>> {
        let classic = self.0.lock().classic;
        let version = classic.map_or("v1", |c| c.version);
        match path {
            ["apis"] => {
                let version = json!({"groupVersion": format!("resource.k8s.io/{version}"), "version": version});
                let group = json!({"name": "resource.k8s.io", "versions": [version], "preferredVersion": version});
                let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]});
                Some(answer(&list))
            }
            ["version"] => Some(answer(
                &json!({"major": "1", "minor": classic?.minor.to_string()}),
            )),
            ["apis", "resource.k8s.io", asked] if classic.is_some() && *asked == version => {
                let mut names = vec![
                    "resourceclasses",
                    "resourceclaims",
                    "resourceclaimtemplates",
                ];
                if classic?.minor >= 30 {
                    names.extend([
                        "resourceslices",
                        "resourceclaimparameters",
                        "resourceclassparameters",
                    ]);
                }
                let resources: Vec<Value> = names
                    .iter()
                    .map(|n| json!({"name": n, "singularName": "", "namespaced": true, "kind": "K", "verbs": []}))
                    .collect();
                let version = format!("resource.k8s.io/{version}");
                Some(answer(
                    &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}),
                ))
            }
            ["apis", _, _] | ["api", _] => Some(failure(StatusCode::NOT_FOUND, "not served")),
            _ => None,
        }
    }

    /// What the real validation says against a change of a classic object.
    fn refusal(&self, collection: &str, sub: &str, new: &Value, old: &Value) -> Option<String> {
        use allot_model::classic::{Kind, status_update, update};
        self.0.lock().classic?;
        let kind = Kind::from_plural(collection)?;
        let errors = match sub {
            "status" => status_update(kind, new, old),
            _ => update(kind, new, old),
        };
        let first = errors.first()?;
        Some(first.to_string())
    }

    /// Changes an object at once if it is still as it was read; for those who are simulated without requests.
    pub fn patch(
        &self,
        collection: &str,
        sub: &str,
        old: &Value,
        patch: &Value,
    ) -> Result<Value, String> {
        let meta = &old["metadata"];
        let (namespace, name) = (
            meta["namespace"].as_str().unwrap_or_default(),
            meta["name"].as_str().unwrap_or_default(),
        );
        let current = self.get(collection, namespace, name).ok_or("not found")?;
        if current["metadata"]["resourceVersion"] != meta["resourceVersion"] {
            return Err("the object has been modified".to_owned());
        }
        let mut new = current.clone();
        merge(&mut new, patch, false);
        if let Some(errors) = self.refusal(collection, sub, &new, &current) {
            return Err(errors);
        }
        Ok(self.put((collection.to_owned(), format!("{namespace}/{name}")), new))
    }

    fn list(&self, collection: &str) -> Response<Answer> {
        let s = self.0.lock();
        let items: Vec<&Value> = s
            .objects
            .iter()
            .filter(|((c, _), _)| c == collection)
            .map(|(_, o)| o)
            .collect();
        answer(&json!({
            "kind": "List",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": s.version.to_string()},
            "items": items,
        }))
    }

    /// An object.
    pub fn get(&self, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        self.0
            .lock()
            .objects
            .get(&(collection.to_owned(), format!("{namespace}/{name}")))
            .cloned()
    }

    /// All objects of a collection.
    pub fn all(&self, collection: &str) -> Vec<Value> {
        let s = self.0.lock();
        s.objects
            .iter()
            .filter(|((c, _), _)| c == collection)
            .map(|(_, o)| o.clone())
            .collect()
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.0.lock().version
    }

    /// Creates an object.
    pub fn create(&self, collection: &str, mut object: Value) -> Value {
        let serial = self.0.lock().version;
        let kind = KINDS
            .iter()
            .find(|(c, _)| *c == collection)
            .map_or("Unknown", |(_, k)| k);
        object["kind"] = kind.into();
        let classic = self.0.lock().classic;
        object["apiVersion"] = if let Some(classic) = classic.filter(|_| {
            collection.starts_with("resource") || collection.starts_with("podscheduling")
        }) {
            format!("resource.k8s.io/{}", classic.version)
        } else if collection.starts_with("resource") || collection == "deviceclasses" {
            "resource.k8s.io/v1".to_owned()
        } else {
            "v1".to_owned()
        }
        .into();
        object["metadata"]["uid"] = format!("uid-{serial}").into();
        let namespace = object["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.put(
            (collection.to_owned(), format!("{namespace}/{name}")),
            object,
        )
    }

    /// Stores an object in a new version and tells the watches.
    pub fn put(&self, id: Id, mut object: Value) -> Value {
        let mut s = self.0.lock();
        if s.objects.get(&id).is_some_and(|old| {
            let mut same = object.clone();
            same["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            same == *old
        }) {
            return object;
        }
        s.version += 1;
        object["metadata"]["resourceVersion"] = s.version.to_string().into();
        let finalizers = object["metadata"]["finalizers"].as_array();
        if !object["metadata"]["deletionTimestamp"].is_null()
            && finalizers.is_none_or(Vec::is_empty)
        {
            s.objects.remove(&id);
            s.tell("DELETED", &id, &object);
            return object;
        }
        let what = if s.objects.contains_key(&id) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        s.objects.insert(id.clone(), object.clone());
        s.tell(what, &id, &object);
        object
    }

    /// Deletes an object, unless it has finalizers: then it is marked.
    pub fn delete(&self, collection: &str, namespace: &str, name: &str) {
        let id = (collection.to_owned(), format!("{namespace}/{name}"));
        let Some(mut object) = self.get(collection, namespace, name) else {
            return;
        };
        if object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|f| !f.is_empty())
        {
            if object["metadata"]["deletionTimestamp"].is_null() {
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                self.put(id, object);
            }
            return;
        }
        let mut s = self.0.lock();
        s.version += 1;
        object["metadata"]["resourceVersion"] = s.version.to_string().into();
        s.objects.remove(&id);
        s.tell("DELETED", &id, &object);
    }
}

impl State {
    fn tell(&mut self, what: &str, id: &Id, object: &Value) {
        let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
        let devices: Vec<&str> = devices_of(object).collect();
        self.trace.push(format!(
            "{} {what} {} {} {node} {}",
            self.version,
            id.0,
            id.1,
            devices.join(",")
        ));
        let line = format!("{}\n", json!({"type": what, "object": object}));
        let collection = id.0.clone();
        self.watches
            .retain(|w| w.collection != collection || w.sender.send(line.clone()).is_ok());
        self.log.push_back((self.version, collection, line));
        let broken = (self.invariants)(&self.objects);
        if let Some(broken) = broken.filter(|_| self.broken.is_none()) {
            self.broken = Some(broken);
        }
    }
}

/// No device in two claims; every bound pod has its claim allocated and reserved.
fn devices_are_held_once(objects: &Objects) -> Option<String> {
    let mut held: BTreeMap<&str, &str> = BTreeMap::new();
    let mut broken = None;
    for ((collection, name), object) in objects {
        if collection == "resourceclaims" {
            for device in devices_of(object) {
                if let Some(other) = held.insert(device, name) {
                    broken = Some(format!("{device} is in {other} and in {name}"));
                }
            }
        }
        let bound = collection == "pods" && object["spec"]["nodeName"].is_string();
        for claim in object["spec"]["resourceClaims"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|_| bound)
        {
            let key = format!(
                "{}/{}",
                object["metadata"]["namespace"].as_str().unwrap_or_default(),
                claim["resourceClaimName"].as_str().unwrap_or_default()
            );
            let claim = objects.get(&("resourceclaims".to_owned(), key));
            let reserved = claim.is_some_and(|c| {
                c["status"]["reservedFor"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|r| r["uid"] == object["metadata"]["uid"])
            });
            let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
            let there = claim.is_some_and(|c| {
                devices_of(c).all(|d| d.starts_with(&format!("{node}-")))
                    && devices_of(c).next().is_some()
            });
            if !reserved || !there {
                broken = Some(format!("pod {name} is bound without its claim: {claim:?}"));
            }
        }
    }
    broken
}

/// Devices that a claim holds.
pub fn devices_of(claim: &Value) -> impl Iterator<Item = &str> {
    claim["status"]["allocation"]["devices"]["results"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|r| r["device"].as_str())
}

/// JSON merge patch; lists with a merge key as the strategic one has them.
fn merge(target: &mut Value, patch: &Value, strategic: bool) {
    let Value::Object(patch) = patch else { return };
    for (key, value) in patch {
        match value {
            Value::Null => {
                if let Some(map) = target.as_object_mut() {
                    map.remove(key);
                }
            }
            Value::Object(_) => {
                if !target[key].is_object() {
                    target[key] = json!({});
                }
                merge(&mut target[key], value, strategic);
            }
            Value::Array(items) if strategic => {
                let merge_key = if key == "conditions" { "type" } else { "uid" };
                let mut list = target[key].as_array().cloned().unwrap_or_default();
                for item in items {
                    list.retain(|old| old[merge_key] != item[merge_key]);
                    if item["$patch"] != "delete" {
                        list.push(item.clone());
                    }
                }
                target[key] = list.into();
            }
            other => target[key] = other.clone(),
        }
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

fn failure(status: StatusCode, text: &str) -> Response<Answer> {
    let reason = match status {
        StatusCode::CONFLICT => "Conflict",
        StatusCode::NOT_FOUND => "NotFound",
        _ => "Simulated",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": text, "reason": reason, "code": status.as_u16(),
    });
    let mut response = Response::new(whole(&body));
    *response.status_mut() = status;
    response
}

impl tower::Service<Request<Body>> for Api {
    type Response = Response<Answer>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move { Ok(api.handle(request).await) })
    }
}
