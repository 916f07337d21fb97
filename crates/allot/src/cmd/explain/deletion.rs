//! Objects that are deleted and still there.

use allot_model::table::human_duration;
use allot_resourceclaim::FINALIZER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cmd::some;

/// What an object that was deleted waits for, in a sentence about `it`; `None` for one that was not deleted.
pub(super) fn kept(meta: &ObjectMeta, now: jiff::Timestamp) -> Option<String> {
    let deleted = meta.deletion_timestamp.as_ref()?;
    let seconds = now.as_second() - deleted.0.as_second();
    // That of a pod is the end of its grace period.
    let since = match seconds {
        1.. => format!(" {} ago", human_duration(seconds)),
        _ => String::new(),
    };
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    // The claim controller removes that of claims when no pod uses the claim any more.
    let others: Vec<&str> = finalizers
        .iter()
        .map(|name| &**name)
        .filter(|name| *name != FINALIZER)
        .collect();
    let is_used = others.len() < finalizers.len();
    let mut text = format!("it was deleted{since}");
    if is_used {
        text += ", and stays until no pod is left that it is reserved for";
    }
    if !others.is_empty() {
        let and = if is_used { ", and" } else { ", and stays" };
        let (noun, pronoun) = if others.len() == 1 {
            ("finalizer", "it")
        } else {
            ("finalizers", "them")
        };
        text += &format!(
            "{and} until the {noun} {} is removed by whatever set {pronoun}; if nothing runs that does, kubectl patch removes {pronoun}",
            some(&others)
        );
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_deleted_object_waits_for() {
        let now: jiff::Timestamp = "2026-01-01T05:00:00Z".parse().unwrap();
        let check = |deleted: Option<&str>, finalizers: &[&str], expected: Option<&str>| {
            let meta = json!({"deletionTimestamp": deleted, "finalizers": finalizers});
            let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
            assert_eq!(kept(&meta, now).as_deref(), expected);
        };
        let early = Some("2026-01-01T00:00:00Z");
        check(None, &["a/b"], None);
        check(Some("2026-01-01T05:00:30Z"), &[], Some("it was deleted"));
        check(
            early,
            &[FINALIZER],
            Some("it was deleted 5h ago, and stays until no pod is left that it is reserved for"),
        );
        check(
            early,
            &["a/b"],
            Some(
                "it was deleted 5h ago, and stays until the finalizer a/b is removed by whatever set it; \
                 if nothing runs that does, kubectl patch removes it",
            ),
        );
        check(
            early,
            &[FINALIZER, "a/b"],
            Some(
                "it was deleted 5h ago, and stays until no pod is left that it is reserved for, and until the finalizer a/b is \
                 removed by whatever set it; if nothing runs that does, kubectl patch removes it",
            ),
        );
    }
}
