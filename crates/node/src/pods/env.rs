//! Environment and arguments of a container.

use std::collections::{BTreeMap, HashMap};

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, Pod, Secret};
use kube::{Api, Client, ResourceExt};

use crate::capacity::capacity;
use crate::config::Config;
use crate::error::api_message;

mod variables;

pub(super) use variables::{Budget, Variables};

/// Why a container has no environment or arguments yet. It is not started until it has.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnvError {
    /// The API server does not return a config map or secret.
    #[error("{}", api_message(.0))]
    Api(#[source] Box<kube::Error>),
    /// A config map that must exist.
    #[error("configmap \"{0}\" not found")]
    NoConfigMap(String),
    /// A secret that must exist.
    #[error("secret \"{0}\" not found")]
    NoSecret(String),
    /// A config map or secret without a key that it must have.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        key: String,
        kind: &'static str,
        namespace: String,
        name: String,
    },
    /// A reference to a variable that is not set.
    #[error("missing value for {0:?}")]
    NoVariable(String),
    /// A field that the downward API does not have.
    #[error("unsupported fieldPath: {0}")]
    FieldPath(String),
    /// A resource that the downward API does not have.
    #[error("unsupported container resource: {0}")]
    Resource(String),
    /// An amount or a divisor of the downward API.
    #[error("invalid quantity {0:?}")]
    Quantity(String),
    /// More than any kernel accepts.
    #[error(
        "variables and arguments of more than {} MiB: no program can be started with them",
        variables::LARGEST >> 20
    )]
    TooLarge,
}

fn api(error: kube::Error) -> EnvError {
    EnvError::Api(Box::new(error))
}

/// Config maps and secrets of one namespace, each fetched once.
pub(super) struct Sources {
    client: Client,
    namespace: String,
    maps: HashMap<String, Option<ConfigMap>>,
    secrets: HashMap<String, Option<BTreeMap<String, Vec<u8>>>>,
}

impl Sources {
    pub(super) fn new(client: Client, namespace: String) -> Self {
        Self {
            client,
            namespace,
            maps: HashMap::new(),
            secrets: HashMap::new(),
        }
    }

    /// A config map; `None` when it does not exist and need not.
    async fn map(&mut self, name: &str, optional: bool) -> Result<Option<&ConfigMap>, EnvError> {
        if !self.maps.contains_key(name) {
            let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
            let found = maps.get_opt(name).await.map_err(api)?;
            self.maps.insert(name.to_owned(), found);
        }
        match self.maps.get(name).and_then(Option::as_ref) {
            None if !optional => Err(EnvError::NoConfigMap(name.to_owned())),
            found => Ok(found),
        }
    }

    /// What a config map gives to a volume.
    pub(super) async fn config_map(
        &mut self,
        name: &str,
        optional: bool,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, EnvError> {
        let Some(map) = self.map(name, optional).await? else {
            return Ok(None);
        };
        let text = map.data.iter().flatten();
        let text = text.map(|(key, value)| (key.clone(), value.clone().into_bytes()));
        let binary = map.binary_data.iter().flatten();
        let binary = binary.map(|(key, value)| (key.clone(), value.0.clone()));
        Ok(Some(text.chain(binary).collect()))
    }

    /// One value of a config map for an environment: `binaryData` is for volumes alone.
    async fn config_map_value(
        &mut self,
        name: &str,
        key: &str,
        optional: bool,
    ) -> Result<Option<String>, EnvError> {
        let map = self.map(name, optional).await?;
        Ok(map.and_then(|map| map.data.as_ref()?.get(key).cloned()))
    }

    /// One value of a secret for an environment.
    async fn secret_value(
        &mut self,
        name: &str,
        key: &str,
        optional: bool,
    ) -> Result<Option<String>, EnvError> {
        let value = self.secret(name, optional).await?;
        let value = value.and_then(|data| data.get(key));
        Ok(value.map(|value| String::from_utf8_lossy(value).into_owned()))
    }

    /// The data of a secret.
    pub(super) async fn secret(
        &mut self,
        name: &str,
        optional: bool,
    ) -> Result<Option<&BTreeMap<String, Vec<u8>>>, EnvError> {
        if !self.secrets.contains_key(name) {
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
            let found = secrets.get_opt(name).await.map_err(api)?;
            let data = found.map(|secret| {
                secret
                    .data
                    .into_iter()
                    .flatten()
                    .map(|(key, value)| (key, value.0))
                    .collect()
            });
            self.secrets.insert(name.to_owned(), data);
        }
        match self.secrets.get(name).and_then(Option::as_ref) {
            None if !optional => Err(EnvError::NoSecret(name.to_owned())),
            found => Ok(found),
        }
    }
}

/// Values of the downward API that are not in the pod.
pub(super) struct Downward<'a> {
    pub(super) pod: &'a Pod,
    pub(super) node: &'a str,
    pub(super) address: String,
    /// The pod's own addresses.
    pub(super) pod_addresses: Vec<String>,
    /// The node, whose allocatable resources stand for limits that are not set.
    pub(super) config: &'a Config,
}

/// The whole environment; later entries of a name override earlier ones. It begins with `known`.
pub(super) async fn environment(
    downward: &Downward<'_>,
    container: &Container,
    sources: &mut Sources,
    known: Vec<(String, String)>,
) -> Result<Variables, EnvError> {
    let mut env = Variables::default();
    env.extend(known)?;
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(map) = &from.config_map_ref {
            let optional = map.optional.unwrap_or(false);
            let map = sources.map(&map.name, optional).await?;
            for (key, value) in map.iter().filter_map(|map| map.data.as_ref()).flatten() {
                env.push(format!("{prefix}{key}"), value.clone())?;
            }
        } else if let Some(secret) = &from.secret_ref {
            let optional = secret.optional.unwrap_or(false);
            let data = sources.secret(&secret.name, optional).await?;
            for (key, value) in data.into_iter().flatten() {
                let value = String::from_utf8_lossy(value).into_owned();
                env.push(format!("{prefix}{key}"), value)?;
            }
        }
    }
    let mut budget = Budget::default();
    for variable in container.env.iter().flatten() {
        let text = variable.value.as_deref().unwrap_or_default();
        let value = match &variable.value_from {
            None => Some(env.expand(text, &mut budget)?),
            Some(_) => referenced(downward, container, variable, sources).await?,
        };
        if let Some(value) = value {
            env.push(variable.name.clone(), value)?;
        }
    }
    Ok(env)
}

async fn referenced(
    downward: &Downward<'_>,
    container: &Container,
    variable: &EnvVar,
    sources: &mut Sources,
) -> Result<Option<String>, EnvError> {
    let Some(from) = &variable.value_from else {
        return Ok(None);
    };
    if let Some(field) = &from.field_ref {
        return downward.field(&field.field_path).map(Some);
    }
    if let Some(resource) = &from.resource_field_ref {
        let divisor = resource
            .divisor
            .as_ref()
            .map_or("1", |divisor| divisor.0.as_str());
        return downward
            .resource(container, &resource.resource, divisor)
            .map(Some);
    }
    let (kind, name, key, optional, value) = if let Some(map) = &from.config_map_key_ref {
        let optional = map.optional.unwrap_or(false);
        (
            "ConfigMap",
            &map.name,
            &map.key,
            optional,
            sources
                .config_map_value(&map.name, &map.key, optional)
                .await?,
        )
    } else if let Some(secret) = &from.secret_key_ref {
        let optional = secret.optional.unwrap_or(false);
        (
            "Secret",
            &secret.name,
            &secret.key,
            optional,
            sources
                .secret_value(&secret.name, &secret.key, optional)
                .await?,
        )
    } else {
        return Ok(None);
    };
    match value {
        Some(value) => Ok(Some(value)),
        None if optional => Ok(None),
        None => Err(EnvError::NoKey {
            key: key.clone(),
            kind,
            namespace: downward.pod.namespace().unwrap_or_default(),
            name: name.clone(),
        }),
    }
}

impl Downward<'_> {
    /// A field of the pod, by the paths that the API permits.
    pub(super) fn field(&self, path: &str) -> Result<String, EnvError> {
        let pod = self.pod;
        let metadata = &pod.metadata;
        let quoted = |map: Option<&BTreeMap<String, String>>| {
            let lines = map
                .into_iter()
                .flatten()
                .map(|(key, value)| format!("{key}={}", go_quoted(value)));
            lines.collect::<Vec<_>>().join("\n")
        };
        let subscript = |prefix: &str| {
            path.strip_prefix(prefix)?
                .strip_prefix("['")?
                .strip_suffix("']")
        };
        let entry = |map: Option<&BTreeMap<String, String>>, key: &str| {
            map.and_then(|map| map.get(key))
                .cloned()
                .unwrap_or_default()
        };
        if let Some(key) = subscript("metadata.labels") {
            return Ok(entry(metadata.labels.as_ref(), key));
        }
        if let Some(key) = subscript("metadata.annotations") {
            return Ok(entry(metadata.annotations.as_ref(), key));
        }
        match path {
            "metadata.name" => Ok(pod.name_any()),
            "metadata.namespace" => Ok(pod.namespace().unwrap_or_default()),
            "metadata.uid" => Ok(pod.uid().unwrap_or_default()),
            "metadata.labels" => Ok(quoted(metadata.labels.as_ref())),
            "metadata.annotations" => Ok(quoted(metadata.annotations.as_ref())),
            "spec.nodeName" => Ok(self.node.to_owned()),
            "spec.serviceAccountName" => {
                let spec = pod.spec.as_ref();
                Ok(spec
                    .and_then(|spec| spec.service_account_name.clone())
                    .unwrap_or_else(|| "default".into()))
            }
            "status.hostIP" | "status.hostIPs" => Ok(self.address.clone()),
            "status.podIP" => Ok(self.pod_addresses.first().cloned().unwrap_or_default()),
            "status.podIPs" => Ok(self.pod_addresses.join(",")),
            _ => Err(EnvError::FieldPath(path.to_owned())),
        }
    }

    /// A request or limit of a container in units of the divisor, rounded up.
    pub(super) fn resource(
        &self,
        container: &Container,
        resource: &str,
        divisor: &str,
    ) -> Result<String, EnvError> {
        let bad = |text: &str| EnvError::Quantity(text.to_owned());
        let unsupported = || EnvError::Resource(resource.to_owned());
        let (kind, name) = resource.split_once('.').ok_or_else(unsupported)?;
        let resources = container.resources.as_ref();
        let map = match kind {
            "limits" => resources.and_then(|resources| resources.limits.as_ref()),
            "requests" => resources.and_then(|resources| resources.requests.as_ref()),
            _ => return Err(unsupported()),
        };
        let text = map
            .and_then(|map| map.get(name))
            .map(|quantity| quantity.0.clone());
        let text = match (text, kind) {
            (Some(text), _) => text,
            (None, "limits") => capacity(self.config)
                .remove(name)
                .unwrap_or_else(|| "0".into()),
            (None, _) => "0".into(),
        };
        let quantity: Quantity = text.parse().map_err(|_| bad(&text))?;
        let unit: Quantity = if divisor == "0" { "1" } else { divisor }
            .parse()
            .map_err(|_| bad(divisor))?;
        let (value, unit) = match name {
            "cpu" => (
                i128::from(quantity.milli_value()),
                i128::from(unit.milli_value()),
            ),
            _ => (i128::from(quantity.value()), i128::from(unit.value())),
        };
        let unit = unit.max(1);
        Ok(((value + unit - 1) / unit).to_string())
    }
}

/// A text in quotes as programs expect it that read files of the downward API: with the escapes of Go.
fn go_quoted(text: &str) -> String {
    use std::fmt::Write as _;
    let mut quoted = String::from('"');
    for c in text.chars() {
        let known = ['\x07', '\x08', '\x0c', '\n', '\r', '\t', '\x0b', '"', '\\'];
        let known = known.iter().position(|it| *it == c);
        // Writing to a string does not fail.
        let _ = match (
            known.and_then(|at| "abfnrtv\"\\".chars().nth(at)),
            u32::from(c),
        ) {
            (Some(letter), _) => write!(quoted, "\\{letter}"),
            (None, _) if !c.is_control() => write!(quoted, "{c}"),
            (None, code @ 0..0x80) => write!(quoted, "\\x{code:02x}"),
            (None, code) => write!(quoted, "\\u{code:04x}"),
        };
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They were 0: programs that size themselves by their limits had no memory.
    #[test]
    fn regression_limits_that_are_not_set_are_those_of_the_node() {
        let mut config = Config::new("n", "/");
        config.capacity.insert("memory".into(), "3Gi".into());
        let pod = Pod::default();
        let downward = Downward {
            pod: &pod,
            node: "n",
            address: String::new(),
            pod_addresses: Vec::new(),
            config: &config,
        };
        let quantity =
            |text: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.into());
        let mut container = Container::default();
        let of = |container: &Container, resource: &str, divisor: &str| {
            let value = downward.resource(container, resource, divisor);
            value.expect("a value")
        };
        let cpus = std::thread::available_parallelism().expect("processors");
        assert_eq!(of(&container, "limits.cpu", "1"), cpus.to_string());
        assert_eq!(of(&container, "limits.memory", "1Mi"), "3072");
        assert_ne!(of(&container, "limits.ephemeral-storage", "0"), "0");
        assert_eq!(of(&container, "requests.memory", "1"), "0");
        let limits = [("cpu".to_owned(), quantity("1500m"))];
        container.resources = Some(k8s_openapi::api::core::v1::ResourceRequirements {
            limits: Some(limits.into()),
            ..Default::default()
        });
        assert_eq!(of(&container, "limits.cpu", "1"), "2");
        assert_eq!(of(&container, "limits.cpu", "1m"), "1500");
        assert_eq!(of(&container, "limits.memory", "1Gi"), "3");
    }

    /// Annotations with other characters could not be read by programs in Go.
    #[test]
    fn regression_annotations_are_quoted_as_by_a_kubelet() {
        let check = |text: &str, expected: &str| assert_eq!(go_quoted(text), expected);
        check("plain text's", r#""plain text's""#);
        check("a\"b\\c\nd\te\r", r#""a\"b\\c\nd\te\r""#);
        check("\0\x07\x0b\x1b\x7f", r#""\x00\a\v\x1b\x7f""#);
        check("ä\u{301}日", "\"ä\u{301}日\"");
        check("\u{85}", r#""\u0085""#);
    }
}
