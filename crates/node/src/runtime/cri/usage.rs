//! What containers use.

use allot_protos::cri_v1 as v1;

use super::translate::label;
use super::{Inner, follow, time};
use crate::disk::Used;
use crate::oci::measure::Figures;
use crate::runtime::{Measured, RuntimeError, Written};

impl Inner {
    /// Measures the containers of this node.
    pub(super) async fn usage(&self) -> Result<Vec<Measured>, RuntimeError> {
        let stats = self.stats(None).await?;
        Ok(stats.into_iter().filter_map(measured).collect())
    }

    /// Measures what containers of this node have written, those of one pod or all.
    pub(super) async fn written(&self, pod: Option<&str>) -> Result<Vec<Written>, RuntimeError> {
        let stats = self.stats(pod).await?;
        Ok(stats.into_iter().filter_map(written).collect())
    }

    async fn stats(&self, pod: Option<&str>) -> Result<Vec<v1::ContainerStats>, RuntimeError> {
        let mut label_selector = follow::own(self);
        label_selector.extend(pod.map(|uid| (label::POD_UID.to_owned(), uid.to_owned())));
        let filter = v1::ContainerStatsFilter {
            label_selector,
            ..v1::ContainerStatsFilter::default()
        };
        let request = v1::ListContainerStatsRequest {
            filter: Some(filter),
        };
        Ok(self.calls.list_container_stats(request).await?.stats)
    }
}

/// Reads what a container has written; `None` if the runtime does not tell.
fn written(stats: v1::ContainerStats) -> Option<Written> {
    let (attributes, layer) = (stats.attributes?, stats.writable_layer?);
    let value = |it: Option<v1::UInt64Value>| it.map_or(0, |it| it.value);
    Some(Written {
        pod_uid: attributes.labels.get(label::POD_UID)?.clone(),
        container: attributes.metadata?.name,
        used: Used {
            bytes: value(layer.used_bytes),
            inodes: value(layer.inodes_used),
        },
    })
}

/// Reads the figures of a container; `None` if there are none, as for one that does not run.
fn measured(stats: v1::ContainerStats) -> Option<Measured> {
    let attributes = stats.attributes?;
    let cpu = stats.cpu.unwrap_or_default();
    let memory = stats.memory.unwrap_or_default();
    let value = |it: Option<v1::UInt64Value>| it.map(|it| it.value);
    Some(Measured {
        at: time(cpu.timestamp.max(memory.timestamp))?,
        pod_uid: attributes.labels.get(label::POD_UID)?.clone(),
        container: attributes.metadata?.name,
        id: attributes.id,
        cgroup: String::new(),
        cpu_nanocores: value(cpu.usage_nano_cores),
        figures: Figures {
            cpu: value(cpu.usage_core_nano_seconds),
            working_set: value(memory.working_set_bytes),
            memory: value(memory.usage_bytes),
            rss: value(memory.rss_bytes),
            page_faults: value(memory.page_faults),
            major_page_faults: value(memory.major_page_faults),
            ..Figures::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> v1::ContainerStats {
        let attributes = v1::ContainerAttributes {
            id: "1".into(),
            metadata: Some(v1::ContainerMetadata {
                name: "c".into(),
                attempt: 2,
            }),
            labels: [(label::POD_UID.to_owned(), "u".to_owned())].into(),
            ..Default::default()
        };
        v1::ContainerStats {
            attributes: Some(attributes),
            ..Default::default()
        }
    }

    #[test]
    fn the_writable_layer_is_what_was_written() {
        let mut stats = stats();
        assert_eq!(written(stats.clone()), None);
        stats.writable_layer = Some(v1::FilesystemUsage {
            used_bytes: Some(v1::UInt64Value { value: 4096 }),
            ..Default::default()
        });
        let expected = Written {
            pod_uid: "u".into(),
            container: "c".into(),
            used: Used {
                bytes: 4096,
                inodes: 0,
            },
        };
        assert_eq!(written(stats), Some(expected));
    }

    #[test]
    fn only_what_was_measured_is_told() {
        let mut stats = stats();
        assert_eq!(measured(stats.clone()), None);
        let value = |value| Some(v1::UInt64Value { value });
        stats.memory = Some(v1::MemoryUsage {
            timestamp: 7,
            working_set_bytes: value(5),
            ..Default::default()
        });
        let found = measured(stats).expect("figures");
        assert_eq!((found.id.as_str(), found.pod_uid.as_str()), ("1", "u"));
        let figures = &found.figures;
        assert_eq!((figures.working_set, figures.cpu), (Some(5), None));
    }
}
