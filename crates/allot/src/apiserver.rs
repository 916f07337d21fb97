//! `allot apiserver`: the API server alone, with kube-apiserver's flag names.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use allot_apiserver::admission::plugins::Plugin as AdmissionPlugin;
use allot_apiserver::config::{NodePorts, ServiceAddresses};
use allot_model::features::{Features, Release};
use anyhow::Context;

mod admission;
mod audit;
mod authentication;
mod authorization;
mod clients;
mod files;
mod flags;
mod front_proxy;
mod hint;
mod limits;
mod reload;
mod start;
mod static_tokens;
mod tokens;
mod trust;

pub use start::{Running, start};

/// Flags of `allot apiserver`.
#[derive(Debug, clap::Args)]
#[group(id = "apiserver")]
pub struct Args {
    /// Directory of the store, certificates and keys; default `allot` in $XDG_DATA_HOME or ~/.local/share; of
    /// `allot apiserver` alone, `apiserver` below that
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Store everything in memory
    #[arg(long)]
    pub in_memory: bool,
    /// Address to serve on; port 0 picks one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6443", value_parser = crate::bounds::address)]
    pub listen: SocketAddr,
    /// File for the kubeconfig of an administrator; default `kubeconfig` in the data directory
    #[arg(long, value_name = "FILE")]
    pub kubeconfig_out: Option<PathBuf>,
    /// File of static tokens: token,user,uid,"group1,group2" on each line
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// CA certificates, PEM, that verify client certificates in addition to that of the data directory
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Admission plugins to switch off
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// Admission plugins to switch on
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,
    /// API versions to serve or not: group/version=true|false
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    runtime_config: Vec<String>,
    /// Feature gates to set: Name=true|false, also with their component: kube:Name=true
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    feature_gates: Vec<String>,
    /// Kubernetes version whose defaults apply, also with its component: kube=1.36
    #[arg(long, value_name = "VERSION", default_value = "1.36")]
    emulated_version: String,
    /// Address of this server in the endpoints of the service `kubernetes`; default that of --listen
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,
    /// Network of the addresses that services get, or two, of IPv4 and IPv6
    #[arg(long, value_name = "CIDR", default_value_t)]
    service_cluster_ip_range: ServiceAddresses,
    /// Ports that services may open on nodes
    #[arg(long, value_name = "FIRST-LAST", default_value_t)]
    service_node_port_range: NodePorts,
    /// Serve /debug/flags, by which the verbosity of the log can be changed
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    profiling: bool,
    /// Controllers beside this server create the service accounts of namespaces
    #[arg(skip)]
    pub accounts_are_made: bool,
    /// Address of this host in the network of pods, at which they reach the server as well
    #[arg(skip)]
    pub pod_gateway: Option<IpAddr>,
    /// Directives of the header Strict-Transport-Security: max-age=SECONDS, includeSubDomains, preload
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    strict_transport_security_directives: Vec<String>,
    #[command(flatten)]
    authorization: authorization::Args,
    #[command(flatten)]
    authentication: authentication::Args,
    #[command(flatten)]
    limits: limits::Args,
    #[command(flatten)]
    audit: audit::Args,
    #[command(flatten)]
    tokens: tokens::Args,
    #[command(flatten)]
    admission: admission::Args,
    #[command(flatten)]
    front_proxy: front_proxy::Args,
}

impl Args {
    /// Disables a plugin that adds finalizers, unless it was requested: without the controllers that remove them no such
    /// object could be deleted.
    pub fn leave_unprotected(&mut self, plugin: AdmissionPlugin) {
        let protection = plugin.name();
        let is_requested = |name: &String| name == protection;
        if !self.enable_admission_plugins.iter().any(is_requested) {
            self.disable_admission_plugins.push(protection.to_owned());
        }
    }

    /// Serves the versions with the kinds of enabled features, unless the user disables them. For a cluster on one
    /// machine: kube-apiserver requires `--runtime-config` in addition to the gate.
    pub fn serve_kinds_of(&mut self, features: &Features) {
        use allot_model::features::Feature;
        let kinds = [
            (Feature::DRADeviceTaintRules, "resource.k8s.io/v1beta2=true"),
            (
                Feature::DRAResourcePoolStatus,
                "resource.k8s.io/v1alpha3=true",
            ),
            (
                Feature::DRAWorkloadResourceClaims,
                "scheduling.k8s.io/v1alpha2=true",
            ),
            (Feature::GangScheduling, "scheduling.k8s.io/v1alpha2=true"),
        ];
        for (_, version) in kinds.into_iter().filter(|(f, _)| features.enabled(*f)) {
            // Later settings win, so those of the user are last.
            self.runtime_config.insert(0, version.to_owned());
        }
    }

    /// Enables what dynamic resource allocation needs in the emulated release, with `classic` also beside the current
    /// kinds. Settings of the user take precedence.
    pub fn switch_on_dra(&mut self, classic: bool) -> anyhow::Result<()> {
        use allot_model::availability::{Served, served, versions};
        use allot_model::features::Feature;
        const CLAIM: &str = "ResourceClaim";
        let release = self.release()?;
        if !Features::of(release).enabled(Feature::DynamicResourceAllocation) {
            let gate = format!("{}=true", Feature::DynamicResourceAllocation);
            self.feature_gates.insert(0, gate);
        }
        let known = versions(release, CLAIM);
        let mut wanted = known.clone();
        if known
            .iter()
            .any(|version| served(release, version, CLAIM) == Served::ByDefault)
        {
            wanted.clear();
        }
        if classic && release >= Release::DEFAULT {
            wanted.push(allot_model::classic::VERSIONS[0]);
        }
        for version in wanted {
            let line = format!("{}/{version}=true", allot_model::GROUP);
            self.runtime_config.insert(0, line);
        }
        Ok(())
    }

    fn release(&self) -> anyhow::Result<Release> {
        let version = self.emulated_name();
        Release::all()
            .find(|release| release.to_string() == version)
            .with_context(|| {
                let all: Vec<String> = Release::all().map(|release| release.to_string()).collect();
                format!(
                    "--emulated-version: {version:?} is not known; choose one of {}",
                    all.join(", ")
                )
            })
    }

    /// The feature gates: the defaults of the emulated version, changed by `--feature-gates`.
    pub fn features(&self) -> anyhow::Result<Features> {
        let mut features = Features::of(self.release()?);
        // All at once: one may need another that comes later.
        let gates = self.feature_gates.join(",");
        features.set(&gates).context("--feature-gates")?;
        Ok(features)
    }
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    crate::component::block_on(async move |shutdown| {
        let running = tokio::select! {
            started = start(&args, shutdown.clone()) => started?,
            () = shutdown.cancelled() => return Ok(()),
        };
        eprintln!(
            "serving {} kubeconfig {}",
            running.url,
            running.kubeconfig.display()
        );
        Ok(running.task.await??)
    })
}
