//! Starting the API server: store, listeners, certificates, configuration, and the files that are watched while it runs.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_apimachinery::IpFamily;
use allot_apiserver::config::{
    Config, KubeletClient, LogVerbosity, ServiceAddresses, transport_security,
};
use allot_apiserver::identity::{MASTERS, User};
use allot_apiserver::pki::{Authority, write_private};
use allot_apiserver::registry::RuntimeConfig;
use allot_apiserver::{Server, serve};
use allot_store::{Backend, Embedded};
use anyhow::{Context, bail};
use futures::future::try_join_all;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::clients::ClientAuthorities;
use super::files::{administrator_token, service_account_key, write_kubeconfig};
use super::reload::ReloadedFile;
use super::{Args, admission, flags, hint, static_tokens, trust};

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
    let backend = open_store(args, &data_dir).await?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|error| hint::cannot_listen(args.listen, error))?;
    let address = listener.local_addr()?;
    let for_pods = listen_for_pods(args, address).await?;
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
    let mut config = config(args)?;
    let files = authentication_and_authorization(args, &mut config)?;
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
    let client_authorities = ClientAuthorities::of(&authority, args.client_ca_file.clone())
        .with_front_proxies(fronts.clone(), args.front_proxy.ca_file());
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
    for file in files {
        let follow = file.follow(server.clone());
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(follow));
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

/// The store in memory or in the data directory.
async fn open_store(args: &Args, data_dir: &Path) -> anyhow::Result<Arc<dyn Backend>> {
    if args.in_memory {
        return Ok(Arc::new(Embedded::in_memory(
            allot_store::Options::default(),
        )));
    }
    // Opening a large store takes time, in which the process can still be stopped.
    let directory = data_dir.to_owned();
    let open = move || Embedded::open(&directory, allot_store::Options::default());
    let opened = tokio::task::spawn_blocking(open).await?;
    Ok(Arc::new(opened.map_err(|error| match error {
        allot_store::Error::Corrupt { .. } => {
            anyhow::anyhow!(
                "{error}; run `allot store check --data-dir {}`",
                data_dir.display()
            )
        }
        other => other.into(),
    })?))
}

/// Listens at the address under which pods reach the server, if that is another one.
async fn listen_for_pods(args: &Args, address: SocketAddr) -> anyhow::Result<Option<TcpListener>> {
    match args.pod_gateway {
        Some(gateway) if !address.ip().is_unspecified() => {
            let at = SocketAddr::new(gateway, address.port());
            let bound = TcpListener::bind(at).await;
            Ok(Some(bound.map_err(|error| hint::cannot_listen(at, error))?))
        }
        _ => Ok(None),
    }
}

/// Adds to the configuration what proves identities and what decides about requests. Returns the files of both, which are to be
/// followed.
fn authentication_and_authorization(
    args: &Args,
    config: &mut Config,
) -> anyhow::Result<Vec<ReloadedFile>> {
    let authorizers = args.authorization.authorizers()?;
    config.authorization = authorizers.modes;
    let own = &config.account_tokens.issuers;
    let all_is_allowed = args.authorization.allows_all();
    let authentication = args.authentication.authentication(all_is_allowed, own)?;
    config.anonymous = authentication.anonymous;
    config.token_issuers = authentication.issuers;
    let files = [authentication.file, authorizers.file];
    Ok(files.into_iter().flatten().collect())
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
        bootstrap_tokens: args.authentication.enable_bootstrap_token_auth,
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
        log_verbosity: args
            .profiling
            .then(|| LogVerbosity::new(crate::logging::set_verbosity)),
        audit: args.audit.audit()?,
        limits: args.limits.limits()?,
        strict_transport_security: transport_security(&args.strict_transport_security_directives)
            .map_err(anyhow::Error::msg)?,
        ..Config::default()
    })
}
