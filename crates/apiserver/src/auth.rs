//! Authentication and authorization.

mod abac;
pub(crate) mod answer_cache;
mod authenticate;
mod authorize;
mod bootstrap_token;
pub(crate) mod certificate;
pub(crate) mod cover;
pub(crate) mod credential;
mod decision;
mod impersonate;
mod index;
pub(crate) mod metrics;
pub(crate) mod node;
pub(crate) mod oidc;
pub mod policy;
pub(crate) mod rules;
mod secret_token;
mod token;
pub(crate) mod token_use;
mod token_webhook;
mod webhook;

pub use authenticate::{Authenticator, Refused};
pub use authorize::{Authorizer, AuthorizerAttributes};
pub(crate) use authorize::{Selectors, authorizer_attributes, selected, undecided, without_markup};
pub use decision::{Decision, Verdict};
pub use impersonate::Impersonation;
pub use index::{Binding, Index, Rule, Scope, Subject};
pub use token::{Bound, LONGEST_SECONDS, Life, Signer, TokenError};
