//! Resources that are answered and not stored: access, rules and token reviews.

use std::collections::BTreeMap;

use allot_apimachinery::Status;
use allot_apimachinery::field::{BadValue, Error, ErrorList, Path, joined};
use allot_apimachinery::gvk::GroupKind;
use allot_schema::types::Type;
use http::Response;
use serde_json::{Value, json};

use crate::auth::rules::Rights;
use crate::auth::token_use::TokenUse;
use crate::auth::{AuthorizerAttributes, Refused, Scope};
use crate::body::Body;
use crate::context::Call;
use crate::encode::Respond as _;
use crate::error::Result;
use crate::identity::User;
use crate::object::{strings, text};
use crate::registry::Review;

mod selectors;

use selectors::{field_selector, ignored, label_selector};

/// The message for an unknown token.
const UNKNOWN_TOKEN: &str = "invalid bearer token";
const AUTHORIZATION: &str = "authorization.k8s.io";
/// The memory of the rules that a review tells. A user may hold any number of roles, each as large as an object.
const MOST_RULES: usize = 8 << 20;

/// The answer to a review.
///
/// # Errors
/// 422 for a review without attributes.
pub async fn answer(call: &Call<'_>, asks: Review, object: &Value) -> Result<Response<Body>> {
    let mut review = object.clone();
    // As of any new object.
    if let Some(Value::Object(metadata)) = review.get_mut("metadata") {
        for key in [
            "uid",
            "selfLink",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            metadata.remove(key);
        }
    }
    let api_version = call.resource.api_version(&call.version);
    let (kind, manager) = (&call.resource.kind, &call.manager);
    crate::managed::own_answered(&api_version, kind, "", manager, &mut review);
    let status = match asks {
        Review::SelfSubjectAccess => {
            validate(call, &review, None, None)?;
            access(call, &call.request.user, &object["spec"]).await?
        }
        Review::SubjectAccess | Review::LocalSubjectAccess => {
            let spec = &object["spec"];
            let user = User {
                name: text(spec, &["user"]).to_owned(),
                uid: text(spec, &["uid"]).to_owned(),
                groups: strings(&spec["groups"]),
                extra: extra(&spec["extra"]),
            };
            let local = (asks == Review::LocalSubjectAccess).then(|| call.namespace());
            validate(call, &review, Some(&user), local)?;
            access(call, &user, spec).await?
        }
        Review::SelfSubjectRules => rules(call, text(object, &["spec", "namespace"])).await?,
        Review::Token => token(call, object).await?,
        Review::SelfSubject => json!({"userInfo": user_info(&call.request.user)}),
    };
    review["status"] = status;
    match asks {
        // Upstream generates new objects for these two.
        Review::SelfSubjectRules => {
            review["spec"] = json!({});
            review["metadata"] = json!({});
        }
        Review::SelfSubject => {
            review["metadata"] = json!({"creationTimestamp": crate::object::now()});
        }
        _ => {}
    }
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    call.check_shape()?;
    let options = call.table_options();
    Ok(call
        .view()
        .unstored_response(201, review, call.media, options))
}

fn extra(value: &Value) -> BTreeMap<String, Vec<String>> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, list)| (key.clone(), strings(list)))
        .collect()
}

fn validate(
    call: &Call<'_>,
    review: &Value,
    user: Option<&User>,
    local: Option<&str>,
) -> Result<()> {
    let spec = &review["spec"];
    let path = Path::new("spec");
    let said = |(key, value): (&String, &Value)| {
        key != "managedFields" && !value.is_null() && !(local.is_some() && key == "namespace")
    };
    let metadata = &review["metadata"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut errors = ErrorList::new();
    // Upstream shows it as it is inside.
    let shown = || {
        let quoted = |key: &str| Value::from(text(other, &[key])).to_string();
        BadValue::raw(format!(
            "{{\"Path\":{},\"Verb\":{}}}",
            quoted("path"),
            quoted("verb")
        ))
    };
    if resource.is_object() && other.is_object() {
        let text = "cannot be specified in combination with resourceAttributes";
        let at = path.child("nonResourceAttributes");
        errors.push(Error::invalid(&at, shown(), text));
    }
    if !resource.is_object() && !other.is_object() {
        let text = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(Error::invalid(
            &path.child("resourceAttributes"),
            &Value::Null,
            text,
        ));
    }
    if user.is_some_and(|user| user.name.is_empty() && user.groups.is_empty()) {
        let text = "at least one of user or group must be specified";
        errors.push(Error::invalid(&path.child("user"), "", text));
    }
    selectors::selectors(resource, &path.child("resourceAttributes"), &mut errors);
    if metadata
        .as_object()
        .is_some_and(|metadata| metadata.iter().any(said))
    {
        let text = match local {
            Some(_) => "must be empty except for namespace",
            None => "must be empty",
        };
        let shown = shown_metadata(call, metadata);
        errors.push(Error::invalid(&Path::new("metadata"), shown, text));
    }
    if let Some(namespace) = local {
        let asked = text(resource, &["namespace"]);
        if resource.is_object() && asked != namespace {
            let place = path.child("resourceAttributes").child("namespace");
            errors.push(Error::invalid(
                &place,
                asked,
                "must match metadata.namespace",
            ));
        }
        if other.is_object() {
            let text = "disallowed on this kind of request";
            let at = path.child("nonResourceAttributes");
            errors.push(Error::invalid(&at, shown(), text));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    // Upstream leaves the kind out.
    Err(Status::invalid(&GroupKind::new(AUTHORIZATION, ""), "", &errors).into())
}

/// The metadata of a review in the order of upstream's struct.
fn shown_metadata(call: &Call<'_>, metadata: &Value) -> BadValue {
    let (group, kind) = (&call.resource.group, &call.resource.kind);
    let schema = allot_schema::types::lookup(group, &call.version, kind)
        .and_then(|schema| schema.field("metadata"))
        .and_then(|field| match &field.ty {
            Type::Struct(id) => Some(id.get()),
            _ => None,
        });
    let mut out = Vec::new();
    crate::ordered::object(&mut out, metadata, schema);
    BadValue::raw(String::from_utf8_lossy(&out).into_owned())
}

/// `status` of an access review.
async fn access(call: &Call<'_>, user: &User, spec: &Value) -> Result<Value> {
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let fields = field_selector(&resource["fieldSelector"]);
    let labels = label_selector(&resource["labelSelector"]);
    let access = if resource.is_object() {
        let version = text(resource, &["version"]);
        AuthorizerAttributes {
            version: if version.is_empty() { "*" } else { version },
            fields: fields.as_ref(),
            labels: labels.as_ref(),
            subresource: text(resource, &["subresource"]),
            namespace: text(resource, &["namespace"]),
            name: text(resource, &["name"]),
            ..AuthorizerAttributes::resource(
                user,
                text(resource, &["verb"]),
                text(resource, &["group"]),
                text(resource, &["resource"]),
            )
        }
    } else {
        AuthorizerAttributes::path(user, text(other, &["verb"]), text(other, &["path"]))
    };
    let decision = call.core.authorizer.decide(call.core, &access).await?;
    let mut status = json!({"allowed": decision.allowed()});
    if decision.denied() {
        status["denied"] = true.into();
    }
    if !decision.reason().is_empty() {
        status["reason"] = decision.reason().into();
    }
    let keys = ["fieldSelector", "labelSelector"].into_iter();
    let unused = keys.filter_map(|key| ignored(key, &resource[key]));
    let errors: Vec<String> = decision.error().into_iter().chain(unused).collect();
    if !errors.is_empty() {
        status["evaluationError"] = errors.join("; ").into();
    }
    Ok(status)
}

/// `status` of a rules review.
async fn rules(call: &Call<'_>, namespace: &str) -> Result<Value> {
    if namespace.is_empty() {
        return Err(crate::error::ApiError::bad_request(
            "no namespace on request",
        ));
    }
    let (core, user) = (call.core, &call.request.user);
    let rights = core.authorizer.rights(core, user, namespace).await?;
    let (mut urls, mut resources, mut size) = (Vec::new(), Vec::new(), 0);
    let mut errors = Vec::new();
    for rights in &rights {
        let held = match rights {
            Rights::Roles(index) => index.rules_for(user, Scope::Namespace(namespace)),
            Rights::Rules(rules) => rules.iter().collect(),
            Rights::Unknown(why) if errors.contains(why) => continue,
            Rights::Unknown(why) => {
                errors.push(*why);
                continue;
            }
        };
        for rule in held {
            size += rule.size();
            if size > MOST_RULES {
                break;
            }
            match rule.urls.is_empty() {
                true => resources.push(rule.to_json()),
                false => urls.push(rule.to_json()),
            }
        }
    }
    let mut status = json!({
        "resourceRules": resources, "nonResourceRules": urls,
        "incomplete": !errors.is_empty() || size > MOST_RULES,
    });
    if errors.is_empty() && size > MOST_RULES {
        errors.push("there are too many rules to tell all of them");
    }
    if let Some(errors) = joined(&errors) {
        status["evaluationError"] = errors.into();
    }
    Ok(status)
}

/// `status` of a token review.
async fn token(call: &Call<'_>, review: &Value) -> Result<Value> {
    let token = text(review, &["spec", "token"]);
    if token.is_empty() {
        return Err(crate::error::ApiError::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let audiences = strings(&review["spec"]["audiences"]);
    let mut told = TokenUse::default();
    let core = call.core;
    let judged = core.authenticator.token(core, token, &audiences, &mut told);
    let judged = judged.await;
    told.tell(call.request);
    Ok(match judged {
        Ok((user, matching)) => {
            let mut status = json!({"authenticated": true, "user": user_info(&user)});
            if !matching.is_empty() {
                status["audiences"] = matching.into();
            }
            status
        }
        // Upstream calls two authenticators, the first of which does not support such tokens; equal errors are
        // merged.
        Err(Refused {
            own,
            issuer,
            webhook,
        }) => {
            let mut errors = vec![UNKNOWN_TOKEN];
            for error in [own.as_str(), issuer.as_str(), webhook.as_str()] {
                if !error.is_empty() && !errors.contains(&error) {
                    errors.push(error);
                }
            }
            json!({"user": {}, "error": joined(&errors)})
        }
    })
}

fn user_info(user: &User) -> Value {
    let mut info = serde_json::Map::new();
    if !user.name.is_empty() {
        info.insert("username".to_owned(), user.name.as_str().into());
    }
    if !user.uid.is_empty() {
        info.insert("uid".to_owned(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        let extra: serde_json::Map<_, _> = user
            .extra
            .iter()
            .map(|(key, list)| (key.clone(), list.clone().into()))
            .collect();
        info.insert("extra".to_owned(), extra.into());
    }
    info.into()
}
