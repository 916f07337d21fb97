use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

use super::*;

/// A string of an encoding: `utf8:`, `printable:`, `bmp:`, `universal:`, `t61:`.
fn value(text: &str) -> DnValue {
    let (encoding, text) = text.split_once(':').unwrap();
    match encoding {
        "utf8" => DnValue::Utf8String(text.to_owned()),
        "printable" => DnValue::PrintableString(text.try_into().unwrap()),
        "bmp" => DnValue::BmpString(text.try_into().unwrap()),
        "universal" => DnValue::UniversalString(text.try_into().unwrap()),
        "t61" => DnValue::TeletexString(text.try_into().unwrap()),
        other => panic!("{other}"),
    }
}

fn params(attributes: &[(DnType, &str)]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, text) in attributes {
        params.distinguished_name.push(kind.clone(), value(text));
    }
    params
}

fn user_of(attributes: &[(DnType, &str)]) -> Result<Option<Identity>, SubjectError> {
    let key = KeyPair::generate().unwrap();
    identity(params(attributes).self_signed(&key).unwrap().der())
}

fn uid() -> DnType {
    DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2])
}

#[test]
fn every_encoding_of_a_name_is_read() {
    for encoding in ["utf8", "printable", "bmp", "universal", "t61"] {
        let name = format!("{encoding}:jane");
        let group = format!("{encoding}:system:masters");
        let user = user_of(&[
            (DnType::CommonName, &name),
            (DnType::OrganizationName, &group),
        ]);
        let user = user.unwrap().unwrap();
        assert_eq!(user.name, "jane", "{encoding}");
        assert_eq!(user.groups, ["system:masters"], "{encoding}");
        assert!(user.credential_id.starts_with("X509SHA256="));
    }
    let user = user_of(&[(DnType::CommonName, "bmp:josé")]);
    assert_eq!(user.unwrap().unwrap().name, "josé");
}

#[test]
fn a_certificate_without_a_name_is_rejected() {
    assert_eq!(
        user_of(&[(DnType::OrganizationName, "utf8:devs")]),
        Ok(None)
    );
    assert_eq!(identity(b"\x30\x03abc"), Err(SubjectError::Malformed));
}

#[test]
fn the_uid_of_a_user_is_there_once_or_not_at_all() {
    let named = (DnType::CommonName, "utf8:jane");
    let user = user_of(&[named.clone(), (uid(), "utf8:7")])
        .unwrap()
        .unwrap();
    assert_eq!(user.uid, "7");
    let error = user_of(&[named, (uid(), "utf8:")]).unwrap_err();
    assert_eq!(error, SubjectError::Uid("with an empty string"));
}

#[test]
fn a_request_tells_all_its_groups() {
    for encoding in ["utf8", "printable", "bmp", "universal", "t61"] {
        let group = format!("{encoding}:system:masters");
        let key = KeyPair::generate().unwrap();
        let request = params(&[
            (DnType::CommonName, "utf8:x"),
            (DnType::OrganizationName, &group),
        ])
        .serialize_request(&key)
        .unwrap();
        let subject = requested(request.pem().unwrap().as_bytes()).unwrap();
        assert_eq!(subject.organizations, ["system:masters"], "{encoding}");
    }
    assert_eq!(requested(b"x"), Err(SubjectError::Malformed));
}

#[test]
fn strings_that_are_broken_are_errors() {
    let check = |tag: Tag, bytes: &[u8], expected: Option<&str>| {
        let header = x509_parser::asn1_rs::Header::new_simple(tag);
        assert_eq!(
            text(&Any::new(header, bytes)).as_deref(),
            expected,
            "{tag:?} {bytes:?}"
        );
    };
    check(Tag::Utf8String, b"\xff", None);
    check(Tag::PrintableString, b"\xe9", None);
    check(Tag::T61String, b"\xe9", Some("é"));
    check(Tag::BmpString, b"\0a\0", None);
    check(Tag::BmpString, b"\xd8\x00", None);
    check(Tag::BmpString, b"\0a\0\0", Some("a"));
    check(Tag::UniversalString, b"\0\0\0a", Some("a"));
    check(Tag::UniversalString, b"\0\x11\0\0", None);
    check(Tag::OctetString, b"a", None);
}
