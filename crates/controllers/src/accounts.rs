//! What each namespace has from the start: the service account `default` and the ConfigMap with
//! the certificate of the API server.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::Api;
use serde_json::{Value, json};

use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};

pub(crate) mod tokens;

const ACCOUNT: &str = "default";
const CONFIG_MAP: &str = "kube-root-ca.crt";

/// Sets the controller of service accounts up.
pub(crate) fn service_accounts(context: &Context) -> Task {
    let namespaces = context.informer::<Namespace>();
    let accounts = context.informer::<ServiceAccount>();
    let queue: Queue<Key> = context.queue("serviceaccount");
    on_new_namespace(&namespaces, &queue);
    let lost = queue.clone();
    accounts.on(move |change| {
        if change.is_delete() && meta::name(&**change.object()) == ACCOUNT {
            lost.add(meta::namespace(&**change.object()).to_owned());
        }
    });
    let state = Arc::new((context.client.clone(), namespaces, accounts));
    context.run_workers(queue, state, |state, key| async move {
        let (client, namespaces, accounts) = &*state;
        if !is_live(namespaces, &key) || accounts.find(&key, ACCOUNT).is_some() {
            return Ok(Next::Done);
        }
        let api: Api<ServiceAccount> = Api::namespaced(client.clone(), &key);
        let body = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": key},
        });
        ignore_existing(api::create(client, &api, &body).await)
    })
}

/// Sets up the publisher of the CA certificate; does nothing without one.
pub(crate) fn root_ca(context: &Context) -> Option<Task> {
    let certificate: Arc<str> = context.config.root_ca.as_deref()?.into();
    let namespaces = context.informer::<Namespace>();
    let maps = context.informer::<ConfigMap>();
    let queue: Queue<Key> = context.queue("root_ca_cert_publisher");
    on_new_namespace(&namespaces, &queue);
    let changed = queue.clone();
    maps.on(move |change| {
        if meta::name(&**change.object()) == CONFIG_MAP {
            changed.add(meta::namespace(&**change.object()).to_owned());
        }
    });
    let state = Arc::new((context.client.clone(), namespaces, maps, certificate));
    Some(context.run_workers(queue, state, |state, key| async move {
        let (client, namespaces, maps, certificate) = &*state;
        if !is_live(namespaces, &key) {
            return Ok(Next::Done);
        }
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &key);
        let data = json!({"ca.crt": &**certificate});
        match maps.find(&key, CONFIG_MAP) {
            Some(map) if json!(map.data) == data => Ok(Next::Done),
            Some(map) => {
                let mut body = json!({"data": data});
                // Other keys are removed.
                for other in map.data.iter().flatten().map(|(k, _)| k).filter(|k| *k != "ca.crt") {
                    body["data"][other.as_str()] = Value::Null;
                }
                api::patch(&api, CONFIG_MAP, Part::Main, &body).await?;
                Ok(Next::Done)
            }
            None => {
                let body = json!({
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {
                        "name": CONFIG_MAP,
                        "namespace": key,
                        "annotations": {
                            "kubernetes.io/description": "The certificate with which pods verify the API server.",
                        },
                    },
                    "data": data,
                });
                ignore_existing(api::create(client, &api, &body).await)
            }
        }
    }))
}

fn on_new_namespace(namespaces: &Informer<Namespace>, queue: &Queue<Key>) {
    let queue = queue.clone();
    namespaces.on(move |change| {
        if !change.is_delete() && !meta::deleting(&**change.object()) {
            queue.add(key_of(&**change.object()));
        }
    });
}

fn is_live(namespaces: &Informer<Namespace>, name: &str) -> bool {
    namespaces.get(name).is_some_and(|n| !meta::deleting(&*n))
}

fn ignore_existing<K>(result: Result<K, Error>) -> Result<Next, Error> {
    match result {
        Ok(_) => Ok(Next::Done),
        Err(error)
            if error.is_already_exists()
                || error.is_namespace_terminating()
                || error.is_not_found() =>
        {
            Ok(Next::Done)
        }
        Err(error) => Err(error),
    }
}
