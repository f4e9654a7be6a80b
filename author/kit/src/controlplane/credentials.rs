//! Keys, certificates, tokens and kubeconfigs of one control plane. `mod` puts them on the command lines.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use sha2::{Digest as _, Sha256};

use crate::requests::{HOST_ACCOUNT, TEST_ACCOUNT};

/// The account of kube-controller-manager.
const CONTROLLER_MANAGER_ACCOUNT: &str = "pilothouse-controller-manager";

/// Accounts of a control plane, each with its token. All are cluster administrators.
#[derive(Debug)]
pub(super) struct Credentials {
    folder: PathBuf,
    ca: String,
    /// The tokens are made of it, so that one control plane does not accept another one's.
    seed: String,
}

impl Credentials {
    /// Creates all credentials, and writes them below the folder.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let service_account_key = KeyPair::generate().map_err(io::Error::other)?;
        let ca_key = KeyPair::generate().map_err(io::Error::other)?;
        let Certificates {
            ca,
            serving,
            serving_key,
            webhook_client,
            webhook_client_key,
        } = Certificates::make(&ca_key).map_err(io::Error::other)?;
        let credentials = Self {
            folder: folder.to_owned(),
            ca,
            seed: service_account_key.serialize_pem(),
        };
        credentials.write("service-account.key", &credentials.seed)?;
        credentials.write("service-account.pub", &service_account_key.public_key_pem())?;
        credentials.write("ca.crt", &credentials.ca)?;
        credentials.write("serving.crt", &serving)?;
        credentials.write("serving.key", &serving_key)?;
        credentials.write("webhook-client.crt", &webhook_client)?;
        credentials.write("webhook-client.key", &webhook_client_key)?;
        credentials.write("webhook-client.yaml", &credentials.webhook_kubeconfig())?;
        credentials.write("admission.yaml", &credentials.admission_configuration())?;
        let tokens = [TEST_ACCOUNT, HOST_ACCOUNT, CONTROLLER_MANAGER_ACCOUNT].map(|account| {
            format!(
                "{},{account},{account},\"system:masters\"\n",
                credentials.token(account)
            )
        });
        credentials.write("tokens.csv", &tokens.concat())?;
        Ok(credentials)
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    pub(super) fn token(&self, account: &str) -> String {
        let digest = Sha256::new().chain_update(&self.seed).chain_update(account).finalize();
        super::hexadecimal(&digest[..16])
    }

    /// The authority that signed the API server's certificate, as PEM.
    pub(super) fn ca(&self) -> &str {
        &self.ca
    }

    /// Writes the controller manager's kubeconfig and says where it is.
    pub(super) fn controller_manager(&self, url: &str) -> io::Result<String> {
        self.write(
            "controller-manager.yaml",
            &self.kubeconfig(url, CONTROLLER_MANAGER_ACCOUNT),
        )?;
        Ok(self.path("controller-manager.yaml"))
    }

    /// A kubeconfig that needs no other file but the authority's.
    pub(super) fn kubeconfig(&self, url: &str, account: &str) -> String {
        let (ca, token) = (self.path("ca.crt"), self.token(account));
        format!(
            "apiVersion: v1
kind: Config
clusters:
  - name: pilothouse
    cluster:
      server: {url}
      certificate-authority: {ca}
users:
  - name: {account}
    user:
      token: {token}
contexts:
  - name: pilothouse
    context:
      cluster: pilothouse
      user: {account}
current-context: pilothouse
"
        )
    }

    /// Credentials that the API server shows to any webhook that requests a certificate.
    fn webhook_kubeconfig(&self) -> String {
        let (certificate, key) = (self.path("webhook-client.crt"), self.path("webhook-client.key"));
        format!(
            "apiVersion: v1
kind: Config
users:
  - name: '*'
    user:
      client-certificate: {certificate}
      client-key: {key}
"
        )
    }

    /// The API server's configuration of the two kinds of webhooks.
    fn admission_configuration(&self) -> String {
        let group = "apiserver.config.k8s.io/v1";
        let kubeconfig = self.path("webhook-client.yaml");
        let plugin = |name: &str| {
            format!(
                "  - name: {name}
    configuration:
      apiVersion: {group}
      kind: WebhookAdmissionConfiguration
      kubeConfigFile: {kubeconfig}
"
            )
        };
        let (mutating, validating) = (plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook"));
        format!("apiVersion: {group}\nkind: AdmissionConfiguration\nplugins:\n{mutating}{validating}")
    }

    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.folder.join(name), text)
    }
}

/// Certificate authority, and the certificates that it has signed, all as PEM.
struct Certificates {
    ca: String,
    serving: String,
    serving_key: String,
    webhook_client: String,
    webhook_client_key: String,
}

impl Certificates {
    fn make(ca_key: &KeyPair) -> Result<Self, rcgen::Error> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority
            .distinguished_name
            .push(DnType::CommonName, "pilothouse test authority");
        let ca = authority.self_signed(ca_key)?;
        let issuer = Issuer::from_params(&authority, ca_key);

        let serving_key = KeyPair::generate()?;
        let mut serving = CertificateParams::new(vec![
            "127.0.0.1".to_owned(),
            "localhost".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ])?;
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        serving.distinguished_name.push(DnType::CommonName, "kube-apiserver");

        let webhook_client_key = KeyPair::generate()?;
        let mut webhook_client = CertificateParams::default();
        webhook_client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        webhook_client
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver as a client of webhooks");
        Ok(Self {
            ca: ca.pem(),
            serving: serving.signed_by(&serving_key, &issuer)?.pem(),
            serving_key: serving_key.serialize_pem(),
            webhook_client: webhook_client.signed_by(&webhook_client_key, &issuer)?.pem(),
            webhook_client_key: webhook_client_key.serialize_pem(),
        })
    }
}
