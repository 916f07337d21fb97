//! Certificates from the first request to the renewal, with a clock of the test's own.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::keys;
use super::*;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// A state, and the request that is known.
struct Case {
    state: State,
    known: Option<Arc<PodCertificateRequest>>,
    now: Timestamp,
    news: Vec<News>,
}

fn request(name: &str, status: Value) -> Arc<PodCertificateRequest> {
    let request = json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("{name}-uid"), "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"signerName": "a.b/c", "podName": "p", "podUID": "u", "serviceAccountName": "s", "serviceAccountUID": "u",
                 "nodeName": "n", "nodeUID": "u", "stubPKCS10Request": ""},
        "status": status,
    });
    Arc::new(serde_json::from_value(request).expect("a request"))
}

fn ended(condition: &str) -> Value {
    json!({"conditions": [{"type": condition, "status": "True", "reason": "Why", "message": "said \"so\"",
                           "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

fn issued_until(chain: &str) -> Value {
    let mut status = ended("Issued");
    status["certificateChain"] = json!(chain);
    status["beginRefreshAt"] = json!("2026-01-01T01:00:00Z");
    status["notAfter"] = json!("2026-01-01T02:00:00Z");
    status
}

impl Case {
    fn new() -> Self {
        Self {
            state: State::default(),
            known: None,
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
            news: Vec::new(),
        }
    }

    /// Makes a request of this name, and steps as often as there is something to do.
    fn ask(&mut self, name: &str) -> Vec<u8> {
        assert_eq!(self.step(), (Next::Request, false));
        let key = keys::generate("ED25519").expect("a key").key;
        let text = key.bytes().to_vec();
        let accepted = request(name, json!({}));
        self.state.requested(Requested::new(key, &accepted, MINUTE));
        text
    }

    fn at(&mut self, minutes: i64) {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        self.now = start + MINUTE * i32::try_from(minutes).expect("few minutes");
    }

    fn step(&mut self) -> (Next, bool) {
        let known = self.known.clone();
        let find = |name: &str| {
            known
                .clone()
                .filter(|it| it.metadata.name.as_deref() == Some(name))
        };
        self.state.step(find, self.now, MINUTE, &mut self.news)
    }

    fn reasons(&mut self) -> Vec<&'static str> {
        self.news.drain(..).map(|news| news.reason).collect()
    }

    fn wait(minutes: i64) -> Next {
        let mut case = Self::new();
        case.at(minutes);
        Next::Wait(Some(case.now))
    }
}

#[test]
fn a_certificate_is_issued_and_renewed() {
    let mut case = Case::new();
    let first = case.ask("req-1");
    assert_eq!(case.state.bundle(), Err(NoCertificate::NotIssued));
    // It is on its way; once it is seen, only its end is waited for.
    assert_eq!(case.step(), (Case::wait(11), false));
    case.known = Some(request("req-1", json!({})));
    assert_eq!(case.step(), (Next::Wait(None), false));
    assert_eq!(case.state.name(case.now), "not_yet_issued");

    let text =
        "intro\n-----BEGIN CERTIFICATE-----\nkey: value\n\nYWJj\n-----END CERTIFICATE-----\nmore\n";
    case.known = Some(request("req-1", issued_until(text)));
    // Refreshed at the signer's time, and a minute of jitter.
    assert_eq!(case.step(), (Case::wait(61), true));
    let chain = b"-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n".as_slice();
    assert_eq!(case.state.bundle(), Ok((first.as_slice(), chain)));
    assert_eq!(case.step(), (Case::wait(61), false));

    case.at(61);
    let second = case.ask("req-2");
    // Meanwhile the first one is in use.
    assert_eq!(case.state.bundle(), Ok((first.as_slice(), chain)));
    assert_ne!(first, second);
    case.known = Some(request("req-2", json!({})));
    let (next, changed) = case.step();
    assert!(matches!(next, Next::Wait(Some(_))) && !changed);
    assert_eq!(case.reasons(), [""; 0]);
    case.at(72);
    case.step();
    assert_eq!(case.reasons(), ["CertificateOverdueForRefresh"]);
    assert_eq!(case.state.name(case.now), "overdue_for_refresh");
    case.at(121);
    case.step();
    case.step();
    assert_eq!(case.reasons(), ["CertificateExpired"]);
    assert_eq!(case.state.name(case.now), "expired");
    let text = "-----BEGIN CERTIFICATE-----\nZGVm\n-----END CERTIFICATE-----\n";
    case.known = Some(request("req-2", issued_until(text)));
    assert!(case.step().1);
    assert_eq!(
        case.state.bundle(),
        Ok((second.as_slice(), text.as_bytes()))
    );
}

#[test]
fn a_request_that_is_denied_or_fails_is_not_made_again() {
    for (condition, error, message) in [
        (
            "Denied",
            NoCertificate::Denied("reason=\"Why\" message=\"said \\\"so\\\"\"".into()),
            "PodCertificateRequest ns/req-1 was denied, reason=\"Why\", message=\"said \\\"so\\\"\"",
        ),
        (
            "Failed",
            NoCertificate::Failed("reason=\"Why\" message=\"said \\\"so\\\"\"".into()),
            "PodCertificateRequest ns/req-1 failed, reason=\"Why\", message=\"said \\\"so\\\"\"",
        ),
    ] {
        let mut case = Case::new();
        case.ask("req-1");
        case.known = Some(request("req-1", ended(condition)));
        assert_eq!(case.step(), (Next::Wait(None), true));
        assert_eq!(case.state.bundle(), Err(error));
        assert_eq!(case.news.len(), 1);
        assert_eq!(case.news[0].message, message);
        assert_eq!(case.reasons(), [condition]);
        case.at(600);
        assert_eq!(case.step(), (Next::Wait(None), false));
        assert_eq!(case.reasons(), [""; 0]);
        assert_eq!(case.state.name(case.now), condition.to_lowercase());
    }
}

#[test]
fn a_request_that_was_deleted_is_made_again() {
    let mut case = Case::new();
    case.ask("req-1");
    case.at(10);
    assert_eq!(case.step(), (Case::wait(11), false));
    case.at(12);
    case.ask("req-2");
    case.known = Some(request("req-2", issued_until("")));
    assert!(case.step().1);
    case.at(61);
    case.ask("req-3");
    case.at(90);
    case.ask("req-4");
    assert!(case.state.bundle().is_ok());
}

/// The attack: a user deletes the request of a node and makes one of that name, for a certificate of a key of its own.
#[test]
fn a_request_of_another_uid_is_not_the_nodes() {
    let mut case = Case::new();
    case.ask("req-1");
    let mut other = Arc::unwrap_or_clone(request("req-1", issued_until("")));
    other.metadata.uid = Some("other".into());
    case.known = Some(Arc::new(other));
    assert_eq!(case.step(), (Case::wait(11), false));
    assert_eq!(case.state.bundle(), Err(NoCertificate::NotIssued));
}
