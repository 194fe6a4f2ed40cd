//! Counts the usage of sessions and enforces their bounds: turns, dollars and time, summed over all sessions of a job.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use guild_contract::{Bounds, Limits, SpendError, Usage};

/// The way in which a session ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// The session ended by itself.
    Success,
    /// The session ran out of turns.
    MaxTurns,
    /// The session ran out of dollars.
    MaxBudget,
    /// The session ran out of time.
    Deadline,
    /// The session was cancelled.
    Interrupted,
    /// The session failed; the text tells why.
    Error(String),
}

impl Ending {
    /// The kind of ending in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::MaxTurns => "max-turns",
            Self::MaxBudget => "max-budget",
            Self::Deadline => "deadline",
            Self::Interrupted => "interrupted",
            Self::Error(_) => "error",
        }
    }

    /// The reason for `meta.json`, if the session did not end by itself.
    pub fn reason(&self, bounds: &Bounds) -> Option<String> {
        match self {
            Self::Success => None,
            Self::MaxTurns => Some(format!("the session reached its limit of {} turns", bounds.max_turns?)),
            Self::MaxBudget => Some(format!("the session reached its budget of {} USD", bounds.max_budget_usd?)),
            Self::Deadline => Some(format!("the session reached its deadline of {} s", bounds.deadline_seconds?)),
            Self::Interrupted => Some("the session was interrupted".to_owned()),
            Self::Error(text) => Some(text.clone()),
        }
    }
}

/// The counts of a meter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// The usage.
    pub usage: Usage,
    /// The number of requests under way whose cost is not known yet; see [`Meter::open_cost`].
    pub open: u32,
    /// The models that were used, in the order of their first use.
    pub models: Vec<String>,
}

/// Follows a job's account.
pub trait Observer: Send + Sync {
    /// Handles a change of the account.
    fn changed(&self, account: &Account);

    /// Handles the usage of one answer of a model.
    fn booked(&self, _used: &Usage, _model: Option<&str>) {}

    /// US dollars that may be spent by bounds other than the job's own budget; `None` without such a bound.
    ///
    /// # Errors
    ///
    /// Returns the reason when no more may be spent.
    fn may_spend(&self) -> Result<Option<f64>, SpendError> {
        Ok(None)
    }
}

/// Counts the usage of a session, and tells when a bound is reached. The parent of a session's meter is the job's, so
/// that turns, tokens and dollars are summed over all sessions of a job.
pub struct Meter {
    bounds: Bounds,
    deadline: Instant,
    account: Mutex<Account>,
    parent: Option<Arc<Meter>>,
    observer: Option<Arc<dyn Observer>>,
}

impl Meter {
    /// A separate meter without an observer. Its time begins now.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Self::make(bounds, Account::default(), Duration::ZERO, None, None)
    }

    /// A job's meter, which begins with the job's earlier usage and `seconds` of its time. The operator's limits apply
    /// to bounds that are not set.
    pub fn for_job(
        bounds: Bounds,
        limits: &Limits,
        account: Account,
        seconds: f64,
        observer: Arc<dyn Observer>,
    ) -> Arc<Self> {
        let used = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Self::make(bounds.min(session_limits(limits)), account, used, None, Some(observer))
    }

    /// The meter of a job that its plugin carries out: its time is that of `run`, not of a session.
    pub fn for_run(bounds: Bounds, limits: &Limits, observer: Arc<dyn Observer>) -> Arc<Self> {
        let own = Bounds { deadline_seconds: Some(limits.run_seconds), ..session_limits(limits) };
        Self::make(bounds.min(own), Account::default(), Duration::ZERO, None, Some(observer))
    }

    /// A meter for one session of a job.
    pub fn for_session(self: &Arc<Self>, bounds: Bounds) -> Arc<Self> {
        Self::make(bounds.min(self.bounds), Account::default(), Duration::ZERO, Some(self.clone()), None)
    }

    fn make(
        bounds: Bounds,
        account: Account,
        used: Duration,
        parent: Option<Arc<Self>>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Arc<Self> {
        let seconds = bounds.deadline_seconds.unwrap_or(u32::MAX);
        let own = Instant::now() + Duration::from_secs(seconds.into()).saturating_sub(used);
        let deadline = parent.as_ref().map_or(own, |parent| own.min(parent.deadline));
        Arc::new(Self { bounds, deadline, account: Mutex::new(account), parent, observer })
    }

    /// The effective bounds.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// The moment at which the time is over.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The account of this meter.
    pub fn account(&self) -> Account {
        self.counted().clone()
    }

    /// The account of the whole job.
    pub fn job_account(&self) -> Account {
        self.parent.as_ref().map_or_else(|| self.account(), |parent| parent.job_account())
    }

    /// The rest of the bounds of this meter and its parents: turns, and dollars as far as costs are known. Zero means
    /// that a bound is reached.
    ///
    /// # Errors
    ///
    /// Returns a sentence when it is not known how much may be spent.
    pub fn left(&self) -> Result<Bounds, String> {
        let used = self.counted().usage;
        let own = Bounds {
            max_turns: self.bounds.max_turns.map(|max| max.saturating_sub(used.turns)),
            max_budget_usd: self.bounds.max_budget_usd.map(|max| (max - used.known_cost()).max(0.0)),
            deadline_seconds: u32::try_from(self.deadline.saturating_duration_since(Instant::now()).as_secs()).ok(),
        };
        let own = match &self.observer {
            Some(observer) => {
                let max_budget_usd = match observer.may_spend() {
                    Ok(left) => left,
                    Err(SpendError::Cap(_)) => Some(0.0),
                    Err(SpendError::Unreadable(why)) => return Err(why),
                };
                own.min(Bounds { max_budget_usd, ..Bounds::default() })
            }
            None => own,
        };
        self.parent.as_ref().map_or(Ok(own), |parent| Ok(own.min(parent.left()?)))
    }

    /// The reason for an ending other than success. A session is out of dollars if its budget is spent, or if no more
    /// may be spent at all.
    pub fn reason(&self, ending: &Ending) -> Option<String> {
        match ending {
            Ending::MaxBudget => match self.refusal() {
                Some(SpendError::Cap(why)) => Some(why),
                Some(SpendError::Unreadable(_)) | None => ending.reason(&self.bounds),
            },
            ending => ending.reason(&self.bounds),
        }
    }

    /// The reason other than the job's own budget that no more may be spent.
    fn refusal(&self) -> Option<SpendError> {
        let own = self.observer.as_ref().and_then(|observer| observer.may_spend().err());
        own.or_else(|| self.parent.as_ref()?.refusal())
    }

    /// Takes one more turn before it begins. The error is the bound that is reached.
    pub fn take_turn(&self) -> Result<(), Ending> {
        if Instant::now() >= self.deadline {
            return Err(Ending::Deadline);
        }
        match self.refusal() {
            Some(SpendError::Cap(_)) => return Err(Ending::MaxBudget),
            Some(SpendError::Unreadable(why)) => return Err(Ending::Error(why)),
            None => {}
        }
        {
            let mut account = self.counted();
            let spent = account.usage.known_cost();
            if self.bounds.max_budget_usd.is_some_and(|max| spent >= max) {
                return Err(Ending::MaxBudget);
            }
            if self.bounds.max_turns.is_some_and(|max| account.usage.turns >= max) {
                return Err(Ending::MaxTurns);
            }
            account.usage.turns = account.usage.turns.saturating_add(1);
        }
        if let Some(parent) = &self.parent
            && let Err(reached) = parent.take_turn()
        {
            let mut account = self.counted();
            account.usage.turns = account.usage.turns.saturating_sub(1);
            return Err(reached);
        }
        self.notify();
        Ok(())
    }

    /// Opens a cost whose amount is known later. If the job ends before that, or the returned value is dropped, the
    /// cost is unknown.
    pub fn open_cost(self: &Arc<Self>) -> OpenCost {
        self.open(|open| open.saturating_add(1));
        OpenCost(Some(self.clone()))
    }

    fn open(&self, change: fn(u32) -> u32) {
        {
            let mut account = self.counted();
            account.open = change(account.open);
        }
        if let Some(parent) = &self.parent {
            parent.open(change);
        }
        self.notify();
    }

    /// Books usage of `model`, except turns. A cost that is no amount of money counts as unknown.
    pub fn book(&self, used: Usage, model: Option<&str>) {
        let sound = |usd: &f64| usd.is_finite() && *usd >= 0.0;
        let (cost_usd, known_cost_usd) = (used.cost_usd.filter(sound), used.known_cost_usd.filter(sound));
        let used = Usage { turns: 0, cost_usd, known_cost_usd, ..used };
        {
            let mut account = self.counted();
            account.usage.add(&used);
            if let Some(model) = model
                && !account.models.iter().any(|known| known == model)
            {
                account.models.push(model.to_owned());
            }
        }
        if let Some(parent) = &self.parent {
            parent.book(used, model);
        }
        if let Some(observer) = &self.observer {
            observer.booked(&used, model);
        }
        self.notify();
    }

    fn counted(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        if let Some(observer) = &self.observer {
            observer.changed(&self.account());
        }
    }
}

/// A cost of unknown amount, such as the cost of a request under way. If it is dropped before it is resolved, it stays
/// unknown.
#[must_use]
pub struct OpenCost(Option<Arc<Meter>>);

impl OpenCost {
    /// Books the usage.
    pub fn resolve(mut self, used: Usage, model: Option<&str>) {
        if let Some(meter) = self.0.take() {
            meter.book(used, model);
            meter.open(|open| open.saturating_sub(1));
        }
    }
}

impl Drop for OpenCost {
    fn drop(&mut self) {
        if let Some(meter) = self.0.take() {
            meter.book(Usage::default().and_unknown(), None);
            meter.open(|open| open.saturating_sub(1));
        }
    }
}

/// The operator's bounds of the sessions of a job.
pub fn session_limits(limits: &Limits) -> Bounds {
    Bounds {
        max_turns: Some(limits.session_turns),
        max_budget_usd: Some(limits.session_budget_usd),
        deadline_seconds: Some(limits.session_seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An observer with a cap besides a job's own budget; the cap of a negative amount has an unreadable ledger.
    struct Cap(Mutex<f64>);

    impl Observer for Cap {
        fn changed(&self, _: &Account) {}

        fn may_spend(&self) -> Result<Option<f64>, SpendError> {
            match *self.0.lock().unwrap() {
                left if left > 0.0 => Ok(Some(left)),
                0.0 => Err(SpendError::Cap("all is spent today".to_owned())),
                _ => Err(SpendError::Unreadable("today's spending is not known".to_owned())),
            }
        }
    }

    fn job(bounds: Bounds) -> Arc<Meter> {
        let observer = Arc::new(Cap(Mutex::new(f64::INFINITY)));
        Meter::for_job(bounds, &Limits::default(), Account::default(), 0.0, observer)
    }

    #[test]
    fn what_may_be_spent_in_all_bounds_a_session_with_the_reason() {
        let cap = Arc::new(Cap(Mutex::new(0.25)));
        let job = Meter::for_job(Bounds::default(), &Limits::default(), Account::default(), 0.0, cap.clone());
        let session = job.for_session(Bounds::default());
        let dollars = || session.left().map(|left| left.max_budget_usd);
        assert_eq!((session.take_turn(), dollars()), (Ok(()), Ok(Some(0.25))));
        *cap.0.lock().unwrap() = 0.0;
        assert_eq!((session.take_turn(), dollars()), (Err(Ending::MaxBudget), Ok(Some(0.0))));
        assert_eq!(session.reason(&Ending::MaxBudget).unwrap(), "all is spent today");
        // An unknown spending ends a session too, but not as a reached budget.
        *cap.0.lock().unwrap() = -1.0;
        let unknown = "today's spending is not known".to_owned();
        assert_eq!((session.take_turn(), dollars()), (Err(Ending::Error(unknown.clone())), Err(unknown)));
        assert_eq!(session.account().usage.turns, 1);
    }

    fn spent(usd: Option<f64>) -> Usage {
        Usage { input_tokens: 10, output_tokens: 1, cost_usd: usd, ..Usage::default() }
    }

    #[test]
    fn turns_are_summed_over_the_sessions_of_a_job() {
        let job = job(Bounds { max_turns: Some(3), ..Bounds::default() });
        let first = job.for_session(Bounds { max_turns: Some(2), ..Bounds::default() });
        assert!(first.take_turn().is_ok() && first.take_turn().is_ok());
        assert_eq!(first.take_turn(), Err(Ending::MaxTurns));
        let second = job.for_session(Bounds::default());
        assert_eq!(second.left().unwrap().max_turns, Some(1));
        assert_eq!((second.take_turn(), second.take_turn()), (Ok(()), Err(Ending::MaxTurns)));
        assert_eq!(job.account().usage.turns, 3);
    }

    #[test]
    fn a_spent_budget_and_a_passed_deadline_refuse_the_next_turn() {
        let job = job(Bounds { max_budget_usd: Some(0.5), ..Bounds::default() });
        job.for_session(Bounds::default()).book(spent(Some(0.5)), None);
        assert_eq!(job.take_turn(), Err(Ending::MaxBudget));
        let late = Meter::new(Bounds { deadline_seconds: Some(0), ..Bounds::default() });
        assert_eq!(late.take_turn(), Err(Ending::Deadline));
    }

    #[test]
    fn an_unknown_cost_does_not_give_the_spent_budget_back() {
        let job = job(Bounds { max_budget_usd: Some(0.5), ..Bounds::default() });
        job.book(spent(Some(0.4)), None);
        drop(job.for_session(Bounds::default()).open_cost());
        assert!((job.left().unwrap().max_budget_usd.unwrap() - 0.1).abs() < 1e-9);
        job.book(spent(Some(0.1)), None);
        assert_eq!(job.take_turn(), Err(Ending::MaxBudget));
    }

    #[test]
    fn what_is_paid_for_is_open_until_its_cost_is_known() {
        let job = job(Bounds::default());
        let (first, second) = (job.for_session(Bounds::default()).open_cost(), job.open_cost());
        assert_eq!(job.account().open, 2);
        first.resolve(spent(Some(0.5)), Some("m"));
        drop(second);
        let account = job.account();
        assert_eq!((account.open, account.usage.cost_usd, account.usage.known_cost_usd), (0, None, Some(0.5)));
    }

    #[test]
    fn one_unknown_cost_makes_the_sum_unknown_and_tokens_are_counted_all_the_same() {
        let job = job(Bounds::default());
        job.book(spent(Some(0.25)), Some("known"));
        job.for_session(Bounds::default()).book(spent(Some(f64::NAN)), Some("new"));
        let Account { usage, models, open } = job.account();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.cost_usd), (20, 2, None));
        assert_eq!(usage.known_cost_usd, Some(0.25));
        assert_eq!((models, open), (vec!["known".to_owned(), "new".to_owned()], 0));
    }
}
