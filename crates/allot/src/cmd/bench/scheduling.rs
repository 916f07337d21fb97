//! `allot bench scheduling`: how fast pods are scheduled, by any scheduler.

use std::collections::HashMap;
use std::io::{Write as _, stdout};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_reflector::Writes;
use anyhow::{Context, bail};
use futures::stream::{self, StreamExt};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

mod arrival;
mod bindings;
mod report;

use super::measure::{Bound, Process};
use super::workloads::{Arrival, Names, Object, Workload, all};
use crate::cmd::{bounds, component};

/// Flags of `allot bench scheduling`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the workload; `list` prints all
    #[arg(long, value_name = "NAME")]
    workload: String,
    /// Kubeconfig of the cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Number of nodes in place of the workload's
    #[arg(long, value_name = "N", value_parser = bounds::within(0..=100_000_usize))]
    nodes: Option<usize>,
    /// Number of measured pods in place of the workload's
    #[arg(long, value_name = "N", value_parser = bounds::within(bounds::OBJECTS))]
    pods: Option<usize>,
    /// Number of pods before the measurement in place of the workload's
    #[arg(long, value_name = "N", value_parser = bounds::within(bounds::OBJECTS))]
    init: Option<usize>,
    /// Create pods at this rate (per second) instead of all at once; the result is the time from creation to binding
    #[arg(long, value_name = "N", value_parser = bounds::within(NonZeroU32::MIN..=NonZeroU32::MIN.saturating_add(999_999)))]
    rate: Option<NonZeroU32>,
    /// Create this number of pods that fit nowhere among the measured ones, and report the delay of those right after
    /// them
    #[arg(long, value_name = "N", default_value_t = 0, requires = "rate", value_parser = bounds::within(bounds::OBJECTS))]
    impossible: usize,
    /// Requests that the bench has under way at the same time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = bounds::within(bounds::PARALLEL))]
    parallel: usize,
    /// Process whose CPU time and memory to report; may be repeated
    #[arg(long, value_name = "NAME=PID")]
    process: Vec<Process>,
    /// URL of the scheduler's metrics, to count its attempts
    #[arg(long, value_name = "URL")]
    scheduler_metrics: Option<String>,
    /// Give up when no pod is scheduled for this many seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = bounds::within(bounds::SECONDS))]
    patience: u64,
    /// `json` for one object on standard output
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json", "text"], default_value = "text")]
    output: String,
    /// Leave the objects
    #[arg(long)]
    keep: bool,
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    if args.workload == "list" {
        for w in all() {
            writeln!(
                stdout(),
                "{:<20} {:>5} nodes {:>5}+{:<5} pods  {}",
                w.name,
                w.nodes,
                w.init,
                w.pods,
                w.about
            )?;
        }
        return Ok(());
    }
    let Some(mut workload) = all().into_iter().find(|w| w.name == args.workload) else {
        let names: Vec<&str> = all().iter().map(|w| w.name).collect();
        bail!(
            "workload {:?} is not known; there are {}",
            args.workload,
            names.join(", ")
        );
    };
    workload.nodes = args.nodes.unwrap_or(workload.nodes);
    workload.pods = args.pods.unwrap_or(workload.pods);
    workload.init = args.init.unwrap_or(workload.init);
    if let Some(rate) = args.rate {
        workload.arrival = Arrival::Rate(rate.get());
    }
    component::block_on(|shutdown| async move {
        let client = component::client(args.kubeconfig.as_deref(), "allot-bench").await?;
        let bench = Bench {
            writes: Writes::new(client.clone()),
            client,
            names: Names {
                id: format!("{:08x}", rand::random::<u32>()),
            },
            workload,
            args: Arc::new(args),
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
        } else {
            report::print_text(&report)?;
        }
        Ok(())
    })
}

struct Bench {
    client: kube::Client,
    writes: Writes,
    names: Names,
    workload: Workload,
    args: Arc<Args>,
}

impl Bench {
    async fn run(&self) -> anyhow::Result<Value> {
        let (w, names) = (&self.workload, &self.names);
        for object in w.fixtures(names) {
            self.create(object).await?;
        }
        self.create_all((0..w.nodes).map(|i| w.node(names, i)).collect())
            .await?;
        let slices: Vec<Object> = (0..w.nodes)
            .flat_map(|i| [w.slice(names, i), w.counters(names, i)])
            .flatten()
            .collect();
        if w.arrival == Arrival::Slices {
            return self.publish(slices).await;
        }
        self.create_all(slices).await?;
        let mut watch = self.watch_bindings().await?;
        if w.init > 0 {
            self.create_pods("init", w.init).await?;
            self.wait_bound(
                &mut watch,
                "init",
                w.init,
                &mut Bound::default(),
                &HashMap::new(),
            )
            .await?;
        }
        let before = self.version().await?;
        let cpu: Vec<Option<f64>> = self.args.process.iter().map(Process::cpu_seconds).collect();
        let attempts = self.attempts().await;
        let start = Instant::now();
        let bound = match w.arrival {
            Arrival::Steady(n) => self.steady(&mut watch, n).await?,
            Arrival::Rate(rate) => self.arriving(&mut watch, rate).await?,
            _ => self.burst(&mut watch).await?,
        };
        let took = start.elapsed();
        let writes = self.version().await?.saturating_sub(before);
        let attempts = self.attempts().await.zip(attempts).map(|(a, b)| a - b);
        Ok(self.report(&bound, start, took, writes, attempts, &cpu))
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: http::Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, kube::Error> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(body)
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    async fn create(&self, (path, object): Object) -> anyhow::Result<()> {
        self.writes
            .send_only(http::Method::POST, &path, &object)
            .await
            .with_context(|| format!("cannot create {} in {path}", object["metadata"]["name"]))
    }

    async fn create_all(&self, objects: Vec<Object>) -> anyhow::Result<()> {
        let mut created = stream::iter(objects)
            .map(|o| self.create(o))
            .buffer_unordered(self.args.parallel);
        while let Some(result) = created.next().await {
            result?;
        }
        Ok(())
    }

    /// Creates pods, with the claims that they share; returns when each was created.
    async fn create_pods(
        &self,
        prefix: &str,
        n: usize,
    ) -> anyhow::Result<HashMap<String, Instant>> {
        let (w, names) = (&self.workload, &self.names);
        let claims: Vec<Object> = (0..n).filter_map(|i| w.claim(names, i)).collect();
        self.create_all(claims).await?;
        let mut created = HashMap::with_capacity(n);
        let mut results = stream::iter(0..n)
            .map(async |i| {
                let at = Instant::now();
                self.create(w.pod(names, prefix, i))
                    .await
                    .map(|()| (format!("{prefix}-{i}"), at))
            })
            .buffer_unordered(self.args.parallel);
        while let Some(result) = results.next().await {
            let (name, at) = result?;
            created.insert(name, at);
        }
        Ok(created)
    }

    async fn next_bound(
        &self,
        watch: &mut UnboundedReceiver<(String, Instant)>,
    ) -> anyhow::Result<(String, Instant)> {
        let patience = Duration::from_secs(self.args.patience);
        match tokio::time::timeout(patience, watch.recv()).await {
            Ok(Some(event)) => Ok(event),
            Ok(None) => bail!("the watch of pods ended"),
            Err(_) => bail!("no pod was scheduled for {} s", patience.as_secs()),
        }
    }

    async fn wait_bound(
        &self,
        watch: &mut UnboundedReceiver<(String, Instant)>,
        prefix: &str,
        n: usize,
        bound: &mut Bound,
        created: &HashMap<String, Instant>,
    ) -> anyhow::Result<()> {
        while bound.len() < n {
            let (name, at) = self
                .next_bound(watch)
                .await
                .with_context(|| format!("{} of {n} pods are scheduled", bound.len()))?;
            if name.starts_with(prefix) {
                bound.note(created.get(&name).copied(), at);
            }
        }
        Ok(())
    }

    async fn publish(&self, slices: Vec<Object>) -> anyhow::Result<Value> {
        let n = slices.len();
        let start = Instant::now();
        self.create_all(slices).await?;
        let took = start.elapsed().as_secs_f64();
        Ok(json!({
            "workload": self.workload.name,
            "nodes": self.workload.nodes,
            "slices": n,
            "seconds": took,
            "slicesPerSecond": n as f64 / took,
        }))
    }

    /// The version of the cluster's state: it grows by one with every write.
    async fn version(&self) -> anyhow::Result<u64> {
        let list = self
            .request::<Value>(http::Method::GET, "/api/v1/namespaces?limit=1", Vec::new())
            .await?;
        let version = list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default();
        version
            .parse()
            .with_context(|| format!("resource version {version:?}"))
    }

    /// Attempts of the scheduler so far.
    async fn attempts(&self) -> Option<f64> {
        let text = get_plain(self.args.scheduler_metrics.as_deref()?)
            .await
            .ok()?;
        let lines = text
            .lines()
            .filter(|l| l.starts_with("scheduler_schedule_attempts_total"));
        Some(
            lines
                .filter_map(|l| l.rsplit_once(' ')?.1.parse::<f64>().ok())
                .sum(),
        )
    }

    /// Deletes all objects, best effort. Waits for the end, so that it does not affect the measurement of the next run.
    async fn clean_up(&self) {
        let namespace = self.names.namespace();
        let now = json!({"gracePeriodSeconds": 0}).to_string().into_bytes();
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let _ = self
            .request::<IgnoredAny>(http::Method::DELETE, &pods, now.clone())
            .await;
        let _ = self
            .request::<IgnoredAny>(
                http::Method::DELETE,
                &format!("/api/v1/namespaces/{namespace}"),
                now.clone(),
            )
            .await;
        let leftovers = self.workload.leftovers(&self.names);
        stream::iter(leftovers)
            .map(async |path: String| {
                let _ = self
                    .request::<IgnoredAny>(http::Method::DELETE, &path, now.clone())
                    .await;
            })
            .buffer_unordered(self.args.parallel)
            .collect::<Vec<()>>()
            .await;
        let path = format!("/api/v1/namespaces/{namespace}");
        let patience = Instant::now() + Duration::from_secs(self.args.patience);
        while Instant::now() < patience
            && self
                .request::<IgnoredAny>(http::Method::GET, &path, Vec::new())
                .await
                .is_ok()
        {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// GET over plain HTTP, for a metrics endpoint on this machine.
async fn get_plain(url: &str) -> anyhow::Result<String> {
    use http_body_util::{BodyExt, Empty};
    let uri: http::Uri = url.parse()?;
    let authority = uri.authority().context("URL without host")?;
    let port = authority.port_u16().unwrap_or(80);
    let stream = tokio::net::TcpStream::connect((authority.host(), port)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = http::Request::get(uri.path())
        .header("host", authority.as_str())
        .body(Empty::<bytes::Bytes>::new())?;
    let body = sender
        .send_request(request)
        .await?
        .into_body()
        .collect()
        .await?
        .to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}
