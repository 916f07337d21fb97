//! Authorizers that change while the server runs.

use super::Server;
use crate::config::AuthorizationMode;
use crate::config::authorization::file;

impl Server {
    /// The authorizers at the start are those of this file of `--authorization-config`.
    pub fn authorized_by(&self, content: &[u8]) {
        self.0.metrics.authorizer_reloads.uses("", content);
    }

    /// Replaces the authorizers by those in the changed file of `--authorization-config`; requests that are being judged are not
    /// affected. `first` are the authorizers that the server has started with.
    ///
    /// # Errors
    /// See [`file::read_again`] and [`Authorizer::check`](crate::auth::Authorizer::check); then nothing changes.
    pub fn authorize_again(
        &self,
        content: &[u8],
        first: &[AuthorizationMode],
    ) -> Result<(), String> {
        let core = &self.0;
        let modes = file::read_again(content, first);
        let outcome = modes.and_then(|modes| core.authorizer.replace(&modes));
        let reloads = &core.metrics.authorizer_reloads;
        match outcome {
            Ok(()) => reloads.taken("", content),
            Err(_) => reloads.refused(""),
        }
        outcome
    }
}
