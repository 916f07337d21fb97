//! The states of a certificate in a volume of a pod, as a kubelet has them: a function of what is known and of the time.

use allot_apimachinery::pem;
use allot_apimachinery::quote::quote;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;

use super::keys::Secret;

/// How long after its time a certificate that was not renewed is overdue.
const OVERDUE: SignedDuration = SignedDuration::from_mins(10);
/// How long a request that is not seen may be on its way; after that it was deleted.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_mins(10);

/// The key and the certificates of a volume, or why there are none.
#[derive(Debug, Default)]
pub(super) enum State {
    /// Nothing is requested yet.
    #[default]
    Initial,
    Waiting(Requested),
    /// The request was denied; this pod gets none any more.
    Denied(Reason),
    Failed(Reason),
    Fresh(Issued),
    /// There is a certificate, and the next one is requested.
    Renewing(Issued, Requested),
}

/// A request that was made.
#[derive(Debug)]
pub(super) struct Requested {
    key: Secret,
    name: String,
    uid: String,
    /// When a request that is not seen was deleted.
    lost_at: Timestamp,
}

impl Requested {
    /// A request that the API server has accepted. `jitter` as for [`State::step`].
    pub(super) fn new(
        key: Secret,
        accepted: &PodCertificateRequest,
        jitter: SignedDuration,
    ) -> Self {
        let metadata = &accepted.metadata;
        let made = metadata.creation_timestamp.as_ref();
        let made = made.map_or_else(Timestamp::now, |time| time.0);
        Self {
            key,
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            lost_at: later(later(made, ON_ITS_WAY), jitter),
        }
    }
}

/// Why a request has ended without a certificate, in the words of the signer.
#[derive(Debug)]
pub(super) struct Reason {
    reason: String,
    message: String,
}

impl Reason {
    fn text(&self) -> String {
        format!(
            "reason={} message={}",
            quote(&self.reason),
            quote(&self.message)
        )
    }
}

/// A certificate.
#[derive(Debug)]
pub(super) struct Issued {
    key: Secret,
    chain: Vec<u8>,
    renew_at: Timestamp,
    not_after: Timestamp,
    told_overdue: bool,
    told_expired: bool,
}

impl Issued {
    fn overdue_at(&self) -> Timestamp {
        later(self.renew_at, OVERDUE)
    }

    /// Reports, once, what is late.
    fn tell(&mut self, now: Timestamp, news: &mut Vec<News>) {
        if now > self.overdue_at() && !self.told_overdue {
            self.told_overdue = true;
            news.push(News {
                reason: "CertificateOverdueForRefresh",
                message: "PodCertificate refresh overdue".to_owned(),
            });
        }
        if now > self.not_after && !self.told_expired {
            self.told_expired = true;
            news.push(News {
                reason: "CertificateExpired",
                message: "PodCertificate expired".to_owned(),
            });
        }
    }

    /// When there is more to report.
    fn next_news(&self) -> Option<Timestamp> {
        let overdue = (!self.told_overdue).then(|| self.overdue_at());
        let expired = (!self.told_expired).then_some(self.not_after);
        let next = [overdue, expired].into_iter().flatten().min();
        // Both are reported when they are past.
        next.map(|at| later(at, SignedDuration::from_millis(1)))
    }

    fn state(&self, now: Timestamp) -> &'static str {
        if now > self.not_after {
            "expired"
        } else if now > self.overdue_at() {
            "overdue_for_refresh"
        } else {
            "fresh"
        }
    }
}

/// An event about the pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, until something is observed or it is this late.
    Wait(Option<Timestamp>),
    /// A request, which becomes [`State::requested`].
    Request,
}

/// Why there are no files yet; the texts are a kubelet's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum NoCertificate {
    #[error("credential bundle is not issued yet")]
    NotIssued,
    #[error("PodCertificateRequest was permanently denied: {0}")]
    Denied(String),
    #[error("PodCertificateRequest was permanently failed: {0}")]
    Failed(String),
}

impl State {
    /// Continues with what is known of the request; `find` returns it by its name, if it was observed. `jitter` keeps the pods
    /// of a signer apart. Returns as well whether the files of the volume change.
    pub(super) fn step(
        &mut self,
        find: impl Fn(&str) -> Option<std::sync::Arc<PodCertificateRequest>>,
        now: Timestamp,
        jitter: SignedDuration,
        news: &mut Vec<News>,
    ) -> (Next, bool) {
        let found = |of: &Requested| {
            let found = find(&of.name);
            // Another one may have its name.
            found.filter(|it| it.metadata.uid.as_deref() == Some(of.uid.as_str()))
        };
        let lost = |of: &Requested| now > of.lost_at;
        match std::mem::take(self) {
            Self::Initial => (Next::Request, false),
            Self::Denied(reason) => self.stay(Self::Denied(reason), None),
            Self::Failed(reason) => self.stay(Self::Failed(reason), None),
            Self::Waiting(requested) => match found(&requested) {
                None if lost(&requested) => (Next::Request, false),
                None => {
                    let lost_at = requested.lost_at;
                    self.stay(Self::Waiting(requested), Some(lost_at))
                }
                Some(request) => match End::of(&request) {
                    None => self.stay(Self::Waiting(requested), None),
                    Some(end) => self.end(end, requested.key, &request, jitter, news),
                },
            },
            Self::Fresh(issued) if now < issued.renew_at => {
                let renew_at = issued.renew_at;
                self.stay(Self::Fresh(issued), Some(renew_at))
            }
            Self::Fresh(mut issued) => {
                issued.tell(now, news);
                *self = Self::Fresh(issued);
                (Next::Request, false)
            }
            Self::Renewing(mut issued, requested) => match found(&requested) {
                None if lost(&requested) => {
                    *self = Self::Fresh(issued);
                    (Next::Request, false)
                }
                None => {
                    let lost_at = requested.lost_at;
                    self.stay(Self::Renewing(issued, requested), Some(lost_at))
                }
                Some(request) => match End::of(&request) {
                    None => {
                        issued.tell(now, news);
                        let next = issued.next_news();
                        self.stay(Self::Renewing(issued, requested), next)
                    }
                    Some(end) => self.end(end, requested.key, &request, jitter, news),
                },
            },
        }
    }

    fn stay(&mut self, state: Self, until: Option<Timestamp>) -> (Next, bool) {
        *self = state;
        (Next::Wait(until), false)
    }

    fn end(
        &mut self,
        end: End,
        key: Secret,
        request: &PodCertificateRequest,
        jitter: SignedDuration,
        news: &mut Vec<News>,
    ) -> (Next, bool) {
        let metadata = &request.metadata;
        let mut report = |reason: &'static str, what: &str, why: &Reason| {
            let message = format!(
                "PodCertificateRequest {}/{} {what}, reason={}, message={}",
                metadata.namespace.as_deref().unwrap_or_default(),
                metadata.name.as_deref().unwrap_or_default(),
                quote(&why.reason),
                quote(&why.message),
            );
            news.push(News { reason, message });
        };
        let mut until = None;
        *self = match end {
            End::Denied(why) => {
                report("Denied", "was denied", &why);
                Self::Denied(why)
            }
            End::Failed(why) => {
                report("Failed", "failed", &why);
                Self::Failed(why)
            }
            End::Issued => {
                let issued = issued(key, request, jitter);
                until = Some(issued.renew_at);
                Self::Fresh(issued)
            }
        };
        (Next::Wait(until), true)
    }

    /// A request was made.
    pub(super) fn requested(&mut self, requested: Requested) {
        *self = match std::mem::take(self) {
            Self::Fresh(issued) | Self::Renewing(issued, _) => Self::Renewing(issued, requested),
            _ => Self::Waiting(requested),
        };
    }

    /// The private key and the certificates, in PEM.
    pub(super) fn bundle(&self) -> Result<(&[u8], &[u8]), NoCertificate> {
        match self {
            Self::Initial | Self::Waiting(_) => Err(NoCertificate::NotIssued),
            Self::Denied(reason) => Err(NoCertificate::Denied(reason.text())),
            Self::Failed(reason) => Err(NoCertificate::Failed(reason.text())),
            Self::Fresh(issued) | Self::Renewing(issued, _) => {
                Ok((issued.key.bytes(), &issued.chain))
            }
        }
    }

    /// Its name in the kubelet's metrics.
    pub(super) fn name(&self, now: Timestamp) -> &'static str {
        match self {
            Self::Initial | Self::Waiting(_) => "not_yet_issued",
            Self::Denied(_) => "denied",
            Self::Failed(_) => "failed",
            Self::Fresh(issued) | Self::Renewing(issued, _) => issued.state(now),
        }
    }
}

/// How a request has ended.
enum End {
    Denied(Reason),
    Failed(Reason),
    Issued,
}

impl End {
    fn of(request: &PodCertificateRequest) -> Option<Self> {
        let mut conditions = request.status.as_ref()?.conditions.iter().flatten();
        conditions.find_map(|condition| {
            let why = || Reason {
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            };
            Some(match condition.type_.as_str() {
                "Denied" => Self::Denied(why()),
                "Failed" => Self::Failed(why()),
                "Issued" => Self::Issued,
                _ => return None,
            })
        })
    }
}

fn issued(key: Secret, request: &PodCertificateRequest, jitter: SignedDuration) -> Issued {
    let status = request.status.clone().unwrap_or_default();
    let not_after = status.not_after.map_or(Timestamp::MAX, |time| time.0);
    let renew_at = status.begin_refresh_at.map_or(not_after, |time| time.0);
    // Without what is between the blocks, and the headers in them.
    let blocks = pem::blocks(status.certificate_chain.as_deref().unwrap_or_default());
    let chain = blocks
        .iter()
        .map(|block| pem::encode("CERTIFICATE", &block.data))
        .collect::<String>();
    Issued {
        key,
        chain: chain.into_bytes(),
        renew_at: later(renew_at, jitter),
        not_after,
        told_overdue: false,
        told_expired: false,
    }
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
