//! How often files of configuration were read again, and what is in use, under upstream's names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sha2::{Digest as _, Sha256};

type Labels = Vec<(&'static str, String)>;

/// Counts the reloads of one kind of configuration.
#[derive(Debug, Clone, Default)]
pub struct Reloads {
    /// The hash of the server's identity, which is a label of all of them.
    server: String,
    counts: Family<Labels, Counter>,
    times: Family<Labels, Gauge<f64, AtomicU64>>,
    infos: Family<Labels, Gauge>,
    /// What is in use, by the plugin that it is for.
    used: Arc<Mutex<BTreeMap<&'static str, Labels>>>,
}

impl Reloads {
    /// Adds the numbers about a kind of configuration, whose name is part of theirs, to a registry. `server` is the identity of the
    /// server.
    pub(crate) fn register(registry: &mut Registry, kind: &str, server: &str) -> Self {
        let reloads = Reloads {
            server: hash(server.as_bytes()),
            ..Reloads::default()
        };
        let named = |what: &str| format!("apiserver_{kind}_config_controller_{what}");
        registry.register(
            named("automatic_reloads"),
            "Changes of configuration in files by whether they were taken over",
            reloads.counts.clone(),
        );
        registry.register(
            named("automatic_reload_last_timestamp_seconds"),
            "Time of the last change of configuration in files by whether it was taken over",
            reloads.times.clone(),
        );
        registry.register(
            named("last_config_info"),
            "The hash of the configuration that is in use",
            reloads.infos.clone(),
        );
        reloads
    }

    /// A change was taken over. `plugin` is empty where the configuration is not for one; `content` is what was read.
    pub(crate) fn taken(&self, plugin: &'static str, content: &[u8]) {
        self.reloaded("success", plugin);
        self.uses(plugin, content);
    }

    /// A change was refused.
    pub(crate) fn refused(&self, plugin: &'static str) {
        self.reloaded("failure", plugin);
    }

    /// This configuration is in use.
    pub(crate) fn uses(&self, plugin: &'static str, content: &[u8]) {
        let labels = self.labels(plugin, ("hash", hash(content)));
        let mut used = self.used.lock();
        let before = used.insert(plugin, labels.clone());
        if let Some(before) = before.filter(|before| *before != labels) {
            self.infos.remove(&before);
        }
        self.infos.get_or_create(&labels).set(1);
    }

    fn reloaded(&self, status: &'static str, plugin: &'static str) {
        let labels = self.labels(plugin, ("status", status.to_owned()));
        self.counts.get_or_create(&labels).inc();
        self.times.get_or_create(&labels).set(now());
    }

    /// The labels of a plugin and one more, in the order of their names.
    fn labels(&self, plugin: &'static str, other: (&'static str, String)) -> Labels {
        let plugin = Some(plugin).filter(|plugin| !plugin.is_empty());
        let plugin = plugin.map(|plugin| ("plugin", plugin.to_owned()));
        let server = ("apiserver_id_hash", self.server.clone());
        let mut labels: Labels = plugin.into_iter().chain([server, other]).collect();
        labels.sort_unstable();
        labels
    }
}

/// The time as a metric has it, in seconds since 1970.
pub(crate) fn now() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

/// The hash of a text as the value of a label, which tells texts apart without showing them; empty for an empty text.
pub(crate) fn hash(text: &[u8]) -> String {
    match text {
        [] => String::new(),
        _ => format!(
            "sha256:{}",
            data_encoding::HEXLOWER.encode(&Sha256::digest(text))
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_in_use_is_told_by_its_hash() {
        let mut registry = Registry::default();
        let reloads = Reloads::register(&mut registry, "manifest_admission", "a");
        reloads.uses("P", b"first");
        reloads.refused("P");
        reloads.taken("P", b"second");
        reloads.taken("Q", b"");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let of = |what: &str, labels: &str| {
            let line =
                format!("apiserver_manifest_admission_config_controller_{what}{{{labels}}} 1\n");
            text.contains(&line)
        };
        let server = format!("apiserver_id_hash=\"{}\"", hash(b"a"));
        for status in ["success", "failure"] {
            let labels = format!("{server},plugin=\"P\",status=\"{status}\"");
            assert!(of("automatic_reloads_total", &labels), "{text}");
        }
        let info = |content: &[u8]| {
            let labels = format!("{server},hash=\"{}\",plugin=\"P\"", hash(content));
            of("last_config_info", &labels)
        };
        assert!(info(b"second") && !info(b"first"), "{text}");
        assert_eq!(text.matches("last_config_info{").count(), 2);
        let times = text.matches("automatic_reload_last_timestamp_seconds{");
        assert_eq!(times.count(), 3);
    }
}
