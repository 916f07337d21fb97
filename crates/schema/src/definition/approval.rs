//! Groups of the Kubernetes project need an annotation with the approval of the API.

use allot_apimachinery::field::{Error, Path};
use allot_apimachinery::quote::quote;
use serde_json::Value;

const ANNOTATION: &str = "api-approved.kubernetes.io";
const MORE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

#[derive(PartialEq, Eq)]
enum Approval {
    Given,
    Missing,
    Invalid,
}

fn approval(definition: &Value) -> Approval {
    let text = super::text(&definition["metadata"]["annotations"], ANNOTATION);
    let is_url = text.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/')
    });
    if text.is_empty() {
        Approval::Missing
    } else if text.starts_with("unapproved") || is_url {
        Approval::Given
    } else {
        Approval::Invalid
    }
}

/// The error of a definition in such a group; one that was stored as it is may stay so.
pub(super) fn error(definition: &Value, old: Option<&Value>) -> Option<Error> {
    let group = super::text(&definition["spec"], "group");
    let protected = ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    let found = approval(definition);
    if !protected || old.is_some_and(|old| approval(old) == found) {
        return None;
    }
    let path = Path::new("metadata").child("annotations").key(ANNOTATION);
    let name = quote(ANNOTATION);
    match found {
        Approval::Given => None,
        Approval::Missing => {
            let detail = format!("protected groups must have approval annotation {name}, {MORE}");
            Some(Error::required(&path, detail))
        }
        Approval::Invalid => {
            let detail = format!(
                "protected groups must have approval annotation {name} with either a URL or a reason starting with \"unapproved\", {MORE}"
            );
            let shown = &definition["metadata"]["annotations"][ANNOTATION];
            Some(Error::invalid(&path, shown, detail))
        }
    }
}
