//! Authentication and authorization.

mod authenticate;
mod authorize;
pub(crate) mod certificate;
pub(crate) mod cover;
pub(crate) mod credential;
mod impersonate;
mod index;
pub(crate) mod node;
pub mod policy;
mod token;

pub use authenticate::Authenticator;
pub use authorize::{Authorizer, AuthorizerAttributes, Decision};
pub(crate) use authorize::{authorizer_attributes, selected, without_markup};
pub use impersonate::Impersonation;
pub use index::{Binding, Index, Rule, Scope, Subject};
pub use token::{Bound, Life, Signer, TokenError};
