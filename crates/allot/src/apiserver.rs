//! `allot apiserver`: the API server alone, with kube-apiserver's flag names.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_apimachinery::IpFamily;
use allot_apiserver::admission::plugins::Plugin as AdmissionPlugin;
use allot_apiserver::config::{
    Config, KubeletClient, NodePorts, ServiceAddresses, transport_security,
};
use allot_apiserver::identity::{MASTERS, User};
use allot_apiserver::keys::TokenKey;
use allot_apiserver::pki::{Authority, write_private};
use allot_apiserver::registry::RuntimeConfig;
use allot_apiserver::{Server, serve};
use allot_model::features::{Features, Release};
use allot_store::{Backend, Embedded};
use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use tokio_util::sync::CancellationToken;

mod admission;
mod audit;
mod authentication;
mod authorization;
mod clients;
mod flags;
mod front_proxy;
mod hint;
mod limits;
mod static_tokens;
mod tokens;
mod trust;

use clients::ClientAuthorities;

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

/// A server that accepts connections.
pub struct Running {
    /// URL of the server.
    pub url: String,
    /// The same as an address that is good on this machine; containers share its network.
    pub address: SocketAddr,
    /// The addresses under which clients reach the server, as far as it knows them.
    pub reached: Vec<SocketAddr>,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The server, for clients in this process.
    pub server: Server,
    /// Signs certificates that the server trusts.
    pub authority: Authority,
    /// Ends when the server has drained.
    pub task: tokio::task::JoinHandle<std::io::Result<()>>,
}

/// Opens the store, creates missing files in the data directory, and serves until `shutdown`.
pub async fn start(args: &Args, shutdown: CancellationToken) -> anyhow::Result<Running> {
    let data_dir = data_dir(args)?;
    let backend: Arc<dyn Backend> = if args.in_memory {
        Arc::new(Embedded::in_memory(allot_store::Options::default()))
    } else {
        // Opening a large store takes time, in which the process can still be stopped.
        let directory = data_dir.clone();
        let open = move || Embedded::open(&directory, allot_store::Options::default());
        let opened = tokio::task::spawn_blocking(open).await?;
        Arc::new(opened.map_err(|error| match error {
            allot_store::Error::Corrupt { .. } => {
                anyhow::anyhow!(
                    "{error}; run `allot store check --data-dir {}`",
                    data_dir.display()
                )
            }
            other => other.into(),
        })?)
    };
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .map_err(|error| hint::cannot_listen(args.listen, error))?;
    let address = listener.local_addr()?;
    let for_pods = match args.pod_gateway {
        Some(gateway) if !address.ip().is_unspecified() => {
            let at = SocketAddr::new(gateway, address.port());
            let bound = tokio::net::TcpListener::bind(at).await;
            Some(bound.map_err(|error| hint::cannot_listen(at, error))?)
        }
        _ => None,
    };
    let pki = data_dir.join("pki");
    let authority = Authority::load_or_generate(&pki, "ca").context("certificate authority")?;
    let host = if address.ip().is_unspecified() {
        SocketAddr::new(IpAddr::from([127, 0, 0, 1]), address.port())
    } else {
        address
    };
    let advertised = SocketAddr::new(args.advertise_address.unwrap_or(host.ip()), host.port());
    check_family(&args.service_cluster_ip_range, advertised.ip())?;
    let service = args.service_cluster_ip_range.first();
    let mut reached = vec![address.ip(), advertised.ip(), service];
    reached.extend(args.pod_gateway);
    let serving = trust::serving_identity(&authority, &reached)?;
    let admin = authority.client("admin", &[MASTERS])?;
    std::fs::write(pki.join("admin.crt"), &admin.certificate)?;
    write_private(&pki.join("admin.key"), &admin.key)?;
    let kubelet = authority.client(trust::KUBELET_CLIENT, &[])?;
    let token = administrator_token(&pki)?;
    let authorizers = args.authorization.authorizers()?;
    let mut config = config(args)?;
    config.authorization = authorizers.modes().to_vec();
    let own = &config.account_tokens.issuers;
    let all_is_allowed = args.authorization.allows_all();
    let authentication = args.authentication.authentication(all_is_allowed, own)?;
    config.anonymous = authentication.anonymous;
    config.token_issuers = authentication.issuers;
    let mut administrator = User::new("admin", [MASTERS]);
    administrator.uid = "admin".to_owned();
    config.tokens.insert(token.clone(), administrator);
    if config.account_tokens.signing_key.is_none() {
        config.account_tokens.signing_key = Some(service_account_key(&pki)?);
    }
    config.kubelet_client = Some(KubeletClient {
        certificate: kubelet.certificate,
        key: kubelet.key,
        ca: None,
    });
    config.advertise = Some(advertised);
    config.front_proxy = args.front_proxy.front_proxy(&pki)?;
    let fronts = config.front_proxy.headers.clone();
    let server = Server::new(backend, config);
    server.bootstrap().await?;
    let client_authorities =
        ClientAuthorities::of(&authority, args.client_ca_file.clone(), fronts.clone());
    let clients = client_authorities.read().await?;
    trust::publish(&server, &clients, fronts.as_ref()).await?;
    let url = format!("https://{host}");
    let kubeconfig = args
        .kubeconfig_out
        .clone()
        .unwrap_or_else(|| data_dir.join("kubeconfig"));
    write_kubeconfig(&kubeconfig, &url, authority.certificate(), &token)?;
    let fronts = fronts.as_ref().map(|it| it.ca.as_str());
    let tls = serve::tls_behind_proxies(&serving, Some(&clients), fronts)?;
    let listeners = std::iter::once(listener).chain(for_pods);
    let served =
        listeners.map(|it| serve::serve(server.clone(), it, tls.clone(), shutdown.clone()));
    let served: Vec<_> = served.collect();
    let follow = client_authorities.follow(server.clone(), tls, clients);
    tokio::spawn(shutdown.clone().run_until_cancelled_owned(follow));
    let follow = authorizers.follow(server.clone());
    tokio::spawn(shutdown.clone().run_until_cancelled_owned(follow));
    if let Some(file) = authentication.file {
        let follow = file.follow(server.clone());
        tokio::spawn(shutdown.run_until_cancelled_owned(follow));
    }
    let task = tokio::spawn(async move { try_join_all(served).await.map(drop) });
    Ok(Running {
        url,
        address: host,
        reached: vec![host, advertised],
        kubeconfig,
        server,
        authority,
        task,
    })
}

/// Clients of the service `kubernetes` could not reach an endpoint of another family.
fn check_family(services: &ServiceAddresses, advertised: IpAddr) -> anyhow::Result<()> {
    if services.family() != IpFamily::of(advertised) {
        bail!(
            "service IP family \"{}\" must match public address family \"{advertised}\"; \
             --advertise-address names the latter",
            services.primary()
        );
    }
    Ok(())
}

/// The directory of the server when it runs alone.
fn data_dir(args: &Args) -> anyhow::Result<PathBuf> {
    match &args.data_dir {
        Some(dir) => Ok(dir.clone()),
        None => Ok(crate::clusters::default_directory()?.join("apiserver")),
    }
}

fn config(args: &Args) -> anyhow::Result<Config> {
    let tokens = match &args.token_auth_file {
        Some(file) => static_tokens::read(file)?,
        None => BTreeMap::new(),
    };
    admission::check_plugins(
        &args.enable_admission_plugins,
        &args.disable_admission_plugins,
    )?;
    for gate in &args.feature_gates {
        let name = allot_model::features::gate_name(gate);
        if allot_model::features::is_unbuilt(name, args.release()?) {
            tracing::warn!("the feature gate {name} is known, but nothing depends on it");
        }
    }
    let features = args.features()?;
    Ok(Config {
        tokens,
        token_webhook: args.authentication.webhook()?,
        host_name: allot_election::host_name().to_owned(),
        runtime_config: RuntimeConfig::parse(&args.runtime_config.join(","))
            .map_err(|error| anyhow::anyhow!("--runtime-config: {error}"))?,
        disabled_admission: args.disable_admission_plugins.clone(),
        enabled_admission: args.enable_admission_plugins.clone(),
        account_tokens: args.tokens.tokens()?,
        admission: args.admission.options(
            &args.enable_admission_plugins,
            &args.disable_admission_plugins,
            &features,
        )?,
        features,
        service_addresses: args.service_cluster_ip_range,
        node_ports: args.service_node_port_range.clone(),
        accounts_are_made: args.accounts_are_made,
        flags: flags::shown(args),
        audit: args.audit.audit()?,
        limits: args.limits.limits()?,
        strict_transport_security: transport_security(&args.strict_transport_security_directives)
            .map_err(anyhow::Error::msg)?,
        ..Config::default()
    })
}

/// The token of the kubeconfig, kept so that clients continue to work after a restart.
fn administrator_token(pki: &Path) -> anyhow::Result<String> {
    let path = pki.join("admin.token");
    if path.exists() {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if !text.trim().is_empty() {
            return Ok(text.trim().to_owned());
        }
    }
    let token = format!("{:032x}", rand::random::<u128>());
    write_private(&path, &token)?;
    Ok(token)
}

/// The key of service account tokens, kept so that tokens stay valid after a restart.
fn service_account_key(pki: &Path) -> anyhow::Result<TokenKey> {
    let path = pki.join("sa.key");
    let key = if path.exists() {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        STANDARD
            .decode(text.trim())
            .with_context(|| format!("{} is no key", path.display()))?
    } else {
        let key = rcgen::KeyPair::generate()?.serialize_der();
        write_private(&path, &STANDARD.encode(&key))?;
        key
    };
    TokenKey::from_pkcs8(&key).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

/// With the token only: with a client certificate in it, a client could not make anonymous requests. The certificate is
/// in `pki/`.
fn write_kubeconfig(path: &Path, url: &str, ca: &str, token: &str) -> anyhow::Result<()> {
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: allot\nclusters:\n- name: allot\n  cluster:\n    server: {url}\n    \
         certificate-authority-data: {}\ncontexts:\n- name: allot\n  context:\n    cluster: allot\n    user: admin\n\
         users:\n- name: admin\n  user:\n    token: {token}\n",
        STANDARD.encode(ca),
    );
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    write_private(path, &config).with_context(|| format!("cannot write {}", path.display()))
}
