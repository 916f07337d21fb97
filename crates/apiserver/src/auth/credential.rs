//! Bearer tokens in the headers of a request.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

#[cfg(test)]
mod tests;

/// The prefix of a WebSocket subprotocol that contains a token. Browsers cannot set `Authorization` for WebSockets.
const SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A credential is present and cannot be used: the request is rejected, not treated as anonymous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unusable;

/// The token of a request; `None` if there is none. A scheme other than `Bearer` is no credential that this server takes.
///
/// # Errors
/// [`Unusable`] for a token that is not UTF-8, for several, and for a subprotocol that holds none.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<String>, Unusable> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Unusable);
    }
    if let Some(token) = first.map(of_authorization).transpose()?.flatten() {
        return Ok(Some(token));
    }
    of_subprotocols(headers)
}

/// The second word of the header, as kube-apiserver takes it apart.
fn of_authorization(value: &HeaderValue) -> Result<Option<String>, Unusable> {
    let mut words = value
        .as_bytes()
        .trim_ascii()
        .splitn(3, |byte| *byte == b' ');
    let (scheme, token) = (words.next().unwrap_or_default(), words.next());
    if !scheme.eq_ignore_ascii_case(b"bearer") {
        return Ok(None);
    }
    match token {
        None | Some([]) => Ok(None),
        Some(token) => match std::str::from_utf8(token) {
            Ok(token) => Ok(Some(token.to_owned())),
            Err(_) => Err(Unusable),
        },
    }
}

fn of_subprotocols(headers: &HeaderMap) -> Result<Option<String>, Unusable> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let (mut token, mut others) = (None, false);
    for protocol in protocols(headers)? {
        let Some(encoded) = protocol.strip_prefix(SUBPROTOCOL) else {
            others |= !protocol.is_empty();
            continue;
        };
        let decoded = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| Unusable)?;
        let decoded = String::from_utf8(decoded).map_err(|_| Unusable)?;
        if token.replace(decoded).is_some() {
            return Err(Unusable);
        }
    }
    let token = token.filter(|token| !token.is_empty());
    // One protocol must remain for the answer.
    if token.is_some() && !others {
        return Err(Unusable);
    }
    Ok(token)
}

fn protocols(headers: &HeaderMap) -> Result<Vec<&str>, Unusable> {
    let mut all = Vec::new();
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        let text = std::str::from_utf8(value.as_bytes()).map_err(|_| Unusable)?;
        all.extend(text.split(',').map(str::trim));
    }
    Ok(all)
}

/// Removes an authenticated token from the headers, so that no backend of the server sees it.
pub(crate) fn forget(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    let Ok(all) = protocols(headers) else { return };
    if !all.iter().any(|protocol| protocol.starts_with(SUBPROTOCOL)) {
        return;
    }
    let left: Vec<&str> = all
        .into_iter()
        .filter(|protocol| !protocol.starts_with(SUBPROTOCOL))
        .collect();
    // Parts of a valid header value form a valid one.
    if let Ok(left) = HeaderValue::from_str(&left.join(",")) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, left);
    }
}

/// The client requests an upgrade to WebSocket.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    let named = |name: HeaderName, wanted: &str| {
        headers.get_all(name).iter().any(|value| {
            let text = crate::header::lossy(value);
            text.split(',')
                .any(|item| item.trim().eq_ignore_ascii_case(wanted))
        })
    };
    named(CONNECTION, "upgrade") && named(UPGRADE, "websocket")
}
