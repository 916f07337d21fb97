//! Permissions about certificate signing requests, trust bundles and pod certificates, and names that may not be requested:
//! the plugins CertificateApproval, CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest.

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, ErrorList, Path};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Admission;
use super::plugins::Plugin;
use super::{Attributes, Operation, enabled, escalation, forbidden};
use crate::auth::{AuthorizerAttributes, certificate};
use crate::error::Result;
use crate::identity::{MASTERS, User};
use crate::object::text;

const GROUP: &str = "certificates.k8s.io";
/// The signer of clients of the API server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Refuses what the user may not do to a request.
///
/// # Errors
/// 403, and those of the authorizer.
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    request: &Value,
) -> Result<()> {
    let resource = attributes.resource;
    match (resource.group.as_str(), resource.plural.as_str()) {
        (GROUP, "certificatesigningrequests") => {}
        (GROUP, "clustertrustbundles") => return attest(core, attributes, request).await,
        (GROUP, "podcertificaterequests") => return sign(core, attributes, request).await,
        _ => return Ok(()),
    }
    let signer = text(request, &["spec", "signerName"]);
    let (plugin, verb) = match (attributes.operation, attributes.subresource) {
        (Operation::Create, "") => {
            let restricted = enabled(core, Plugin::CertificateSubjectRestriction);
            if !restricted || signer != CLIENT_SIGNER {
                return Ok(());
            }
            // A request that cannot be read is refused: the signer might take it for any subject.
            let requested = STANDARD
                .decode(text(request, &["spec", "request"]))
                .map_err(|_| certificate::SubjectError::Malformed)
                .and_then(|pem| certificate::requested(&pem));
            return match requested {
                Err(error) => Err(forbidden(
                    attributes,
                    &format!("failed to parse CSR: {error}"),
                )),
                Ok(subject) if subject.organizations.iter().any(|it| it == MASTERS) => {
                    let why = format!(
                        "use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
                    );
                    Err(forbidden(attributes, &why))
                }
                Ok(_) => Ok(()),
            };
        }
        (Operation::Update, "approval") => (Plugin::CertificateApproval, "approve"),
        (Operation::Update, "status") => (Plugin::CertificateSigning, "sign"),
        _ => return Ok(()),
    };
    let unchanged = |old: &Value| {
        let (old, new) = (&old["status"], &request["status"]);
        old["certificate"] == new["certificate"] && old["conditions"] == new["conditions"]
    };
    if !enabled(core, plugin) || verb == "sign" && attributes.old.is_some_and(unchanged) {
        return Ok(());
    }
    if may(core, attributes, verb, signer).await? {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(forbidden(attributes, &why))
}

/// Writing the trust bundle of a signer takes the permission to attest for the signer.
async fn attest(core: &Admission, attributes: &Attributes<'_>, bundle: &Value) -> Result<()> {
    let signer = text(bundle, &["spec", "signerName"]);
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if signer.is_empty() || !writes || !enabled(core, Plugin::ClusterTrustBundleAttest) {
        return Ok(());
    }
    let unchanged = |old: &Value| escalation::only_collected(old, bundle);
    if attributes.old.is_some_and(unchanged) || may(core, attributes, "attest", signer).await? {
        return Ok(());
    }
    let why = format!("user not permitted to attest for signerName {signer:?}");
    Err(forbidden(attributes, &why))
}

/// The status of a pod certificate request is its signer's. Upstream checks it together with the fields.
async fn sign(core: &Admission, attributes: &Attributes<'_>, request: &Value) -> Result<()> {
    let old = attributes.old.unwrap_or(&Value::Null);
    let changes = attributes.operation == Operation::Update && attributes.subresource == "status";
    if !changes || escalation::is_same(&old["status"], &request["status"]) {
        return Ok(());
    }
    let signer = text(old, &["spec", "signerName"]);
    if may(core, attributes, "sign", signer).await? {
        return Ok(());
    }
    let user = &attributes.user.name;
    let why = format!("User {user:?} is not permitted to \"sign\" for signer {signer:?}");
    let path = Path::new("spec").child("signerName");
    let errors: ErrorList = [Error::forbidden(&path, why)].into();
    let kind = attributes.resource.group_kind();
    Err(Status::invalid(&kind, attributes.name, &errors).into())
}

/// The user may do it for the signer, or for all of its domain.
async fn may(
    core: &Admission,
    attributes: &Attributes<'_>,
    verb: &str,
    signer: &str,
) -> Result<bool> {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer, &format!("{domain}/*")] {
        let access = AuthorizerAttributes {
            name,
            ..AuthorizerAttributes::resource(attributes.user, verb, GROUP, "signers")
        };
        if core.authorizer.decide(core, &access).await?.allowed() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sets the requesting user in a CertificateSigningRequest, whatever the client sent.
pub(super) fn set_requester(user: &User, request: &mut Value) {
    let spec = crate::object::child_mut(request, "spec");
    for key in ["username", "uid", "groups", "extra"] {
        spec.remove(key);
    }
    let said = [
        ("username", !user.name.is_empty(), user.name.as_str().into()),
        ("uid", !user.uid.is_empty(), user.uid.as_str().into()),
        (
            "groups",
            !user.groups.is_empty(),
            user.groups.clone().into(),
        ),
        (
            "extra",
            !user.extra.is_empty(),
            serde_json::json!(user.extra),
        ),
    ];
    for (key, known, value) in said {
        if known {
            spec.insert(key.to_owned(), value);
        }
    }
}
