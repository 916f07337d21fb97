//! Who may decide about requests for certificates, and what nobody may ask for: the plugins CertificateApproval,
//! CertificateSigning and CertificateSubjectRestriction.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::{Attributes, Operation, enabled, forbidden};
use crate::auth::Ask;
use crate::error::Result;
use crate::identity::MASTERS;
use crate::object::text;
use crate::server::Core;

const GROUP: &str = "certificates.k8s.io";
/// The signer of clients of the API server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Refuses what the user may not do to a request.
///
/// # Errors
/// 403, and those of the authorizer.
pub(super) async fn check(core: &Core, attributes: &Attributes<'_>, request: &Value) -> Result<()> {
    let resource = attributes.resource;
    if !resource.is(GROUP, "certificatesigningrequests") {
        return Ok(());
    }
    let signer = text(request, &["spec", "signerName"]);
    let (plugin, verb) = match (attributes.operation, attributes.subresource) {
        (Operation::Create, "") => {
            let restricted = enabled(core, "CertificateSubjectRestriction");
            if restricted && signer == CLIENT_SIGNER && asks_for_masters(request) {
                let why =
                    format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
                return Err(forbidden(attributes, &why));
            }
            return Ok(());
        }
        (Operation::Update, "approval") => ("CertificateApproval", "approve"),
        (Operation::Update, "status") => ("CertificateSigning", "sign"),
        _ => return Ok(()),
    };
    let unchanged = |old: &Value| {
        let (old, new) = (&old["status"], &request["status"]);
        old["certificate"] == new["certificate"] && old["conditions"] == new["conditions"]
    };
    if !enabled(core, plugin) || verb == "sign" && attributes.old.is_some_and(unchanged) {
        return Ok(());
    }
    // Who may do it for a signer, or for all of its domain.
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer, &format!("{domain}/*")] {
        let ask = Ask {
            name,
            ..Ask::resource(attributes.user, verb, GROUP, "signers")
        };
        if core.authorizer.decide(core, &ask).await?.allowed() {
            return Ok(());
        }
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(forbidden(attributes, &why))
}

/// The subject of the certificate would be an administrator. What can not be read is refused elsewhere.
fn asks_for_masters(request: &Value) -> bool {
    let read = || -> Option<bool> {
        let bytes = STANDARD.decode(text(request, &["spec", "request"])).ok()?;
        let (_, pem) = x509_parser::pem::parse_x509_pem(&bytes).ok()?;
        let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).ok()?;
        let subject = &parsed.certification_request_info.subject;
        let mut groups = subject.iter_organization();
        Some(groups.any(|it| it.as_str().is_ok_and(|it| it == MASTERS)))
    };
    read().unwrap_or(false)
}
