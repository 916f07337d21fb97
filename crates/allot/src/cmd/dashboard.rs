//! `allot dashboard`: a web page about the devices of a cluster.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use allot_apiserver::Server;
use allot_apiserver::mount::Mount;
use allot_dashboard::{Config, Dashboard, Explain, Login, serve, serve_tls};
use allot_driver::webhook::Certificate;
use anyhow::Context as _;
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::component::{self, Watches};
use super::explain;

/// Flags of `allot dashboard`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Shows every device as a tile, the pods that wait for devices and why, the life of
claims, and utilisation over time. Read-only, with the rights of the kubeconfig: open
the link that is printed. The link is good on this machine, until the command ends.

With --login token, readers sign in with a bearer token of the cluster, which is
passed on; the server has no rights of its own. That is the form for a cluster:

  allot dashboard
  allot dashboard --login token --listen 0.0.0.0:8443 \\
    --tls-cert-file tls.crt --tls-private-key-file tls.key --host dra.example.com")]
pub struct Args {
    #[command(flatten)]
    access: Access,
    /// Address to serve on; port 0 picks one
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), value_parser = super::bounds::address)]
    listen: SocketAddr,
    /// How readers authenticate: link is a printed link with the permissions of the kubeconfig, token a bearer token of
    /// the reader
    #[arg(long, value_enum, default_value_t = How::Link)]
    login: How,
    /// Another name under which the server is reached, as in the address bar, without https://. May be repeated
    #[arg(long, value_name = "NAME[:PORT]")]
    host: Vec<String>,
    /// Certificate to serve with, PEM
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Serve without TLS on an address that others reach: only behind a server that speaks TLS
    #[arg(long)]
    plain_http: bool,
}

/// How readers authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum How {
    /// By a link, with the rights of the kubeconfig
    Link,
    /// By a bearer token, with the rights of the reader
    Token,
}

/// Runs the command until it is told to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    let tls = match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(chain), Some(key)) => Some(Arc::new(Certificate::load(chain, key)?)),
        _ => None,
    };
    let login = check(&args)?;
    component::block_on(async move |stop| {
        let mut config = args.access.find().await?;
        if login == Login::Token {
            // The server has no permissions itself.
            config.auth_info = kube::config::AuthInfo::default();
        }
        let cluster = config.cluster_url.host().unwrap_or_default().to_owned();
        let client = component::connect(config, "allot-dashboard", Watches::Apart)?;
        let listener = tokio::net::TcpListener::bind(args.listen)
            .await
            .with_context(|| format!("cannot listen on {}", args.listen))?;
        let address = listener.local_addr()?;
        let hosts = hosts(address, tls.is_some(), &args.host);
        let dashboard = Arc::new(Dashboard::new(Config {
            login,
            hosts,
            path: "/",
            client: client.clone(),
            explain: explainer(),
            cluster,
        }));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let reached = match address.ip() {
            ip if ip.is_unspecified() => {
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port())
            }
            _ => address,
        };
        // The page reports this too, and retries; but the terminal is read first.
        tokio::spawn(async move {
            match client.apiserver_version().await {
                // A server that refuses its version answers nevertheless.
                Ok(_) | Err(kube::Error::Api(_)) => {}
                Err(error) => eprintln!("warning: {:#}", super::snapshot::api_error(error)),
            }
        });
        // The server continues even if standard output is closed.
        let _ = writeln!(
            std::io::stdout(),
            "dashboard: {scheme}://{reached}{}",
            dashboard.link()
        );
        match tls {
            Some(certificate) => {
                let handshake = move |stream| {
                    let certificate = Arc::clone(&certificate);
                    async move { certificate.accept(stream).await }
                };
                serve_tls(dashboard, listener, handshake, stop).await;
            }
            None => serve(dashboard, listener, stop).await,
        }
        Ok(())
    })
}

/// Serves the dashboard of a cluster in this process on a port of loopback that the system picks, until `stop`, with the
/// rights of the client. Returns the link.
///
/// # Errors
/// There is no port.
pub async fn beside(
    client: kube::Client,
    cluster: String,
    stop: CancellationToken,
) -> anyhow::Result<String> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let dashboard = Arc::new(Dashboard::new(Config {
        login: Login::Link,
        hosts: hosts(address, false, &[]),
        path: "/",
        client,
        explain: explainer(),
        cluster,
    }));
    let link = format!("http://{address}{}", dashboard.link());
    tokio::spawn(serve(dashboard, listener, stop));
    Ok(link)
}

/// The folder of the page on the API server's own port.
const FOLDER: &str = "/dashboard/";

/// Serves the dashboard on the port of an API server in this process, to readers with a token of the cluster: other
/// credentials, such as a client certificate of the browser, are not used. `reached` are the addresses of the server.
/// Returns the path.
pub fn on(server: &Server, cluster: String, reached: &[SocketAddr]) -> &'static str {
    let named = reached
        .iter()
        .flat_map(|address| hosts(*address, true, &[]));
    let dashboard = Arc::new(Dashboard::new(Config {
        login: Login::Token,
        hosts: named.collect(),
        path: FOLDER,
        client: kube::Client::new(server.remote_service(), "default"),
        explain: explainer(),
        cluster,
    }));
    server.mount(Mount::new(
        FOLDER.trim_end_matches('/'),
        Arc::new(move |request| dashboard.clone().answer(request).boxed()),
    ));
    FOLDER
}

/// Refuses combinations that would show the cluster, or the readers' tokens, to others.
fn check(args: &Args) -> anyhow::Result<Login> {
    let loopback = args.listen.ip().is_loopback();
    match args.login {
        How::Link => {
            anyhow::ensure!(
                loopback,
                "--listen {}: others could use your rights; to serve them, use --login token",
                args.listen
            );
            Ok(Login::Link)
        }
        How::Token => {
            anyhow::ensure!(
                loopback || args.tls_cert_file.is_some() || args.plain_http,
                "--listen {}: tokens would be sent without encryption; give --tls-cert-file and \
                 --tls-private-key-file, or --plain-http behind a server that speaks TLS",
                args.listen
            );
            Ok(Login::Token)
        }
    }
}

/// The Host headers of requests to the server.
fn hosts(address: SocketAddr, tls: bool, more: &[String]) -> Vec<String> {
    let port = address.port();
    let mut hosts = vec![format!("localhost:{port}"), format!("127.0.0.1:{port}")];
    if !address.ip().is_unspecified() {
        hosts.push(address.to_string());
    }
    hosts.extend(more.iter().cloned());
    // Browsers leave out the default port.
    let usual = if tls { ":443" } else { ":80" };
    let short: Vec<String> = (hosts.iter())
        .filter_map(|host| Some(host.strip_suffix(usual)?.to_owned()))
        .collect();
    hosts.extend(short);
    hosts
}

/// The explainer of `allot explain`.
pub fn explainer() -> Explain {
    Arc::new(|client, pods| {
        let answers = async move {
            let answers = explain::answers(&client, pods).await;
            answers.map_err(|error| crate::describe(&error))
        };
        answers.boxed()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        args: Args,
    }

    fn refusal(flags: &[&str]) -> Option<String> {
        let flags = [&["dashboard"], flags].concat();
        let parsed = <Parsed as clap::Parser>::try_parse_from(flags).expect("flags");
        check(&parsed.args).err().map(|error| error.to_string())
    }

    #[test]
    fn rights_and_tokens_stay_on_this_machine() {
        assert_eq!(refusal(&[]), None);
        assert_eq!(refusal(&["--listen", "[::1]:0"]), None);
        let all = ["--listen", "0.0.0.0:0"];
        let text = refusal(&all).expect("refused");
        assert!(text.contains("others could use your rights"), "{text}");
        let token = [&all[..], &["--login", "token"]].concat();
        let text = refusal(&token).expect("refused");
        assert!(text.contains("without encryption"), "{text}");
        assert_eq!(refusal(&[&token[..], &["--plain-http"]].concat()), None);
        let link = [&all[..], &["--plain-http"]].concat();
        assert!(refusal(&link).is_some(), "TLS is not the only reason");
    }

    #[test]
    fn names_are_those_of_the_address_bar() {
        let address = SocketAddr::from(([127, 0, 0, 1], 443));
        let found = hosts(address, true, &["dra.example.com".to_owned()]);
        for name in ["127.0.0.1:443", "127.0.0.1", "localhost", "dra.example.com"] {
            assert!(found.iter().any(|host| host == name), "{name}: {found:?}");
        }
        let found = hosts(SocketAddr::from(([0, 0, 0, 0], 8443)), true, &[]);
        assert!(
            !found.iter().any(|host| host.starts_with("0.0.0.0")),
            "{found:?}"
        );
    }
}
