//! Configurations of networks, and results of plugins.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Error, INTERFACE, PluginError};
use crate::error::{AtPath as _, PathError};

/// Largest file of a configuration.
const LARGEST: u64 = 1 << 20;
/// Most plugins of a network.
const MOST_PLUGINS: usize = 32;
/// Most addresses of a result that are looked at.
const MOST_ADDRESSES: usize = 64;
/// Versions of the specification that this client knows, as major and minor number.
const OLDEST: (u32, u32) = (0, 3);
const NEWEST: (u32, u32) = (1, 1);
/// Endings of files with configurations.
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];

/// Why there is no network for pods.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The agent has just started.
    #[error("the configuration is not read yet")]
    NotRead,
    /// The directory of configurations cannot be listed.
    #[error(transparent)]
    Directory(#[from] PathError),
    /// The directory has no configuration.
    #[error("no network config found in {}", .0.display())]
    Missing(PathBuf),
    /// A file that cannot be used.
    #[error("{}: {source}", .path.display())]
    File { path: PathBuf, source: FileError },
}

/// What is wrong with a configuration. The texts are those of libcni, as far as it has one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// It is not a JSON object.
    #[error("error parsing configuration: {0}")]
    Json(#[source] serde_json::Error),
    /// It is a list by its content, and not by its name.
    #[error("error parsing configuration: a list of plugins needs the ending .conflist")]
    List,
    /// A field of the network.
    #[error("error parsing configuration list: {0}")]
    Field(#[from] FieldError),
    /// An entry of the list of plugins.
    #[error("failed to parse plugin config {0}: it is not an object")]
    NotAnObject(usize),
    /// The type of a plugin.
    #[error("failed to parse plugin config {index}: {source}")]
    PluginType { index: usize, source: PluginError },
    /// It has no plugins, in it or beside it.
    #[error("no plugin configs found")]
    NoPlugins,
    /// The name of the network, which becomes a part of paths.
    #[error("invalid characters found in network name: {0:?}")]
    Name(String),
    /// The directory of further plugins.
    #[error(transparent)]
    Directory(#[from] PathError),
    /// A file of that directory.
    #[error("{}: {source}", .path.display())]
    Plugin {
        path: PathBuf,
        source: Box<FileError>,
    },
}

/// A field of a network that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FieldError {
    #[error("no name")]
    NoName,
    #[error("no plugins in list")]
    NoPlugins,
    #[error("'plugins' is not a list")]
    Plugins,
    #[error("more than {} plugins", MOST_PLUGINS)]
    TooManyPlugins,
    #[error("invalid value {value} for {key}")]
    Flag { key: &'static str, value: Value },
    #[error("'cniVersions' is not a list")]
    Versions,
    #[error("invalid CNI version {0}")]
    Version(Value),
    #[error("CNI version {0} is not supported: expected 0.3.0 to 1.1.0")]
    Unsupported(String),
}

/// A network: plugins in the order in which they add a pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) name: String,
    /// The version of the specification by which plugins are called.
    pub(crate) version: String,
    pub(crate) disable_check: bool,
    /// Their configurations.
    pub(crate) plugins: Vec<Map<String, Value>>,
}

impl Network {
    /// Whether plugins are called by this version or a later one.
    pub(crate) fn is_at_least(&self, major: u32, minor: u32) -> bool {
        version(&self.version).is_some_and(|own| own >= (major, minor, 0))
    }

    /// Whether a plugin of it declares a capability.
    pub(crate) fn declares(&self, capability: &str) -> bool {
        self.plugins.iter().any(|own| declares(own, capability))
    }
}

/// The type of a plugin, which is the name of its program.
pub(super) fn kind(own: &Map<String, Value>) -> &str {
    own.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a plugin declares a capability.
pub(super) fn declares(own: &Map<String, Value>, capability: &str) -> bool {
    let capabilities = own.get("capabilities");
    capabilities.and_then(|all| all.get(capability)) == Some(&Value::Bool(true))
}

/// The files of a directory that may be configurations, in the order of their names.
fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let ending = name.to_str().and_then(|name| name.rsplit_once('.'));
        let known = ending.is_some_and(|(_, ending)| ENDINGS.contains(&ending));
        if known && !entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a directory has a file that may be a configuration, or cannot be read.
pub(crate) fn is_configured(directory: &Path) -> bool {
    files(directory).map_or(true, |all| !all.is_empty())
}

/// The network of a directory: the first file counts, as for containerd.
///
/// # Errors
/// There is none, or it cannot be used.
pub(crate) fn find(directory: &Path) -> Result<Network, Error> {
    let all = files(directory).at(directory).map_err(ConfigError::from)?;
    let Some(first) = all.first() else {
        return Err(ConfigError::Missing(directory.to_owned()).into());
    };
    let network = read(first).and_then(|bytes| {
        if first.extension().is_some_and(|it| it == "conflist") {
            list(&bytes, directory)
        } else {
            single(&bytes)
        }
    });
    network.map_err(|source| {
        let path = first.clone();
        ConfigError::File { path, source }.into()
    })
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    Ok(allot_cdi::file::read_bounded(path, LARGEST)?)
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, FileError> {
    serde_json::from_slice(bytes).map_err(FileError::Json)
}

/// A configuration of one plugin.
fn single(bytes: &[u8]) -> Result<Network, FileError> {
    let own = object(bytes)?;
    if own.contains_key("plugins") && !own.contains_key("type") {
        return Err(FileError::List);
    }
    let network = Network {
        name: name(&own)?,
        version: negotiate(&own)?,
        plugins: vec![own],
        ..Network::default()
    };
    checked(network)
}

/// A configuration with a list of plugins; further ones can be in a directory with the name of the network.
fn list(bytes: &[u8], directory: &Path) -> Result<Network, FileError> {
    let whole = object(bytes)?;
    let name = name(&whole)?;
    let mut plugins = Vec::new();
    match whole.get("plugins") {
        None => {}
        Some(Value::Array(all)) if !all.is_empty() => {
            for (index, own) in all.iter().enumerate() {
                let own = own.as_object().ok_or(FileError::NotAnObject(index))?;
                plugins.push(own.clone());
            }
        }
        Some(Value::Array(_)) => return Err(FieldError::NoPlugins.into()),
        Some(_) => return Err(FieldError::Plugins.into()),
    }
    if !flag(&whole, "loadOnlyInlinedPlugins")? {
        let folder = directory.join(&name);
        let more = files(&folder).at(&folder)?;
        for path in more {
            if path.extension().is_some_and(|it| it == "conf") && plugins.len() <= MOST_PLUGINS {
                let own = read(&path).and_then(|bytes| object(&bytes));
                plugins.push(own.map_err(|error| {
                    let source = Box::new(error);
                    FileError::Plugin { path, source }
                })?);
            }
        }
    }
    checked(Network {
        name,
        version: negotiate(&whole)?,
        disable_check: flag(&whole, "disableCheck")?,
        plugins,
    })
}

/// What has to hold before a program is run.
fn checked(network: Network) -> Result<Network, FileError> {
    if network.plugins.is_empty() {
        return Err(FileError::NoPlugins);
    }
    if network.plugins.len() > MOST_PLUGINS {
        return Err(FieldError::TooManyPlugins.into());
    }
    for (index, own) in network.plugins.iter().enumerate() {
        super::plugin::check_name(kind(own))
            .map_err(|source| FileError::PluginType { index, source })?;
    }
    Ok(network)
}

/// The name of a network. It becomes a part of paths.
fn name(whole: &Map<String, Value>) -> Result<String, FileError> {
    let name = whole.get("name").and_then(Value::as_str);
    let name = name.filter(|name| !name.is_empty());
    let name = name.ok_or(FieldError::NoName)?;
    match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(FileError::Name(name.to_owned())),
    }
}

/// Whether a text can be the name of a network or the ID of a container.
pub(super) fn is_name(text: &str) -> bool {
    let first = text.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.len() <= 255
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// A boolean, which may be written as a string.
fn flag(whole: &Map<String, Value>, key: &'static str) -> Result<bool, FieldError> {
    match whole.get(key) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(FieldError::Flag {
            key,
            value: other.clone(),
        }),
    }
}

/// Major, minor and patch number.
fn version(text: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = text.splitn(3, '.').map(|number| number.parse().ok());
    let major = numbers.next()??;
    let minor = numbers.next().unwrap_or(Some(0))?;
    let patch = numbers.next().unwrap_or(Some(0))?;
    Some((major, minor, patch))
}

/// The newest version that the configuration names and this client knows.
fn negotiate(whole: &Map<String, Value>) -> Result<String, FieldError> {
    let one = whole.get("cniVersion");
    let more: &[Value] = match whole.get("cniVersions") {
        None => &[],
        Some(Value::Array(all)) => all.as_slice(),
        Some(_) => return Err(FieldError::Versions),
    };
    let mut known = Vec::new();
    for named in one.into_iter().chain(more) {
        let text = named.as_str();
        let parsed = text.and_then(version);
        let (Some(text), Some(parsed)) = (text, parsed) else {
            return Err(FieldError::Version(named.clone()));
        };
        let short = (parsed.0, parsed.1);
        if (OLDEST..=NEWEST).contains(&short) {
            known.push((parsed, text));
        }
    }
    let newest = known.into_iter().max();
    newest.map(|(_, text)| text.to_owned()).ok_or_else(|| {
        let named = one.map_or_else(|| "none".to_owned(), ToString::to_string);
        FieldError::Unsupported(named)
    })
}

/// The answer of a plugin to ADD.
pub(super) fn result(text: &[u8], version: &str) -> Result<Value, PluginError> {
    let mut parsed: Map<String, Value> =
        serde_json::from_slice(text).map_err(PluginError::Result)?;
    parsed.entry("cniVersion").or_insert_with(|| version.into());
    Ok(parsed.into())
}

/// The addresses of a pod in a result: at most one of each family, as in its status. Those of other interfaces do not count.
pub(crate) fn addresses(result: &Value) -> Vec<IpAddr> {
    let interfaces = result["interfaces"].as_array();
    let is_own = |ip: &Value| match ip["interface"].as_u64() {
        None => true,
        Some(index) => {
            let found = usize::try_from(index).ok();
            let found = found.and_then(|index| interfaces?.get(index));
            found.is_some_and(|it| it["name"] == INTERFACE)
        }
    };
    let listed = result["ips"].as_array().into_iter().flatten();
    let listed = listed.take(MOST_ADDRESSES).filter(|ip| is_own(ip));
    let parsed = listed.filter_map(|ip| {
        let text = ip["address"].as_str()?;
        let text = text.split_once('/').map_or(text, |(address, _)| address);
        text.parse::<IpAddr>().ok()
    });
    let usable =
        parsed.filter(|ip| !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast());
    let mut own: Vec<IpAddr> = Vec::new();
    for ip in usable {
        if own.iter().all(|other| other.is_ipv4() != ip.is_ipv4()) {
            own.push(ip);
        }
    }
    own
}

/// The name servers of a result.
pub(crate) fn servers(result: &Value) -> Vec<IpAddr> {
    let named = result["dns"]["nameservers"].as_array();
    let named = named.into_iter().flatten().take(MOST_ADDRESSES);
    named.filter_map(|it| it.as_str()?.parse().ok()).collect()
}
