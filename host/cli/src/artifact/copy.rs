//! `pilothouse copy`: copies an artifact with everything that belongs to it from one place to another.

use anyhow::bail;
use clap::Args;
use pilothouse_artifact::{Copied, Location};

use super::{RegistryArguments, Session, bytes, pinned, target_of, wait_for};

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse copy ghcr.io/acme/app-service:0.1.0 registry.internal/plugins/app-service
  pilothouse copy ghcr.io/acme/app-service:0.1.0 oci-archive:plugins.tar     for a cluster without a network
  pilothouse copy oci-archive:plugins.tar:0.1.0 registry.internal/plugins/app-service:0.1.0
  pilothouse copy ghcr.io/acme/app-service@sha256:... ghcr.io/acme/app-service:stable     sets a tag

What belongs to an artifact is copied with it: signatures in both of cosign's formats, attestations, SBOM, CRDs, README.
Digests stay the same, and so signatures stay valid. The tag is set at the end; without a tag in TO, it is that of FROM. A
layout that exists is added to.

Exit code: 0 everything is there, 1 it is not, 2 the command line is wrong.";

/// `pilothouse copy`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CopyCommand {
    /// The artifact: HOST/REPOSITORY:TAG, HOST/REPOSITORY@DIGEST, or the same in oci-layout:DIRECTORY or
    /// oci-archive:FILE.tar
    #[arg(value_name = "FROM")]
    from: Location,

    /// Where to copy it: HOST/REPOSITORY[:TAG], oci-layout:DIRECTORY[:TAG] or oci-archive:FILE.tar[:TAG]
    #[arg(value_name = "TO")]
    to: Location,

    #[command(flatten)]
    registries: RegistryArguments,
}

impl CopyCommand {
    /// Copies, and prints the new reference with the digest.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self { from, to, registries } = self;
        let session = registries.session()?;
        wait_for(copy(&session, &from, &to))
    }
}

async fn copy(session: &Session, from: &Location, to: &Location) -> anyhow::Result<()> {
    let source = session.open(from)?;
    let resolved = source.resolve(&target_of(from)?).await?;
    let expected = match to {
        Location::Registry(reference) => reference.digest(),
        Location::Layout(layout) => layout.digest,
    };
    if let Some(expected) = expected.filter(|expected| *expected != resolved.digest) {
        bail!(
            "{from} has the digest {}, and the copy cannot have another, {expected}; leave the digest off {to}",
            resolved.digest
        );
    }
    let tag = to.tag().or(from.tag());
    let destination = session.open(to)?;
    let copied = {
        let progress = session.progress("copying");
        pilothouse_artifact::copy(&source, &destination, resolved.digest, tag, &progress).await?
    };
    destination.finish().await?;
    println!("{}", pinned(to, resolved.digest));
    session.say(counts(&copied));
    Ok(())
}

fn counts(copied: &Copied) -> String {
    let Copied {
        manifests,
        referrers,
        blobs,
        skipped,
        bytes: size,
    } = *copied;
    format!(
        "copied {manifests} manifests ({referrers} of signatures and other attachments) and {blobs} blobs ({}); {skipped} blobs \
         were there",
        bytes(size)
    )
}
