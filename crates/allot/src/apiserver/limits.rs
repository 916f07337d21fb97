//! Flags that limit the server's work for clients, with kube-apiserver's names where it has them.

use std::time::Duration;

use allot_apimachinery::go_duration;
use allot_apiserver::Limits;
use allot_apiserver::limits::connections_for;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bounds;

/// Requests in flight: each may hold megabytes.
const IN_FLIGHT: std::ops::RangeInclusive<usize> = 0..=100_000;

/// Limits and time-outs.
#[derive(Debug, clap::Args)]
#[group(id = "limits")]
pub struct Args {
    /// Non-mutating requests in flight; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = bounds::within(IN_FLIGHT))]
    max_requests_inflight: usize,
    /// Mutating requests in flight; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = bounds::within(IN_FLIGHT))]
    max_mutating_requests_inflight: usize,
    /// FlowSchemas and PriorityLevelConfigurations share out the sum of both limits
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    enable_priority_and_fairness: bool,
    /// Time limit of a request that is no watch, log or other long-running request
    #[arg(long, value_name = "DURATION", default_value = "1m0s", value_parser = bounds::duration)]
    request_timeout: Duration,
    /// Minimum seconds until a watch without a timeout of its own ends; the actual time is random, up to twice as long
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = bounds::within(1..=86_400_u64))]
    min_request_timeout: u64,
    /// Streams of one HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = bounds::within(1..=100_000_u32))]
    http2_max_streams_per_connection: u32,
    /// Connections, of which the longest idle one is closed for a new one; 0: as many as open files allow, at most 10000
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = bounds::within(0..=1_000_000_usize))]
    max_connections: usize,
}

impl Args {
    /// The flags with their values, for `/flagz`.
    pub fn shown(&self) -> [(&'static str, String); 7] {
        [
            (
                "max-requests-inflight",
                self.max_requests_inflight.to_string(),
            ),
            (
                "max-mutating-requests-inflight",
                self.max_mutating_requests_inflight.to_string(),
            ),
            (
                "enable-priority-and-fairness",
                self.enable_priority_and_fairness.to_string(),
            ),
            ("request-timeout", go_duration(self.request_timeout)),
            ("min-request-timeout", self.min_request_timeout.to_string()),
            (
                "http2-max-streams-per-connection",
                self.http2_max_streams_per_connection.to_string(),
            ),
            ("max-connections", self.max_connections.to_string()),
        ]
    }

    /// The limits, and as many open files as the system allows.
    pub fn limits(&self) -> anyhow::Result<Limits> {
        let (reads, writes) = (
            self.max_requests_inflight,
            self.max_mutating_requests_inflight,
        );
        anyhow::ensure!(
            !self.enable_priority_and_fairness || reads + writes > 0,
            "--max-requests-inflight and --max-mutating-requests-inflight are both 0: \
             --enable-priority-and-fairness needs seats to share out"
        );
        let possible = connections_for(raise_open_files());
        let max_connections = match self.max_connections {
            0 => possible,
            wanted => {
                if wanted > possible {
                    tracing::warn!(
                        "--max-connections={wanted}: the limit on open files allows {possible} connections"
                    );
                }
                wanted.min(possible)
            }
        };
        Ok(Limits {
            request_timeout: self.request_timeout,
            min_request_timeout: Duration::from_secs(self.min_request_timeout),
            max_requests_inflight: reads,
            max_mutating_requests_inflight: writes,
            priority_and_fairness: self.enable_priority_and_fairness,
            http2_max_streams: self.http2_max_streams_per_connection,
            max_connections,
            ..Limits::default()
        })
    }
}

/// Raises the limit of open files to the maximum allowed for this process; returns the limit.
fn raise_open_files() -> u64 {
    // Without a limit the value is the maximum.
    let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (number(limit.current), number(limit.maximum));
    if soft >= hard {
        return soft;
    }
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => hard,
        Err(error) => {
            tracing::debug!(%error, "the limit on open files stays at {soft}");
            soft
        }
    }
}
