//! The authorities of clients and of front proxies, which may change while the server runs.

use std::fmt;
use std::future::pending;
use std::path::{Path, PathBuf};

use allot_apiserver::Server;
use allot_apiserver::config::RequestHeaders;
use allot_apiserver::pki::Authority;
use allot_apiserver::serve::Tls;
use allot_certificates::FollowedFile;
use allot_certificates::roots::Roots;
use anyhow::Context;

use super::trust;

/// A file of authorities that is followed.
#[derive(Debug, Clone, Copy)]
enum AuthorityFile {
    Clients,
    FrontProxies,
}

/// As the flag that names it.
impl fmt::Display for AuthorityFile {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            AuthorityFile::Clients => "--client-ca-file",
            AuthorityFile::FrontProxies => "--requestheader-client-ca-file",
        })
    }
}

/// The server's own authority, those of `--client-ca-file`, and those of front proxies.
pub(super) struct ClientAuthorities {
    own: String,
    file: Option<PathBuf>,
    /// How front proxies name users, with the authorities that are in use.
    fronts: Option<RequestHeaders>,
    fronts_file: Option<PathBuf>,
}

impl ClientAuthorities {
    pub(super) fn of(authority: &Authority, file: Option<PathBuf>) -> Self {
        let mut own = authority.certificate().to_owned();
        if !own.ends_with('\n') {
            own.push('\n');
        }
        Self {
            own,
            file,
            fronts: None,
            fronts_file: None,
        }
    }

    /// Adds front proxies. Without a file their authorities do not change.
    pub(super) fn with_front_proxies(
        self,
        fronts: Option<RequestHeaders>,
        fronts_file: Option<PathBuf>,
    ) -> Self {
        Self {
            fronts,
            fronts_file,
            ..self
        }
    }

    /// The certificates of the authorities of clients in PEM.
    ///
    /// # Errors
    /// The file cannot be read, or holds none.
    pub(super) async fn read(&self) -> anyhow::Result<String> {
        let Some(file) = &self.file else {
            return Ok(self.own.clone());
        };
        let more = tokio::fs::read(file).await;
        let more = more.map_err(|error| unreadable(AuthorityFile::Clients, file, error))?;
        self.with(&more)
            .with_context(|| format!("{}: {}", AuthorityFile::Clients, file.display()))
    }

    /// The own authority and those in the content of the file.
    fn with(&self, more: &[u8]) -> anyhow::Result<String> {
        Ok(format!("{}{}", self.own, certificates(more)?))
    }

    /// Lets the server trust and publish what the files hold whenever that changes, until dropped. `known` are the authorities
    /// of clients that it trusts at the start. A file that cannot be used changes nothing.
    pub(super) async fn follow(mut self, server: Server, tls: Tls, mut known: String) {
        let more = known.strip_prefix(&self.own).unwrap_or_default();
        let file = self.file.as_deref();
        let mut clients = file.map(|file| FollowedFile::new(file, more.into()));
        let file = self.fronts_file.as_deref().zip(self.fronts.as_ref());
        let mut fronts = file.map(|(file, it)| FollowedFile::new(file, it.ca.clone().into()));
        if clients.is_none() && fronts.is_none() {
            return;
        }
        loop {
            let (of, (followed, content)) = tokio::select! {
                found = changed(clients.as_mut()) => (AuthorityFile::Clients, found),
                found = changed(fronts.as_mut()) => (AuthorityFile::FrontProxies, found),
            };
            let renewed = match content {
                Ok(content) => self
                    .renew(of, &content, &mut known, &server, &tls)
                    .await
                    .map(|()| content),
                Err(error) => Err(unreadable(of, followed.path(), error)),
            };
            match renewed {
                Ok(content) => followed.accept(content),
                Err(error) => tracing::warn!("the authorities stay as they were: {error:#}"),
            }
        }
    }

    /// Trusts the content of a file, and publishes it. `clients` are the authorities of clients that are in use.
    async fn renew(
        &mut self,
        of: AuthorityFile,
        content: &[u8],
        clients: &mut String,
        server: &Server,
        tls: &Tls,
    ) -> anyhow::Result<()> {
        self.trust(of, content, clients, tls)
            .with_context(|| of.to_string())?;
        tracing::info!("{of} has changed: its certificates are trusted now");
        trust::publish(server, clients, self.fronts.as_ref()).await
    }

    fn trust(
        &mut self,
        of: AuthorityFile,
        content: &[u8],
        clients: &mut String,
        tls: &Tls,
    ) -> anyhow::Result<()> {
        match of {
            AuthorityFile::Clients => {
                let all = self.with(content)?;
                tls.trust(&all)?;
                *clients = all;
            }
            AuthorityFile::FrontProxies => {
                let all = certificates(content)?;
                tls.trust_front_proxies(all)?;
                if let Some(fronts) = &mut self.fronts {
                    fronts.ca = all.to_owned();
                }
            }
        }
        Ok(())
    }
}

/// A file that is followed with its next content, if one is followed.
async fn changed(file: Option<&mut FollowedFile>) -> (&mut FollowedFile, std::io::Result<Vec<u8>>) {
    match file {
        Some(file) => {
            let content = file.changed().await;
            (file, content)
        }
        None => pending().await,
    }
}

/// The content of a file of certificates. One that is empty is being written.
fn certificates(content: &[u8]) -> anyhow::Result<&str> {
    Roots::read(content).map_err(anyhow::Error::msg)?;
    Ok(std::str::from_utf8(content)?)
}

fn unreadable(of: AuthorityFile, file: &Path, error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("{of}: cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use allot_apiserver::identity::User;
    use allot_apiserver::serve;
    use allot_testing::wait;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, Client};

    use super::*;

    /// The server's CA, and two other CAs.
    fn authorities(directory: &Path) -> [Authority; 3] {
        let directory = directory.join("made");
        ["own", "first", "second"]
            .map(|name| Authority::load_or_generate(&directory, name).unwrap())
    }

    fn config_maps(server: &Server) -> Api<ConfigMap> {
        let client = Client::new(server.client_service(User::admin()), "kube-system");
        Api::default_namespaced(client)
    }

    /// The file was read once: certificates of an authority that was taken out of it stayed good until a restart.
    #[tokio::test]
    async fn regression_the_file_of_authorities_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [own, first, second] = authorities(directory.path());
        let file = directory.path().join("clients.crt");
        std::fs::write(&file, first.certificate()).unwrap();
        let identity = own.server("server", &[], &[]).unwrap();
        let clients = ClientAuthorities::of(&own, Some(file.clone()));
        let known = clients.read().await.unwrap();
        assert!(known.contains(own.certificate()) && known.contains(first.certificate()));
        let tls = serve::tls(&identity, Some(&known)).unwrap();
        let server = Server::in_memory().await.unwrap();
        let maps = config_maps(&server);
        trust::publish(&server, &known, None).await.unwrap();
        let follow = tokio::spawn(clients.follow(server, tls, known));
        let published = |wanted: String| {
            let maps = maps.clone();
            wait::until("it is published", move || {
                let (maps, wanted) = (maps.clone(), wanted.clone());
                async move {
                    let map = maps
                        .get("extension-apiserver-authentication")
                        .await
                        .unwrap();
                    let found = &map.data.unwrap_or_default()["client-ca-file"];
                    match found.ends_with(&wanted) {
                        true => Ok(()),
                        false => Err("another one"),
                    }
                }
            })
        };
        // Replaced as by Kubernetes.
        let new = directory.path().join("new.crt");
        std::fs::write(&new, second.certificate()).unwrap();
        std::fs::rename(&new, &file).unwrap();
        published(second.certificate().to_owned()).await;
        // What cannot be used changes nothing, also not that the file is followed.
        std::fs::write(&file, "").unwrap();
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, first.certificate()).unwrap();
        published(first.certificate().to_owned()).await;
        follow.abort();
    }

    /// The file was read once: proxies of an authority that was taken out of it could name users until a restart.
    #[tokio::test]
    async fn regression_the_file_of_authorities_of_front_proxies_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [own, first, second] = authorities(directory.path());
        let file = directory.path().join("fronts.crt");
        std::fs::write(&file, first.certificate()).unwrap();
        let headers = RequestHeaders {
            ca: first.certificate().to_owned(),
            allowed_names: vec!["front".to_owned()],
            username: Vec::new(),
            uid: Vec::new(),
            group: Vec::new(),
            extra_prefixes: Vec::new(),
        };
        let identity = own.server("server", &[], &[]).unwrap();
        let clients = ClientAuthorities::of(&own, None)
            .with_front_proxies(Some(headers.clone()), Some(file.clone()));
        let known = clients.read().await.unwrap();
        let tls =
            serve::tls_behind_proxies(&identity, Some(&known), Some(first.certificate())).unwrap();
        let server = Server::in_memory().await.unwrap();
        let maps = config_maps(&server);
        trust::publish(&server, &known, Some(&headers))
            .await
            .unwrap();
        let follow = tokio::spawn(clients.follow(server, tls, known.clone()));
        // What cannot be used changes nothing, also not that the file is followed.
        std::fs::write(&file, "").unwrap();
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, second.certificate()).unwrap();
        wait::until("it is published", || async {
            let map = maps
                .get("extension-apiserver-authentication")
                .await
                .unwrap();
            let data = map.data.unwrap_or_default();
            assert_eq!(data["client-ca-file"], known);
            match data["requestheader-client-ca-file"] == second.certificate() {
                true => Ok(()),
                false => Err("another one"),
            }
        })
        .await;
        follow.abort();
    }
}
