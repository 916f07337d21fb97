//! The flags of the server with their values, as `/flagz` shows them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use allot_apiserver::request::parse_duration;

use super::Args;

impl Args {
    /// `--emulated-version`; kube-apiserver also takes the name of the component with it.
    pub(super) fn emulated_name(&self) -> &str {
        let given = self.emulated_version.as_str();
        given.strip_prefix("kube=").unwrap_or(given)
    }
}

/// Names, as Go prints the value of a flag that has several.
pub(super) fn list(items: &[impl std::borrow::Borrow<str>]) -> String {
    format!("[{}]", items.join(","))
}

/// The value of a flag that names a file.
pub(super) fn path(file: Option<&Path>) -> String {
    file.map(|file| file.display().to_string())
        .unwrap_or_default()
}

/// Reads the value of a flag; a negative duration is none.
pub(super) fn duration(flag: &str, text: &str) -> anyhow::Result<Duration> {
    let nanoseconds = parse_duration(text).map_err(|error| anyhow::anyhow!("--{flag}: {error}"))?;
    let nanoseconds = u64::try_from(nanoseconds).unwrap_or(0);
    Ok(Duration::from_nanos(nanoseconds))
}

/// The flags that kube-apiserver has as well, and those that are this server's alone, as Go prints values.
pub(super) fn shown(args: &Args) -> BTreeMap<&'static str, String> {
    let advertised = args.advertise_address;
    let own = [
        (
            "advertise-address",
            advertised.map(|it| it.to_string()).unwrap_or_default(),
        ),
        ("client-ca-file", path(args.client_ca_file.as_deref())),
        ("data-dir", path(args.data_dir.as_deref())),
        (
            "disable-admission-plugins",
            list(&args.disable_admission_plugins),
        ),
        (
            "enable-admission-plugins",
            list(&args.enable_admission_plugins),
        ),
        (
            "emulated-version",
            format!("[kube={}]", args.emulated_name()),
        ),
        ("feature-gates", args.feature_gates.join(",")),
        ("in-memory", args.in_memory.to_string()),
        ("kubeconfig-out", path(args.kubeconfig_out.as_deref())),
        ("listen", args.listen.to_string()),
        ("profiling", args.profiling.to_string()),
        ("runtime-config", args.runtime_config.join(",")),
        (
            "service-cluster-ip-range",
            args.service_cluster_ip_range.to_string(),
        ),
        (
            "service-node-port-range",
            args.service_node_port_range.to_string(),
        ),
        (
            "strict-transport-security-directives",
            list(&args.strict_transport_security_directives),
        ),
        ("token-auth-file", path(args.token_auth_file.as_deref())),
    ];
    let all = own.into_iter().chain(args.limits.shown());
    let all = all.chain(args.audit.shown());
    let all = all.chain(args.authorization.shown());
    let all = all.chain(args.authentication.shown());
    let all = all.chain(args.front_proxy.shown());
    let all = all.chain(args.tokens.shown());
    all.chain(args.admission.shown()).collect()
}
