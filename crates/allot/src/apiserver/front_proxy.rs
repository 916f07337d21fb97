//! Identities in headers: those that this server passes on to extension API servers, and those of proxies before it. The
//! flags have kube-apiserver's names.

use std::path::{Path, PathBuf};

use allot_apiserver::config::{FrontProxy, RequestHeaders};
use allot_apiserver::pki::{Authority, Identity, write_private};
use anyhow::{Context, bail};
use http::HeaderName;

use super::flags::{list, path};

/// The common name of the certificate that the server makes for itself, as kubeadm's.
const CLIENT: &str = "front-proxy-client";

/// Front proxies. Without the two certificates and the CA the server makes its own, in `pki/front-proxy-*`.
#[derive(Debug, clap::Args)]
#[group(id = "front-proxy")]
pub struct Args {
    /// Client certificate, PEM, that proves to extension API servers that requests come from this server
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    proxy_client_cert_file: Option<PathBuf>,
    /// Private key of --proxy-client-cert-file, PEM
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    proxy_client_key_file: Option<PathBuf>,
    /// CA certificates, PEM, of proxies that name users in headers
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of the client certificates of proxies; any that the CA has signed if there are none
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Headers with the name of the user
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "X-Remote-User"
    )]
    requestheader_username_headers: Vec<String>,
    /// Headers with the UID of the user
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "X-Remote-Uid"
    )]
    requestheader_uid_headers: Vec<String>,
    /// Headers with the groups of the user
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "X-Remote-Group"
    )]
    requestheader_group_headers: Vec<String>,
    /// Prefix of the names of headers with extra attributes
    #[arg(
        long,
        value_name = "PREFIXES",
        value_delimiter = ',',
        default_value = "X-Remote-Extra-"
    )]
    requestheader_extra_headers_prefix: Vec<String>,
}

impl Args {
    /// The flags with their values, for `/flagz`.
    pub fn shown(&self) -> [(&'static str, String); 8] {
        [
            (
                "proxy-client-cert-file",
                path(self.proxy_client_cert_file.as_deref()),
            ),
            (
                "proxy-client-key-file",
                path(self.proxy_client_key_file.as_deref()),
            ),
            (
                "requestheader-allowed-names",
                list(&self.requestheader_allowed_names),
            ),
            (
                "requestheader-client-ca-file",
                path(self.requestheader_client_ca_file.as_deref()),
            ),
            (
                "requestheader-extra-headers-prefix",
                list(&self.requestheader_extra_headers_prefix),
            ),
            (
                "requestheader-group-headers",
                list(&self.requestheader_group_headers),
            ),
            (
                "requestheader-uid-headers",
                list(&self.requestheader_uid_headers),
            ),
            (
                "requestheader-username-headers",
                list(&self.requestheader_username_headers),
            ),
        ]
    }

    /// The file of the authorities of proxies, if the server has not made one.
    pub fn ca_file(&self) -> Option<PathBuf> {
        self.requestheader_client_ca_file.clone()
    }

    /// Reads the files that the flags name. If they name none, the server creates its own CA and certificate in `pki`.
    pub fn front_proxy(&self, pki: &Path) -> anyhow::Result<FrontProxy> {
        let read = |flag: &str, file: &Option<PathBuf>| match file {
            None => Ok(None),
            Some(file) => std::fs::read_to_string(file)
                .map(Some)
                .with_context(|| format!("--{flag}: cannot read {}", file.display())),
        };
        let certificate = read("proxy-client-cert-file", &self.proxy_client_cert_file)?;
        let key = read("proxy-client-key-file", &self.proxy_client_key_file)?;
        let ca = read(
            "requestheader-client-ca-file",
            &self.requestheader_client_ca_file,
        )?;
        let client = certificate
            .zip(key)
            .map(|(certificate, key)| Identity { certificate, key });
        if client.is_none() && ca.is_none() {
            return self.own(pki);
        }
        let headers = ca.map(|ca| self.headers(ca, self.requestheader_allowed_names.clone()));
        Ok(FrontProxy {
            client,
            headers: headers.transpose()?,
        })
    }

    fn own(&self, pki: &Path) -> anyhow::Result<FrontProxy> {
        let authority = Authority::load_or_generate(pki, "front-proxy-ca")
            .context("certificate authority of front proxies")?;
        let client = authority.client(CLIENT, &[])?;
        std::fs::write(pki.join("front-proxy-client.crt"), &client.certificate)?;
        write_private(&pki.join("front-proxy-client.key"), &client.key)?;
        let allowed = match self.requestheader_allowed_names.as_slice() {
            [] => vec![CLIENT.to_owned()],
            names => names.to_vec(),
        };
        let headers = self.headers(authority.certificate().to_owned(), allowed)?;
        Ok(FrontProxy {
            client: Some(client),
            headers: Some(headers),
        })
    }

    fn headers(&self, ca: String, allowed_names: Vec<String>) -> anyhow::Result<RequestHeaders> {
        let names = |flag: &str, names: &[String]| -> anyhow::Result<Vec<HeaderName>> {
            let name = |name: &String| match HeaderName::try_from(name.trim()) {
                Ok(name) => Ok(name),
                Err(_) => bail!("--requestheader-{flag}: {name:?} is no name of a header"),
            };
            names.iter().map(name).collect()
        };
        let prefixes = names(
            "extra-headers-prefix",
            &self.requestheader_extra_headers_prefix,
        )?;
        Ok(RequestHeaders {
            ca,
            allowed_names,
            username: names("username-headers", &self.requestheader_username_headers)?,
            uid: names("uid-headers", &self.requestheader_uid_headers)?,
            group: names("group-headers", &self.requestheader_group_headers)?,
            extra_prefixes: prefixes.iter().map(ToString::to_string).collect(),
        })
    }
}
