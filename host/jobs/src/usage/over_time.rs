//! Sums the usage of jobs and compactions by period, runtime and models.

use std::collections::BTreeMap;

use guild_contract::{
    JobUsage, Meta,
    text::one_line,
    usage::{Amounts, PERIODS, Period, UsageParams, UsageView, Used},
};
use jiff::{SignedDuration, Timestamp};

use super::removed::Removed;
use crate::{StoreError, memory::Compaction};

/// The number of runtimes with models that are told apart.
const KINDS: usize = 10;
/// The runtime under which all others are.
const OTHER: &str = "other";
/// The most models of a kind, and the most characters of a name: both are from a provider.
const MODELS: usize = 4;
const NAME_CHARS: usize = 80;
/// The time that the answer covers if no start was given.
const DEFAULT_DAYS: i64 = 30;
/// The most hours for which the default period is an hour.
const BY_HOUR: i64 = 72;

/// A runtime with its models.
type Kind = (String, Vec<String>);

/// The time of a sum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    /// The beginning of a time that is not known precisely, such as `2026-01`; it may be empty.
    Imprecise(String),
    /// The start of a period.
    Period(Timestamp),
}

/// Sums by period.
pub(crate) struct OverTime {
    /// The start of the first period, and the end of the last.
    since: Timestamp,
    until: Timestamp,
    period: Period,
    sums: BTreeMap<(At, Kind), Amounts>,
}

impl OverTime {
    /// Empty sums of the periods that the parameters ask for.
    ///
    /// # Errors
    ///
    /// Returns an error when the parameters are invalid.
    pub(crate) fn new(params: &UsageParams, now: Timestamp) -> Result<Self, StoreError> {
        let time = |name: &str, text: &Option<String>| {
            let parsed = text.as_ref().map(|text| text.parse::<Timestamp>()).transpose();
            parsed.map_err(|_| StoreError::Refused(format!("{name} is not a time such as 2026-01-31T00:00:00Z")))
        };
        let until = time("until", &params.until)?.unwrap_or(now);
        let before = until.checked_sub(SignedDuration::from_hours(24 * DEFAULT_DAYS)).unwrap_or(Timestamp::MIN);
        let since = time("since", &params.since)?.unwrap_or(before);
        let hours = until.duration_since(since).as_hours();
        let period = params.period.unwrap_or(if hours <= BY_HOUR { Period::Hour } else { Period::Day });
        let length = period.seconds();
        let first = since.as_second().div_euclid(length);
        // A period that has begun counts as a whole.
        let last = until.as_second().div_euclid(length) + i64::from(until.as_second().rem_euclid(length) > 0);
        match last - first {
            ..=0 => Err(StoreError::Refused("until is not after since".to_owned())),
            1..=PERIODS => {
                let edge = |nth: i64| Timestamp::from_second(nth * length);
                let out_of_range = |_| StoreError::Refused("since or until is too far away".to_owned());
                let (since, until) = (edge(first).map_err(out_of_range)?, edge(last).map_err(out_of_range)?);
                Ok(Self { since, until, period, sums: BTreeMap::new() })
            }
            periods => Err(StoreError::Refused(format!(
                "there are {periods} periods between since and until, and {PERIODS} can be asked for; ask for less time, or \
                 for the period \"day\""
            ))),
        }
    }

    /// Counts an ended job.
    pub(crate) fn job(&mut self, meta: &Meta) {
        let Some(at) = self.period_of(meta.completed_at.as_ref().unwrap_or(&meta.started_at)) else { return };
        let sum = self.sum(at, meta.usage.as_ref().map(|used| (&*used.agent, &*used.models)));
        sum.count(Some(meta.status), 1);
        if let Some(used) = &meta.usage {
            sum.add(used);
            sum.wall_seconds += used.wall_seconds;
            sum.lasted(used.wall_seconds);
        }
    }

    /// Counts removed jobs.
    pub(crate) fn removed(&mut self, line: &Removed) {
        let Some(at) = self.period_of(&line.at) else { return };
        let used = &line.sum;
        let sum = self.sum(at, Some((&used.agent, &used.models)));
        sum.count(line.status, used.count);
        sum.plus(&Amounts {
            turns: used.turns,
            input_tokens: used.input_tokens,
            cached_tokens: used.cached_tokens,
            output_tokens: used.output_tokens,
            cost_usd: used.cost_usd,
            unknown_costs: used.unknown_costs,
            wall_seconds: used.wall_seconds,
            ..Amounts::default()
        });
        if line.job.is_some() {
            sum.lasted(used.wall_seconds);
        }
    }

    /// Counts a compaction.
    pub(crate) fn compaction(&mut self, Compaction { at, usage, .. }: &Compaction) {
        let JobUsage { agent, models, .. } = usage;
        let Some(at) = self.period_of(at) else { return };
        let sum = self.sum(at, Some((agent, models)));
        sum.compactions = sum.compactions.saturating_add(1);
        sum.add(usage);
    }

    /// The answer of `worker/usage`.
    pub(crate) fn view(self, running: u32, unreadable: u32) -> UsageView {
        let Self { since, until, period, sums: whole } = self;
        let mut sums: BTreeMap<(At, Kind), Amounts> = BTreeMap::new();
        for ((at, (agent, models)), amounts) in whole {
            let models = models.iter().take(MODELS).map(|model| one_line(model, NAME_CHARS)).collect();
            sums.entry((at, (one_line(&agent, NAME_CHARS), models))).or_default().plus(&amounts);
        }
        let mut kinds: BTreeMap<Kind, Amounts> = BTreeMap::new();
        for ((_, kind), amounts) in &sums {
            kinds.entry(kind.clone()).or_default().plus(amounts);
        }
        let mut kinds: Vec<(Kind, Amounts)> = kinds.into_iter().collect();
        kinds.sort_by(|(_, a), (_, b)| {
            b.cost_usd.total_cmp(&a.cost_usd).then(b.tokens().cmp(&a.tokens())).then(b.jobs().cmp(&a.jobs()))
        });
        kinds.truncate(KINDS);
        let others = sums.extract_if(.., |(_, kind), _| !kinds.iter().any(|(kept, _)| kept == kind));
        for ((at, _), amounts) in others.collect::<Vec<_>>() {
            sums.entry((at, (OTHER.to_owned(), Vec::new()))).or_default().plus(&amounts);
        }
        let used = sums.into_iter().map(|((at, (agent, models)), amounts)| {
            let at = match at {
                At::Imprecise(beginning) => beginning,
                At::Period(start) => start.to_string(),
            };
            Used { at, agent, models, amounts }
        });
        UsageView {
            since: since.to_string(),
            until: until.to_string(),
            period,
            used: used.collect(),
            running,
            unreadable,
        }
    }

    fn sum(&mut self, at: At, used: Option<(&str, &[String])>) -> &mut Amounts {
        let (agent, models) = used.unwrap_or_default();
        self.sums.entry((at, (agent.to_owned(), models.to_vec()))).or_default()
    }

    /// The period of a time, or of the common beginning of several; `None` if that is outside. An invalid time is in no
    /// period, and counts, so that no cost is hidden.
    fn period_of(&self, at: &str) -> Option<At> {
        let start = |at: Timestamp| {
            let length = self.period.seconds();
            Timestamp::from_second(at.as_second().div_euclid(length) * length).ok()
        };
        if let Ok(at) = at.parse::<Timestamp>() {
            return Some(at).filter(|at| (self.since..self.until).contains(at)).and_then(start).map(At::Period);
        }
        let is_date = |part: &[u8]| part.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
        if at.len() > "2026-01-31".len() || !is_date(at.as_bytes()) {
            return Some(At::Imprecise(String::new()));
        }
        let (first, last) = (self.since.to_string(), (self.until - SignedDuration::from_secs(1)).to_string());
        match first.get(..at.len()) <= Some(at) && last.get(..at.len()) >= Some(at) {
            false => None,
            // A day is a period of its own.
            true if self.period == Period::Day && at.len() == "2026-01-31".len() => {
                format!("{at}T00:00:00Z").parse().ok().map(At::Period)
            }
            true => Some(At::Imprecise(at.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use guild_contract::{JobStatus, Usage};

    use super::*;
    use crate::usage::Sum;

    fn params(since: &str, until: &str, period: Option<Period>) -> UsageParams {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        UsageParams { since: text(since), until: text(until), period }
    }

    fn over(since: &str, until: &str, period: Option<Period>) -> Result<OverTime, StoreError> {
        OverTime::new(&params(since, until, period), "2026-02-01T12:30:00Z".parse().unwrap())
    }

    fn removed(at: &str, job: Option<&str>, models: &[&str]) -> Removed {
        let models = models.iter().map(|model| (*model).to_owned()).collect();
        let sum = Sum { agent: "api".to_owned(), models, count: 1, cost_usd: 1.0, wall_seconds: 7.0, ..Sum::default() };
        Removed { at: at.to_owned(), job: job.map(|id| id.parse().unwrap()), status: None, sum }
    }

    #[test]
    fn a_range_has_whole_periods_and_at_most_a_hundred() {
        let range = |over: OverTime| (over.since.to_string(), over.until.to_string(), over.period);
        let shown =
            |since: &str, until: &str, period| ((since.to_owned() + ":00Z"), (until.to_owned() + ":00Z"), period);
        let all = range(over("", "", None).unwrap());
        assert_eq!(all, shown("2026-01-02T00:00", "2026-02-02T00:00", Period::Day));
        let day = range(over("2026-01-31T12:30:00Z", "", None).unwrap());
        assert_eq!(day, shown("2026-01-31T12:00", "2026-02-01T13:00", Period::Hour));
        for (since, until, period, why) in [
            ("yesterday", "", None, "since is not a time"),
            ("2026-02-01T13:00:00Z", "", None, "until is not after since"),
            ("2026-01-01T00:00:00Z", "", Some(Period::Hour), "for the period \"day\""),
            ("2025-01-01T00:00:00Z", "", None, "there are 397 periods"),
        ] {
            let refused = over(since, until, period).err().unwrap().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn removed_jobs_count_even_where_their_time_is_known_by_month_only() {
        let mut over = over("2026-01-10T00:00:00Z", "", Some(Period::Day)).unwrap();
        for at in ["2026-01-09T23:59:59Z", "2025", "2026-02-02", "2026-02-02T00:00:00Z"] {
            over.removed(&removed(at, None, &[]));
        }
        assert!(over.sums.is_empty());
        for (at, job) in
            [("2026-01-10T23:00:00Z", Some("j")), ("2026-01-10", None), ("2026-01", None), ("?", Some("k"))]
        {
            over.removed(&removed(at, job, &["m"]));
        }
        let view = over.view(0, 0);
        let shown = |used: &Used| (used.at.clone(), used.amounts.unknown, used.amounts.durations[3]);
        assert_eq!(
            view.used.iter().map(shown).collect::<Vec<_>>(),
            [(String::new(), 1, 1), ("2026-01".to_owned(), 1, 0), ("2026-01-10T00:00:00Z".to_owned(), 2, 1)]
        );
    }

    #[test]
    fn the_most_used_models_are_told_apart_and_nothing_is_lost() {
        let mut over = over("", "", None).unwrap();
        for nth in 0..25 {
            let model = format!("m{nth}");
            over.removed(&removed("2026-01-20T00:00:00Z", None, &[&model]));
        }
        let used = JobUsage {
            agent: "claude".to_owned(),
            models: vec!["x".repeat(500)],
            usage: Usage { cost_usd: Some(9.0), ..Usage::default() },
            wall_seconds: 1.0,
            queued: false,
        };
        over.job(&Meta {
            job_id: "j".parse().unwrap(),
            status: JobStatus::Failed,
            description: "d".to_owned(),
            started_at: "2026-01-20T00:00:00Z".to_owned(),
            completed_at: Some("2026-01-21T00:00:00Z".to_owned()),
            error: None,
            usage: Some(used),
            resumes: 0,
            token: None,
            resumption: None,
            follows: None,
            key: None,
        });
        let view = over.view(0, 0);
        assert_eq!(view.used.len(), KINDS + 1);
        let all = view.used.iter().fold(Amounts::default(), |mut sum, used| {
            sum.plus(&used.amounts);
            sum
        });
        assert_eq!((all.unknown, all.failed, all.cost_usd), (25, 1, 34.0));
        let dearest = view.used.iter().find(|used| used.agent == "claude").unwrap();
        assert!(dearest.models[0].chars().count() <= NAME_CHARS && view.used.iter().any(|used| used.agent == OTHER));
    }
}
