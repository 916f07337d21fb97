//! Which requests are served: checks of the head of a request, before any work is done for it.
//!
//! Other pages in the reader's browser can send requests to this server, and so can other programs of the machine. The
//! order of the checks matters: a request for a foreign host is rejected before its path is read.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, ORIGIN, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, Version};

/// The longest bearer token. Tokens of service accounts have about a thousand bytes, those with many groups several
/// thousand.
const LONGEST_TOKEN: usize = 16 * 1024;

/// How readers authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// By a link with a random token, exchanged for a cookie: one reader on this machine, with the rights of the
    /// server's own credentials.
    Link,
    /// By a bearer token of the cluster, sent with every request for data and passed on.
    Token,
}

/// Why a request is rejected. The text is for users, and reveals nothing that the sender did not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The Host header is missing, repeated, or names another server.
    #[error("this server is not known by that name")]
    Host,
    /// Another site sent the request.
    #[error("requests of other sites are refused")]
    Origin,
    /// Only GET, and POST to evaluate an expression.
    #[error("only GET is answered: the dashboard is read-only")]
    Method,
    /// A body where none is allowed.
    #[error("no body is expected")]
    Body,
    /// No cookie, or a wrong one.
    #[error("open the link that `allot dashboard` has printed")]
    Link,
    /// No bearer token, or one that cannot be one.
    #[error("a bearer token of the cluster is needed")]
    Token,
    /// The path does not exist.
    #[error("not found")]
    Missing,
}

impl Refusal {
    /// The status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body => StatusCode::BAD_REQUEST,
            Self::Link | Self::Token => StatusCode::UNAUTHORIZED,
            Self::Missing => StatusCode::NOT_FOUND,
        }
    }
}

/// What a request that passed is about.
#[derive(Debug)]
pub enum Pass {
    /// The link was opened: set the cookie and redirect to the page.
    Enter {
        /// The value of `Set-Cookie`.
        cookie: String,
        /// Location of the page.
        to: String,
    },
    /// The folder of the page was requested without its last slash: redirect to it.
    Move {
        /// Location of the page.
        to: String,
    },
    /// A file of the page, by its path below the page's own.
    File(String),
    /// Data, by its path below `api/`.
    Data {
        /// The path.
        path: String,
        /// The credentials to use: the server's when absent.
        bearer: Option<HeaderValue>,
    },
}

/// The cookie that the link is exchanged for.
const COOKIE_NAME: &str = "allot-dashboard";

/// The checks, with what they compare to.
pub struct Guard {
    login: Login,
    hosts: Vec<String>,
    /// What the link contains.
    token: String,
    /// What the cookie contains: not the same, so that a link in a shell's history is not the cookie.
    session: String,
    /// The page's folder, with a slash at both ends.
    ///
    /// Cookies do not distinguish ports: a browser would send this one to every other server of the machine with the
    /// same path. A random directory ensures that no other server has it.
    base: String,
}

impl Guard {
    /// Checks for a server with these host names, and for [`Login::Token`] with the page in this folder.
    pub fn new(login: Login, hosts: Vec<String>, path: &str) -> Self {
        let random = || format!("{:032x}", rand::random::<u128>());
        Self {
            login,
            hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            token: random(),
            session: random(),
            base: match login {
                Login::Link => format!("/{:016x}/", rand::random::<u64>()),
                Login::Token => path.to_owned(),
            },
        }
    }

    /// How readers authenticate.
    pub fn login(&self) -> Login {
        self.login
    }

    /// Path and query of the link.
    pub fn link(&self) -> String {
        match self.login {
            Login::Link => format!("/?token={}", self.token),
            Login::Token => self.base.clone(),
        }
    }

    /// Checks the head of a request.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn check(&self, head: &Parts) -> Result<Pass, Refusal> {
        let host = self.host(head)?;
        same_site(head, &host)?;
        let path = head.uri.path();
        if self.login == Login::Link && path == "/" {
            return self.enter(head);
        }
        if self.login == Login::Token && self.base.strip_suffix('/') == Some(path) {
            return match head.method {
                Method::GET => Ok(Pass::Move {
                    to: self.base.clone(),
                }),
                _ => Err(Refusal::Method),
            };
        }
        let Some(below) = path.strip_prefix(&self.base) else {
            return Err(Refusal::Missing);
        };
        let data = below.strip_prefix("api/");
        let takes_body = data == Some("filter");
        match head.method {
            Method::GET if !has_body(head) => {}
            Method::GET => return Err(Refusal::Body),
            // A page of another site can post without a preflight; browsers name the origin of every POST.
            Method::POST if takes_body && single(head, ORIGIN).is_some() => {}
            Method::POST if takes_body => return Err(Refusal::Origin),
            _ => return Err(Refusal::Method),
        }
        let bearer = match self.login {
            Login::Link if self.has_cookie(head) => None,
            Login::Link => return Err(Refusal::Link),
            // The files of the page are the same for all users and contain no data of the cluster.
            Login::Token if data.is_none() => None,
            Login::Token => Some(bearer(head)?),
        };
        Ok(match data {
            Some(path) => Pass::Data {
                path: path.to_owned(),
                bearer,
            },
            None => Pass::File(below.to_owned()),
        })
    }

    /// The name that the request is for, which must be one of this server.
    fn host(&self, head: &Parts) -> Result<String, Refusal> {
        let header = single(head, HOST).and_then(|host| host.to_str().ok());
        let host = match (head.version, head.uri.authority()) {
            (_, None) => header,
            // HTTP/2 has it in the request line; a header beside that has to be the same (RFC 9113).
            (Version::HTTP_2, Some(line)) if !head.headers.contains_key(HOST) => {
                Some(line.as_str())
            }
            (Version::HTTP_2, Some(line)) => header.filter(|header| *header == line.as_str()),
            // In HTTP/1.1 it takes precedence over the header (RFC 9112), and is not expected here.
            _ => None,
        };
        let host = host.ok_or(Refusal::Host)?.to_ascii_lowercase();
        if !self.hosts.contains(&host) {
            return Err(Refusal::Host);
        }
        Ok(host)
    }

    fn enter(&self, head: &Parts) -> Result<Pass, Refusal> {
        if head.method != Method::GET {
            return Err(Refusal::Method);
        }
        let mut query = head.uri.query().unwrap_or_default().split('&');
        let token = query.find_map(|pair| pair.strip_prefix("token="));
        if !token.is_some_and(|token| same(token.as_bytes(), self.token.as_bytes())) {
            return Err(Refusal::Link);
        }
        let (session, base) = (&self.session, &self.base);
        Ok(Pass::Enter {
            cookie: format!("{COOKIE_NAME}={session}; Path={base}; HttpOnly; SameSite=Strict"),
            to: base.clone(),
        })
    }

    fn has_cookie(&self, head: &Parts) -> bool {
        let cookies = head.headers.get_all(COOKIE).iter();
        let cookies = cookies.filter_map(|value| value.to_str().ok());
        cookies.flat_map(|value| value.split(';')).any(|pair| {
            let value = pair.trim().strip_prefix(COOKIE_NAME);
            let value = value.and_then(|rest| rest.strip_prefix('='));
            value.is_some_and(|value| same(value.as_bytes(), self.session.as_bytes()))
        })
    }
}

/// The value of a header that occurs once.
fn single(head: &Parts, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = head.headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// Rejects requests of other sites' pages, as far as the browser reports that.
fn same_site(head: &Parts, host: &str) -> Result<(), Refusal> {
    if head.headers.contains_key(ORIGIN) {
        let origin = single(head, ORIGIN).and_then(|origin| origin.to_str().ok());
        let origin = origin.ok_or(Refusal::Origin)?.to_ascii_lowercase();
        let ours = ["http://", "https://"].map(|scheme| format!("{scheme}{host}"));
        if !ours.contains(&origin) {
            return Err(Refusal::Origin);
        }
    }
    let fetch = |name: &'static str| {
        let value = head.headers.get(name);
        value.and_then(|value| value.to_str().ok())
    };
    match fetch("sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(()),
        // A link in another program's page: SameSite decides whether the cookie is sent.
        Some(_) if fetch("sec-fetch-mode") == Some("navigate") && head.method == Method::GET => {
            match fetch("sec-fetch-dest") {
                Some("document") => Ok(()),
                _ => Err(Refusal::Origin),
            }
        }
        Some(_) => Err(Refusal::Origin),
    }
}

fn has_body(head: &Parts) -> bool {
    let length = head.headers.get(CONTENT_LENGTH);
    length.is_some_and(|length| length.as_bytes() != b"0")
        || head.headers.contains_key(TRANSFER_ENCODING)
}

/// The Authorization header, if it is one bearer token.
fn bearer(head: &Parts) -> Result<HeaderValue, Refusal> {
    let value = single(head, AUTHORIZATION).ok_or(Refusal::Token)?;
    let token = value.to_str().ok().and_then(|v| v.strip_prefix("Bearer "));
    let fits = |token: &str| {
        let visible = token.bytes().all(|byte| byte.is_ascii_graphic());
        !token.is_empty() && token.len() <= LONGEST_TOKEN && visible
    };
    if !token.is_some_and(fits) {
        return Err(Refusal::Token);
    }
    let mut value = value.clone();
    value.set_sensitive(true);
    Ok(value)
}

/// Compares in constant time.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests;
