//! Medians, percentiles, and the table of figures.

use std::{fmt, time::Duration};

/// The value below which a share of the values lies: the median at 0.5.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index between 0 and the length")]
    let index = ((sorted.len() as f64 - 1.0) * share).round().max(0.0) as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// The median.
pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// Milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The target of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Aim {
    /// The figure is reported without a target.
    Stated,
    /// The minimum of the figure.
    AtLeast(f64),
    /// The maximum of the figure.
    AtMost(f64),
}

/// The figures in the order of their measurement.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<String>,
}

impl Report {
    /// Adds a figure, and prints it at once, since a run takes minutes.
    pub(crate) fn add(&mut self, what: &str, figure: f64, unit: &str, aim: Aim, how: &str) {
        let (aim, reached) = match aim {
            Aim::Stated => (String::new(), ""),
            Aim::AtLeast(least) => (format!(">= {least}"), if figure >= least { "ok" } else { "MISSED" }),
            Aim::AtMost(most) => (format!("<= {most}"), if figure <= most { "ok" } else { "MISSED" }),
        };
        let line = format!("{what:<52} {figure:>10.2} {unit:<6} {aim:>8} {reached:<6}  {how}");
        println!("{line}");
        self.lines.push(line);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(percentile(&[1.0, 2.0, 3.0, 4.0], 1.0), 4.0);
        assert!(median(&[]).is_nan());
    }
}
