//! How the server proves itself to webhooks: the users of a kubeconfig file, by the name of the server that is called.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::Value;

use super::kubeconfig::file::{File, NamedUser, User};
use crate::pki::Identity;

/// The users of a kubeconfig file; by default there is none, and webhooks are called without credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    users: BTreeMap<String, Arc<WebhookUser>>,
    /// The user of the current context.
    current: Option<String>,
}

/// A user as whom webhooks are called. Files are read when they are needed: they may be replaced.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WebhookUser {
    token: String,
    token_file: PathBuf,
    client_certificate: PathBuf,
    client_certificate_data: String,
    client_key: PathBuf,
    client_key_data: String,
    username: String,
    password: String,
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
    exec: Option<Value>,
    auth_provider: Option<Value>,
}

impl std::fmt::Debug for WebhookUser {
    /// Without its secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookUser").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads a kubeconfig file.
    ///
    /// # Errors
    /// It cannot be read, or is no kubeconfig file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("stat {shown}: no such file or directory"),
            _ => format!("error loading config file \"{shown}\": {error}"),
        })?;
        let wrong =
            |why: &dyn std::fmt::Display| format!("error loading config file \"{shown}\": {why}");
        let file = File::parse(&text).map_err(|error| wrong(&error))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let mut users = BTreeMap::new();
        for NamedUser { name, user } in file.users.unwrap_or_default() {
            let user = WebhookUser::of(user.unwrap_or_default(), directory);
            if users.insert(name.clone(), Arc::new(user)).is_some() {
                return Err(wrong(&format!(
                    "duplicate name \"{name}\" in list of users"
                )));
            }
        }
        let current = file.current_context.unwrap_or_default();
        let mut contexts = file.contexts.into_iter().flatten();
        let current = contexts.find(|context| context.name == current);
        let current = current.and_then(|context| context.context);
        Ok(Credentials {
            users,
            current: current.map(|context| context.user.unwrap_or_default()),
        })
    }

    /// The user for a server, which is `host:port`: that of this name, else that of a domain with a `*` in the place of its
    /// first parts. Where the port is 443 both may lack it. Else the user `*`, and that of the current context.
    pub(crate) fn user(&self, target: &str) -> Option<Arc<WebhookUser>> {
        let by_name = |name: &str| {
            let domains = name
                .match_indices('.')
                .map(|(dot, _)| format!("*{}", &name[dot..]));
            let mut names = std::iter::once(name.to_owned()).chain(domains);
            names.find_map(|name| self.users.get(&name))
        };
        let without_port = target.strip_suffix(":443");
        // An IPv6 address is without its brackets where it has no port.
        let without_port = without_port.map(|host| host.trim_matches(['[', ']']));
        let found = by_name(target)
            .or_else(|| without_port.and_then(by_name))
            .or_else(|| self.users.get("*"))
            .or_else(|| self.users.get(self.current.as_ref()?));
        found.cloned()
    }
}

impl WebhookUser {
    /// The user in a file; its paths are relative to the directory of the file.
    fn of(written: User, directory: &Path) -> Self {
        let path = |path: Option<PathBuf>| match path {
            Some(path) if !path.as_os_str().is_empty() => directory.join(path),
            _ => PathBuf::new(),
        };
        WebhookUser {
            token: written.token.unwrap_or_default(),
            token_file: path(written.token_file),
            client_certificate: path(written.client_certificate),
            client_certificate_data: written.client_certificate_data.unwrap_or_default(),
            client_key: path(written.client_key),
            client_key_data: written.client_key_data.unwrap_or_default(),
            username: written.username.unwrap_or_default(),
            password: written.password.unwrap_or_default(),
            user: written.impersonated.unwrap_or_default(),
            uid: written.impersonated_uid.unwrap_or_default(),
            groups: written.impersonated_groups.unwrap_or_default(),
            extra: written.impersonated_extra.unwrap_or_default(),
            exec: written.exec,
            auth_provider: written.auth_provider,
        }
    }

    /// The headers that prove the user, and those of the user that is impersonated.
    ///
    /// # Errors
    /// The file of the token cannot be read, or the credentials cannot be used.
    pub(crate) fn headers(&self) -> Result<HeaderMap, String> {
        if self.exec.is_some() {
            return Err("credentials of a command (exec) are not supported".to_owned());
        }
        if self.auth_provider.is_some() {
            return Err("auth provider not supported".to_owned());
        }
        let mut headers = HeaderMap::new();
        let token = self.token()?;
        let basic = !self.username.is_empty();
        let authorization = match token {
            Some(_) if basic => {
                let why = "username/password or bearer token may be set, but not both";
                return Err(why.to_owned());
            }
            Some(token) => Some(format!("Bearer {token}")),
            None if basic => {
                let both = format!("{}:{}", self.username, self.password);
                Some(format!("Basic {}", STANDARD.encode(both)))
            }
            None => None,
        };
        if let Some(text) = authorization {
            let mut value = value(&text)?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        if !self.user.is_empty() {
            headers.insert("impersonate-user", value(&self.user)?);
            if !self.uid.is_empty() {
                headers.insert("impersonate-uid", value(&self.uid)?);
            }
            for group in &self.groups {
                headers.append("impersonate-group", value(group)?);
            }
            for (key, texts) in &self.extra {
                let key =
                    percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC);
                let name = format!("impersonate-extra-{key}").to_lowercase();
                let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
                for text in texts {
                    headers.append(name.clone(), value(text)?);
                }
            }
        }
        Ok(headers)
    }

    /// The token; that of the file is newer than one beside it.
    fn token(&self) -> Result<Option<String>, String> {
        let own = Some(self.token.clone()).filter(|token| !token.is_empty());
        if self.token_file.as_os_str().is_empty() {
            return Ok(own);
        }
        match std::fs::read_to_string(&self.token_file) {
            Ok(text) => Ok(Some(text.trim().to_owned())
                .filter(|token| !token.is_empty())
                .or(own)),
            Err(error) => own
                .map(Some)
                .ok_or_else(|| unreadable(&self.token_file, &error)),
        }
    }

    /// The certificate with its key, if the user has one.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, String> {
        if self.client_certificate_data.is_empty() && self.client_certificate.as_os_str().is_empty()
        {
            return Ok(None);
        }
        Ok(Some(Identity {
            certificate: pem(&self.client_certificate_data, &self.client_certificate)?,
            key: pem(&self.client_key_data, &self.client_key)?,
        }))
    }
}

fn value(text: &str) -> Result<HeaderValue, String> {
    // The error has no part of the text, which may be secret.
    HeaderValue::from_str(text).map_err(|_| "net/http: invalid header field value".to_owned())
}

/// Data, or the content of a file.
fn pem(data: &str, file: &Path) -> Result<String, String> {
    if data.is_empty() {
        return std::fs::read_to_string(file).map_err(|error| unreadable(file, &error));
    }
    let bytes = STANDARD.decode(data).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

fn unreadable(file: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("open {}: no such file or directory", file.display())
        }
        _ => format!("open {}: {error}", file.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The users of a file with this content, and its directory, which also has a file with a token.
    fn read(text: &str) -> Result<(Credentials, tempfile::TempDir), String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubeconfig");
        std::fs::write(&file, text).unwrap();
        std::fs::write(directory.path().join("token"), "from-a-file\n").unwrap();
        Ok((Credentials::read(&file)?, directory))
    }

    fn authorization(credentials: &Credentials, target: &str) -> Result<String, String> {
        let Some(user) = credentials.user(target) else {
            return Ok(String::new());
        };
        let headers = user.headers()?;
        let found = headers.get("authorization");
        Ok(found.map_or("", |it| it.to_str().unwrap()).to_owned())
    }

    #[test]
    fn the_most_special_name_counts() {
        let mut text = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {user: last}\nusers:\n"
            .to_owned();
        for name in [
            "a.ns.svc:444",
            "a.ns.svc",
            "*.ns.svc",
            "*.svc:443",
            "*.example.com",
            "::1",
            "last",
        ] {
            text += &format!("- name: '{name}'\n  user: {{token: 'of {name}'}}\n");
        }
        let cases = [
            ("a.ns.svc:444", "a.ns.svc:444"),
            // With the port before those without it.
            ("a.ns.svc:443", "*.svc:443"),
            ("b.ns.svc:444", "last"),
            ("x.y.example.com:443", "*.example.com"),
            ("example.com:443", "last"),
            ("[::1]:443", "::1"),
        ];
        let (credentials, _) = read(&text).unwrap();
        for (target, expected) in cases {
            let expected = format!("Bearer of {expected}");
            assert_eq!(
                authorization(&credentials, target).unwrap(),
                expected,
                "{target}"
            );
        }
        let any = format!("{text}- name: '*'\n  user: {{username: u, password: p}}\n");
        let (credentials, _) = read(&any).unwrap();
        assert_eq!(authorization(&credentials, "h:1").unwrap(), "Basic dTpw");
        assert_eq!(authorization(&Credentials::default(), "h:443").unwrap(), "");
    }

    #[test]
    fn tokens_come_from_files_and_other_mistakes_are_told() {
        let (credentials, _directory) = read(concat!(
            "users:\n",
            "- name: file:443\n  user: {tokenFile: token, token: older}\n",
            "- name: missing:443\n  user: {tokenFile: nope}\n",
            "- name: fallback:443\n  user: {tokenFile: nope, token: own}\n",
            "- name: both:443\n  user: {token: t, username: u}\n",
            "- name: command:443\n  user: {exec: {command: c}}\n",
            "- name: other:443\n  user: {token: t, as: me, as-uid: '7', as-groups: [g, h], as-user-extra: {a/b: [x]}}\n",
            "- name: lines:443\n  user: {token: \"a\\nb\"}\n",
        ))
        .unwrap();
        assert_eq!(
            authorization(&credentials, "file:443").unwrap(),
            "Bearer from-a-file"
        );
        assert_eq!(
            authorization(&credentials, "fallback:443").unwrap(),
            "Bearer own"
        );
        for (target, expected) in [
            ("missing:443", "nope: no such file or directory"),
            (
                "both:443",
                "username/password or bearer token may be set, but not both",
            ),
            (
                "command:443",
                "credentials of a command (exec) are not supported",
            ),
            ("lines:443", "net/http: invalid header field value"),
        ] {
            let error = authorization(&credentials, target).unwrap_err();
            assert!(error.ends_with(expected), "{error}");
        }
        let headers = credentials.user("other:443").unwrap().headers().unwrap();
        let all = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter();
            values.map(|it| it.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(all("impersonate-group"), ["g", "h"]);
        assert_eq!(all("impersonate-extra-a%2fb"), ["x"]);
        assert!(!format!("{credentials:?}").contains("older"));
        for (text, expected) in [
            (
                "users: [{name: a}, {name: a}]",
                "duplicate name \"a\" in list of users",
            ),
            ("users: 5", "error loading config file"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let missing = Credentials::read(Path::new("/nope")).unwrap_err();
        assert_eq!(missing, "stat /nope: no such file or directory");
    }
}
