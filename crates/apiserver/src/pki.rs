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
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

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
    /// Unreadable or malformed files, a certificate without its key, or one that is not valid now: no client would trust what it
    /// signs. The error names the file.
    pub fn load_or_generate(directory: &Path, name: &str) -> io::Result<Self> {
        let (certificate, key) = (
            directory.join(format!("{name}.crt")),
            directory.join(format!("{name}.key")),
        );
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| at(path, &error));
        // The key is written first: without the certificate it is what a start left that was killed.
        if certificate
            .try_exists()
            .map_err(|error| at(&certificate, &error))?
        {
            let identity = Identity {
                certificate: read(&certificate)?,
                key: read(&key)?,
            };
            let authority = Authority::from_pem(identity)
                .map_err(|error| io::Error::other(format!("{}: {error}", certificate.display())))?;
            authority
                .check_time(jiff::Timestamp::now())
                .map_err(|why| {
                    io::Error::other(format!(
                        "{}: {why}; if the clock is right, move it and {name}.key away: a new one is made, and clients need the new kubeconfig",
                        certificate.display()
                    ))
                })?;
            return Ok(authority);
        }
        std::fs::create_dir_all(directory).map_err(|error| at(directory, &error))?;
        // The cluster's own has the name that kubeadm gives it.
        let subject = if name == "ca" { "kubernetes" } else { name };
        let authority = Authority::generate(subject).map_err(io::Error::other)?;
        write_private(&key, &authority.identity.key).map_err(|error| at(&key, &error))?;
        let written = write(&certificate, &authority.identity.certificate, 0o644);
        written.map_err(|error| at(&certificate, &error))?;
        Ok(authority)
    }

    /// Fails if its certificate has expired, or is not valid yet.
    fn check_time(&self, now: jiff::Timestamp) -> Result<(), String> {
        let certificate = CertificateDer::from_pem_slice(self.identity.certificate.as_bytes());
        let certificate = certificate.map_err(|error| error.to_string())?;
        let Some(valid) = allot_certificates::roots::seconds_of(&certificate) else {
            return Ok(());
        };
        let (what, second) = match now.as_second() {
            second if second < *valid.start() => ("is valid from", *valid.start()),
            second if second > *valid.end() => ("expired at", *valid.end()),
            _ => return Ok(()),
        };
        let at = |second| jiff::Timestamp::from_second(second).map_err(|error| error.to_string());
        Err(format!(
            "it {what} {}, and now it is {}",
            at(second)?,
            at(now.as_second())?
        ))
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

/// An error about a file, of the same kind.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
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

    /// A server with an authority that had expired, or of which the clock said that it will be valid, started, and waited
    /// without a word for its own clients.
    #[test]
    fn regression_an_authority_that_is_not_valid_now_is_refused() {
        let authority = Authority::generate("kubernetes").unwrap();
        let now = jiff::Timestamp::now();
        authority.check_time(now).unwrap();
        let later = now + jiff::SignedDuration::from_hours(24 * 366 * i64::from(YEARS));
        let why = authority.check_time(later).unwrap_err();
        assert!(why.starts_with("it expired at 20"), "{why}");
        assert!(why.contains("-01-01T00:00:00Z, and now it is 20"), "{why}");
        let why = authority
            .check_time(jiff::Timestamp::UNIX_EPOCH)
            .unwrap_err();
        assert!(why.starts_with("it is valid from 20"), "{why}");
        assert!(why.ends_with("and now it is 1970-01-01T00:00:00Z"), "{why}");
    }

    /// `certificate authority: Permission denied` was all; and an authority whose key was missing was replaced by a new one,
    /// which no client trusted.
    #[test]
    fn regression_what_is_wrong_with_a_file_of_the_authority_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let load = || Authority::load_or_generate(directory.path(), "ca");
        let error = || load().map(|_| ()).unwrap_err();
        let [certificate, key] = ["ca.crt", "ca.key"].map(|name| directory.path().join(name));
        let first = load().unwrap();
        assert_eq!(load().unwrap().certificate(), first.certificate());
        std::fs::remove_file(&key).unwrap();
        assert_eq!(error().kind(), io::ErrorKind::NotFound);
        assert!(error().to_string().starts_with(key.to_str().unwrap()));
        assert!(certificate.exists());
        // What a start leaves that is killed after it wrote the key.
        std::fs::remove_file(&certificate).unwrap();
        std::fs::write(&key, "").unwrap();
        load().unwrap();
        let below = certificate.join("pki");
        let error = Authority::load_or_generate(&below, "ca").map(|_| ());
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with(below.to_str().unwrap()), "{text}");
    }
}
