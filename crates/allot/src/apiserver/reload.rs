//! Following configuration files that the API server reloads.

use std::path::{Path, PathBuf};

use allot_apiserver::{ReloadError, ReloadableConfig, Server};
use allot_certificates::FollowedFile;

/// A configuration file, with its initial content.
pub(super) struct ReloadedFile {
    flag: &'static str,
    file: PathBuf,
    content: Vec<u8>,
    config: ReloadableConfig,
}

impl ReloadedFile {
    /// The file that a flag names. `content` is its content when the server started.
    pub(super) fn new(
        flag: &'static str,
        file: &Path,
        content: Vec<u8>,
        config: ReloadableConfig,
    ) -> Self {
        ReloadedFile {
            flag,
            file: file.to_owned(),
            content,
            config,
        }
    }

    /// Lets the server follow the file, until dropped. Content that cannot be used changes nothing.
    pub(super) async fn follow(self, server: Server) {
        let (flag, config) = (self.flag, &self.config);
        server.loaded(config, &self.content);
        let mut followed = FollowedFile::new(&self.file, self.content);
        loop {
            let content = match followed.changed().await {
                Ok(content) => content,
                Err(error) => {
                    let file = self.file.display();
                    tracing::error!("--{flag}: cannot read {file}: {error}");
                    server.unreadable(config);
                    continue;
                }
            };
            let outcome = server.reload(config, &content).await;
            match &outcome {
                Ok(()) => tracing::info!("--{flag}: the changed file is in use"),
                Err(error) => {
                    tracing::error!("--{flag}: the previous configuration stays in use: {error}");
                }
            }
            // As upstream, what is not valid is not read again until it changes, and an issuer is asked again.
            if !matches!(outcome, Err(ReloadError::Unhealthy(_))) {
                followed.accept(content);
            }
        }
    }
}

#[cfg(test)]
mod tests;
