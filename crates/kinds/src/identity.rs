//! The requesting user.

use std::collections::BTreeMap;

/// Group of unrestricted administrators.
pub const MASTERS: &str = "system:masters";
/// Group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of all unauthenticated users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Name of all unauthenticated users.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group of node agents.
pub const NODES: &str = "system:nodes";
/// Prefix of a node agent's user name.
pub const NODE_PREFIX: &str = "system:node:";
/// Prefix of a service account's user name.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// Group of all service accounts; with `:NAMESPACE` those of a namespace.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// `extra` key of the node that a service-account token is bound to.
pub const EXTRA_NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The identity of a client: what authentication and impersonation establish (`user.Info`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The user name, as in `system:node:NAME`.
    pub name: String,
    /// Unique over time, may be empty.
    pub uid: String,
    /// The groups that role bindings can name.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user with groups; `system:authenticated` is added.
    pub fn new(
        name: impl Into<String>,
        groups: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let mut user = User {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            ..User::default()
        };
        user.add_group(AUTHENTICATED);
        user
    }

    /// An unrestricted administrator.
    pub fn admin() -> Self {
        User::new("kubernetes-admin", [MASTERS])
    }

    /// A user without credentials.
    pub fn anonymous() -> Self {
        User {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..User::default()
        }
    }

    /// Adds a group once.
    pub fn add_group(&mut self, group: &str) {
        if !self.in_group(group) {
            self.groups.push(group.to_owned());
        }
    }

    /// Is a member.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }

    /// The node of a kubelet; empty if the user is in the group of nodes but has no node name, which grants no
    /// permission.
    pub fn node_identity(&self) -> Option<&str> {
        self.name
            .strip_prefix(NODE_PREFIX)
            .filter(|_| self.in_group(NODES))
    }

    /// Namespace and name of the service account that this is.
    pub fn service_account(&self) -> Option<(&str, &str)> {
        self.name
            .strip_prefix(SERVICE_ACCOUNT_PREFIX)?
            .split_once(':')
    }
}
