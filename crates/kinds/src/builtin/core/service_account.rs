//! Service accounts.

use serde_json::Value;

use crate::registry::{BASE, Builtin, CREATE, Rules};
use crate::table::age;
use crate::table::format::name;

pub(super) static SERVICE_ACCOUNT: Builtin = Builtin {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    short: &["sa"],
    subresources: &[(
        "token",
        "TokenRequest",
        "authentication.k8s.io",
        "v1",
        CREATE,
    )],
    rules: Rules {
        prepare_create: Some(keep_names_of_secrets),
        prepare_update: Some(|account, _, _| keep_names_of_secrets(account)),
        warnings: enforced,
        warnings_update: Some(|account, old| match enforced(old).is_empty() {
            true => enforced(account),
            false => Vec::new(),
        }),
        delete_returns_object: |_| true,
        table: Some(("Name|Age", row)),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// The warning about the annotation that limits which secrets the pods of an account can mount.
fn enforced(account: &Value) -> Vec<String> {
    const KEY: &str = "kubernetes.io/enforce-mountable-secrets";
    let found = account["metadata"]["annotations"].get(KEY);
    let warning = found.map(|_| {
        format!(
            "metadata.annotations[{KEY}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        )
    });
    warning.into_iter().collect()
}

/// Of the secrets of a service account only the names count.
fn keep_names_of_secrets(account: &mut Value) {
    let secrets = account.get_mut("secrets").and_then(Value::as_array_mut);
    for secret in secrets.into_iter().flatten() {
        if let Value::Object(reference) = secret {
            reference.retain(|key, value| key == "name" && value != "");
        }
    }
}

fn row(object: &Value) -> Vec<Value> {
    vec![name(object), age(object)]
}
