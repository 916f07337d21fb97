//! Tests of the keys of tokens.

use super::*;

const RSA: &[u8] = include_bytes!("../../tests/keys/rsa.pem");
const RSA_PUBLIC: &[u8] = include_bytes!("../../tests/keys/rsa.pub.pem");
const P384_SEC1: &[u8] = include_bytes!("../../tests/keys/p384.pem");
const P521: &[u8] = include_bytes!("../../tests/keys/p521.pem");

fn p256() -> String {
    rcgen::KeyPair::generate().unwrap().serialize_pem()
}

#[test]
fn every_type_signs_what_it_verifies_and_nothing_else() {
    let keys = [
        TokenKey::from_pem(RSA).unwrap(),
        TokenKey::from_pem(P384_SEC1).unwrap(),
        TokenKey::from_pem(p256().as_bytes()).unwrap(),
    ];
    let algorithms = keys.each_ref().map(|key| key.public().algorithm());
    assert_eq!(algorithms, ["RS256", "ES384", "ES256"]);
    for key in &keys {
        // The numbers of ECDSA signatures are random, and some are short.
        for round in 0..40 {
            let text = format!("text {round}");
            let made = key.sign(text.as_bytes()).unwrap();
            for other in &keys {
                for algorithm in algorithms {
                    let good = other.public().verifies(algorithm, text.as_bytes(), &made);
                    let own = other.public() == key.public();
                    assert_eq!(
                        good,
                        own && algorithm == key.public().algorithm(),
                        "{algorithm}"
                    );
                }
            }
            assert!(!key.public().verifies("none", text.as_bytes(), b""));
            assert!(!key.public().verifies("HS256", text.as_bytes(), &made));
            if key.public().algorithm() == "RS256" {
                break;
            }
        }
    }
}

/// The names of keys are what `openssl` makes of them: relying parties compare them.
#[test]
fn a_key_is_named_by_the_hash_of_its_standard_form() {
    let rsa = TokenKey::from_pem(RSA).unwrap();
    assert_eq!(
        rsa.public().id(),
        "Q_41l_GBJVZlR39VJPEQC3xC6qd3i3IcBMH2nVisnkQ"
    );
    let curve = TokenKey::from_pem(P384_SEC1).unwrap();
    assert_eq!(
        curve.public().id(),
        "eYetimsMhmZ1rK-fP2LqOJ1REuZkaXSPlAoPyRSVkwM"
    );
    let public = VerifyingKey::all_from_pem(RSA_PUBLIC).unwrap();
    assert_eq!(public, [rsa.public().clone()]);
    let document = rsa.public().document();
    assert_eq!(
        (&document["kty"], &document["e"], &document["alg"]),
        (&json!("RSA"), &json!("AQAB"), &json!("RS256"))
    );
    let document = curve.public().document();
    assert_eq!(document["crv"], "P-384");
    let size = |key: &str| {
        let text = document[key].as_str().unwrap();
        URL_SAFE_NO_PAD.decode(text).unwrap().len()
    };
    assert_eq!((size("x"), size("y")), (48, 48));
}

#[test]
fn a_file_can_hold_several_keys_and_has_to_hold_one() {
    let certified = rcgen::generate_simple_self_signed(Vec::<String>::new()).unwrap();
    let text = [
        RSA_PUBLIC,
        b"-----BEGIN OTHER-----\nAAAA\n-----END OTHER-----\n",
        certified.cert.pem().as_bytes(),
        p256().as_bytes(),
        P384_SEC1,
    ]
    .concat();
    let keys = VerifyingKey::all_from_pem(&text).unwrap();
    let algorithms: Vec<&str> = keys.iter().map(VerifyingKey::algorithm).collect();
    assert_eq!(algorithms, ["RS256", "ES256", "ES256", "ES384"]);
    let none = "data does not contain any valid RSA or ECDSA public keys";
    for wrong in [&b""[..], b"no PEM", P521] {
        assert_eq!(VerifyingKey::all_from_pem(wrong).unwrap_err(), none);
    }
    let none = "data does not contain a valid RSA or ECDSA private key";
    let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    for wrong in [RSA_PUBLIC, P521, b"", ed25519.serialize_pem().as_bytes()] {
        assert_eq!(TokenKey::from_pem(wrong).unwrap_err(), none);
    }
}

#[test]
fn a_malformed_signature_is_none() {
    assert_eq!(
        fixed(&[0x30, 6, 2, 1, 5, 2, 1, 7], 2).unwrap(),
        [0, 5, 0, 7]
    );
    let large = [0x30, 8, 2, 2, 0, 0x80, 2, 2, 1, 2];
    assert_eq!(fixed(&large, 2).unwrap(), [0, 0x80, 1, 2]);
    for wrong in [
        &[][..],
        &[0x30, 6, 2, 1, 5],
        &[0x30, 3, 2, 1, 5],
        &[0x30, 6, 2, 9, 5, 2, 1, 7],
        &[0x30, 8, 2, 4, 1, 2, 3, 4, 2, 0],
        &[0x30, 7, 2, 1, 5, 2, 1, 7, 0],
        &[0x31, 6, 2, 1, 5, 2, 1, 7],
    ] {
        assert_eq!(fixed(wrong, 2), None, "{wrong:?}");
    }
}
