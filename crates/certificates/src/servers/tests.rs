//! Which servers are trusted when.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::CertificateError;

use super::*;

fn params(names: &[&str], last: i32) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_after = rcgen::date_time_ymd(last, 1, 1);
    params
}

/// The anchors of webpki have no time: a webhook whose `caBundle` had expired was trusted anyway.
#[test]
fn regression_the_authority_of_a_server_has_to_be_valid_as_well() {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let name = ServerName::try_from("hook").unwrap();
    let (key, ca_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = params(&[], 2050);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = authority.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(authority, ca_key);
    let signed = params(&["hook"], 2090).signed_by(&key, &issuer).unwrap();
    let alone = params(&["hook"], 2050).self_signed(&key).unwrap();
    for (root, server) in [(ca.der(), signed.der()), (alone.der(), alone.der())] {
        let roots = std::iter::once(root.clone());
        let trust = Trust::of(roots, provider.clone()).unwrap();
        let at = |year: u64| {
            let since_1970 = std::time::Duration::from_secs((year - 1970) * 31_556_952);
            let now = UnixTime::since_unix_epoch(since_1970);
            trust
                .verify_server_cert(server, &[], &name, &[], now)
                .map(|_| ())
        };
        assert_eq!(at(2049), Ok(()));
        assert_eq!(at(2051), Err(CertificateError::Expired.into()));
    }
    // Years later both have expired: it was the unknown issuer then, and users looked for another cluster.
    let trust = Trust::of(std::iter::once(ca.der().clone()), provider.clone()).unwrap();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(121 * 31_556_952));
    let error = trust.verify_server_cert(signed.der(), &[], &name, &[], now);
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert!(error.to_lowercase().contains("expired"), "{error}");
    let nothing = Trust::new(Roots::default(), provider);
    let verified = nothing.verify_server_cert(signed.der(), &[], &name, &[], UnixTime::now());
    assert!(verified.is_err());
}
