//! Authentication and authorization.

mod authenticate;
mod authorize;
pub(crate) mod certificate;
mod cover;
pub(crate) mod credential;
mod escalation;
mod impersonate;
mod index;
pub(crate) mod node;
pub mod policy;
mod token;

pub use authenticate::Authenticator;
pub(crate) use authorize::question;
pub use authorize::{Ask, Authorizer, Decision};
pub use escalation::check as check_escalation;
pub use impersonate::Impersonation;
pub use index::{Binding, Index, Rule, Scope, Subject};
pub use token::{Bound, Signer, TokenError};
