//! Networks of pods by plugins of the Container Network Interface (CNI): a client for versions 0.3.0 to 1.1.0 of its
//! specification.
//!
//! Plugins are programs. A configuration names them in order; each gets its part of it on standard input, the command and
//! the pod in environment variables, and answers on standard output. Nothing that a configuration or a plugin says can
//! crash or hang the agent, or fill its memory: sizes, numbers and durations have limits.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

mod bridge;
mod config;
mod plugin;
mod ranges;
#[cfg(test)]
mod tests;

pub use bridge::{Bridge, Error as BridgeError, remove as remove_bridge};
pub(crate) use config::{ConfigError, Network, addresses, find, is_configured, servers};
pub use plugin::PluginError;
pub use ranges::{RangeError, Ranges};

/// The interface of a pod.
pub(crate) const INTERFACE: &str = "eth0";
/// How long a plugin may take to change something. Plugins wait for each other's locks.
const CHANGE: Duration = Duration::from_secs(90);
/// How long a plugin may take to answer a question.
const ASK: Duration = Duration::from_secs(15);

/// Why a pod has no network, or the node none for pods.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no configuration that could be used.
    #[error("cni plugin not initialized: {0}")]
    NotInitialized(#[from] ConfigError),
    /// A plugin refused, or did not do what it should.
    #[error("plugin {plugin} failed ({verb}): {source}")]
    Plugin {
        /// Its type and name as libcni writes them.
        plugin: String,
        /// What was requested of it.
        verb: &'static str,
        source: PluginError,
    },
}

/// Where plugins are looked for, and for how long they may run.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Directories of plugins; the first that has one counts.
    pub(crate) bin_dirs: Vec<PathBuf>,
    /// Deadline of ADD, CHECK and DEL.
    pub(crate) change: Duration,
    /// Deadline of STATUS.
    pub(crate) ask: Duration,
}

/// A pod in a network, as plugins receive it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Attachment {
    /// The ID of the sandbox, `CNI_CONTAINERID`: here the UID of the pod.
    pub(crate) id: String,
    /// `CNI_NETNS`; `None` if the namespace is gone.
    pub(crate) namespace: Option<PathBuf>,
    /// `CNI_ARGS`, in order.
    pub(crate) args: Vec<(String, String)>,
    /// By capability; a plugin gets those that it declares.
    pub(crate) capabilities: Map<String, Value>,
    /// What ADD answered.
    pub(crate) result: Option<Value>,
}

impl Client {
    /// A client with the usual deadlines.
    pub(crate) fn new(bin_dirs: Vec<PathBuf>) -> Self {
        Self {
            bin_dirs,
            change: CHANGE,
            ask: ASK,
        }
    }

    /// Adds a pod to a network; returns the result of the last plugin.
    ///
    /// # Errors
    /// That of the first plugin that failed. What the plugins before it did is undone by [`Client::delete`] only.
    pub(crate) async fn add(&self, network: &Network, pod: &Attachment) -> Result<Value, Error> {
        let mut before: Option<Value> = None;
        for own in &network.plugins {
            let input = input(network, own, before.as_ref(), Some(&pod.capabilities));
            let call = self.call(own, "ADD", Some(pod), &input).await;
            let text = call.map_err(|error| failed(own, "add", error))?;
            let result = config::result(&text, &network.version);
            before = Some(result.map_err(|error| failed(own, "add", error))?);
        }
        Ok(before.unwrap_or_default())
    }

    /// Asks whether a pod is as ADD left it; nothing is asked where the version has no CHECK, or the configuration does not
    /// want it.
    ///
    /// # Errors
    /// That of the first plugin that finds a difference.
    pub(crate) async fn check(&self, network: &Network, pod: &Attachment) -> Result<(), Error> {
        if network.disable_check || !network.is_at_least(0, 4) || pod.result.is_none() {
            return Ok(());
        }
        for own in &network.plugins {
            let input = input(network, own, pod.result.as_ref(), Some(&pod.capabilities));
            let call = self.call(own, "CHECK", Some(pod), &input).await;
            call.map_err(|error| failed(own, "check", error))?;
        }
        Ok(())
    }

    /// Removes a pod from a network, even if ADD failed half-way.
    ///
    /// # Errors
    /// That of the first plugin that failed; the whole can be tried again.
    pub(crate) async fn delete(&self, network: &Network, pod: &Attachment) -> Result<(), Error> {
        let before = pod.result.as_ref().filter(|_| network.is_at_least(0, 4));
        for own in network.plugins.iter().rev() {
            let input = input(network, own, before, Some(&pod.capabilities));
            let call = self.call(own, "DEL", Some(pod), &input).await;
            call.map_err(|error| failed(own, "delete", error))?;
        }
        Ok(())
    }

    /// Whether pods can be added to a network now: all of its plugins are there, and, where the version has STATUS, say so.
    ///
    /// # Errors
    /// Why not.
    pub(crate) async fn status(&self, network: &Network) -> Result<(), Error> {
        for own in &network.plugins {
            let found = plugin::find(config::kind(own), &self.bin_dirs);
            found.map_err(|error| failed(own, "status", error))?;
        }
        if !network.is_at_least(1, 1) {
            return Ok(());
        }
        for own in &network.plugins {
            let input = input(network, own, None, None);
            let call = self.call(own, "STATUS", None, &input).await;
            call.map_err(|error| failed(own, "status", error))?;
        }
        Ok(())
    }

    /// Runs a plugin once.
    async fn call(
        &self,
        own: &Map<String, Value>,
        command: &'static str,
        pod: Option<&Attachment>,
        input: &Map<String, Value>,
    ) -> Result<Vec<u8>, PluginError> {
        let program = plugin::find(config::kind(own), &self.bin_dirs)?;
        let limit = match command {
            "STATUS" => self.ask,
            _ => self.change,
        };
        let variables = plugin::variables(command, pod, &self.bin_dirs)?;
        let input = serde_json::to_vec(input).map_err(PluginError::Input)?;
        plugin::run(&program, variables, input, limit).await
    }
}

/// What a plugin gets on standard input.
fn input(
    network: &Network,
    own: &Map<String, Value>,
    before: Option<&Value>,
    capabilities: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let mut input = own.clone();
    input.insert("name".into(), json!(network.name));
    input.insert("cniVersion".into(), json!(network.version));
    if let Some(before) = before {
        input.insert("prevResult".into(), before.clone());
    }
    let given = capabilities.into_iter().flatten();
    let given: Map<String, Value> = given
        .filter(|(name, _)| config::declares(own, name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !given.is_empty() {
        input.insert("runtimeConfig".into(), given.into());
    }
    input
}

fn failed(own: &Map<String, Value>, verb: &'static str, source: PluginError) -> Error {
    let mut plugin = format!("type={:?}", config::kind(own));
    if let Some(name) = own.get("name").and_then(Value::as_str) {
        plugin += &format!(" name={name:?}");
    }
    Error::Plugin {
        plugin,
        verb,
        source,
    }
}
