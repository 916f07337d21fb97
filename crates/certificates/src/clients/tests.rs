//! Attacks with certificates of clients: which handshakes fail, and which certificates prove nothing after one.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme, SupportedProtocolVersion,
};

use super::*;

const MASTERS: &str = "system:masters";

static VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

type Chain = Vec<CertificateDer<'static>>;

/// An authority. All of them have the same name.
struct Signer {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

impl Signer {
    fn new() -> Self {
        Self::between(1975, 4096, &KeyPair::generate().unwrap())
    }

    /// One that is valid from the start of a year to that of another.
    fn between(first: i32, last: i32, key: &KeyPair) -> Self {
        let key = KeyPair::from_pem(&key.serialize_pem()).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = subject("kubernetes");
        params.not_before = rcgen::date_time_ymd(first, 1, 1);
        params.not_after = rcgen::date_time_ymd(last, 1, 1);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        Self {
            issuer,
            certificate,
        }
    }

    fn sign(&self, params: &CertificateParams, key: &KeyPair) -> Chain {
        let signed = params.signed_by(key, &self.issuer).unwrap();
        vec![signed.der().clone()]
    }
}

/// About the start of a year.
fn start_of(year: u64) -> UnixTime {
    let since_1970 = std::time::Duration::from_secs((year - 1970) * 31_556_952);
    UnixTime::since_unix_epoch(since_1970)
}

fn subject(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, MASTERS);
    subject.push(DnType::CommonName, name);
    subject
}

/// A certificate of an administrator.
fn admin() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject("admin");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn der(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der()).into()
}

/// A client that presents a chain also if the key is of another certificate.
#[derive(Debug)]
struct Presents(Arc<CertifiedKey>);

impl ResolvesClientCert for Presents {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

struct Side {
    provider: Arc<rustls::crypto::CryptoProvider>,
    authorities: Authorities,
    server: Arc<ServerConfig>,
    roots: RootCertStore,
}

impl Side {
    /// A server that trusts clients of an authority.
    fn of(signer: &Signer) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pem = signer.certificate.pem();
        let authorities = Authorities::read(pem.as_bytes(), provider.clone()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(authorities.handshake())
            .with_single_cert(signer.sign(&params, &key), der(&key))
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(signer.certificate.der().clone()).unwrap();
        Self {
            provider,
            authorities,
            server: Arc::new(server),
            roots,
        }
    }

    fn client(
        &self,
        chain: Chain,
        key: &KeyPair,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ClientConfig> {
        let key = rustls::crypto::ring::sign::any_supported_type(&der(key)).unwrap();
        let presents = Presents(Arc::new(CertifiedKey::new(chain, key)));
        let client = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_client_cert_resolver(Arc::new(presents));
        Arc::new(client)
    }

    /// The server's side of a connection after the handshake.
    fn connect(&self, client: &Arc<ClientConfig>) -> Result<ServerConnection, Error> {
        let mut server = ServerConnection::new(self.server.clone())?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(client.clone(), name)?;
        while client.wants_write() || server.wants_write() {
            let mut sent = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut sent).unwrap();
            }
            let mut sent = &sent[..];
            while !sent.is_empty() {
                server.read_tls(&mut sent).unwrap();
                server.process_new_packets()?;
            }
            let mut answer = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut answer).unwrap();
            }
            let mut answer = &answer[..];
            while !answer.is_empty() {
                client.read_tls(&mut answer).unwrap();
                client.process_new_packets()?;
            }
        }
        assert!(!server.is_handshaking());
        Ok(server)
    }

    fn presented(&self, connection: &ServerConnection) -> Presented {
        Presented::new(connection.peer_certificates().unwrap())
    }

    fn user(&self, connection: &ServerConnection) -> Result<Option<Identity>, SubjectError> {
        let now = UnixTime::now();
        self.presented(connection).identity(&self.authorities, now)
    }
}

#[test]
fn only_certificates_that_are_good_now_prove_an_identity() {
    let (signer, foreign) = (Signer::new(), Signer::new());
    let side = Side::of(&signer);
    let key = KeyPair::generate().unwrap();
    let good = signer.sign(&admin(), &key);
    let mut expired = admin();
    expired.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let mut future = admin();
    future.not_before = rcgen::date_time_ymd(3000, 1, 1);
    let mut serving = admin();
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let with_authority = |mut chain: Chain| {
        chain.push(foreign.certificate.der().clone());
        chain
    };
    // The owner of a certificate issues another one with it.
    let own_key = KeyPair::generate().unwrap();
    let own = signer.sign(&admin(), &own_key);
    let issuer = Issuer::new(admin(), own_key);
    let issued = admin().signed_by(&key, &issuer).unwrap();
    let issued = [vec![issued.der().clone()], own].concat();
    let alone = admin().self_signed(&key).unwrap();
    for (what, chain) in [
        ("expired", signer.sign(&expired, &key)),
        ("not valid yet", signer.sign(&future, &key)),
        ("of a server", signer.sign(&serving, &key)),
        ("of another authority", foreign.sign(&admin(), &key)),
        (
            "with its authority",
            with_authority(foreign.sign(&admin(), &key)),
        ),
        ("issued by a client", issued),
        ("signed by itself", vec![alone.der().clone()]),
    ] {
        for version in VERSIONS {
            let connection = side.connect(&side.client(chain.clone(), &key, version));
            let user = side.user(&connection.unwrap());
            assert!(
                matches!(user, Err(SubjectError::Untrusted(_))),
                "{what}: {user:?}"
            );
        }
    }
    for version in VERSIONS {
        let connection = side.connect(&side.client(good.clone(), &key, version));
        let user = side.user(&connection.unwrap()).unwrap().unwrap();
        assert_eq!(user.name, "admin");
    }
}

/// Certificates are public. That of another user is of no use without its key, also of one that is not trusted.
#[test]
fn the_key_of_a_certificate_has_to_be_proven() {
    let signer = Signer::new();
    let side = Side::of(&signer);
    let (key, wrong) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let foreign = Signer::new();
    for chain in [signer.sign(&admin(), &key), foreign.sign(&admin(), &key)] {
        for version in VERSIONS {
            let connection = side.connect(&side.client(chain.clone(), &wrong, version));
            assert_eq!(
                connection.err(),
                Some(CertificateError::BadSignature.into()),
                "{version:?}"
            );
        }
    }
}

/// A session that is resumed sends no certificate: the one that it began with is judged again.
#[test]
fn a_resumed_session_is_no_identity_by_itself() {
    let (signer, foreign) = (Signer::new(), Signer::new());
    let side = Side::of(&signer);
    let key = KeyPair::generate().unwrap();
    for version in VERSIONS {
        let client = side.client(foreign.sign(&admin(), &key), &key, version);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let connection = side.connect(&client).unwrap();
            assert_eq!(connection.handshake_kind(), Some(expected), "{version:?}");
            let user = side.user(&connection);
            assert!(matches!(user, Err(SubjectError::Untrusted(_))), "{user:?}");
        }
    }
}

/// A connection that is kept open kept the identity of a certificate that had expired meanwhile.
#[test]
fn regression_a_connection_does_not_outlive_its_certificate() {
    let signer = Signer::new();
    let side = Side::of(&signer);
    let key = KeyPair::generate().unwrap();
    let mut until_2200 = admin();
    until_2200.not_after = rcgen::date_time_ymd(2200, 1, 1);
    let client = side.client(signer.sign(&until_2200, &key), &key, &TLS13);
    let presented = side.presented(&side.connect(&client).unwrap());
    let at = |year| presented.identity(&side.authorities, start_of(year));
    for year in [2030, 2199] {
        assert!(matches!(at(year), Ok(Some(user)) if user.name == "admin"));
    }
    for year in [2201, 2500] {
        assert!(matches!(at(year), Err(SubjectError::Untrusted(_))));
    }
}

/// The anchors of webpki have no time: what an authority had signed that had expired was good forever.
#[test]
fn regression_the_authority_of_a_client_has_to_be_valid_as_well() {
    let key = KeyPair::generate().unwrap();
    let own = KeyPair::generate().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let old = Signer::between(2000, 2050, &own);
    // The same name and key, renewed.
    let renewed = Signer::between(2040, 2060, &own);
    let read = |signers: &[&Signer]| {
        let pem: String = signers.iter().map(|it| it.certificate.pem()).collect();
        Authorities::read(pem.as_bytes(), provider.clone()).unwrap()
    };
    let presented = Presented::new(&old.sign(&admin(), &key));
    let (alone, both) = (read(&[&old]), read(&[&old, &renewed]));
    let good = |authorities: &Authorities, year| {
        let identity = presented.identity(authorities, start_of(year));
        if let Err(error) = &identity {
            assert!(error.to_string().contains("Expired"), "{year}: {error}");
        }
        identity.is_ok()
    };
    for (year, expected) in [
        (1999, (false, false)),
        (2030, (true, true)),
        (2049, (true, true)),
        (2051, (false, true)),
        (2061, (false, false)),
        // The clock is set back.
        (2045, (true, true)),
    ] {
        assert_eq!((good(&alone, year), good(&both, year)), expected, "{year}");
    }
}

/// The key usage, the purposes and the depth of an authority were not looked at, nor whether it is one: the owner of a certificate
/// in the file of authorities could issue that of an administrator.
#[test]
fn regression_a_certificate_signs_only_what_it_may() {
    type Change = fn(&mut CertificateParams);
    let authority = |change: Change| {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject("kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        params
    };
    let same: Change = |_| {};
    let no_authority: Change = |it| it.is_ca = IsCa::ExplicitNoCa;
    let unsaid: Change = |it| it.is_ca = IsCa::NoCa;
    let without_right: Change = |it| it.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let with_right: Change = |it| it.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let of_servers: Change =
        |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let of_clients: Change =
        |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let depth_0: Change = |it| it.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let depth_1: Change = |it| it.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    let cases: [(&str, Change, Option<Change>, bool); 12] = [
        ("an authority", same, None, true),
        ("no authority", no_authority, None, false),
        ("without constraints", unsaid, None, false),
        ("without the right", without_right, None, false),
        ("with the right", with_right, None, true),
        ("for servers", of_servers, None, false),
        ("for clients", of_clients, None, true),
        ("for none below", depth_0, None, true),
        ("for none below, and one", depth_0, Some(same), false),
        ("for one below, and one", depth_1, Some(same), true),
        ("any below, and one", same, Some(same), true),
        (
            "any below, without the right",
            same,
            Some(without_right),
            false,
        ),
    ];
    for (what, root, between, expected) in cases {
        let key = KeyPair::generate().unwrap();
        let params = authority(root);
        let certificate = params.self_signed(&key).unwrap();
        let mut issuer = Issuer::new(params, key);
        let mut above = Vec::new();
        if let Some(change) = between {
            let key = KeyPair::generate().unwrap();
            let mut params = authority(change);
            params.distinguished_name = subject("between");
            above.push(params.signed_by(&key, &issuer).unwrap().der().clone());
            issuer = Issuer::new(params, key);
        }
        let key = KeyPair::generate().unwrap();
        let own = admin().signed_by(&key, &issuer).unwrap().der().clone();
        let chain = [vec![own], above].concat();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authorities = Authorities::read(certificate.pem().as_bytes(), provider).unwrap();
        let identity = Presented::new(&chain).identity(&authorities, start_of(2030));
        assert_eq!(identity.is_ok(), expected, "{what}: {identity:?}");
    }
}

/// As in kube-apiserver a certificate that is trusted itself needs no authority.
#[test]
fn a_trusted_certificate_proves_its_own_identity() {
    let own = admin().self_signed(&KeyPair::generate().unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = Authorities::read(own.pem().as_bytes(), provider).unwrap();
    let identity = Presented::new(&[own.der().clone()]).identity(&authorities, start_of(2030));
    assert!(matches!(identity, Ok(Some(user)) if user.name == "admin"));
}

/// A verdict is for the authorities that have reached it.
#[test]
fn regression_an_identity_ends_with_the_trust_in_its_authority() {
    let (signer, other) = (Signer::new(), Signer::new());
    let (side, others) = (Side::of(&signer), Side::of(&other));
    let presented = Presented::new(&signer.sign(&admin(), &KeyPair::generate().unwrap()));
    let now = UnixTime::now();
    for _ in 0..2 {
        assert!(presented.identity(&side.authorities, now).is_ok());
        assert!(presented.identity(&others.authorities, now).is_err());
    }
}

/// A certificate that was not valid yet at the start of a connection was refused until its end.
#[test]
fn regression_a_certificate_becomes_good_on_an_open_connection() {
    let signer = Signer::new();
    let side = Side::of(&signer);
    let mut future = admin();
    future.not_before = rcgen::date_time_ymd(2200, 1, 1);
    let presented = Presented::new(&signer.sign(&future, &KeyPair::generate().unwrap()));
    let good = |year| {
        presented
            .identity(&side.authorities, start_of(year))
            .is_ok()
    };
    assert_eq!([2199, 2201].map(good), [false, true]);
}

/// A chain with a certificate that cannot be read was verified again for each request, which takes up to a hundred signatures.
#[test]
fn regression_no_chain_is_verified_for_each_request() {
    let signer = Signer::new();
    let side = Side::of(&signer);
    let mut chain = signer.sign(&admin(), &KeyPair::generate().unwrap());
    chain.push(CertificateDer::from(vec![0x30, 0]));
    let now = start_of(2030);
    let verdict = side.authorities.judge(&chain, now);
    assert!(verdict.counts(&side.authorities, now));
    let later = std::time::Duration::from_secs(now.as_secs() + 1);
    assert!(!verdict.counts(&side.authorities, UnixTime::since_unix_epoch(later)));
}
