//! Validation of the certificates that a signer has issued.

use std::time::Duration;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::{go_duration, pem};
use jiff::Timestamp;
use serde_json::Value;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::keys::{self, bytes};
use crate::validate::text;

/// The most bytes of a chain.
const MAX_CHAIN: usize = 100 * 1024;
/// How far the beginning of a certificate's time may be from now, in seconds.
const NEAR: i64 = 5 * 60;
/// How far a refresh is from both ends, in seconds.
const MARGIN: i64 = 10 * 60;
const SHORTEST: i64 = 60 * 60;

/// Checks a status that says that the certificate is issued. The first error ends it, as upstream.
pub(super) fn validate(object: &Value, old: &Value, errors: &mut ErrorList) {
    if let Err(error) = check(object, old, errors) {
        errors.push(error);
    }
}

fn check(object: &Value, old: &Value, errors: &mut ErrorList) -> Result<(), Error> {
    let (status, path) = (&object["status"], Path::new("status"));
    let (chain, at) = (
        text(status, "certificateChain"),
        path.child("certificateChain"),
    );
    let wrong = |detail: &str| Error::invalid(&at, chain, detail);
    if chain.len() > MAX_CHAIN {
        return Err(Error::too_long(&at, MAX_CHAIN));
    }
    let mut blocks = pem::blocks(chain).into_iter();
    let first = blocks
        .next()
        .ok_or_else(|| wrong("issued certificate chain must contain at least one certificate"))?;
    if first.label != "CERTIFICATE" {
        let detail = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
        return Err(wrong(detail));
    }
    let leaf = parsed(&first.data)
        .ok_or_else(|| wrong("leaf certificate does not parse as valid X.509"))?;
    let named = errors.len();
    names(&leaf, &at, errors);
    let wanted = match bytes(&old["spec"], "stubPKCS10Request") {
        stub if stub.is_empty() => bytes(&old["spec"], "pkixPublicKey"),
        stub => keys::known_of_request(&stub).map_err(|_| {
            let at = Path::new("spec").child("stubPKCS10Request");
            Error::invalid(&at, BadValue::Omitted, "must be a valid PKCS#10 CSR")
        })?,
    };
    if leaf.public_key().raw != wanted.as_slice() {
        let detail = "leaf certificate was not issued to the requested public key";
        return Err(wrong(detail));
    }
    times(object, &leaf, &at, errors)?;
    if errors.len() > named {
        return Ok(());
    }
    for block in blocks {
        if block.label != "CERTIFICATE" {
            let detail = "issued certificate chain must consist entirely of CERTFICATE PEM blocks";
            return Err(wrong(detail));
        }
        if parsed(&block.data).is_none() {
            let detail = "intermediate certificate does not parse as valid X.509";
            return Err(wrong(detail));
        }
    }
    Ok(())
}

fn parsed(der: &[u8]) -> Option<X509Certificate<'_>> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Some(certificate),
        _ => None,
    }
}

/// Names that verifiers would refuse.
fn names(leaf: &X509Certificate<'_>, at: &Path, errors: &mut ErrorList) {
    let Ok(Some(extension)) = leaf.subject_alternative_name() else {
        return;
    };
    for name in &extension.value.general_names {
        let mut wrong = |name: &str, detail: &str| errors.push(Error::invalid(at, name, detail));
        match name {
            GeneralName::DNSName(name) => {
                if name.is_empty() {
                    wrong(name, "leaf certificate should not contain empty DNSName");
                }
                if name.contains("..") {
                    wrong(name, "leaf certificate's DNSName should not contain '..'");
                }
                if name.starts_with('.') || name.ends_with('.') {
                    let detail = "leaf certificate's DNSName should not start or end with '.'";
                    wrong(name, detail);
                }
            }
            GeneralName::RFC822Name(name) => {
                let parts = name.rsplit_once('@');
                if !parts.is_some_and(|(user, host)| !user.is_empty() && !host.is_empty()) {
                    let detail = "leaf certificate should not contain invalid EmailAddress";
                    wrong(name, detail);
                }
            }
            _ => {}
        }
    }
}

/// The times in the status are those of the certificate.
fn times(
    object: &Value,
    leaf: &X509Certificate<'_>,
    at: &Path,
    errors: &mut ErrorList,
) -> Result<(), Error> {
    let (status, path) = (&object["status"], Path::new("status"));
    let time = |key: &str| text(status, key).parse::<Timestamp>().ok();
    let (begin, end, refresh) = (time("notBefore"), time("notAfter"), time("beginRefreshAt"));
    let (Some(begin), Some(end), Some(refresh)) = (begin, end, refresh) else {
        let consistent = "must be present and consistent with the issued certificate";
        let range = "must be present and in the range [notbefore+10min, notafter-10min]";
        for (key, time, detail) in [
            ("notBefore", begin, consistent),
            ("notAfter", end, consistent),
            ("beginRefreshAt", refresh, range),
        ] {
            if time.is_none() {
                errors.push(Error::required(&path.child(key), detail));
            }
        }
        return Ok(());
    };
    let wrong = |key: &str, time: Timestamp, detail: &str| {
        Err(Error::invalid(
            &path.child(key),
            BadValue::raw(go_time(time)),
            detail,
        ))
    };
    let validity = leaf.validity();
    let (from, until) = (
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    );
    if begin.as_second() != from {
        let detail = "must be set to the NotBefore time encoded in the leaf certificate";
        return wrong("notBefore", begin, detail);
    }
    if (Timestamp::now().as_second() - from).abs() > NEAR {
        let detail = "must be set to within 5 minutes of kube-apiserver's current time";
        return wrong("notBefore", begin, detail);
    }
    if end.as_second() != until {
        let detail = "must be set to the NotAfter time encoded in the leaf certificate";
        return wrong("notAfter", end, detail);
    }
    let lifetime = until - from;
    let sign = if lifetime < 0 { "-" } else { "" };
    let shown = go_duration(Duration::from_secs(lifetime.unsigned_abs()));
    let shown = BadValue::raw(format!("{sign}{shown}"));
    if lifetime < SHORTEST {
        let detail = "leaf certificate lifetime must be >= 1 hour";
        return Err(Error::invalid(at, shown, detail));
    }
    let longest = object["spec"]["maxExpirationSeconds"]
        .as_i64()
        .unwrap_or_default();
    if lifetime > longest {
        let detail =
            format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})");
        return Err(Error::invalid(at, shown, detail));
    }
    if refresh.as_second() < from + MARGIN {
        let detail = "must be at least 10 minutes after status.notBefore";
        return wrong("beginRefreshAt", refresh, detail);
    }
    if refresh.as_second() > until - MARGIN {
        let detail = "must be at least 10 minutes before status.notAfter";
        return wrong("beginRefreshAt", refresh, detail);
    }
    Ok(())
}

/// A time as Go prints it.
fn go_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()
}
