//! Following the file of `--authentication-config`.

use std::path::{Path, PathBuf};

use allot_apiserver::config::Anonymous;
use allot_apiserver::{NotTaken, Server};
use allot_certificates::FollowedFile;

/// The file, and what it has said at the start.
pub struct Followed {
    file: PathBuf,
    content: Vec<u8>,
    /// About anonymous requests, which stays.
    anonymous: Option<Anonymous>,
}

impl Followed {
    pub(super) fn new(file: &Path, content: Vec<u8>, anonymous: Option<Anonymous>) -> Self {
        Followed {
            file: file.to_owned(),
            content,
            anonymous,
        }
    }

    /// Lets the server follow the file, until dropped. Content that cannot be used changes nothing.
    pub async fn follow(self, server: Server) {
        server.authenticates_with(&self.content);
        let mut followed = FollowedFile::new(&self.file, self.content);
        loop {
            let content = match followed.changed().await {
                Ok(content) => content,
                Err(error) => {
                    let file = self.file.display();
                    tracing::warn!("--authentication-config: cannot read {file}: {error}");
                    continue;
                }
            };
            let outcome = server
                .authenticate_again(&content, self.anonymous.as_ref())
                .await;
            match &outcome {
                Ok(()) => tracing::info!("--authentication-config has changed, and counts"),
                Err(error) => {
                    tracing::error!(
                        "--authentication-config: the issuers stay as they were: {error}"
                    );
                }
            }
            // As upstream, what is wrong is not looked at again until it changes, and an issuer is asked again.
            if !matches!(outcome, Err(NotTaken::Unanswered(_))) {
                followed.accept(content);
            }
        }
    }
}
