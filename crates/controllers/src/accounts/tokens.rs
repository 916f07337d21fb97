//! Secrets of type `kubernetes.io/service-account-token`: they get a token of the account that they name, and are
//! deleted with it.
//!
//! The tokens are bound to their secret, become invalid with it, and have the longest lifetime that can be requested.

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::Error;
use crate::controller::api::{self, Delete, Part};
use crate::controller::context::Context;
use crate::controller::context::Task;
use crate::controller::informer::{Informer, Key, key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};

const OF_TYPE: &str = "type=kubernetes.io/service-account-token";
/// Annotation of a secret: the account whose token it is to hold.
const NAME: &str = "kubernetes.io/service-account.name";
/// Annotation of a secret: the UID of that account.
const UID: &str = "kubernetes.io/service-account.uid";
/// Index of secrets by account.
const BY_ACCOUNT: &str = "account";
/// The longest lifetime that can be requested.
const SECONDS: i64 = 1 << 32;

struct Tokens {
    client: Client,
    accounts: Informer<ServiceAccount>,
    secrets: Informer<Secret>,
    certificate: Option<String>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let this = Arc::new(Tokens {
        client: context.client.clone(),
        accounts: context.informer::<ServiceAccount>(),
        secrets: context.informer_of_some::<Secret>(OF_TYPE),
        certificate: context.config.root_ca.clone(),
    });
    this.secrets.index(BY_ACCOUNT, |secret| {
        let account = meta::annotation(secret, NAME);
        let account = account.map(|name| key(Some(meta::namespace(secret)), name));
        account.into_iter().collect()
    });
    let queue: Queue<Key> = context.queue("serviceaccount_tokens_secret");
    let adds = queue.clone();
    this.secrets.on(move |change| {
        if !change.is_delete() {
            adds.add(key_of(&**change.object()));
        }
    });
    let (secrets, adds) = (this.secrets.clone(), queue.clone());
    this.accounts.on(move |change| {
        for secret in secrets.by_index(BY_ACCOUNT, &key_of(&**change.object())) {
            adds.add(key_of(&*secret));
        }
    });
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

impl Tokens {
    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(secret) = self.secrets.get(key).filter(|s| !meta::deleting(&**s)) else {
            return Ok(Next::Done);
        };
        let Some(name) = meta::annotation(&*secret, NAME).filter(|name| !name.is_empty()) else {
            return Ok(Next::Done);
        };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), meta::namespace(&*secret));
        match self.account(&secret, name).await? {
            Some(account) => self.fill(&api, &secret, &account).await?,
            None => {
                let (name, uid) = (meta::name(&*secret), meta::uid(&*secret));
                api::delete(&api, name, uid, Delete::default()).await?;
            }
        }
        Ok(Next::Done)
    }

    /// The account that a secret is for, if it is still the same one.
    async fn account(
        &self,
        secret: &Secret,
        name: &str,
    ) -> Result<Option<Arc<ServiceAccount>>, Error> {
        let namespace = meta::namespace(secret);
        let uid = meta::annotation(secret, UID).unwrap_or_default();
        let is_same = |account: &ServiceAccount| uid.is_empty() || meta::uid(account) == uid;
        if let Some(cached) = self.accounts.find(namespace, name)
            && is_same(&cached)
        {
            return Ok(Some(cached));
        }
        // If it was created together with the secret, the account may not be in the cache yet.
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let live = api::get(&api, name).await?;
        Ok(live.filter(is_same).map(Arc::new))
    }

    async fn fill(
        &self,
        api: &Api<Secret>,
        secret: &Secret,
        account: &ServiceAccount,
    ) -> Result<(), Error> {
        let held = |name: &str| secret.data.as_ref().and_then(|d| d.get(name));
        let mut data = json!({});
        let mut want = |name: &str, value: &str| {
            let value = ByteString(value.as_bytes().to_vec());
            if held(name) != Some(&value) {
                data[name] = json!(value);
            }
        };
        want("namespace", meta::namespace(secret));
        if let Some(certificate) = &self.certificate {
            want("ca.crt", certificate);
        }
        if held("token").is_none_or(|token| token.0.is_empty()) {
            want("token", &self.token(secret, account).await?);
        }
        let is_named = meta::annotation(secret, UID) == Some(meta::uid(account));
        if is_named && data.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(());
        }
        let mut body = json!({"metadata": api::unchanged(secret), "data": data});
        body["metadata"]["annotations"] = json!({UID: meta::uid(account)});
        match api::patch(api, meta::name(secret), Part::Main, &body).await {
            Ok(filled) => self.secrets.assume(filled),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn token(&self, secret: &Secret, account: &ServiceAccount) -> Result<String, Error> {
        let (namespace, name) = (meta::namespace(secret), meta::name(account));
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [],
                "expirationSeconds": SECONDS,
                "boundObjectRef": {
                    "apiVersion": "v1", "kind": "Secret", "name": meta::name(secret), "uid": meta::uid(secret),
                },
            },
        });
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes());
        let request = request.map_err(|error| Error::Invalid(error.to_string()))?;
        let answer: Value = self.client.request(request).await.map_err(Error::from)?;
        let token = answer["status"]["token"].as_str();
        let missing = || Error::Invalid("the API server issued no token".to_owned());
        token.map(str::to_owned).ok_or_else(missing)
    }
}
