//! Kubeconfigs that tell where a webhook is, and how the server proves itself to it.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;

pub(super) mod file;

use file::{Cluster, File, User};

/// A server and the credentials for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// Its URL, with `http` or `https`.
    pub server: Uri,
    /// Whose certificates it may have.
    pub trusted: Trusted,
    /// The name in its certificate, if not that in the URL.
    pub server_name: Option<String>,
    /// Client certificate and its key, PEM.
    pub client: Option<(String, String)>,
    /// What is sent in the header `Authorization`.
    pub credential: Credential,
}

/// The authorities that a client trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trusted {
    /// Those of the system.
    System,
    /// These, PEM.
    Pem(Vec<u8>),
    /// Those in a file, which may change.
    File(PathBuf),
    /// Anything (`insecure-skip-tls-verify`).
    Anything,
}

/// What a client sends to prove what it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// Nothing.
    None,
    /// A bearer token.
    Token(String),
    /// The bearer token in a file, which may change.
    TokenFile(PathBuf),
    /// User name and password.
    Basic(String, String),
}

// Without what is secret.
impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("host", &self.server.host())
            .field("port", &self.server.port_u16())
            .field("trusted", &self.trusted)
            .finish_non_exhaustive()
    }
}

impl Kubeconfig {
    /// Reads a file. Files that it names are relative to its directory.
    ///
    /// # Errors
    /// It cannot be read, its current context is not complete, or it has what a server has no use for: a proxy, a program for
    /// credentials, impersonation.
    pub fn read(file: &Path) -> Result<Self, String> {
        let shown = file.display();
        let text = std::fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
        let directory = file.parent().unwrap_or(Path::new(""));
        Kubeconfig::parse(&text, directory).map_err(|why| format!("{shown}: {why}"))
    }

    fn parse(text: &str, directory: &Path) -> Result<Self, String> {
        let written = File::parse(text)?;
        let current = written.current_context.unwrap_or_default();
        if current.is_empty() {
            return Err("invalid configuration: it has no current-context".to_owned());
        }
        let mut contexts = written.contexts.unwrap_or_default().into_iter();
        let context = contexts.find(|it| it.name == current);
        let Some(context) = context else {
            return Err(format!("context {current:?} does not exist"));
        };
        let context = context.context.unwrap_or_default();
        let cluster_name = context.cluster.unwrap_or_default();
        let mut clusters = written.clusters.unwrap_or_default().into_iter();
        let Some(cluster) = clusters.find(|it| it.name == cluster_name) else {
            return Err(format!("cluster {cluster_name:?} does not exist"));
        };
        let user_name = context.user.unwrap_or_default();
        let mut users = written.users.unwrap_or_default().into_iter();
        let user = match users.find(|it| it.name == user_name) {
            Some(user) => user.user.unwrap_or_default(),
            None if user_name.is_empty() => User::default(),
            None => return Err(format!("auth info {user_name:?} does not exist")),
        };
        let cluster = cluster.cluster.unwrap_or_default();
        let server = cluster.server.clone().unwrap_or_default();
        if server.is_empty() {
            return Err(format!(
                "invalid configuration: no server found for cluster {cluster_name:?}"
            ));
        }
        let uri: Option<Uri> = server.parse().ok();
        let uri = uri.filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
                && !uri.authority().is_some_and(|it| it.as_str().contains('@'))
        });
        // The text may have a password in it.
        let Some(uri) = uri else {
            return Err(format!(
                "invalid configuration: the server of cluster {cluster_name:?} must be a URL with http or https, and without a user"
            ));
        };
        Ok(Kubeconfig {
            server: uri,
            trusted: cluster.trusted(directory)?,
            server_name: cluster.tls_server_name.filter(|it| !it.is_empty()),
            client: user.client(directory)?,
            credential: user.credential(directory)?,
        })
    }
}

impl Cluster {
    fn trusted(&self, directory: &Path) -> Result<Trusted, String> {
        if self.proxy_url.as_ref().is_some_and(|it| !it.is_empty()) {
            return Err("proxy-url is not supported".to_owned());
        }
        let data = self.certificate_authority_data.as_deref();
        let data = data.filter(|it| !it.is_empty());
        let file = self.certificate_authority.as_deref();
        let file = file.filter(|it| *it != Path::new(""));
        if self.insecure_skip_tls_verify.unwrap_or_default() {
            if data.is_some() || file.is_some() {
                return Err(
                    "specifying a root certificates file with the insecure flag is not allowed"
                        .to_owned(),
                );
            }
            return Ok(Trusted::Anything);
        }
        // What is in the file itself comes first.
        match (data, file) {
            (Some(data), _) => decoded("certificate-authority-data", data).map(Trusted::Pem),
            (None, Some(file)) => Ok(Trusted::File(directory.join(file))),
            (None, None) => Ok(Trusted::System),
        }
    }
}

impl User {
    fn client(&self, directory: &Path) -> Result<Option<(String, String)>, String> {
        let part = |key: &str, data: &Option<String>, file: &Option<PathBuf>| {
            let data = data.as_deref().filter(|it| !it.is_empty());
            let file = file.as_deref().filter(|it| *it != Path::new(""));
            let bytes = match (data, file) {
                (Some(data), _) => decoded(&format!("{key}-data"), data)?,
                (None, Some(file)) => {
                    let file = directory.join(file);
                    let bytes = std::fs::read(&file);
                    bytes.map_err(|error| format!("{key}: {}: {error}", file.display()))?
                }
                (None, None) => return Ok(None),
            };
            let text = String::from_utf8(bytes).map_err(|_| format!("{key} is not PEM"))?;
            Ok::<_, String>(Some(text))
        };
        let data = &self.client_certificate_data;
        let certificate = part("client-certificate", data, &self.client_certificate)?;
        let key = part("client-key", &self.client_key_data, &self.client_key)?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err("client-certificate needs client-key".to_owned()),
            (None, Some(_)) => Err("client-key needs client-certificate".to_owned()),
        }
    }

    fn credential(self, directory: &Path) -> Result<Credential, String> {
        let unsupported = [
            ("exec", self.exec.is_some()),
            ("auth-provider", self.auth_provider.is_some()),
            ("as", self.impersonated.is_some_and(|it| !it.is_empty())),
        ];
        if let Some((key, _)) = unsupported.into_iter().find(|(_, is_set)| *is_set) {
            return Err(format!("{key} is not supported"));
        }
        let file = self.token_file.filter(|it| it != Path::new(""));
        let [token, name] = [self.token, self.username].map(|it| it.filter(|it| !it.is_empty()));
        match (file, token, name) {
            (_, Some(_), Some(_)) | (Some(_), _, Some(_)) => {
                Err("more than one authentication method found; found [token basicAuth], only one is allowed".to_owned())
            }
            // The file comes first, as for kubectl.
            (Some(file), _, _) => Ok(Credential::TokenFile(directory.join(file))),
            (None, Some(token), None) => Ok(Credential::Token(token)),
            (None, None, Some(name)) => {
                Ok(Credential::Basic(name, self.password.unwrap_or_default()))
            }
            (None, None, None) => Ok(Credential::None),
        }
    }
}

fn decoded(key: &str, data: &str) -> Result<Vec<u8>, String> {
    let plain: String = data.split_whitespace().collect();
    let bytes = STANDARD.decode(plain);
    bytes.map_err(|_| format!("{key} is not base64"))
}

#[cfg(test)]
mod tests;
