//! The configuration file for registries: mirrors, plain HTTP, certificates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Error, Result};

/// Largest configuration file.
const MAX_FILE: u64 = 1 << 20;
/// The host that serves Docker Hub's images.
const DOCKER_HUB: &str = "registry-1.docker.io";

/// How registries are reached. Without a file: HTTPS with the system's certificates, and plain HTTP on loopback
/// interfaces, as in Docker.
///
/// ```yaml
/// registries:
///   docker.io:
///     mirrors:
///     - https://mirror.example.com
///   registry.local:5000:
///     plainHTTP: true
///   registry.example.com:
///     caFile: /etc/ssl/registry.pem
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Registries {
    /// By host, with a port if the images' names have one. `*` is the default for all others.
    #[serde(default)]
    registries: BTreeMap<String, Registry>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Registry {
    /// Mirrors to try first, in this order, as `https://HOST[:PORT]` or `http://HOST[:PORT]`.
    #[serde(default)]
    mirrors: Vec<String>,
    /// Whether to use HTTP without TLS for the registry itself.
    #[serde(default, rename = "plainHTTP")]
    plain_http: Option<bool>,
    /// A PEM file with the only authorities that are trusted for the registry and its mirrors.
    #[serde(default)]
    ca_file: Option<PathBuf>,
    /// Whether the registry itself is tried when no mirror has the image. True if absent.
    #[serde(default)]
    fallback: Option<bool>,
}

/// A server that may have an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Host and port.
    pub authority: String,
    /// Whether HTTP is used without TLS.
    pub plain_http: bool,
    /// The only authorities that are trusted; the system's if absent.
    pub ca_file: Option<PathBuf>,
    /// Whether the server mirrors another registry. It gets no credentials of that registry.
    pub mirror: bool,
}

impl Registries {
    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the file's name, and the line and the field at fault.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        let size = std::fs::metadata(path)
            .map_err(Error::io(shown.clone()))?
            .len();
        if size > MAX_FILE {
            return Err(Error::Config(format!(
                "{shown}: larger than {MAX_FILE} bytes"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(Error::io(shown.clone()))?;
        Self::parse(&text).map_err(|error| match error {
            Error::Config(reason) => Error::Config(format!("{shown}: {reason}")),
            other => other,
        })
    }

    /// Reads the text of a configuration file, YAML or JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for unknown fields, values of the wrong type, and URLs that are none.
    pub fn parse(text: &str) -> Result<Self> {
        let config: Self = serde_saphyr::from_str(text).map_err(|error| {
            let error = error.to_string();
            let line = error.split("\n -->").next().unwrap_or_default();
            Error::Config(line.trim().to_owned())
        })?;
        for (host, registry) in &config.registries {
            if host != "*" && !is_authority(host) {
                return Err(Error::Config(format!(
                    "registries: {host:?} has to be a host, with a port if images' names have one"
                )));
            }
            for mirror in &registry.mirrors {
                endpoint(mirror, None).map_err(|reason| {
                    Error::Config(format!("registries[{host}].mirrors: {mirror:?}: {reason}"))
                })?;
            }
            if registry.mirrors.is_empty() && registry.fallback == Some(false) {
                return Err(Error::Config(format!(
                    "registries[{host}].fallback: without mirrors no image could be pulled"
                )));
            }
        }
        Ok(config)
    }

    /// The servers to try for images of a registry, in this order.
    pub fn endpoints(&self, domain: &str) -> Vec<Endpoint> {
        let default = Registry::default();
        let registry = self.registries.get(domain);
        let registry = registry.or(self.registries.get("*")).unwrap_or(&default);
        let mirrors = registry.mirrors.iter();
        let mut found: Vec<Endpoint> = mirrors
            .filter_map(|mirror| endpoint(mirror, registry.ca_file.clone()).ok())
            .collect();
        if registry.fallback.unwrap_or(true) {
            let authority = match domain {
                "docker.io" => DOCKER_HUB,
                other => other,
            };
            found.push(Endpoint {
                authority: authority.to_owned(),
                plain_http: registry
                    .plain_http
                    .unwrap_or_else(|| is_loopback(authority)),
                ca_file: registry.ca_file.clone(),
                mirror: false,
            });
        }
        found
    }
}

fn endpoint(text: &str, ca_file: Option<PathBuf>) -> std::result::Result<Endpoint, &'static str> {
    let (plain_http, authority) =
        match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err("has to begin with https:// or http://"),
        };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if !is_authority(authority) {
        return Err("has to be a host with an optional port, without a path");
    }
    Ok(Endpoint {
        authority: authority.to_owned(),
        plain_http,
        ca_file,
        mirror: true,
    })
}

fn is_authority(text: &str) -> bool {
    let authority = text.parse::<http::uri::Authority>();
    authority.is_ok_and(|authority| !authority.host().is_empty() && !text.contains('@'))
}

/// Whether a host is this machine's loopback interface by its name or address.
fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<http::uri::Authority>() else {
        return false;
    };
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
