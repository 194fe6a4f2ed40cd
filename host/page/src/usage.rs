//! Renders what the jobs of members used over time.

use std::collections::BTreeMap;

use guild_contract::usage::{Amounts, DURATION_BOUNDS, Period, UsageView, Used};
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use crate::{
    chart::{Chart, Label, SERIES, Series, Unit},
    frame::page_at,
    parts::{USAGE, Viewer, encoded, number, seconds, text},
};

/// A length of the shown time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The word in a query.
    pub word: &'static str,
    /// The hours before now.
    pub hours: i64,
    title: &'static str,
}

/// The ranges to choose from; the second is the usual one.
pub const RANGES: [Range; 3] = [
    Range { word: "24h", hours: 24, title: "24 hours" },
    Range { word: "7d", hours: 24 * 7, title: "7 days" },
    Range { word: "30d", hours: 24 * 30, title: "30 days" },
];

/// The data of the page.
#[derive(Debug)]
pub struct UsagePage {
    /// The shown time.
    pub range: Range,
    /// The only member that is shown, if one was chosen.
    pub only: Option<String>,
    /// Whether the plots tell models apart, and not members.
    pub by_model: bool,
    /// The answers of `worker/usage` by member, or the reasons that there are none. All are of the same time.
    pub members: Vec<(String, Result<UsageView, String>)>,
}

/// The classes of durations in the plot: a name, and the number of [`DURATION_BOUNDS`] that are below its end.
const DURATIONS: [(&str, usize); 5] = [
    ("up to 10 s", 4),
    ("up to 1 min", 6),
    ("up to 10 min", 9),
    ("up to 1 h", 11),
    ("longer", DURATION_BOUNDS.len() + 1),
];

/// The whole page.
pub fn usage(viewer: &Viewer, page: &UsagePage) -> String {
    let used: Vec<(&str, &Used)> = page
        .members
        .iter()
        .filter_map(|(member, view)| Some((member.as_str(), view.as_ref().ok()?)))
        .flat_map(|(member, view)| view.used.iter().map(move |used| (member, used)))
        .collect();
    let by_member = sums(used.iter().map(|(member, used)| ((*member).to_owned(), *used)));
    let by_model = sums(used.iter().map(|(_, used)| (model(used), *used)));
    let body = html! {
        h1 { "Usage" @if let Some(only) = &page.only { " of " (text(only)) } }
        (choices(page))
        @for (member, view) in &page.members {
            @if let Err(why) = view { p.error { (text(member)) " is left out: " (text(why)) } }
        }
        @if used.is_empty() { p.quiet { "No job ended in this time." } } @else {
            section aria-labelledby="by-member" {
                h2 id="by-member" { "By member" }
                (table("by-member", "Member", &by_member, |member| html! {
                    a href=(link(page, page.range, Some(member), true)) { (text(member)) }
                }))
            }
            section aria-labelledby="by-model" {
                h2 id="by-model" { "By runtime and model" }
                (table("by-model", "Runtime and models", &by_model, |model| html! { (text(model)) }))
            }
            (remarks(page, &used))
            (charts(page, &used, if page.by_model { &by_model } else { &by_member }))
        }
    };
    page_at(USAGE, "Usage", viewer, &body)
}

fn link(page: &UsagePage, range: Range, only: Option<&str>, by_model: bool) -> String {
    let only = only.or(page.only.as_deref()).map_or_else(String::new, |member| format!("&member={}", encoded(member)));
    let by = if by_model { "&by=model" } else { "" };
    format!("{USAGE}?range={}{by}{only}", range.word)
}

fn choices(page: &UsagePage) -> Markup {
    let current = |is: bool| is.then_some("true");
    html! {
        nav aria-label="Time" {
            @for range in RANGES {
                a href=(link(page, range, None, page.by_model)) aria-current=[current(range == page.range)] { (range.title) }
            }
        }
        nav aria-label="Plots" {
            @for (by_model, name) in [(false, "Plots by member"), (true, "Plots by model")] {
                a href=(link(page, page.range, None, by_model)) aria-current=[current(by_model == page.by_model)] { (name) }
            }
            @if page.only.is_some() { a href={ (USAGE) "?range=" (page.range.word) } { "All members" } }
        }
    }
}

/// The runtime and the models of jobs.
fn model(used: &Used) -> String {
    match (used.agent.as_str(), used.models.as_slice()) {
        ("", _) => "not recorded".to_owned(),
        (agent, []) => agent.to_owned(),
        (agent, models) => format!("{agent}: {}", models.join(", ")),
    }
}

/// Sums by name, the largest first.
fn sums<'a>(used: impl Iterator<Item = (String, &'a Used)>) -> Vec<(String, Amounts)> {
    let mut sums: BTreeMap<String, Amounts> = BTreeMap::new();
    used.for_each(|(name, used)| sums.entry(name).or_default().plus(&used.amounts));
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(_, a), (_, b)| b.cost_usd.total_cmp(&a.cost_usd).then(b.jobs().cmp(&a.jobs())));
    sums
}

fn table(id: &str, first: &str, sums: &[(String, Amounts)], name: impl Fn(&str) -> Markup) -> Markup {
    let total = sums.iter().fold(Amounts::default(), |mut total, (_, amounts)| {
        total.plus(amounts);
        total
    });
    html! {
        div.scroll tabindex="0" role="region" aria-labelledby=(id) { table {
            thead { tr {
                th { (first) } th.number { "Jobs" } th.number { "Completed" } th.number { "Failed" } th.number { "Cancelled" }
                th.number { "Cost" } th.number { "Tokens in" } th.number { "Cached" } th.number { "Tokens out" }
                th.number { "Work" } th.number { "Half within" } th.number { "95 % within" }
            } }
            tbody {
                @for (of, amounts) in sums { tr { td { (name(of)) } (cells(amounts)) } }
                tr.total { td { "Total" } (cells(&total)) }
            }
        } }
    }
}

fn cells(amounts: &Amounts) -> Markup {
    let counts = [amounts.jobs(), amounts.completed, amounts.failed, amounts.cancelled];
    let tokens = [amounts.input_tokens, amounts.cached_tokens, amounts.output_tokens];
    html! {
        @for count in counts { td.number { (number(count)) } }
        td.number { @if amounts.unknown_costs > 0 { "≥ " } (usd(amounts.cost_usd)) }
        @for count in tokens { td.number { (number(count)) } }
        td.number { (seconds(amounts.wall_seconds)) }
        @for share in [0.5, 0.95] { td.number { (within(amounts.share_within(share))) } }
    }
}

fn usd(usd: f64) -> String {
    format!("${usd:.4}")
}

/// A bound of durations, to be read.
fn within(bound: Option<f64>) -> String {
    match bound {
        None => String::new(),
        Some(bound) if bound.is_finite() => match bound {
            ..60.0 => format!("{bound:.0} s"),
            ..3600.0 => format!("{:.0} min", bound / 60.0),
            _ => format!("{:.0} h", bound / 3600.0),
        },
        Some(_) => "over 12 h".to_owned(),
    }
}

/// Says what the tables have that the plots have not, and what neither has.
fn remarks(page: &UsagePage, used: &[(&str, &Used)]) -> Markup {
    let views = || page.members.iter().filter_map(|(_, view)| view.as_ref().ok());
    let sum = |count: fn(&Amounts) -> u64| used.iter().map(|(_, used)| count(&used.amounts)).sum::<u64>();
    let undated =
        used.iter().filter(|(_, used)| used.at.parse::<Timestamp>().is_err()).map(|(_, used)| used.amounts.jobs());
    let remarks = [
        (
            sum(|amounts| amounts.unknown_costs),
            "whose cost is known only in part (≥): a model has no price, or the job was cut off",
        ),
        (
            sum(|amounts| amounts.compactions),
            "that compacted the memory of a member; their tokens and cost are counted",
        ),
        (
            sum(|amounts| amounts.unknown),
            "that were deleted by an earlier version, which did not record how they ended",
        ),
        (undated.sum(), "that were deleted long ago, whose time is not known precisely; they are not in the plots"),
        (views().map(|view| u64::from(view.running)).sum(), "that run and are not counted yet"),
        (
            views().map(|view| u64::from(view.unreadable)).sum(),
            "whose record cannot be read, and which are not counted",
        ),
    ];
    html! {
        ul.quiet {
            @for (count, what) in remarks.iter().filter(|(count, _)| *count > 0) { li { (number(*count)) " " (what) } }
        }
    }
}

/// The usage of the members in periods, from which series are made.
struct Plots<'a> {
    starts: Vec<Timestamp>,
    used: &'a [(&'a str, &'a Used)],
}

impl Plots<'_> {
    /// Series of these names. `amounts` has what each usage adds to them, by their place.
    fn series<N: IntoIterator<Item = (usize, f64)>>(
        &self,
        names: &[String],
        amounts: impl Fn(&str, &Used) -> N,
    ) -> Vec<Series> {
        let new = |name: &String| Series { name: name.clone(), amounts: vec![0.0; self.starts.len()] };
        let mut series: Vec<Series> = names.iter().map(new).collect();
        for (member, used) in self.used {
            let at = used.at.parse::<Timestamp>().ok();
            let Some(period) = at.and_then(|at| self.starts.binary_search(&at).ok()) else { continue };
            for (nth, amount) in amounts(member, used) {
                if let Some(sum) = series.get_mut(nth).and_then(|series| series.amounts.get_mut(period)) {
                    *sum += amount;
                }
            }
        }
        series
    }
}

fn charts(page: &UsagePage, used: &[(&str, &Used)], by: &[(String, Amounts)]) -> Markup {
    let Some(view) = page.members.iter().find_map(|(_, view)| view.as_ref().ok()) else { return html! {} };
    let plots = Plots { starts: starts(view), used };
    let labels: Vec<Label> = plots.starts.iter().map(|start| label(*start, view.period)).collect();
    // The first are told apart, and the last series has the others.
    let mut names: Vec<String> = by.iter().map(|(name, _)| name.clone()).collect();
    if names.len() > SERIES {
        names.truncate(SERIES - 1);
        names.push("others".to_owned());
    }
    let nth = |member: &str, used: &Used| {
        let name = if page.by_model { model(used) } else { member.to_owned() };
        by.iter().position(|(other, _)| *other == name).unwrap_or_default().min(names.len().saturating_sub(1))
    };
    let stacked =
        |amount: fn(&Amounts) -> f64| plots.series(&names, |member, used| [(nth(member, used), amount(&used.amounts))]);
    let ends = ["completed", "failed", "cancelled", "not recorded"].map(str::to_owned);
    let ends = plots.series(&ends, |_, used| {
        let Amounts { completed, failed, cancelled, unknown, .. } = used.amounts;
        [completed, failed, cancelled, unknown].map(|count| count as f64).into_iter().enumerate()
    });
    let durations = plots.series(&DURATIONS.map(|(name, _)| name.to_owned()), |_, used| {
        let class = |bucket: usize| DURATIONS.iter().position(|(_, end)| bucket < *end).unwrap_or_default();
        let counts = used.amounts.durations.into_iter().enumerate();
        counts.map(move |(bucket, count)| (class(bucket), count as f64))
    });
    let per = match view.period {
        Period::Hour => "hour",
        Period::Day => "day",
    };
    let dollars = Unit { shown: usd, least: 0.0001 };
    let counted = Unit { shown: |count| number(count as u64), least: 1.0 };
    let hours = Unit { shown: |hours| format!("{hours:.2}"), least: 0.01 };
    let all = [
        ("cost", "Cost in US dollars", stacked(|amounts| amounts.cost_usd), dollars),
        ("tokens", "Tokens in and out", stacked(|amounts| amounts.tokens() as f64), counted),
        ("jobs", "Jobs", stacked(|amounts| amounts.jobs() as f64), counted),
        ("ends", "Jobs by their end", ends, counted),
        ("durations", "Jobs by the duration of their work", durations, counted),
        ("work", "Hours of work", stacked(|amounts| amounts.wall_seconds / 3600.0), hours),
    ];
    html! {
        h2 { "Over time" }
        @for (id, title, series, unit) in all {
            (Chart { id, title: &format!("{title}, by {per}"), periods: &labels, series, unit }.render())
        }
    }
}

/// The starts of the periods.
fn starts(view: &UsageView) -> Vec<Timestamp> {
    let (Ok(since), Ok(until)) = (view.since.parse::<Timestamp>(), view.until.parse::<Timestamp>()) else {
        return Vec::new();
    };
    let next = |at: &Timestamp| at.checked_add(SignedDuration::from_secs(view.period.seconds())).ok();
    std::iter::successors(Some(since), next).take_while(|at| *at < until).collect()
}

fn label(start: Timestamp, period: Period) -> Label {
    let shown = |format: &str| start.strftime(format).to_string();
    match period {
        Period::Hour => Label { short: shown("%H:%M"), long: shown("%Y-%m-%d %H:%M") },
        Period::Day => Label { short: shown("%m-%d"), long: shown("%Y-%m-%d") },
    }
}
