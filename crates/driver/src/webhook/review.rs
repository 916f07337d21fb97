//! From an AdmissionReview to an answer. No network here.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Checks;

const GROUP: &str = "resource.k8s.io";
/// In all of them the configuration has the same place and shape.
const VERSIONS: [&str; 4] = ["v1", "v1beta2", "v1beta1", "v1alpha3"];
/// Longest parameters that are read. The API allows 10 KiB.
const MAX_PARAMETERS: usize = 64 * 1024;
/// Longest text of one cause, in characters: it may quote what the user wrote.
const MAX_CAUSE: usize = 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    resource: Resource,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    name: Option<String>,
    operation: String,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Resource {
    group: String,
    version: String,
    resource: String,
}

/// A claim, and the `spec` of a template.
#[derive(Deserialize)]
struct Claim<'a> {
    #[serde(borrow, default)]
    spec: Option<ClaimSpec<'a>>,
}

impl<'a> Claim<'a> {
    fn configs(self) -> Option<Vec<Config<'a>>> {
        self.spec?.devices?.config
    }
}

#[derive(Deserialize)]
struct ClaimSpec<'a> {
    #[serde(borrow, default)]
    devices: Option<Configs<'a>>,
}

#[derive(Deserialize)]
struct Template<'a> {
    #[serde(borrow, default)]
    spec: Option<Claim<'a>>,
}

#[derive(Deserialize)]
struct Class<'a> {
    #[serde(borrow, default)]
    spec: Option<Configs<'a>>,
}

/// `spec.devices` of a claim, or `spec` of a class.
#[derive(Deserialize, Default)]
struct Configs<'a> {
    #[serde(borrow, default)]
    config: Option<Vec<Config<'a>>>,
}

#[derive(Deserialize)]
struct Config<'a> {
    #[serde(borrow, default)]
    opaque: Option<Opaque<'a>>,
}

#[derive(Deserialize)]
struct Opaque<'a> {
    driver: String,
    #[serde(borrow, default)]
    parameters: Option<&'a RawValue>,
}

/// The kinds that have parameters.
#[derive(Clone, Copy)]
enum Kind {
    Claim,
    Template,
    Class,
}

impl Kind {
    fn of(resource: &Resource) -> Option<Self> {
        if resource.group != GROUP || !VERSIONS.contains(&&*resource.version) {
            return None;
        }
        match &*resource.resource {
            "resourceclaims" => Some(Self::Claim),
            "resourceclaimtemplates" => Some(Self::Template),
            "deviceclasses" => Some(Self::Class),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Claim => "ResourceClaim",
            Self::Template => "ResourceClaimTemplate",
            Self::Class => "DeviceClass",
        }
    }

    /// The field with the configurations.
    fn path(self) -> &'static str {
        match self {
            Self::Claim => "spec.devices.config",
            Self::Template => "spec.spec.devices.config",
            Self::Class => "spec.config",
        }
    }

    fn configs(self, object: &RawValue) -> Result<Vec<Config<'_>>, serde_json::Error> {
        let text = object.get();
        let found = match self {
            Self::Claim => serde_json::from_str::<Claim<'_>>(text)?.configs(),
            Self::Template => serde_json::from_str::<Template<'_>>(text)?
                .spec
                .and_then(Claim::configs),
            Self::Class => serde_json::from_str::<Class<'_>>(text)?
                .spec
                .and_then(|spec| spec.config),
        };
        Ok(found.unwrap_or_default())
    }
}

/// A wrong parameter object.
struct Cause {
    field: String,
    message: String,
}

/// The answer to a body: an AdmissionReview.
///
/// # Errors
/// The body is no review that could be answered: the text is for the log of the API server.
pub(super) fn answer(checks: &Checks, body: &[u8]) -> Result<Value, String> {
    let review: Review<'_> = serde_json::from_slice(body)
        .map_err(|error| format!("failed to read AdmissionReview from request body: {error}"))?;
    if review.api_version != "admission.k8s.io/v1" || review.kind != "AdmissionReview" {
        return Err(format!(
            "failed to read AdmissionReview from request body: unsupported group version kind: {}, Kind={}",
            review.api_version, review.kind
        ));
    }
    let request = review
        .request
        .ok_or("failed to read AdmissionReview from request body: it has no request")?;
    let mut response = judge(checks, &request);
    response["uid"] = json!(request.uid);
    Ok(
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
    )
}

fn judge(checks: &Checks, request: &Request<'_>) -> Value {
    let Some(kind) = Kind::of(&request.resource) else {
        let Resource {
            group,
            version,
            resource,
        } = &request.resource;
        return bad(format!(
            "expected resource to be resourceclaims, resourceclaimtemplates or deviceclasses of {GROUP} in one of the \
             versions {}, got {group}/{version}, Resource={resource}",
            VERSIONS.join(", ")
        ));
    };
    let status = request.sub_resource.as_deref().unwrap_or_default();
    let writes = matches!(&*request.operation, "CREATE" | "UPDATE");
    let (Some(object), true, true) = (request.object, writes, status.is_empty()) else {
        return json!({"allowed": true});
    };
    let configs = match kind.configs(object) {
        Ok(configs) => configs,
        Err(error) => return bad(format!("{}: {error}", kind.name())),
    };
    let before = request.old_object.map(|old| kind.configs(old));
    let before = before.and_then(Result::ok).unwrap_or_default();
    let causes = causes(checks, kind, &configs, &before);
    if causes.is_empty() {
        return json!({"allowed": true});
    }
    let texts: Vec<_> = causes
        .iter()
        .map(|cause| format!("object at {} is invalid: {}", cause.field, cause.message))
        .collect();
    let message = format!(
        "{} configs failed to validate: {}",
        causes.len(),
        texts.join("; ")
    );
    let name = request.name.as_deref().unwrap_or_default();
    tracing::info!(kind = kind.name(), name, message, "refused");
    let causes: Vec<_> = causes
        .into_iter()
        .map(|cause| {
            json!({"reason": "FieldValueInvalid", "field": cause.field, "message": cause.message})
        })
        .collect();
    let details = json!({"group": GROUP, "kind": kind.name(), "name": name, "causes": causes});
    json!({"allowed": false, "status": {
        "status": "Failure", "code": 422, "reason": "Invalid", "message": message, "details": details,
    }})
}

fn causes(
    checks: &Checks,
    kind: Kind,
    configs: &[Config<'_>],
    before: &[Config<'_>],
) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        let Some(opaque) = &config.opaque else {
            continue;
        };
        let Some(check) = checks.get(&opaque.driver) else {
            continue;
        };
        let text = opaque.parameters.map_or("null", RawValue::get);
        let same = |other: &Opaque<'_>| {
            other.driver == opaque.driver && other.parameters.map_or("null", RawValue::get) == text
        };
        if before.iter().filter_map(|it| it.opaque.as_ref()).any(same) {
            continue;
        }
        let checked = match text.len() > MAX_PARAMETERS {
            true => Err(format!("longer than {MAX_PARAMETERS} bytes")),
            false => serde_json::from_str(text)
                .map_err(|error| error.to_string())
                .and_then(|parameters| check(&parameters)),
        };
        if let Err(message) = checked {
            causes.push(Cause {
                field: format!("{}[{index}].opaque.parameters", kind.path()),
                message: shortened(message),
            });
        }
    }
    causes
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(MAX_CAUSE) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// For a review that the configuration should not have sent.
fn bad(message: String) -> Value {
    tracing::warn!(message, "refused");
    json!({"allowed": false, "status": {
        "status": "Failure", "code": 400, "reason": "BadRequest", "message": message,
    }})
}
