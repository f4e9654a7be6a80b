//! Prints figures: one table for each part, and repeated measurements with minimum, median and maximum.

/// A heading.
pub fn heading(text: &str) {
    println!("\n{text}");
}

/// Prints one line: the name, the figure and the aim.
pub fn line(what: &str, figure: &str, aim: &str) {
    println!("  {what:<58} {figure:>26}  {aim}");
}

/// The least, the median and the greatest.
pub fn spread(figures: &[f64], digits: usize) -> String {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.as_slice() {
        [] => "-".to_owned(),
        [one] => format!("{one:.digits$}"),
        [least, .., greatest] => {
            let median = sorted[sorted.len() / 2];
            format!("{least:.digits$} / {median:.digits$} / {greatest:.digits$}")
        }
    }
}

/// The figure below which so many parts of all lie.
pub fn quantile(figures: &[f64], part: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "there are few figures, and the part is between 0 and 1"
    )]
    let index = (sorted.len() as f64 * part) as usize;
    sorted
        .get(index.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// A count as a number to divide by.
#[expect(clippy::cast_precision_loss, reason = "nothing that is counted here comes near 2^52")]
pub fn number(count: usize) -> f64 {
    count as f64
}

/// KiB as MiB.
pub fn mebibytes(kibibytes: f64) -> f64 {
    kibibytes / 1024.0
}
