//! The authorities of clients, which may change while the server runs.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use allot_apiserver::Server;
use allot_apiserver::config::RequestHeaders;
use allot_apiserver::pki::Authority;
use allot_apiserver::serve::Tls;
use allot_certificates::roots::Roots;
use anyhow::Context;
use futures::{Stream, StreamExt};
use inotify::{Inotify, WatchMask};

use super::trust;

/// The file is read at least so often, as by kube-apiserver: a link can lead to another directory, whose changes are not
/// reported.
const PERIOD: Duration = Duration::from_secs(60);

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
        let more = tokio::fs::read_to_string(file)
            .await
            .with_context(|| format!("--client-ca-file: cannot read {}", file.display()))?;
        // One that is empty is being written.
        let read = Roots::read(more.as_bytes()).map_err(anyhow::Error::msg);
        read.with_context(|| format!("--client-ca-file: {}", file.display()))?;
        Ok(format!("{}{more}", self.own))
    }

    /// Lets the server trust and publish what the file holds whenever that changes, until dropped. `known` is what it trusts at
    /// the start. A file that cannot be used changes nothing.
    pub(super) async fn follow(self, server: Server, tls: Tls, mut known: String) {
        let Some(file) = &self.file else { return };
        let directory = match file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let mut changes = pin!(changes(directory));
        let mut period = tokio::time::interval(PERIOD);
        loop {
            let is_followed = tokio::select! {
                change = changes.next() => change.is_some(),
                _ = period.tick() => true,
            };
            if !is_followed {
                // The directory is gone, or cannot be watched.
                period.tick().await;
            }
            if let Err(error) = self.renew(&server, &tls, &mut known).await {
                tracing::warn!("the authorities of clients stay as they were: {error:#}");
            }
        }
    }

    async fn renew(&self, server: &Server, tls: &Tls, known: &mut String) -> anyhow::Result<()> {
        let new = self.read().await?;
        if new == *known {
            return Ok(());
        }
        tls.trust(&new).context("--client-ca-file")?;
        *known = new;
        tracing::info!("--client-ca-file has changed: its certificates are trusted now");
        trust::publish(server, known, self.fronts.as_ref()).await
    }
}

/// An item for changes in a directory; ends if they are not reported.
fn changes(directory: &Path) -> impl Stream<Item = ()> + use<> {
    let mask = WatchMask::CLOSE_WRITE
        | WatchMask::CREATE
        | WatchMask::MOVED_TO
        | WatchMask::DELETE
        | WatchMask::ONLYDIR;
    let events = Inotify::init().and_then(|inotify| {
        inotify.watches().add(directory, mask)?;
        inotify.into_event_stream(vec![0; 4096])
    });
    let events = events.inspect_err(|error| {
        let directory = directory.display();
        tracing::warn!(%directory, %error, "changes of --client-ca-file are seen a minute late");
    });
    futures::stream::iter(events.ok()).flatten().map(drop)
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
