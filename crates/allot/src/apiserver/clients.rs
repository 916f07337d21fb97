//! The authorities of clients, which may change while the server runs.

use std::path::{Path, PathBuf};

use allot_apiserver::Server;
use allot_apiserver::config::RequestHeaders;
use allot_apiserver::pki::Authority;
use allot_apiserver::serve::Tls;
use allot_certificates::FollowedFile;
use allot_certificates::roots::Roots;
use anyhow::Context;

use super::trust;

/// The server's own authority, and those of `--client-ca-file`.
pub(super) struct ClientAuthorities {
    own: String,
    file: Option<PathBuf>,
    /// What is published beside them.
    fronts: Option<RequestHeaders>,
}

impl ClientAuthorities {
    pub(super) fn of(
        authority: &Authority,
        file: Option<PathBuf>,
        fronts: Option<RequestHeaders>,
    ) -> Self {
        let mut own = authority.certificate().to_owned();
        if !own.ends_with('\n') {
            own.push('\n');
        }
        Self { own, file, fronts }
    }

    /// Their certificates in PEM.
    ///
    /// # Errors
    /// The file cannot be read, or holds none.
    pub(super) async fn read(&self) -> anyhow::Result<String> {
        let Some(file) = &self.file else {
            return Ok(self.own.clone());
        };
        let more = tokio::fs::read(file).await;
        let more = more.map_err(|error| unreadable(file, error))?;
        self.with(&more)
            .with_context(|| format!("--client-ca-file: {}", file.display()))
    }

    /// The own authority and those in the content of the file.
    fn with(&self, more: &[u8]) -> anyhow::Result<String> {
        // One that is empty is being written.
        Roots::read(more).map_err(anyhow::Error::msg)?;
        Ok(format!("{}{}", self.own, std::str::from_utf8(more)?))
    }

    /// Lets the server trust and publish what the file holds whenever that changes, until dropped. `known` is what it trusts at
    /// the start. A file that cannot be used changes nothing.
    pub(super) async fn follow(self, server: Server, tls: Tls, known: String) {
        let Some(file) = &self.file else { return };
        let known = known.strip_prefix(&self.own).unwrap_or_default();
        let mut followed = FollowedFile::new(file, known.into());
        loop {
            let renewed = match followed.changed().await {
                Ok(content) => self.renew(&server, &tls, &content).await.map(|()| content),
                Err(error) => Err(unreadable(file, error)),
            };
            match renewed {
                Ok(content) => followed.accept(content),
                Err(error) => {
                    tracing::warn!("the authorities of clients stay as they were: {error:#}");
                }
            }
        }
    }

    async fn renew(&self, server: &Server, tls: &Tls, content: &[u8]) -> anyhow::Result<()> {
        let all = self.with(content).context("--client-ca-file")?;
        tls.trust(&all).context("--client-ca-file")?;
        tracing::info!("--client-ca-file has changed: its certificates are trusted now");
        trust::publish(server, &all, self.fronts.as_ref()).await
    }
}

fn unreadable(file: &Path, error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("--client-ca-file: cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use allot_apiserver::identity::User;
    use allot_apiserver::serve;
    use allot_testing::wait;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, Client};

    use super::*;

    /// The file was read once: certificates of an authority that was taken out of it stayed good until a restart.
    #[tokio::test]
    async fn regression_the_file_of_authorities_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let authority = |name: &str| {
            let made = Authority::load_or_generate(&directory.path().join("made"), name);
            made.unwrap()
        };
        let (own, first, second) = (authority("own"), authority("first"), authority("second"));
        let file = directory.path().join("clients.crt");
        std::fs::write(&file, first.certificate()).unwrap();
        let identity = own.server("server", &[], &[]).unwrap();
        let clients = ClientAuthorities::of(&own, Some(file.clone()), None);
        let known = clients.read().await.unwrap();
        assert!(known.contains(own.certificate()) && known.contains(first.certificate()));
        let tls = serve::tls(&identity, Some(&known)).unwrap();
        let server = Server::in_memory().await.unwrap();
        let client = Client::new(server.client_service(User::admin()), "kube-system");
        let maps = Api::<ConfigMap>::default_namespaced(client);
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
}
