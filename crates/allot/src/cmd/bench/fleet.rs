//! `allot bench fleet`: how long a cluster of simulated nodes takes to start and to stop, and its resource usage.

use std::io::{BufRead as _, BufReader, Write as _, stdout};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal};
use serde_json::json;

use super::super::bounds;
use super::measure::Process;

/// Time limit for the start, and for the stop.
const PATIENCE: Duration = Duration::from_secs(600);

/// Flags of `allot bench fleet`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each cluster is a process of its own, in memory, without pods. For comparison, kwok says of
itself (README) that it starts 20 nodes a second and maintains 1000.

  allot bench fleet --nodes 1000,5000
  allot bench fleet --nodes 18 --hardware gb200-nvl72")]
pub struct Args {
    /// Numbers of nodes, one cluster for each
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1000, 5000], value_parser = bounds::within(1..=5000_usize))]
    nodes: Vec<usize>,
    /// Hardware of the nodes, as for `allot up`
    #[arg(long, value_name = "MODEL", default_value = "example-gpu")]
    hardware: String,
    /// `json` for one object a line
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json", "text"], default_value = "text")]
    output: String,
}

/// What one cluster took.
struct Figures {
    ready: Duration,
    stopped: Duration,
    /// Resident memory when it was ready, and at most, in MiB.
    memory: u64,
    peak: u64,
    /// CPU time until it was ready.
    cpu: Duration,
    /// Warnings and errors in its log.
    warnings: usize,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let text = args.output == "text";
    if text {
        writeln!(
            stdout(),
            "{:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "nodes",
            "ready",
            "CPU",
            "memory",
            "peak",
            "warnings",
            "stopped"
        )?;
    }
    for nodes in args.nodes {
        let figures = measure(nodes, &args.hardware)?;
        let Figures {
            ready,
            stopped,
            memory,
            peak,
            cpu,
            warnings,
        } = figures;
        let (ready, stopped, cpu) = (
            ready.as_secs_f64(),
            stopped.as_secs_f64(),
            cpu.as_secs_f64(),
        );
        match text {
            true => writeln!(
                stdout(),
                "{nodes:>7} {ready:>7.2} s {cpu:>7.2} s {memory:>5} MiB {peak:>5} MiB {warnings:>9} {stopped:>7.2} s"
            )?,
            false => {
                let line = json!({
                    "nodes": nodes, "hardware": args.hardware, "readySeconds": ready, "cpuSeconds": cpu,
                    "memoryMiB": memory, "peakMemoryMiB": peak, "warnings": warnings, "stopSeconds": stopped,
                });
                writeln!(stdout(), "{line}")?;
            }
        }
    }
    Ok(())
}

/// A process that does not outlive this one's interest in it.
struct Cluster(Child);

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(nodes: usize, hardware: &str) -> anyhow::Result<Figures> {
    let started = Instant::now();
    let child = Command::new(std::env::current_exe()?)
        .args([
            "up",
            "--in-memory",
            "--listen",
            "127.0.0.1:0",
            "--runtime",
            "simulated",
        ])
        .args(["--nodes", &nodes.to_string(), "--hardware", hardware])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a cluster")?;
    let mut cluster = Cluster(child);
    let (stdout, stderr) = (cluster.0.stdout.take(), cluster.0.stderr.take());
    let (sender, receiver) = mpsc::channel();
    let reader = stdout.context("no output")?;
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let reader = stderr.context("no log")?;
    let log = std::thread::spawn(move || {
        let lines = BufReader::new(reader).lines().map_while(Result::ok);
        lines.collect::<Vec<_>>()
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(line) => ensure!(line.starts_with("ready"), "unexpected output {line:?}"),
        Err(mpsc::RecvTimeoutError::Timeout) => bail!("not ready within {PATIENCE:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let _ = cluster.0.wait();
            let log = log.join().unwrap_or_default();
            bail!(
                "the cluster ended: {}",
                log.last().map_or("no reason", String::as_str)
            );
        }
    }
    let ready = started.elapsed();
    let process = Process::new("cluster", cluster.0.id());
    let memory = process
        .resident_mib()
        .context("no memory use of the cluster")? as u64;
    let peak = process.peak_mib().context("no memory use of the cluster")? as u64;
    let cpu = process
        .cpu_seconds()
        .context("no CPU time of the cluster")?;
    let cpu = Duration::from_secs_f64(cpu);
    let stopping = Instant::now();
    let pid = Pid::from_child(&cluster.0);
    rustix::process::kill_process(pid, Signal::TERM)?;
    let status = cluster.0.wait()?;
    let stopped = stopping.elapsed();
    ensure!(status.success(), "the cluster ended with {status}");
    let log = log.join().unwrap_or_default();
    Ok(Figures {
        ready,
        stopped,
        memory,
        peak,
        cpu,
        warnings: log.iter().filter(|line| is_warning(line)).count(),
    })
}

/// Whether a line of the log is a warning or worse. Others say what happens, such as that the cluster stops.
fn is_warning(line: &str) -> bool {
    [" WARN ", " ERROR ", "panicked"]
        .iter()
        .any(|mark| line.contains(mark))
}
