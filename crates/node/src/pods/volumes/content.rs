//! Content of volumes from the API server.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, EmptyDirVolumeSource, KeyToPath, ServiceAccount,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};

use super::super::Node;
use super::super::certificates::{self, NoCertificate};
use super::super::env::{Downward, EnvError, Sources};
use super::super::trust_bundles::NoBundle;
use super::VolumeError;
use crate::error::api_message;
use crate::events::Kind;

/// Why the content of a volume cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum ContentError {
    /// A config map, a secret, or a field of the pod.
    #[error(transparent)]
    Source(#[from] EnvError),
    /// All files together.
    #[error("the files of the volume have more than {} MiB", Files::LARGEST >> 20)]
    TooLarge,
    /// A key that the config map or secret does not have.
    #[error("references non-existent config key: {0}")]
    NoKey(String),
    /// A container that the pod does not have.
    #[error("container {0} not found")]
    NoContainer(String),
    /// The API server issues no token.
    #[error("failed to fetch token: {}", api_message(.0))]
    Token(#[source] Box<kube::Error>),
    /// There are no certificates of authorities.
    #[error(transparent)]
    NoBundle(#[from] NoBundle),
    /// There is no certificate of the pod.
    #[error(transparent)]
    NoCertificate(#[from] NoCertificate),
    /// The API server's response has no token.
    #[error("failed to fetch token: the answer has none")]
    NoToken,
}

/// A file of a volume.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
    /// Its user, if that is not root.
    pub(super) user: Option<u32>,
}

/// Files by their paths below the volume.
pub(super) type Entries = BTreeMap<String, Entry>;

/// The files of a volume, with a limit for all together: a pod can name a large config map any number of times.
#[derive(Debug, Default)]
pub(super) struct Files {
    entries: Entries,
    bytes: usize,
}

impl Files {
    /// The largest config maps and secrets have 1 MiB.
    const LARGEST: usize = 64 << 20;

    fn insert(&mut self, path: String, content: &[u8], mode: u32) -> Result<(), ContentError> {
        self.insert_for(None, path, content, mode)
    }

    fn insert_for(
        &mut self,
        user: Option<u32>,
        path: String,
        content: &[u8],
        mode: u32,
    ) -> Result<(), ContentError> {
        self.bytes = self.bytes.saturating_add(path.len() + content.len());
        if self.bytes > Self::LARGEST {
            return Err(ContentError::TooLarge);
        }
        let content = content.to_vec();
        self.entries.insert(
            path,
            Entry {
                content,
                mode,
                user,
            },
        );
        Ok(())
    }

    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }
}

/// Whether [`Contents::of`] supports the volume.
pub(super) fn comes_from_api(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// The service account tokens of a pod, by volume and path.
#[derive(Debug, Default)]
pub(in super::super) struct Tokens(HashMap<(String, String), Token>);

#[derive(Debug)]
struct Token {
    text: String,
    renew: Timestamp,
}

impl Token {
    /// A kubelet renews a token after four fifths of its lifetime, or after a day.
    fn new(text: String, now: Timestamp, expires: Timestamp) -> Self {
        const LONGEST: i64 = 24 * 60 * 60;
        let life = expires.as_second() - now.as_second();
        let renew = now.as_second() + (life * 4 / 5).min(LONGEST);
        let renew = Timestamp::from_second(renew).unwrap_or(expires);
        Self { text, renew }
    }
}

/// Reads what the volumes of one pod hold.
pub(in super::super) struct Contents<'a> {
    pub(in super::super) client: &'a Client,
    pub(in super::super) node: &'a Node,
    pub(in super::super) downward: &'a Downward<'a>,
    pub(in super::super) sources: Sources,
    /// `None` if the content is not read.
    pub(in super::super) tokens: Option<&'a mut Tokens>,
    /// `None` likewise.
    pub(in super::super) certificates: Option<&'a certificates::OfPod>,
}

impl Contents<'_> {
    /// The files of a volume for which [`comes_from_api`] holds.
    pub(super) async fn of(&mut self, volume: &Volume) -> Result<Files, ContentError> {
        let mut files = Files::default();
        if let Some(map) = &volume.config_map {
            let (optional, mode) = (map.optional.unwrap_or(false), mode(map.default_mode));
            let items = map.items.as_deref();
            self.config_map(&mut files, &map.name, items, mode, optional)
                .await?;
        } else if let Some(secret) = &volume.secret {
            let (optional, mode) = (secret.optional.unwrap_or(false), mode(secret.default_mode));
            let name = secret.secret_name.as_deref().unwrap_or_default();
            let items = secret.items.as_deref();
            self.secret(&mut files, name, items, mode, optional).await?;
        } else if let Some(api) = &volume.downward_api {
            self.downward(&mut files, api.items.as_deref(), mode(api.default_mode))?;
        } else if let Some(projected) = &volume.projected {
            let mode = mode(projected.default_mode);
            for (index, source) in projected.sources.iter().flatten().enumerate() {
                let place = (volume.name.as_str(), index);
                self.project(&mut files, place, source, mode).await?;
            }
        }
        Ok(files)
    }

    /// Mounts the memory of a volume. A mount by an agent without root would not be visible in containers.
    pub(super) fn memory(
        &self,
        volume: &Volume,
        wanted: &EmptyDirVolumeSource,
        path: &Path,
    ) -> Result<(), VolumeError> {
        let pod = self.downward.pod;
        if !rustix::process::geteuid().is_root() {
            let message = format!(
                "volume \"{}\" is on disk instead of in memory: the agent does not run as root",
                volume.name
            );
            let events = &self.node.events;
            events.pod(pod, None, Kind::Warning, "MediumNotApplied", message);
            return Ok(());
        }
        let memory = u64::try_from(self.node.memory()).unwrap_or(0);
        super::memory::prepare(wanted, pod, path, memory)
    }

    async fn project(
        &mut self,
        files: &mut Files,
        (volume, index): (&str, usize),
        source: &VolumeProjection,
        mode: u32,
    ) -> Result<(), ContentError> {
        if let Some(map) = &source.config_map {
            let optional = map.optional.unwrap_or(false);
            self.config_map(files, &map.name, map.items.as_deref(), mode, optional)
                .await?;
        }
        if let Some(secret) = &source.secret {
            let optional = secret.optional.unwrap_or(false);
            let items = secret.items.as_deref();
            self.secret(files, &secret.name, items, mode, optional)
                .await?;
        }
        if let Some(api) = &source.downward_api {
            self.downward(files, api.items.as_deref(), mode)?;
        }
        if let Some(wanted) = &source.service_account_token {
            let token = self.token(volume, wanted).await?;
            self.own(files, &wanted.path, token.as_bytes(), mode)?;
        }
        if let Some(wanted) = &source.cluster_trust_bundle {
            let anchors = self.node.trust_bundles.anchors(wanted).await?;
            self.own(files, &wanted.path, anchors.as_bytes(), mode)?;
        }
        if let Some(wanted) = &source.pod_certificate {
            let (key, chain) = match self.certificates {
                Some(certificates) => certificates.bundle(volume, index)?,
                None => Default::default(),
            };
            for (path, parts) in [
                (&wanted.credential_bundle_path, [key, chain]),
                (&wanted.key_path, [key, &[]]),
                (&wanted.certificate_chain_path, [chain, &[]]),
            ] {
                if let Some(path) = path.as_ref().filter(|path| !path.is_empty()) {
                    self.own(files, path, &parts.concat(), mode)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a file that is, as with a kubelet, for the user and the group alone if the pod has them.
    fn own(
        &self,
        files: &mut Files,
        path: &str,
        content: &[u8],
        mode: u32,
    ) -> Result<(), ContentError> {
        let pod = self.downward.pod;
        let (user, group) = (super::user(pod), super::group(pod));
        let mode = user.or(group).map_or(mode, |_| 0o600);
        files.insert_for(user, path.to_owned(), content, mode)
    }

    async fn config_map(
        &mut self,
        files: &mut Files,
        name: &str,
        items: Option<&[KeyToPath]>,
        mode: u32,
        optional: bool,
    ) -> Result<(), ContentError> {
        let data = self.sources.config_map(name, optional).await?;
        select(files, data.as_ref(), items, mode, optional)
    }

    async fn secret(
        &mut self,
        files: &mut Files,
        name: &str,
        items: Option<&[KeyToPath]>,
        mode: u32,
        optional: bool,
    ) -> Result<(), ContentError> {
        let data = self.sources.secret(name, optional).await?;
        select(files, data, items, mode, optional)
    }

    fn downward(
        &self,
        files: &mut Files,
        items: Option<&[DownwardAPIVolumeFile]>,
        mode: u32,
    ) -> Result<(), ContentError> {
        for item in items.unwrap_or_default() {
            let content = if let Some(field) = &item.field_ref {
                self.downward.field(&field.field_path)?
            } else if let Some(resource) = &item.resource_field_ref {
                let spec = self.downward.pod.spec.as_ref();
                let name = resource.container_name.as_deref().unwrap_or_default();
                let container = spec.and_then(|spec| {
                    let mut containers = spec.containers.iter();
                    containers.find(|container| container.name == name)
                });
                let container =
                    container.ok_or_else(|| ContentError::NoContainer(name.to_owned()))?;
                let divisor = resource.divisor.as_ref();
                let divisor = divisor.map_or("1", |divisor| divisor.0.as_str());
                self.downward
                    .resource(container, &resource.resource, divisor)?
            } else {
                continue;
            };
            let mode = item.mode.map_or(mode, |mode| mode as u32 & 0o777);
            files.insert(item.path.clone(), content.as_bytes(), mode)?;
        }
        Ok(())
    }

    /// The token of an earlier call while it is young enough.
    async fn token(
        &mut self,
        volume: &str,
        wanted: &ServiceAccountTokenProjection,
    ) -> Result<String, ContentError> {
        let Some(Tokens(tokens)) = self.tokens.as_deref_mut() else {
            return Ok(String::new());
        };
        let key = (volume.to_owned(), wanted.path.clone());
        let now = Timestamp::now();
        if let Some(token) = tokens.get(&key).filter(|token| now < token.renew) {
            return Ok(token.text.clone());
        }
        let pod = self.downward.pod;
        let account = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.clone());
        let account = account.unwrap_or_else(|| "default".into());
        let api: Api<ServiceAccount> =
            Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let bound = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid().unwrap_or_default(),
        });
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(wanted.audience.clone().into_iter().collect()),
                expiration_seconds: wanted.expiration_seconds,
                bound_object_ref: serde_json::from_value(bound).ok(),
            }),
            ..TokenRequest::default()
        };
        let answer = api
            .create_token_request(&account, &PostParams::default(), &request)
            .await;
        match (answer, tokens.get(&key)) {
            (Ok(answer), _) => {
                let status = answer.status.ok_or(ContentError::NoToken)?;
                let expires = status.expiration_timestamp.map_or(now, |time| time.0);
                let token = Token::new(status.token.ok_or(ContentError::NoToken)?, now, expires);
                let text = token.text.clone();
                tokens.insert(key, token);
                Ok(text)
            }
            // The old token is still valid; the next refresh requests a new one again.
            (Err(error), Some(old)) => {
                tracing::warn!(pod = pod.name_any(), %error, "the token was not renewed");
                Ok(old.text.clone())
            }
            (Err(error), None) => Err(ContentError::Token(Box::new(error))),
        }
    }
}

fn mode(mode: Option<i32>) -> u32 {
    mode.map_or(0o644, |mode| mode as u32 & 0o777)
}

/// All keys, or the items under their own paths.
fn select(
    files: &mut Files,
    data: Option<&BTreeMap<String, Vec<u8>>>,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<(), ContentError> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        let mut all = data.into_iter().flatten();
        return all.try_for_each(|(key, value)| files.insert(key.clone(), value, mode));
    };
    for item in items {
        match data.and_then(|data| data.get(&item.key)) {
            Some(value) => {
                let mode = item.mode.map_or(mode, |mode| mode as u32 & 0o777);
                files.insert(item.path.clone(), value, mode)?;
            }
            None if optional => {}
            None => return Err(ContentError::NoKey(item.key.clone())),
        }
    }
    Ok(())
}
