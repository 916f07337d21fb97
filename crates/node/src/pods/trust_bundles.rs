//! The certificates of authorities for the volumes of pods, as a kubelet puts them together from ClusterTrustBundles.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use allot_apimachinery::labels::{
    LabelSelector, LabelSelectorRequirement, Labels, ParseError, Selector,
};
use allot_apimachinery::pem;
use allot_reflector::Collection;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::{Api, Client};

use super::watched::{Objects, Watched};

/// How long a pod waits for the first list of bundles before it is tried again.
const FIRST_LIST: Duration = Duration::from_secs(5);
/// The longest selector, as text.
const LONGEST_SELECTOR: usize = 100 * 1024;

/// Why a volume gets no certificates; the texts are the kubelet's.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoBundle {
    /// The API server has not listed them yet, or has no such kind.
    #[error("ClusterTrustBundle informer has not yet synced")]
    NotListed,
    /// The named one does not exist.
    #[error(
        "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"{0}\" not found"
    )]
    NotFound(String),
    /// No bundle of the signer is selected.
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles")]
    NoneSelected,
    /// The selector cannot be used.
    #[error("while parsing label selector: {0}")]
    Selector(#[from] ParseError),
    /// The selector is too long.
    #[error("label selector length ({0}) is larger than {LONGEST_SELECTOR}")]
    LongSelector(usize),
    /// The source says neither name nor signer.
    #[error("ClusterTrustBundle projection requires either name or signerName to be set")]
    Nothing,
}

/// The trust bundles of the cluster, watched from the first pod on that wants some.
pub(crate) struct TrustBundles {
    watched: Watched<ClusterTrustBundle>,
    /// Orders the certificates in files: always alike, and other than the last agent did.
    order: RandomState,
}

impl TrustBundles {
    pub(crate) fn new(client: Client) -> Self {
        let all = Collection::new(Api::<ClusterTrustBundle>::all(client), None);
        Self {
            watched: Watched::new(all),
            order: RandomState::new(),
        }
    }

    /// The certificates of a source of a volume, each once, in PEM without anything between them.
    pub(super) async fn anchors(
        &self,
        wanted: &ClusterTrustBundleProjection,
    ) -> Result<String, NoBundle> {
        let known = self.watched.listed(FIRST_LIST).await;
        let known = known.ok_or(NoBundle::NotListed)?;
        let chosen = choose(&known, wanted)?;
        Ok(normalise(&chosen, &self.order))
    }
}

/// The bundles that a source means.
fn choose<'a>(
    known: &'a Objects<ClusterTrustBundle>,
    wanted: &ClusterTrustBundleProjection,
) -> Result<Vec<&'a ClusterTrustBundle>, NoBundle> {
    let optional = wanted.optional.unwrap_or(false);
    if let Some(name) = &wanted.name {
        return match known.get(&(String::new(), name.clone())) {
            Some(bundle) => Ok(vec![bundle]),
            None if optional => Ok(Vec::new()),
            None => Err(NoBundle::NotFound(name.clone())),
        };
    }
    let signer = wanted.signer_name.as_deref().ok_or(NoBundle::Nothing)?;
    let selector = selector(wanted.label_selector.as_ref())?;
    let length = selector.to_string().len();
    if length > LONGEST_SELECTOR {
        return Err(NoBundle::LongSelector(length));
    }
    let unlabelled = Labels::new();
    let chosen = known.values().map(|bundle| &**bundle).filter(|bundle| {
        let labels = bundle.metadata.labels.as_ref().unwrap_or(&unlabelled);
        bundle.spec.signer_name.as_deref() == Some(signer) && selector.matches(labels)
    });
    let chosen: Vec<_> = chosen.collect();
    match chosen.is_empty() && !optional {
        true => Err(NoBundle::NoneSelected),
        false => Ok(chosen),
    }
}

/// None selects nothing, and an empty one everything.
fn selector(selector: Option<&meta::LabelSelector>) -> Result<Selector, ParseError> {
    let Some(selector) = selector else {
        return Ok(Selector::nothing());
    };
    let expressions = selector.match_expressions.iter().flatten();
    let expressions = expressions.map(|it| LabelSelectorRequirement {
        key: it.key.clone(),
        operator: it.operator.clone(),
        values: it.values.clone().unwrap_or_default(),
    });
    let selector = LabelSelector {
        match_labels: selector.match_labels.clone().unwrap_or_default(),
        match_expressions: expressions.collect(),
    };
    selector.to_selector()
}

fn normalise(bundles: &[&ClusterTrustBundle], order: &RandomState) -> String {
    let blocks = bundles
        .iter()
        .flat_map(|it| pem::blocks(&it.spec.trust_bundle));
    let anchors: BTreeSet<Vec<u8>> = blocks.map(|block| block.data).collect();
    let mut anchors: Vec<_> = anchors.into_iter().collect();
    anchors.sort_by_key(|anchor| order.hash_one(anchor));
    let anchors = anchors.iter();
    anchors.map(|it| pem::encode("CERTIFICATE", it)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn block(data: &str) -> String {
        pem::encode("CERTIFICATE", data.as_bytes())
    }

    fn bundle(
        name: &str,
        signer: &str,
        labels: Value,
        data: &[&str],
    ) -> ((String, String), Arc<ClusterTrustBundle>) {
        let data: String = data
            .iter()
            .map(|it| format!("# {it}\n{}", block(it)))
            .collect();
        let object = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"signerName": signer, "trustBundle": data},
        });
        let object = serde_json::from_value(object).expect("a bundle");
        ((String::new(), name.to_owned()), Arc::new(object))
    }

    fn found(wanted: Value) -> Result<BTreeSet<String>, String> {
        let known = [
            bundle("plain", "", json!({}), &["1", "2"]),
            bundle("a.b:c:live", "a.b/c", json!({"at": "live"}), &["3", "4"]),
            bundle("a.b:c:next", "a.b/c", json!({"at": "next"}), &["4", "5"]),
            bundle("x.y:z:one", "x.y/z", json!({"at": "live"}), &["6"]),
        ];
        let wanted = serde_json::from_value(wanted).expect("a source");
        let known = Objects::from(known);
        let chosen = choose(&known, &wanted).map_err(|error| error.to_string())?;
        let text = normalise(&chosen, &RandomState::new());
        assert!(!text.contains('#'), "{text}");
        let blocks = pem::blocks(&text).into_iter();
        let all: Vec<String> = blocks
            .map(|it| String::from_utf8(it.data).expect("text"))
            .collect();
        let set: BTreeSet<String> = all.iter().cloned().collect();
        assert_eq!(set.len(), all.len(), "each once");
        Ok(set)
    }

    #[test]
    fn bundles_are_chosen_as_by_a_kubelet() {
        let set = |all: &[&str]| -> Result<BTreeSet<String>, String> {
            Ok(all.iter().map(|it| (*it).to_owned()).collect())
        };
        let live = json!({"matchLabels": {"at": "live"}});
        let some = json!({"matchExpressions": [{"key": "at", "operator": "In", "values": ["live", "next"]}]});
        for (wanted, expected) in [
            (json!({"name": "plain", "path": "x"}), set(&["1", "2"])),
            (
                json!({"signerName": "a.b/c", "labelSelector": {}, "path": "x"}),
                set(&["3", "4", "5"]),
            ),
            (
                json!({"signerName": "a.b/c", "labelSelector": live, "path": "x"}),
                set(&["3", "4"]),
            ),
            (
                json!({"signerName": "a.b/c", "labelSelector": some, "path": "x"}),
                set(&["3", "4", "5"]),
            ),
            // No selector selects nothing.
            (
                json!({"signerName": "a.b/c", "path": "x"}),
                Err("combination of signerName and labelSelector matched zero ClusterTrustBundles".to_owned()),
            ),
            (
                json!({"signerName": "a.b/c", "optional": true, "path": "x"}),
                set(&[]),
            ),
            (
                json!({"name": "none", "path": "x"}),
                Err("while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"none\" not found".to_owned()),
            ),
            (
                json!({"name": "none", "optional": true, "path": "x"}),
                set(&[]),
            ),
            (
                json!({"path": "x"}),
                Err("ClusterTrustBundle projection requires either name or signerName to be set".to_owned()),
            ),
        ] {
            assert_eq!(found(wanted.clone()), expected, "{wanted}");
        }
    }

    #[test]
    fn the_order_is_that_of_the_agent() {
        let numbers: Vec<String> = (0..64).map(|it| it.to_string()).collect();
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let (_, one) = bundle("one", "", json!({}), &numbers);
        let (this, next) = (RandomState::new(), RandomState::new());
        let text = normalise(&[&one], &this);
        assert_eq!(text, normalise(&[&one], &this));
        assert_ne!(text, normalise(&[&one], &next));
    }

    /// The attack: a selector as long as a pod can be.
    #[test]
    fn long_selectors_are_refused() {
        let values: Vec<String> = (0..20_000).map(|it| format!("value-{it}")).collect();
        let wanted = json!({"signerName": "a.b/c", "path": "x", "labelSelector": {
            "matchExpressions": [{"key": "at", "operator": "In", "values": values}]}});
        let error = found(wanted).expect_err("too long");
        assert!(error.ends_with("is larger than 102400"), "{error}");
    }
}
