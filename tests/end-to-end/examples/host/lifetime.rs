//! New objects, beside what the baseline client needs for the same.

use pilothouse_testkit::host::SteeredHost as _;

use crate::contenders::{self, Hosted, IN_FLIGHT, Run, by_baseline, by_host, compare};
use crate::figures::{heading, line, mebibytes, number, spread};
use crate::steered::{self, NEVER};
use crate::{Outcome, Size};

/// Bundles of the run that only compares.
const FEW: usize = 20;

/// Measures and prints.
pub async fn measure(size: &Size) -> Outcome<()> {
    let Size {
        objects, repetitions, ..
    } = *size;
    // Before anything is timed: both make the same.
    pair(FEW).await?;
    let mut pairs = Vec::new();
    for _ in 0..repetitions {
        pairs.push(pair(objects).await?);
    }
    print_pairs(objects, &pairs);
    Ok(())
}

async fn pair(objects: usize) -> Outcome<(Run, Hosted)> {
    let baseline = {
        let (cluster, _) = contenders::cluster(objects).await?;
        by_baseline(&cluster, objects).await?
    };
    let (cluster, idle) = contenders::cluster(objects).await?;
    let mut host = steered::host(NEVER);
    let hosted = by_host(&cluster, &mut host, objects, idle).await?;
    host.stop().await?;
    compare(&baseline, &hosted.run)?;
    Ok((baseline, hosted))
}

fn print_pairs(objects: usize, pairs: &[(Run, Hosted)]) {
    let each = |figure: &dyn Fn(&Run, &Hosted) -> f64, digits| {
        let figures: Vec<_> = pairs
            .iter()
            .map(|(baseline, hosted)| figure(baseline, hosted))
            .collect();
        spread(&figures, digits)
    };
    let count = number(objects);
    heading(&format!(
        "{objects} new Bundles on a real API server; the baseline is a client of its own with {IN_FLIGHT} requests in flight"
    ));
    line(
        "the baseline: writes a second",
        &each(&|baseline, _| number(baseline.writes) / baseline.seconds, 0),
        "",
    );
    line(
        "the host: share of the baseline's rate",
        &each(&|baseline, hosted| baseline.seconds / hosted.run.seconds, 2),
        "aim 0.95",
    );
    line(
        "the host: write requests for each object",
        &each(&|_, hosted| number(hosted.run.writes) / count, 3),
        "aim 4",
    );
    line(
        "the baseline: CPU seconds for 1000 objects",
        &each(&|baseline, _| baseline.cpu_seconds / count * 1000.0, 2),
        "",
    );
    line(
        "the host: the same, as a multiple of the baseline's",
        &each(&|baseline, hosted| hosted.run.cpu_seconds / baseline.cpu_seconds, 2),
        "aim 1.3",
    );
    line(
        "the host: PSS idle, MiB",
        &each(&|_, hosted| mebibytes(hosted.idle), 1),
        "aim 10",
    );
    line(
        "the host: PSS converged, MiB",
        &each(&|_, hosted| mebibytes(hosted.full), 1),
        "aim 16 with 2,000, 30 with 10,000",
    );
    line(
        "the host: greatest PSS on the way, MiB",
        &each(&|_, hosted| mebibytes(hosted.peak), 1),
        "",
    );
}
