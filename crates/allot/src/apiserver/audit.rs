//! Flags of the audit log, with kube-apiserver's names.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allot_apiserver::audit::{Audit, Log, Policy, Rotation};
use anyhow::Context;

use super::flags::path;
use crate::bounds;

/// The audit log.
#[derive(Debug, clap::Args)]
#[group(id = "audit")]
pub struct Args {
    /// Policy (audit.k8s.io/v1) that selects what is logged
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// File of the audit log; `-` for standard output
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// Megabytes after which a new file is begun; 0 for 100
    #[arg(long, value_name = "MB", default_value_t = 0, value_parser = bounds::within(0..=1_000_000_u64))]
    audit_log_maxsize: u64,
    /// Number of rotated files that are kept; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = bounds::within(0..=1_000_000_usize))]
    audit_log_maxbackup: usize,
    /// Days that rotated files are kept; 0 keeps them without a limit
    #[arg(long, value_name = "DAYS", default_value_t = 0, value_parser = bounds::within(0..=36_500_u64))]
    audit_log_maxage: u64,
}

impl Args {
    /// The flags with their values, for `/flagz`.
    pub fn shown(&self) -> [(&'static str, String); 5] {
        [
            ("audit-policy-file", path(self.audit_policy_file.as_deref())),
            ("audit-log-path", path(self.audit_log_path.as_deref())),
            ("audit-log-maxsize", self.audit_log_maxsize.to_string()),
            ("audit-log-maxbackup", self.audit_log_maxbackup.to_string()),
            ("audit-log-maxage", self.audit_log_maxage.to_string()),
        ]
    }

    /// The log, if there is one.
    pub fn audit(&self) -> anyhow::Result<Option<Arc<Audit>>> {
        const DEFAULT_SIZE: u64 = 100;
        let Some(path) = &self.audit_log_path else {
            return Ok(None);
        };
        let Some(file) = &self.audit_policy_file else {
            tracing::warn!("--audit-log-path without --audit-policy-file: nothing is written");
            return Ok(None);
        };
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("--audit-policy-file: cannot read {}", file.display()))?;
        let policy = Policy::parse(&text)
            .map_err(|error| anyhow::anyhow!("--audit-policy-file {}: {error}", file.display()))?;
        let size = match self.audit_log_maxsize {
            0 => DEFAULT_SIZE,
            size => size,
        };
        let rotation = Rotation {
            size: size * 1_000_000,
            backups: self.audit_log_maxbackup,
            age: Duration::from_secs(self.audit_log_maxage * 86_400),
        };
        let log = Log::open(path, rotation)
            .with_context(|| format!("--audit-log-path: cannot open {}", path.display()))?;
        Ok(Some(Audit::new(policy, log)))
    }
}
