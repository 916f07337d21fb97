//! Signatures of a handshake.

/// The methods of a verifier that are about signatures, with the algorithms of its `provider`: they do not depend on the
/// certificates that it trusts.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &::rustls::pki_types::CertificateDer<'_>,
            signature: &::rustls::DigitallySignedStruct,
        ) -> Result<::rustls::client::danger::HandshakeSignatureValid, ::rustls::Error> {
            let known = &self.provider.signature_verification_algorithms;
            ::rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &::rustls::pki_types::CertificateDer<'_>,
            signature: &::rustls::DigitallySignedStruct,
        ) -> Result<::rustls::client::danger::HandshakeSignatureValid, ::rustls::Error> {
            let known = &self.provider.signature_verification_algorithms;
            ::rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
        }

        fn supported_verify_schemes(&self) -> Vec<::rustls::SignatureScheme> {
            self.provider
                .signature_verification_algorithms
                .supported_schemes()
        }
    };
}

pub(crate) use verify_signatures;
