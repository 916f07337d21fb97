//! Certificates: the cluster's own CA and the certificates it signs.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

/// A certificate and its key, PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate, without those of its issuers.
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
    /// Errors of the key generator.
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

    /// The CA from the content of these files.
    ///
    /// # Errors
    /// If they are no certificate with its key.
    pub fn from_pem(identity: Identity) -> Result<Self, rcgen::Error> {
        let key = KeyPair::from_pem(&identity.key)?;
        let issuer = Issuer::from_ca_cert_pem(&identity.certificate, key)?;
        Ok(Authority { issuer, identity })
    }

    /// The CA in a directory as `NAME.crt` and `NAME.key`, generated if missing.
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
        // The cluster's own has the name that kubeadm gives it.
        let subject = if name == "ca" { "kubernetes" } else { name };
        let authority = Authority::generate(subject).map_err(io::Error::other)?;
        write_private(&key, &authority.identity.key)?;
        write(&certificate, &authority.identity.certificate, 0o644)?;
        Ok(authority)
    }

    /// Its certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.identity.certificate
    }

    /// A serving certificate for these names and addresses.
    ///
    /// # Errors
    /// A name that is neither a DNS name nor an IP address.
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
    /// Errors of the signer.
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

/// Writes a file that only its owner can read. A concurrent reader, or the next start after a crash, sees either the
/// complete file or the previous one.
///
/// # Errors
/// Errors of the file system.
pub fn write_private(path: &Path, content: &str) -> io::Result<()> {
    write(path, content, 0o600)
}

fn write(path: &Path, content: &str, mode: u32) -> io::Result<()> {
    // A symbolic link is kept.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.metadata().is_ok_and(|existing| !existing.is_file()) {
        // A pipe or a terminal is not to be replaced.
        return std::fs::write(&path, content);
    }
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&temporary)?;
    let written = file.write_all(content.as_bytes());
    let written = written.and_then(|()| std::fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A process that waited for the kubeconfig of a starting server could read an incomplete file.
    #[test]
    fn regression_a_file_is_never_seen_half_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        let contents = ["a", "b"].map(|letter| letter.repeat(1 << 20));
        write_private(&path, &contents[0]).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..50 {
                    write_private(&path, &contents[round % 2]).unwrap();
                }
            });
            while !writer.is_finished() {
                let read = std::fs::read_to_string(&path).unwrap();
                assert!(contents.contains(&read), "{} bytes", read.len());
            }
        });
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_and_sockets_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
        std::fs::write(&file, "before").unwrap();
        symlink(&file, &link).unwrap();
        write_private(&link, "after").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "after");
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let socket = directory.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        write_private(&socket, "nobody").unwrap_err();
        assert!(!socket.metadata().unwrap().is_file());
    }
}
