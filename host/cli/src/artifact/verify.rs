//! `pilothouse verify`: checks that a host with these keys or this trust file would run an artifact.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{ArgGroup, Args};
use pilothouse_artifact::{
    ArtifactStore, FoundSignatures, Location, Outcome, SignatureFormat, TrustPolicy, Verification,
};

use super::{RegistryArguments, Session, pinned, target_of, wait_for};
use crate::plugins::read_document;
use pilothouse_core::text::printable::printable;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse verify ghcr.io/acme/app-service:0.1.0 --key cosign.pub
  pilothouse verify ghcr.io/acme/app-service:0.1.0 --policy trust.yaml
  pilothouse verify oci-archive:plugins.tar:0.1.0 --policy trust.yaml --as ghcr.io/acme/app-service

Prints the reference with the digest, and who signed it. Nothing but the registry is asked: neither a transparency log nor a
certificate authority. With --policy, an artifact that the trust file accepts without a signature is accepted here too, and
reported as unsigned.

Exit code: 0 the artifact is accepted, 1 it is not or that cannot be found out, 2 the command line is wrong.";

/// `pilothouse verify`
#[derive(Args)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("signers").required(true).args(["keys", "policy"])))]
pub struct VerifyCommand {
    /// The artifact: HOST/REPOSITORY:TAG, HOST/REPOSITORY@DIGEST, or the same in oci-layout:DIRECTORY or
    /// oci-archive:FILE.tar
    #[arg(value_name = "REF")]
    artifact: Location,

    /// A public key, PEM, such as the cosign.pub of `cosign generate-key-pair`. May be repeated: a signature by one of the
    /// keys is enough
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,

    /// The trust file of the host, YAML or JSON
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// The repository whose rule of the trust file is applied, for a copy of an artifact (default: the one of REF)
    #[arg(long = "as", value_name = "HOST/REPOSITORY", conflicts_with = "keys")]
    repository: Option<String>,

    #[command(flatten)]
    registries: RegistryArguments,
}

impl VerifyCommand {
    /// Verifies, and prints what was verified.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            artifact,
            keys,
            policy,
            repository,
            registries,
        } = self;
        let policy = match policy {
            Some(file) => trust_file(&file)?,
            None => TrustPolicy::of_keys(&keys)?,
        };
        let session = registries.session()?;
        let name = match repository {
            Some(name) => name,
            None => repository_of(&artifact)?,
        };
        let text = wait_for(verified(&session, &artifact, &name, &policy))?;
        print!("{text}");
        Ok(())
    }
}

/// Reads a trust file. The files that it names are beside it.
fn trust_file(file: &Path) -> anyhow::Result<TrustPolicy> {
    let directory = file.parent().unwrap_or(Path::new(""));
    TrustPolicy::load(&read_document(file)?, directory)
        .with_context(|| format!("the trust file {} cannot be used", file.display()))
}

/// Returns the artifact's repository as trust files name it; for a layout, with the whole path.
pub fn repository_of(location: &Location) -> anyhow::Result<String> {
    match location {
        Location::Registry(reference) => Ok(reference.name()),
        Location::Layout(layout) => {
            let path = layout.path.canonicalize();
            let path = path.with_context(|| format!("cannot read {}", layout.path.display()))?;
            Ok(format!("oci-layout:{}", path.display()))
        }
    }
}

async fn verified(
    session: &Session,
    location: &Location,
    repository: &str,
    policy: &TrustPolicy,
) -> anyhow::Result<String> {
    let target = target_of(location)?;
    // Checked before anything is sent: no request goes to a repository that is not allowed.
    policy.rule_for(repository)?;
    let store: ArtifactStore = session.open(location)?;
    let digest = store.resolve(&target).await?.digest;
    // The artifact itself has to exist: a signature alone cannot run.
    let manifest = store.manifest(digest).await?;
    let FoundSignatures { signatures, problem } = store.find_signatures(digest).await;
    let verification = match (policy.verify(repository, &manifest, &signatures), problem) {
        // The required signature may be at a place that could not be read.
        (Err(_), Some(problem)) => return Err(problem.into()),
        (verified, _) => verified?,
    };
    Ok(report(&pinned(location, digest), &verification))
}

fn report(artifact: &Location, verification: &Verification) -> String {
    let Verification { outcome, rule } = verification;
    match outcome {
        Outcome::Unsigned => format!("{artifact}\naccepted  unsigned\nrule      {rule}\n"),
        Outcome::Unverified { signatures } => {
            format!("{artifact}\naccepted  unverified; {signatures} signatures found\nrule      {rule}\n")
        }
        Outcome::Signed {
            signer,
            format,
            signed_at,
        } => {
            let format = match format {
                SignatureFormat::Bundle => "Sigstore bundle",
                SignatureFormat::SimpleSigning => "cosign's older tag scheme",
            };
            let time = signed_at.map(|time| format!("signed at {time}\n")).unwrap_or_default();
            let signer = printable(signer);
            format!("{artifact}\nverified  signed by {signer}\n{time}format    {format}\nrule      {rule}\n")
        }
    }
}
