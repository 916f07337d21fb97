//! Which devices belong to which DeviceClass.

use allot_cel::device::Options;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use crate::Dashboard;
use crate::filter::{Rule, select, selector};
use crate::kind::Kind;
use crate::list::{ListRequest, PAGE, page};
use crate::upstream::Failed;

/// Limit of classes; further ones are counted.
const MOST: usize = 128;

/// Answers `api/classes`.
///
/// # Errors
/// Classes or devices cannot be listed, or it takes too long.
pub async fn answer(
    dashboard: &Dashboard,
    client: &kube::Client,
    permit: OwnedSemaphorePermit,
) -> Result<Value, Failed> {
    let wanted = ListRequest {
        kind: Kind::Classes,
        namespace: None,
        next: None,
        limit: PAGE,
    };
    let classes = page(dashboard, client, wanted).await?;
    // Stored objects may use features that are disabled now.
    let options = Options {
        stored: true,
        ..Options::default()
    };
    let left_out = classes.items.len().saturating_sub(MOST);
    let (mut found, mut rules) = (Vec::new(), Vec::new());
    for class in classes.items.iter().take(MOST) {
        let name = class["metadata"]["name"].as_str().unwrap_or_default();
        let selectors = class["spec"]["selectors"].as_array().into_iter().flatten();
        let expressions = selectors.map(|s| s["cel"]["expression"].as_str().unwrap_or_default());
        let selectors: Result<Vec<_>, _> = expressions.map(|e| selector(e, &options)).collect();
        match selectors {
            Ok(selectors) => {
                found.push(json!({"name": name}));
                rules.push(Rule { selectors });
            }
            // It selects nothing.
            Err(error) => found.push(json!({"name": name, "error": error})),
        }
    }
    let selected = select(dashboard, client, rules, permit).await?;
    let mut selected = selected.iter();
    for class in &mut found {
        if class["error"].is_null()
            && let Some(selected) = selected.next()
        {
            class["selected"] = selected.json();
        }
    }
    Ok(json!({"classes": found, "leftOut": left_out}))
}
