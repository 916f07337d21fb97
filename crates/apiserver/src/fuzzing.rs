//! Entry points for the fuzz targets in `fuzz/`: parsers of client input in this crate that no public function reaches
//! with bytes alone. Each must return for any input.

use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};

use crate::auth::{Signer, certificate, credential};
use crate::{protobuf, yaml};

/// A client certificate in DER, and the same bytes as a request for one in PEM.
pub fn certificate(bytes: &[u8]) {
    if let Ok(Some(user)) = certificate::user(bytes) {
        assert!(!user.name.is_empty(), "a user without a name");
    }
    let _ = certificate::requested(bytes);
}

/// A service account token: a signature that this server did not create must never be accepted.
pub fn token(signer: &Signer, text: &str) {
    let found = signer.verify(text, 0);
    assert!(found.is_err(), "a token that nobody has signed is valid");
}

/// Headers with a credential: one that is present and cannot be read is an error, never the same as an absent one.
pub fn credentials(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let Ok(value) = HeaderValue::from_bytes(line) else {
            continue;
        };
        let name = if index % 2 == 0 {
            AUTHORIZATION
        } else {
            SEC_WEBSOCKET_PROTOCOL
        };
        headers.append(name, value);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let token = credential::bearer(&headers);
    let several = headers.get_all(AUTHORIZATION).iter().nth(1).is_some();
    assert!(
        !several || token.is_err(),
        "one of several credentials was chosen"
    );
    credential::forget(&mut headers);
    assert!(!headers.contains_key(AUTHORIZATION));
}

/// A body in protobuf.
pub fn protobuf(bytes: &[u8]) {
    let _ = protobuf::decode(bytes);
}

/// A body in YAML.
pub fn yaml(bytes: &[u8]) {
    if let Ok(read) = yaml::read(bytes) {
        // A value that was read can be written.
        let _ = read.value.to_string();
    }
}
