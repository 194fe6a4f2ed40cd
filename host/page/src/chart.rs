//! Renders bars over time as SVG, with the same numbers as a table.
//!
//! The picture needs no script, so it prints, follows dark mode, and is there before any script runs; who cannot see it
//! reads the table.

use maud::{Markup, html};

use crate::parts::text;

/// The size of the picture, and of its labels.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 90.0;
const BELOW: f64 = 24.0;
const ABOVE: f64 = 12.0;
/// The most labels of each axis.
const MARKS: usize = 4;
const DATES: usize = 8;
/// The most series; the last has all others.
pub(crate) const SERIES: usize = 8;

/// A chart: bars of several series on top of each other, for each period.
pub(crate) struct Chart<'a> {
    /// The id of its title.
    pub(crate) id: &'a str,
    /// The title, with the unit.
    pub(crate) title: &'a str,
    /// The periods.
    pub(crate) periods: &'a [Label],
    /// At most [`SERIES`].
    pub(crate) series: Vec<Series>,
    /// The amounts.
    pub(crate) unit: Unit,
}

/// A unit of amounts.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    /// An amount to be read.
    pub(crate) shown: fn(f64) -> String,
    /// The smallest difference that is shown.
    pub(crate) least: f64,
}

/// The name of a period.
pub(crate) struct Label {
    /// On the axis.
    pub(crate) short: String,
    /// In the table.
    pub(crate) long: String,
}

/// The amounts of a series, one for each period.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) amounts: Vec<f64>,
}

impl Chart<'_> {
    pub(crate) fn render(&self) -> Markup {
        let sum = |nth: usize| self.series.iter().filter_map(|series| series.amounts.get(nth)).sum::<f64>();
        let most = (0..self.periods.len()).map(sum).fold(0.0, f64::max);
        let shown: Vec<(usize, &Series)> = self
            .series
            .iter()
            .enumerate()
            .filter(|(_, series)| series.amounts.iter().any(|amount| *amount > 0.0))
            .collect();
        html! {
            figure.chart aria-labelledby=(self.id) {
                figcaption id=(self.id) { (self.title) }
                @if shown.is_empty() { p.quiet { "None in this time." } } @else {
                    ul.legend { @for (nth, series) in &shown { li { i class={ "c" (nth) } {} (text(&series.name)) } } }
                    div.scroll tabindex="0" role="region" aria-labelledby=(self.id) { (self.picture(&shown, most)) }
                    details { summary { "As a table" } (self.table(&shown)) }
                }
            }
        }
    }

    fn picture(&self, shown: &[(usize, &Series)], most: f64) -> Markup {
        let step = step(most, self.unit.least);
        let top = (most / step).ceil().max(1.0) * step;
        let y = |amount: f64| ABOVE + (1.0 - amount / top) * (HEIGHT - ABOVE);
        let width = (WIDTH - LEFT) / self.periods.len() as f64;
        let every = self.periods.len().div_ceil(DATES).max(1);
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {}", HEIGHT + BELOW)) role="img"
                aria-label={ (self.title) "; the table below has the numbers" } {
                @for mark in (0..=MARKS + 1).map(|nth| nth as f64 * step).take_while(|mark| *mark <= top * 1.0001) {
                    line.axis x1=(LEFT) x2=(WIDTH) y1=(at(y(mark))) y2=(at(y(mark))) {}
                    text x=(LEFT - 8.0) y=(at(y(mark) + 4.0)) text-anchor="end" { ((self.unit.shown)(mark)) }
                }
                @for (nth, period) in self.periods.iter().enumerate() {
                    @let left = LEFT + nth as f64 * width;
                    @if nth % every == 0 {
                        text x=(at(left + width / 2.0)) y=(HEIGHT + BELOW - 6.0) text-anchor="middle" { (period.short) }
                    }
                    @for (colour, name, from, to) in stack(shown, nth) {
                        rect class={ "c" (colour) } x=(at(left + width * 0.1)) y=(at(y(to))) width=(at(width * 0.8))
                            height=(at(y(from) - y(to))) {
                            title { (period.long) ": " (text(name)) " " ((self.unit.shown)(to - from)) }
                        }
                    }
                }
            }
        }
    }

    fn table(&self, shown: &[(usize, &Series)]) -> Markup {
        html! {
            div.scroll tabindex="0" role="region" aria-labelledby=(self.id) { table {
                thead { tr { th { "From (UTC)" } @for (_, series) in shown { th.number { (text(&series.name)) } } } }
                tbody { @for (nth, period) in self.periods.iter().enumerate() { tr {
                    td { (period.long) }
                    @for (_, series) in shown {
                        td.number { ((self.unit.shown)(series.amounts.get(nth).copied().unwrap_or_default())) }
                    }
                } } }
            } }
        }
    }
}

/// The parts of a bar: the colour, the name, and both ends.
fn stack<'a>(shown: &[(usize, &'a Series)], nth: usize) -> Vec<(usize, &'a str, f64, f64)> {
    let mut top = 0.0;
    let amounts =
        shown.iter().map(|(colour, series)| (*colour, series, series.amounts.get(nth).copied().unwrap_or_default()));
    let parts = amounts.filter(|(_, _, amount)| *amount > 0.0).map(|(colour, series, amount)| {
        let from = top;
        top += amount;
        (colour, &*series.name, from, top)
    });
    parts.collect()
}

/// The distance of two marks, 1, 2 or 5 times a power of ten, so that there are at most [`MARKS`] below `most`.
fn step(most: f64, least: f64) -> f64 {
    let least = least.max(most / MARKS as f64);
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= least * 0.9999).unwrap_or(least)
}

/// A coordinate.
fn at(coordinate: f64) -> String {
    format!("{coordinate:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_few() {
        for (most, wanted) in [(0.0, 1.0), (1.0, 1.0), (4.0, 1.0), (4.1, 2.0), (123_456.0, 50_000.0)] {
            let step = step(most, 1.0);
            assert!((step - wanted).abs() < wanted * 1e-9, "{most}: {step}");
            assert!(most / step <= MARKS as f64 * 1.001);
        }
    }

    #[test]
    fn a_bar_has_its_series_on_top_of_each_other_and_names_are_texts() {
        let series = |name: &str, amounts: &[f64]| Series { name: name.to_owned(), amounts: amounts.to_vec() };
        let label = |short: &str| Label { short: short.to_owned(), long: format!("2026-{short}") };
        let chart = Chart {
            id: "jobs",
            title: "Jobs",
            periods: &[label("01-01"), label("01-02")],
            series: vec![series("<b>", &[1.0, 3.0]), series("none", &[0.0, 0.0]), series("c", &[1.0, 0.0])],
            unit: Unit { shown: |amount| format!("{amount}"), least: 1.0 },
        };
        let html = chart.render().into_string();
        assert!(!html.contains("<b>") && !html.contains("none") && !html.contains("NaN"), "{html}");
        // Three on an axis of three: the bars of the first day are a third each.
        let third = (HEIGHT - ABOVE) / 3.0;
        for (class, from) in [("c0", 1.0), ("c2", 2.0)] {
            let rect = format!(r#"<rect class="{class}" x="135.5" y="{}""#, at(ABOVE + (3.0 - from) * third));
            assert!(html.contains(&rect), "{rect} is not in {html}");
        }
    }
}
