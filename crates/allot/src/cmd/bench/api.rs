//! `allot bench api`: how fast an API server answers, of any implementation.
//!
//! Phases run one after the other on objects in a separate namespace: create, get, update, patch, list, watch fan-out,
//! delete. All of them use HTTP/2 if the server supports it, as client-go does.

mod connect;
mod fan_out;
mod hostile;
pub mod objects;
mod report;

use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::Method;
use serde_json::{Value, json};

use self::connect::Connections;
use self::objects::Kind;
use self::report::{Server, Times};
use super::measure::Process;
use crate::cmd::{bounds, component};

/// Flags of `allot bench api`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  allot apiserver --data-dir /tmp/bench --kubeconfig-out /tmp/bench/config --listen 127.0.0.1:0 &
  allot bench api --kubeconfig /tmp/bench/config --objects 10000 --watchers 1000
  allot bench api --kubeconfig /tmp/bench/config --phases create,patch --kind claims -o json
  allot bench api --kubeconfig /tmp/bench/config --hostile --objects 100000 --process api=PID")]
pub struct Args {
    /// Kubeconfig of the cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kind of the objects
    #[arg(long, value_enum, default_value = "pods")]
    kind: Kind,
    /// Number of objects
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = bounds::within(bounds::OBJECTS))]
    objects: usize,
    /// Requests under way at the same time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = bounds::within(bounds::PARALLEL))]
    parallel: usize,
    /// Whole lists of all objects
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = bounds::within(bounds::OBJECTS))]
    lists: usize,
    /// Watchers that get every change of the watch phase
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = bounds::within(0..=100_000_usize))]
    watchers: usize,
    /// Changes of the watch phase
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = bounds::within(bounds::OBJECTS))]
    changes: usize,
    /// Time between two changes of the watch phase, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = bounds::within(0..=3_600_000_u64))]
    interval: u64,
    /// Phases to measure, in this order; objects are always created
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["create", "get", "update", "patch", "list", "watch", "delete"])]
    phases: Vec<Phase>,
    /// Process of the server, for its CPU time and memory; without it they are read from its /metrics
    #[arg(long, value_name = "NAME=PID")]
    process: Option<Process>,
    /// `json` for one object on standard output
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json", "text"], default_value = "text")]
    output: String,
    /// Leave the objects
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    hostile: hostile::Options,
}

/// Path of the CRDs.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// One kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Phase {
    /// POST of each object
    Create,
    /// GET of each object
    Get,
    /// PUT of each object with one label changed
    Update,
    /// Merge patch of each object's annotations
    Patch,
    /// GET of the whole collection
    List,
    /// Delivery of changes to many watchers
    Watch,
    /// DELETE of each object
    Delete,
}

impl Phase {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// How long a new namespace may take to accept objects.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(|shutdown| async move {
        let connections = Connections::open(args.kubeconfig.as_deref()).await?;
        let bench = Bench {
            namespace: format!("allot-bench-{:08x}", rand::random::<u32>()),
            connections,
            args,
        };
        let result = tokio::select! {
            result = bench.run() => result,
            () = shutdown.cancelled() => Err(anyhow::anyhow!("interrupted")),
        };
        if !bench.args.keep {
            bench.clean_up().await;
        }
        let report = result?;
        if bench.args.output == "json" {
            writeln!(stdout(), "{report}")?;
        } else if bench.args.hostile.hostile {
            hostile::print(&report)?;
        } else {
            report::print(&report)?;
        }
        Ok(())
    })
}

struct Bench {
    args: Args,
    namespace: String,
    connections: Connections,
}

/// A request of a phase.
struct Request {
    method: Method,
    path: String,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Bench {
    async fn run(&self) -> anyhow::Result<Value> {
        let start = self.server().await;
        self.prepare().await?;
        if self.args.hostile.hostile {
            return hostile::measure(self).await;
        }
        let mut phases = Vec::new();
        let mut created: Vec<Value> = Vec::new();
        let (mut listed, mut watched) = (Value::Null, Value::Null);
        let mut wanted = self.args.phases.clone();
        if !wanted.contains(&Phase::Create) {
            wanted.insert(0, Phase::Create);
        }
        for phase in wanted {
            let requests: Vec<Request> = match phase {
                Phase::Create => (0..self.args.objects).map(|i| self.create(i)).collect(),
                Phase::Get => (0..self.args.objects).map(|i| self.get(i)).collect(),
                Phase::Update => created.iter().map(|object| self.update(object)).collect(),
                Phase::Patch => (0..self.args.objects).map(|i| self.patch(i)).collect(),
                Phase::Delete => (0..self.args.objects).map(|i| self.delete(i)).collect(),
                Phase::List => {
                    listed = self.list().await?;
                    continue;
                }
                Phase::Watch => {
                    watched = fan_out::measure(self).await?;
                    continue;
                }
            };
            let before = self.server().await;
            let (times, answers) = self.send_all(requests).await?;
            let after = self.server().await;
            if phase == Phase::Create {
                created = answers
                    .iter()
                    .map(|answer| serde_json::from_slice(answer))
                    .collect::<Result<_, _>>()?;
            }
            phases.push(times.phase(&phase.name(), before, after));
        }
        Ok(json!({
            "kind": self.args.kind.plural(),
            "objects": self.args.objects,
            "parallel": self.args.parallel,
            "phases": phases,
            "list": listed,
            "watch": watched,
            "server": self.server().await.since(start),
        }))
    }

    /// Creates the namespace and waits until it accepts objects: if pods need a service account, a controller creates
    /// it first.
    async fn prepare(&self) -> anyhow::Result<()> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        let request = Request {
            method: Method::POST,
            path: "/api/v1/namespaces".to_owned(),
            content_type: "application/json",
            body: namespace.to_string().into_bytes(),
        };
        let made = self.send(request).await;
        let definition = self.args.kind.definition();
        if definition.is_none() {
            made.context("cannot make a namespace")?;
        }
        if let Some(definition) = definition {
            // A server with custom resources only has no namespaces. The CRD may exist from another run.
            let request = Request {
                method: Method::POST,
                path: DEFINITIONS.to_owned(),
                content_type: "application/json",
                body: definition.to_string().into_bytes(),
            };
            let _ = self.send(request).await;
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let mut probe = self.create(0);
            probe.path.push_str("?dryRun=All");
            match self.send(probe).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => {
                    return Err(error.context("the new namespace accepts no objects"));
                }
                // Another server's controllers are no event of ours.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn collection(&self) -> String {
        self.args.kind.path(&self.namespace)
    }

    fn object(&self, method: Method, i: usize) -> Request {
        Request {
            method,
            path: format!("{}/{}", self.collection(), Kind::name_of(i)),
            content_type: "application/json",
            body: Vec::new(),
        }
    }

    fn create(&self, i: usize) -> Request {
        Request {
            method: Method::POST,
            path: self.collection(),
            content_type: "application/json",
            body: self.args.kind.object(i).to_string().into_bytes(),
        }
    }

    fn get(&self, i: usize) -> Request {
        self.object(Method::GET, i)
    }

    fn delete(&self, i: usize) -> Request {
        let mut request = self.object(Method::DELETE, i);
        request.body = br#"{"gracePeriodSeconds":0}"#.to_vec();
        request
    }

    fn patch(&self, i: usize) -> Request {
        let patch = json!({"metadata": {"annotations": {"bench.allot/patched": i.to_string()}}});
        Request {
            content_type: "application/merge-patch+json",
            body: patch.to_string().into_bytes(),
            ..self.object(Method::PATCH, i)
        }
    }

    fn update(&self, object: &Value) -> Request {
        let mut object = object.clone();
        object["metadata"]["labels"]["bench.allot/updated"] = "true".into();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        Request {
            method: Method::PUT,
            path: format!("{}/{name}", self.collection()),
            content_type: "application/json",
            body: object.to_string().into_bytes(),
        }
    }

    /// The body of the answer; an error unless it is a success.
    async fn send(&self, request: Request) -> anyhow::Result<Bytes> {
        let what = format!("{} {}", request.method, request.path);
        let (status, body) = self
            .connections
            .send(
                request.method,
                &request.path,
                request.content_type,
                request.body,
            )
            .await
            .with_context(|| what.clone())?;
        if !status.is_success() {
            bail!("{what}: {status} {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    async fn send_all(&self, requests: Vec<Request>) -> anyhow::Result<(Times, Vec<Bytes>)> {
        let start = Instant::now();
        let mut answers = stream::iter(requests)
            .map(async |request| {
                let sent = Instant::now();
                let answer = self.send(request).await?;
                anyhow::Ok((sent.elapsed(), answer))
            })
            .buffer_unordered(self.args.parallel.max(1));
        let (mut took, mut bodies) = (Vec::new(), Vec::new());
        while let Some(answer) = answers.next().await {
            let (time, body) = answer?;
            took.push(time);
            bodies.push(body);
        }
        Ok((Times::new(start.elapsed(), took), bodies))
    }

    async fn list(&self) -> anyhow::Result<Value> {
        let before = self.server().await;
        let (start, mut took, mut bytes) = (Instant::now(), Vec::new(), 0);
        for _ in 0..self.args.lists {
            let sent = Instant::now();
            let mut request = self.get(0);
            request.path = self.collection();
            bytes = self.send(request).await?.len();
            took.push(sent.elapsed());
        }
        let times = Times::new(start.elapsed(), took);
        let mut report = times.phase("list", before, self.server().await);
        report["objects"] = self.args.objects.into();
        report["bytes"] = bytes.into();
        Ok(report)
    }

    /// What the server has used so far.
    async fn server(&self) -> Server {
        match &self.args.process {
            Some(process) => Server::of_process(process),
            None => match self
                .connections
                .send(Method::GET, "/metrics", "", Vec::new())
                .await
            {
                Ok((status, text)) if status.is_success() => {
                    Server::of_metrics(&String::from_utf8_lossy(&text))
                }
                _ => Server::default(),
            },
        }
    }

    /// Deletes everything; best effort.
    async fn clean_up(&self) {
        let now = br#"{"gracePeriodSeconds":0}"#.to_vec();
        for path in [
            self.collection(),
            Kind::Configmaps.path(&self.namespace),
            // The CRD stays: another run may be using it.
            format!("/api/v1/namespaces/{}", self.namespace),
        ] {
            let _ = self
                .connections
                .send(Method::DELETE, &path, "application/json", now.clone())
                .await;
        }
    }
}
