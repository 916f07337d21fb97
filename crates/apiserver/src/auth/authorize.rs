//! What an identity may do.

use crate::config::Config;
use crate::error::Result;
use crate::server::{Core, Incoming};

/// Decides.
pub struct Authorizer {}

impl Authorizer {
    /// With the options of the server.
    pub fn new(_config: &Config) -> Self {
        Authorizer {}
    }

    /// Decides about a request.
    ///
    /// # Errors
    /// 403.
    pub async fn check_request(&self, _core: &Core, _request: &Incoming) -> Result<()> {
        Ok(())
    }
}
