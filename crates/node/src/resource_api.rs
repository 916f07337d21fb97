//! The versions of `resource.k8s.io` that the API server serves.

use allot_client::discovery::Group;
use kube::Client;
use parking_lot::Mutex;

/// Versions in which an allocation has results by device, best first.
const NEWER: [&str; 4] = ["v1", "v1beta2", "v1beta1", "v1alpha3"];

/// What an API server has of `resource.k8s.io`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// Best of [`NEWER`].
    pub(crate) newer: Option<&'static str>,
    /// Best of the versions before 1.31.
    pub(crate) classic: Option<&'static str>,
}

/// Access to the ResourceClaims of the API server, whichever versions it serves.
pub(crate) struct ResourceApi {
    client: Client,
    served: Mutex<Option<Served>>,
}

impl ResourceApi {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            served: Mutex::default(),
        }
    }

    /// The versions that the API server serves; discovered once, unless there were none.
    pub(crate) async fn served(&self) -> Result<Served, kube::Error> {
        if let Some(served) = *self.served.lock() {
            return Ok(served);
        }
        let group = Group::discover(&self.client, allot_model::GROUP).await?;
        let served = Served {
            newer: group.first_of(&NEWER),
            classic: group.first_of(&allot_model::classic::VERSIONS),
        };
        if served != Served::default() {
            *self.served.lock() = Some(served);
        }
        Ok(served)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Discovers the versions again at the next use.
    pub(crate) fn forget_served(&self) {
        *self.served.lock() = None;
    }
}
