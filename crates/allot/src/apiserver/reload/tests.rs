use allot_apiserver::config::AuthorizationMode;
use allot_apiserver::identity::User;
use allot_testing::wait::until;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};

use super::*;

/// A file of authorizers, which is replaced as a whole.
struct Authorizers {
    directory: tempfile::TempDir,
    file: PathBuf,
}

impl Authorizers {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("authorizers.yaml");
        let authorizers = Authorizers { directory, file };
        authorizers.write("");
        authorizers
    }

    fn write(&self, more: &str) {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
             - {{type: RBAC, name: rbac}}\n{more}\n"
        );
        let new = self.directory.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    /// Lets a server follow the file until the handle is dropped.
    fn followed_by(&self, server: &Server) -> tokio_util::task::AbortOnDropHandle<()> {
        let initial = ReloadableConfig::Authorization {
            authorizers: vec![AuthorizationMode::Rbac],
        };
        let content = std::fs::read(&self.file).unwrap();
        let followed = ReloadedFile::new("authorization-config", &self.file, content, initial);
        tokio_util::task::AbortOnDropHandle::new(tokio::spawn(followed.follow(server.clone())))
    }
}

/// The code and the body of an answer to a user.
async fn get(server: &Server, user: User, path: &str) -> (u16, String) {
    let request = http::Request::get(path).body(Full::new(Bytes::new()));
    let response = server.handle(request.unwrap(), Some(user)).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}

/// Waits until a user without a role gets this code.
async fn answers(server: &Server, code: u16) {
    until("the new authorizers are in use", || async {
        match get(server, User::new("ann", ["team"]), "/api/v1/pods").await {
            (found, _) if found == code => Ok(()),
            (_, body) => Err(body),
        }
    })
    .await;
}

#[tokio::test]
async fn a_file_of_authorizers_is_followed() {
    let file = Authorizers::new();
    let server = Server::in_memory().await.unwrap();
    let _follow = file.followed_by(&server);
    answers(&server, 403).await;
    file.write("- {type: AlwaysAllow, name: alwaysallow}");
    answers(&server, 200).await;
    // A file that is not complete changes nothing, also not that it is followed.
    std::fs::write(&file.file, "apiVersion: apiserver").unwrap();
    answers(&server, 200).await;
    file.write("");
    answers(&server, 403).await;
}

/// An alert on failed reloads has to see a file that is gone.
#[tokio::test]
async fn regression_a_file_that_cannot_be_read_is_a_failed_reload() {
    let file = Authorizers::new();
    let server = Server::in_memory().await.unwrap();
    let _follow = file.followed_by(&server);
    std::fs::remove_file(&file.file).unwrap();
    let count = "apiserver_authorization_config_controller_automatic_reloads_total{";
    until("the failure is counted", || async {
        let (_, metrics) = get(&server, User::admin(), "/metrics").await;
        let mut counts = metrics.lines().filter(|line| line.starts_with(count));
        match counts.any(|line| line.contains(r#"status="failure""#)) {
            true => Ok(()),
            false => Err("there is none"),
        }
    })
    .await;
    file.write("- {type: AlwaysAllow, name: alwaysallow}");
    answers(&server, 200).await;
}
