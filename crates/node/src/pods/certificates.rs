//! Certificates of pods, as a kubelet gets them: for each source `podCertificate` of a volume the agent generates a key, asks
//! the signer for a certificate by a PodCertificateRequest, and asks again when it is time to renew it.
//!
//! Keys and certificates are in memory and in the files of the volume. The next agent asks for new ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use allot_reflector::{Collection, everything};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1beta1::{PodCertificateRequest, PodCertificateRequestSpec};
use k8s_openapi::api::core::v1::{self as v1, Pod, PodCertificateProjection, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::Node;
use super::watched::{Observations, Watched};
use crate::error::api_message;
use crate::events::Kind;
use state::{Next, Requested, State};

mod keys;
mod state;

pub(super) use state::NoCertificate;

/// Pauses between attempts to make a request.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(300));
/// By how much a renewal is late at most, so that the requests for many pods do not come at one time.
const JITTER: SignedDuration = SignedDuration::from_mins(5);

/// What the pods of a node share.
pub(crate) struct Certificates {
    client: Client,
    /// Its name.
    node: String,
    watched: Watched<PodCertificateRequest>,
    /// RSA keys take seconds of processor time: one at a time, however many pods want some.
    generation: Arc<Semaphore>,
    /// Signers and states of the certificates of pods, by UID.
    states: Mutex<HashMap<String, Vec<(String, &'static str)>>>,
}

/// Why no request was made.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error(transparent)]
    Key(#[from] keys::KeyError),
    #[error("while fetching service account: {}", api_message(.0))]
    Account(#[source] Box<kube::Error>),
    #[error("while fetching service account: serviceaccounts \"{0}\" not found")]
    NoAccount(String),
    #[error("while getting node object: {}", api_message(.0))]
    Node(#[source] Box<kube::Error>),
    #[error("while getting node object: nodes \"{0}\" not found")]
    NoNode(String),
    #[error("while creating on API: {}", api_message(.0))]
    Create(#[source] Box<kube::Error>),
    #[error("the agent is stopping")]
    Stopping,
}

impl Certificates {
    pub(crate) fn new(client: Client, node: String) -> Self {
        let all = Api::<PodCertificateRequest>::all(client.clone());
        let selector = format!("spec.nodeName={node}");
        let of_node = Collection::new(all, Some(&selector));
        Self {
            client,
            node,
            watched: Watched::new(of_node),
            generation: Arc::new(Semaphore::new(1)),
            states: Mutex::default(),
        }
    }

    /// How many sources there are, by signer and state.
    pub(crate) fn report(&self) -> BTreeMap<(String, &'static str), u32> {
        let mut all = BTreeMap::new();
        for of_source in self.states.lock().values().flatten() {
            *all.entry(of_source.clone()).or_default() += 1;
        }
        all
    }

    /// A pod is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.states.lock().remove(uid);
    }

    /// Makes a request for a source of a volume of a pod.
    async fn request(
        &self,
        pod: &Pod,
        wanted: &PodCertificateProjection,
    ) -> Result<Requested, RequestError> {
        let namespace = pod.namespace().unwrap_or_default();
        let account = account(pod);
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &namespace);
        let found = allot_reflector::get(&accounts, account, everything).await;
        let found = found.map_err(|error| RequestError::Account(Box::new(error)))?;
        let found = found.ok_or_else(|| RequestError::NoAccount(account.to_owned()))?;
        let account_uid = found.uid().unwrap_or_default();
        let nodes = Api::<v1::Node>::all(self.client.clone());
        let found = allot_reflector::get(&nodes, &self.node, everything).await;
        let found = found.map_err(|error| RequestError::Node(Box::new(error)))?;
        let found = found.ok_or_else(|| RequestError::NoNode(self.node.clone()))?;
        let node_uid = found.uid().unwrap_or_default();
        let made = self.generate(wanted.key_type.clone()).await?;
        let request = PodCertificateRequest {
            metadata: ObjectMeta {
                namespace: Some(namespace.clone()),
                generate_name: Some("req-".into()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".into(),
                    kind: "Pod".into(),
                    name: pod.name_any(),
                    uid: pod.uid().unwrap_or_default(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: PodCertificateRequestSpec {
                signer_name: wanted.signer_name.clone(),
                pod_name: pod.name_any(),
                pod_uid: pod.uid().unwrap_or_default(),
                service_account_name: account.to_owned(),
                service_account_uid: account_uid,
                node_name: self.node.clone(),
                node_uid,
                max_expiration_seconds: wanted.max_expiration_seconds,
                stub_pkc_s10_request: ByteString(made.request),
                unverified_user_annotations: wanted.user_annotations.clone(),
                ..PodCertificateRequestSpec::default()
            },
            status: None,
        };
        let api = Api::<PodCertificateRequest>::namespaced(self.client.clone(), &namespace);
        let accepted = api.create(&PostParams::default(), &request).await;
        let accepted = accepted.map_err(|error| RequestError::Create(Box::new(error)))?;
        Ok(Requested::new(made.key, &accepted, jitter()))
    }

    async fn generate(&self, key_type: String) -> Result<keys::Generated, RequestError> {
        let turn = Arc::clone(&self.generation).acquire_owned().await;
        let turn = turn.map_err(|_| RequestError::Stopping)?;
        // The next one waits also for a key that nothing waits for any longer.
        let made = tokio::task::spawn_blocking(move || {
            let made = keys::generate(&key_type);
            drop(turn);
            made
        });
        let made = made.await;
        Ok(made.map_err(|_| RequestError::Stopping)??)
    }
}

/// The service account of a pod.
fn account(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    let account = spec.and_then(|spec| spec.service_account_name.as_deref());
    account.filter(|name| !name.is_empty()).unwrap_or("default")
}

fn jitter() -> SignedDuration {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    let most = JITTER.as_millis().unsigned_abs();
    let millis = u128::from(random) % most.max(1);
    SignedDuration::from_millis(i64::try_from(millis).unwrap_or_default())
}

/// The sources for certificates in the volumes of a pod, with the name of the volume and the index in it.
fn sources(pod: &Pod) -> impl Iterator<Item = (&str, usize, &PodCertificateProjection)> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes.flat_map(|volume| {
        let projected = volume.projected.iter();
        let sources = projected
            .flat_map(|it| it.sources.iter().flatten())
            .enumerate();
        sources.filter_map(move |(index, source)| {
            Some((
                volume.name.as_str(),
                index,
                source.pod_certificate.as_ref()?,
            ))
        })
    })
}

/// Whether a volume holds a private key.
pub(super) fn is_in(volume: &v1::Volume) -> bool {
    let sources = volume.projected.iter();
    let mut sources = sources.flat_map(|it| it.sources.iter().flatten());
    sources.any(|source| source.pod_certificate.is_some())
}

/// The certificates of one pod.
#[derive(Default)]
pub(super) struct OfPod {
    sources: BTreeMap<(String, usize), Source>,
    requests: Option<Observations<PodCertificateRequest>>,
}

/// The certificate of a source of a volume.
struct Source {
    state: State,
    /// A request that is being made.
    pending: Option<Pending>,
    /// The next pause after a failure, and when it ends.
    retry: (Duration, Option<Instant>),
}

struct Pending {
    result: oneshot::Receiver<Result<Requested, RequestError>>,
    _task: AbortOnDropHandle<()>,
}

impl OfPod {
    /// Continues with the certificates of a pod. Returns when to do that again without an event, and whether files have to be
    /// written. `news` is notified when a request was made.
    pub(super) fn keep(
        &mut self,
        node: &Arc<Node>,
        pod: &Pod,
        news: &Arc<Notify>,
    ) -> (Option<Instant>, bool) {
        if sources(pod).next().is_none() {
            return (None, false);
        }
        let observe = || node.certificates.watched.observe();
        let known = self.requests.get_or_insert_with(observe);
        let known = known.borrow_and_update();
        let namespace = pod.namespace().unwrap_or_default();
        let find = |name: &str| {
            let key = (namespace.clone(), name.to_owned());
            known.as_ref()?.get(&key).cloned()
        };
        let (mut wake, mut changed, mut states) = (None, false, Vec::new());
        for (volume, index, wanted) in sources(pod) {
            let key = (volume.to_owned(), index);
            let source = self.sources.entry(key).or_insert_with(Source::new);
            let (again, new) = source.continue_with(node, pod, wanted, &find, news);
            wake = [wake, again].into_iter().flatten().min();
            changed |= new;
            let state = source.state.name(Timestamp::now());
            states.push((wanted.signer_name.clone(), state));
        }
        let uid = pod.uid().unwrap_or_default();
        node.certificates.states.lock().insert(uid, states);
        (wake, changed)
    }

    /// Waits until the requests of the node change; endless for pods without certificates.
    pub(super) async fn changed(&mut self) {
        if let Some(requests) = &mut self.requests
            && requests.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// The private key and the certificates of a source of a volume.
    pub(super) fn bundle(
        &self,
        volume: &str,
        index: usize,
    ) -> Result<(&[u8], &[u8]), NoCertificate> {
        let source = self.sources.get(&(volume.to_owned(), index));
        source.map_or(Err(NoCertificate::NotIssued), |it| it.state.bundle())
    }
}

impl Source {
    fn new() -> Self {
        Self {
            state: State::default(),
            pending: None,
            retry: (RETRY.0, None),
        }
    }

    fn continue_with(
        &mut self,
        node: &Arc<Node>,
        pod: &Pod,
        wanted: &PodCertificateProjection,
        find: &impl Fn(&str) -> Option<Arc<PodCertificateRequest>>,
        news: &Arc<Notify>,
    ) -> (Option<Instant>, bool) {
        if let Some(pending) = &mut self.pending {
            match pending.result.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => return (None, false),
                Err(oneshot::error::TryRecvError::Closed) => {}
                Ok(Ok(requested)) => {
                    self.retry = (RETRY.0, None);
                    self.state.requested(requested);
                }
                Ok(Err(error)) => {
                    tracing::warn!(pod = pod.name_any(), %error, "no certificate was requested");
                    let at = Instant::now() + self.retry.0;
                    self.retry = ((self.retry.0 * 2).min(RETRY.1), Some(at));
                }
            }
            self.pending = None;
        }
        let (mut told, now) = (Vec::new(), Timestamp::now());
        let (next, changed) = self.state.step(find, now, jitter(), &mut told);
        for event in told {
            let events = &node.events;
            events.pod(pod, None, Kind::Warning, event.reason, event.message);
        }
        let again = match next {
            Next::Wait(until) => until.map(|until| {
                let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                // A certificate can be valid for longer than a timer can wait.
                Instant::now() + left.min(LONGEST_WAIT)
            }),
            Next::Request => match self.retry.1.filter(|at| *at > Instant::now()) {
                Some(at) => Some(at),
                None => {
                    self.pending = Some(Pending::new(node, pod, wanted, news));
                    None
                }
            },
        };
        (again, changed)
    }
}

/// A state is looked at again after this time, whatever happens.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

impl Pending {
    fn new(
        node: &Arc<Node>,
        pod: &Pod,
        wanted: &PodCertificateProjection,
        news: &Arc<Notify>,
    ) -> Self {
        let (sender, result) = oneshot::channel();
        let (node, pod, news) = (Arc::clone(node), pod.clone(), Arc::clone(news));
        let wanted = wanted.clone();
        let task = tokio::spawn(async move {
            // The pod may have ended meanwhile.
            let _ = sender.send(node.certificates.request(&pod, &wanted).await);
            news.notify_one();
        });
        Self {
            result,
            _task: AbortOnDropHandle::new(task),
        }
    }
}
