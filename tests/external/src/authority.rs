//! Certificates of a registry: an authority of its own, which no system trusts, and a certificate for loopback.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// An authority and what it has signed, all as PEM.
pub(crate) struct Certificates {
    pub(crate) authority: String,
    pub(crate) serving: String,
    pub(crate) serving_key: String,
}

impl Certificates {
    /// Makes an authority, and a certificate for `127.0.0.1` and `localhost`.
    pub(crate) fn create() -> Result<Self, Error> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let name = &mut authority.distinguished_name;
        name.push(DnType::CommonName, "pilothouse test registry authority");
        let certificate = authority.self_signed(&authority_key)?;
        let issuer = Issuer::from_params(&authority, &authority_key);

        let key = KeyPair::generate()?;
        let mut serving = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        serving.distinguished_name.push(DnType::CommonName, "registry");
        Ok(Self {
            authority: certificate.pem(),
            serving: serving.signed_by(&key, &issuer)?.pem(),
            serving_key: key.serialize_pem(),
        })
    }
}
