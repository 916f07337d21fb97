//! Certificates: the cluster's own authority and what it signs.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

/// A certificate and its key, PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Certificate.
    pub certificate: String,
    /// Private key.
    pub key: String,
}

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    identity: Identity,
}

/// How long certificates are valid.
const YEARS: i32 = 10;

impl Authority {
    /// A new authority.
    ///
    /// # Errors
    /// Those of the key generator.
    pub fn generate(name: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        valid(&mut params);
        let certificate = params.self_signed(&key)?;
        let identity = Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        };
        Ok(Authority {
            issuer: Issuer::new(params, key),
            identity,
        })
    }

    /// The authority of these files' content.
    ///
    /// # Errors
    /// If it is no certificate and key.
    pub fn from_pem(identity: Identity) -> Result<Self, rcgen::Error> {
        let key = KeyPair::from_pem(&identity.key)?;
        let issuer = Issuer::from_ca_cert_pem(&identity.certificate, key)?;
        Ok(Authority { issuer, identity })
    }

    /// The authority kept in a directory as `NAME.crt` and `NAME.key`, made there if missing.
    ///
    /// # Errors
    /// Unreadable or malformed files.
    pub fn load_or_generate(directory: &Path, name: &str) -> io::Result<Self> {
        let (certificate, key) = (
            directory.join(format!("{name}.crt")),
            directory.join(format!("{name}.key")),
        );
        if certificate.exists() && key.exists() {
            let identity = Identity {
                certificate: std::fs::read_to_string(&certificate)?,
                key: std::fs::read_to_string(&key)?,
            };
            return Authority::from_pem(identity)
                .map_err(|error| io::Error::other(format!("{}: {error}", certificate.display())));
        }
        std::fs::create_dir_all(directory)?;
        let authority = Authority::generate("kubernetes").map_err(io::Error::other)?;
        write_private(&key, &authority.identity.key)?;
        std::fs::write(&certificate, &authority.identity.certificate)?;
        Ok(authority)
    }

    /// Its certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.identity.certificate
    }

    /// A serving certificate for these names and addresses.
    ///
    /// # Errors
    /// A name that is none.
    pub fn server(
        &self,
        name: &str,
        dns: &[String],
        addresses: &[IpAddr],
    ) -> Result<Identity, rcgen::Error> {
        let mut params = CertificateParams::new(dns.to_vec())?;
        params
            .subject_alt_names
            .extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.distinguished_name = subject(name, &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A client certificate for a user and its groups.
    ///
    /// # Errors
    /// Those of the signer.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Identity, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity, rcgen::Error> {
        valid(&mut params);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn subject(name: &str, groups: &[&str]) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    for group in groups {
        subject.push(DnType::OrganizationName, *group);
    }
    subject.push(DnType::CommonName, name);
    subject
}

fn valid(params: &mut CertificateParams) {
    let year = jiff::Timestamp::now()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .year();
    params.not_before = rcgen::date_time_ymd(i32::from(year) - 1, 1, 1);
    params.not_after = rcgen::date_time_ymd(i32::from(year) + YEARS, 1, 1);
}

/// Writes a file that only its owner can read.
///
/// # Errors
/// Those of the file system.
pub fn write_private(path: &Path, content: &str) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content.as_bytes())
}
