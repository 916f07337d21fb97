//! The media types of request bodies.

use allot_apimachinery::Status;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::error::ApiError;
use crate::header;

/// Media type of the body without parameters; JSON if none is given.
pub(super) fn content_type(headers: &HeaderMap) -> String {
    headers
        .get(CONTENT_TYPE)
        .map(header::lossy)
        .map(|value| {
            let mut parts = value.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            // A malformed header names no type that is known.
            let well_formed = parts.all(|part| {
                part.is_empty() || matches!(part.split_once('='), Some((key, _)) if !key.is_empty())
            });
            let found = if well_formed { media_type } else { &*value };
            found.to_ascii_lowercase()
        })
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| "application/json".to_owned())
}

/// The media type is one that objects are read from.
pub(super) fn is_known_format(media_type: &str) -> bool {
    let mut known = crate::negotiate::RESOURCE_TYPES.split(", ");
    known.any(|known| known == media_type)
}

/// 415.
pub(super) fn unknown_format() -> ApiError {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        crate::negotiate::RESOURCE_TYPES
    );
    Status::unsupported_media_type(message).into()
}

/// Media type of a patch: upstream cuts the header at the first semicolon and ignores what follows.
pub(super) fn patch_type(headers: &HeaderMap) -> String {
    let found = content_type(headers);
    match found.split_once(';') {
        Some((media_type, _)) => media_type.trim().to_owned(),
        None => found,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(text: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(text))])
    }

    #[test]
    fn malformed_parameters_of_patches_are_ignored() {
        let merge = "application/merge-patch+json";
        assert_eq!(patch_type(&of(merge)), merge);
        for text in [
            "application/merge-patch+json;x",
            "application/merge-patch+json ; =",
            "application/merge-patch+json; charset=utf-8",
        ] {
            assert_eq!(patch_type(&of(text)), merge, "{text}");
        }
        let malformed = "application/json;x";
        assert_eq!(content_type(&of(malformed)), malformed);
    }
}
