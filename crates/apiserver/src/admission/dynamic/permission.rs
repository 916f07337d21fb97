//! The creator of a policy with parameters must be allowed to read them: the policy's messages could expose them.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::super::{Attributes, Operation};
use super::backend::GROUP;
use crate::admission::Admission;
use crate::auth::AuthorizerAttributes;
use crate::error::Result;
use crate::identity::{MASTERS, User};
use crate::object::{split_api_version, text};

/// Errors of a policy or binding whose parameters the user may not read.
///
/// # Errors
/// Errors of the store.
pub(in crate::admission) async fn field_errors(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<ErrorList> {
    let written = matches!(attributes.operation, Operation::Create | Operation::Update);
    let resource = attributes.resource;
    if resource.group != GROUP
        || !written
        || !attributes.subresource.is_empty()
        || attributes.user.in_group(MASTERS)
    {
        return Ok(ErrorList::new());
    }
    let (spec, user) = (&object["spec"], attributes.user);
    let same = |key: &str| {
        let old = attributes.old;
        spec[key].is_null() || old.is_some_and(|old| old["spec"][key] == spec[key])
    };
    let place = Path::new("spec");
    match resource.plural.as_str() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" if !same("paramKind") => {
            let kind = &spec["paramKind"];
            if may_read(core, user, kind, "*", "*").await? {
                return Ok(ErrorList::new());
            }
            let why = format!(
                "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
                shown(user),
                text(kind, &["kind"]),
                text(kind, &["apiVersion"])
            );
            Ok(ErrorList::from([Error::forbidden(
                &place.child("paramKind"),
                why,
            )]))
        }
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings"
            if !(same("paramRef") && same("policyName")) && spec["paramRef"].is_object() =>
        {
            let policies = resource.plural.replace("policybindings", "policies");
            let policy = text(spec, &["policyName"]);
            let policy = core.stored(&format!("{GROUP}/{policies}"), policy).await?;
            let kind = policy.map(|mut policy| policy["spec"]["paramKind"].take());
            let (name, namespace) = (
                text(spec, &["paramRef", "name"]),
                text(spec, &["paramRef", "namespace"]),
            );
            if may_read(core, user, &kind.unwrap_or_default(), name, namespace).await? {
                return Ok(ErrorList::new());
            }
            let why = format!(
                "user {} does not have \"get\" permission on the object referenced by paramRef",
                shown(user)
            );
            Ok(ErrorList::from([Error::forbidden(
                &place.child("paramRef"),
                why,
            )]))
        }
        _ => Ok(ErrorList::new()),
    }
}

async fn may_read(
    core: &Admission,
    user: &User,
    kind: &Value,
    name: &str,
    namespace: &str,
) -> Result<bool> {
    let registry = core.registry.load_full();
    let (group, resource) = if kind.is_object() {
        let (group, _) = split_api_version(text(kind, &["apiVersion"]));
        let known = registry.by_kind(group, text(kind, &["kind"]));
        (group, known.map_or("*", |resource| &resource.plural))
    } else {
        ("*", "*")
    };
    let access = AuthorizerAttributes {
        name,
        namespace,
        ..AuthorizerAttributes::resource(user, "get", group, resource)
    };
    Ok(core.authorizer.decide(core, &access).await?.allowed())
}

/// A user as Go prints one.
fn shown(user: &User) -> String {
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{key}:[{}]", values.join(" ")))
        .collect();
    format!(
        "&{{{} {} [{}] map[{}]}}",
        user.name,
        user.uid,
        user.groups.join(" "),
        extra.join(" ")
    )
}
