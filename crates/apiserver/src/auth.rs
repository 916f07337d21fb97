//! Authentication and authorization.

mod authenticate;
mod authorize;

pub use authenticate::Authenticator;
pub use authorize::Authorizer;
