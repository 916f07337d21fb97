//! `allot bench api --hostile`: the latency of a client among hostile clients, and the memory that they cost the server.
//!
//! The same client sends the same GET all the time: on an idle server, while many clients list everything at once,
//! while many request everything and read nothing of it, and while one user keeps all of its connections busy.

mod load;
mod report;

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::stream::{self, StreamExt};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use self::load::HostileLoad;
use self::report::Part;
use super::connect::Connections;
use super::report::Times;
use super::{Bench, Request};
use crate::cmd::bounds;

pub use self::report::print;

/// Flags of the measurement.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Measure the latency for a client while others list everything, read no answers, or keep all connections busy
    #[arg(long)]
    pub hostile: bool,
    /// With --hostile: lists of all objects at the same time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = bounds::within(bounds::PARALLEL))]
    listers: usize,
    /// With --hostile: number of lists of all objects that are not read
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = bounds::within(bounds::PARALLEL))]
    unread: usize,
    /// With --hostile: busy connections of one user
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = bounds::within(bounds::PARALLEL))]
    busy: usize,
    /// With --hostile: length of each part, in seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = bounds::within(1..=3600_u64))]
    seconds: u64,
}

/// Time between two requests of the client that notices.
const TICK: Duration = Duration::from_millis(50);
/// Time between two measurements of the server's memory.
const LOOK: Duration = Duration::from_millis(200);
/// The time that the server has to release memory after the last storm.
const SETTLE: Duration = Duration::from_secs(60);
/// Memory that counts as returned, as a multiple of that before the storms.
const SETTLED: f64 = 1.3;
/// Life of the tokens, in seconds: longer than any run.
const TOKEN_SECONDS: u64 = 86_400;

/// Fills the namespace and measures each part.
pub async fn measure(bench: &Bench) -> anyhow::Result<Value> {
    let args = &bench.args.hostile;
    fill(bench).await?;
    let victim = account(bench, "bench-victim").await?;
    let attacker = account(bench, "bench-attacker").await?;
    let path = bench.get(0).path;
    let mut parts = Vec::new();
    for storm in [
        HostileLoad::None,
        HostileLoad::Lists(args.listers),
        HostileLoad::Unread(args.unread),
        HostileLoad::Busy(args.busy),
    ] {
        let before = bench.server().await.resident_mib;
        let stormy = storm.start(&attacker, &bench.collection()).await;
        let stormy = stormy.with_context(|| format!("cannot start the part {:?}", storm.name()))?;
        let length = Duration::from_secs(args.seconds);
        let (noticed, peak) = tokio::join!(notice(&victim, &path, length), peak(bench, length));
        let (times, failures) = noticed;
        parts.push(Part {
            name: storm.name(),
            before,
            peak,
            done: stormy.stop().await,
            failures,
            times,
        });
    }
    let quiet = parts.first().and_then(|part| part.before);
    let (after, seconds) = settle(bench, quiet).await;
    Ok(json!({
        "kind": bench.args.kind.plural(),
        "objects": bench.args.objects,
        "parts": parts.iter().map(Part::to_json).collect::<Vec<_>>(),
        "after": {"residentMiB": after, "seconds": seconds},
    }))
}

/// Creates the objects.
async fn fill(bench: &Bench) -> anyhow::Result<()> {
    let mut created = stream::iter(0..bench.args.objects)
        .map(|i| bench.send(bench.create(i)))
        .buffer_unordered(bench.args.parallel.max(1));
    while let Some(answer) = created.next().await {
        answer?;
    }
    Ok(())
}

/// A user with permission to read the namespace only: a service account.
async fn account(bench: &Bench, name: &str) -> anyhow::Result<Connections> {
    let group = "rbac.authorization.k8s.io";
    let namespace = &bench.namespace;
    let core = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let bindings = format!("/apis/{group}/v1/namespaces/{namespace}/rolebindings");
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    });
    post(bench, &core, &json!({"metadata": {"name": name}})).await?;
    post(bench, &bindings, &binding).await?;
    let wanted = json!({"spec": {"expirationSeconds": TOKEN_SECONDS}});
    let answer = post(bench, &format!("{core}/{name}/token"), &wanted).await?;
    let token = answer["status"]["token"].as_str();
    let token = token.context("the server gives no token to a service account")?;
    bench.connections.with_token(token).await
}

async fn post(bench: &Bench, path: &str, object: &Value) -> anyhow::Result<Value> {
    let answer = bench.send(Request {
        method: Method::POST,
        path: path.to_owned(),
        content_type: "application/json",
        body: object.to_string().into_bytes(),
    });
    Ok(serde_json::from_slice(&answer.await?)?)
}

/// Latencies of a GET that is sent every [`TICK`] independent of earlier ones, and the number of failures.
async fn notice(victim: &Connections, path: &str, length: Duration) -> (Times, usize) {
    let start = Instant::now();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sent = JoinSet::new();
    while start.elapsed() < length {
        ticks.tick().await;
        let client = victim.next();
        let path = path.to_owned();
        sent.spawn(async move {
            let since = Instant::now();
            let answer = super::connect::whole(&client, Method::GET, &path).await;
            let fine = answer.is_ok_and(|(status, _)| status.is_success());
            (since.elapsed(), fine)
        });
    }
    let (mut took, mut failures) = (Vec::new(), 0);
    while let Some(answer) = sent.join_next().await {
        match answer {
            Ok((time, true)) => took.push(time),
            _ => failures += 1,
        }
    }
    (Times::new(start.elapsed(), took), failures)
}

/// The most memory that is seen in some time, in MiB.
async fn peak(bench: &Bench, length: Duration) -> Option<f64> {
    let start = Instant::now();
    let mut most = None;
    while start.elapsed() < length {
        most = larger(most, bench.server().await.resident_mib);
        tokio::time::sleep(LOOK).await;
    }
    most
}

/// Waits until the server has returned what the storms took: the memory then in MiB, and after how many seconds.
async fn settle(bench: &Bench, before: Option<f64>) -> (Option<f64>, f64) {
    let start = Instant::now();
    loop {
        let now = bench.server().await.resident_mib;
        let settled = match (now, before) {
            (Some(now), Some(before)) => now <= before * SETTLED,
            _ => true,
        };
        if settled || start.elapsed() >= SETTLE {
            return (now, start.elapsed().as_secs_f64());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The larger of two sizes, of which either may be unknown.
fn larger(one: Option<f64>, two: Option<f64>) -> Option<f64> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.max(two)),
        (one, two) => one.or(two),
    }
}
