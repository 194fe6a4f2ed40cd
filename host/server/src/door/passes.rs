//! The tokens that are good at this moment, and how much each may still ask.
//!
//! The file is looked at with each request that brings a token, and with each of its methods, which costs one system call
//! each: what was added or revoked holds from the next method on. What a token has used of its bounds outlives a change of the file.

use std::{
    io,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};

use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};
use guild_contract::Limits;
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    Refused,
    stamp::Stamp,
    tokens::{Token, TokenError, TokenFile, digest},
};

/// How much of one token's there may be.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    requests_per_second: NonZeroU32,
    dispatches_per_minute: NonZeroU32,
    requests_at_once: usize,
}

/// A token that is in the file.
pub(crate) struct Pass {
    pub(crate) token: Token,
    digest: [u8; 32],
    requests: DefaultDirectRateLimiter,
    dispatches: DefaultDirectRateLimiter,
    places: Arc<Semaphore>,
}

impl Pass {
    fn new(token: Token, bounds: &Bounds) -> Option<Self> {
        Some(Self {
            digest: token.digest()?,
            token,
            requests: RateLimiter::direct(Quota::per_second(bounds.requests_per_second)),
            dispatches: RateLimiter::direct(Quota::per_minute(bounds.dispatches_per_minute)),
            places: Arc::new(Semaphore::new(bounds.requests_at_once)),
        })
    }

    /// Counts a request; an error where there were too many.
    pub(crate) fn count_request(&self) -> Result<(), Refused> {
        count(&self.requests, &self.token, "token_requests_per_second")
    }

    /// Counts a dispatch; an error where there were too many.
    pub(crate) fn count_dispatch(&self) -> Result<(), Refused> {
        count(&self.dispatches, &self.token, "token_dispatches_per_minute")
    }

    /// A place among the requests that are under way.
    pub(crate) fn place(&self) -> Result<OwnedSemaphorePermit, Refused> {
        let limit = "token_requests_at_once";
        self.places.clone().try_acquire_owned().map_err(|_| Refused::TooMany {
            token: self.token.name.clone(),
            limit,
            seconds: 1,
        })
    }
}

fn count(limiter: &DefaultDirectRateLimiter, token: &Token, limit: &'static str) -> Result<(), Refused> {
    limiter.check().map_err(|too_soon| {
        let wait = too_soon.wait_time_from(DefaultClock::default().now());
        let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
        Refused::TooMany { token: token.name.clone(), limit, seconds }
    })
}

/// What was found when the file was looked at.
pub(crate) struct Look {
    /// The tokens; or why there are none to be had.
    pub(crate) passes: Result<Arc<[Arc<Pass>]>, ()>,
    /// What is new since the last look: how many tokens there are, or what is wrong with the file.
    pub(crate) news: Option<Result<usize, String>>,
}

impl Look {
    /// The pass of a token, as it was presented. All are compared, each in constant time, whether or not one was equal.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Arc<Pass>> {
        let presented = digest(token);
        let mut found = None;
        for pass in self.passes.iter().flat_map(|passes| passes.iter()) {
            let equal = pass.digest.ct_eq(&presented);
            if bool::from(equal) {
                found = Some(pass);
            }
        }
        found.filter(|pass| !pass.token.has_expired(Timestamp::now())).cloned()
    }

    /// Whether a pass that was found earlier is still good.
    pub(crate) fn has(&self, pass: &Pass) -> bool {
        let is_there = self.passes.iter().flat_map(|passes| passes.iter()).any(|now| now.token == pass.token);
        is_there && !pass.token.has_expired(Timestamp::now())
    }
}

struct Known {
    /// What the file was when it was read; none where it has to be read again.
    stamp: Option<Option<Stamp>>,
    passes: Result<Arc<[Arc<Pass>]>, ()>,
}

/// The tokens of a host.
pub(crate) struct Passes {
    file: Option<TokenFile>,
    bounds: Bounds,
    known: Mutex<Known>,
}

impl Passes {
    /// Nobody's yet: the first look finds those of the file.
    pub(crate) fn new(file: Option<TokenFile>, limits: &Limits) -> Self {
        let at_least_one = |count: u32| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        let bounds = Bounds {
            requests_per_second: at_least_one(limits.token_requests_per_second),
            dispatches_per_minute: at_least_one(limits.token_dispatches_per_minute),
            requests_at_once: (limits.token_requests_at_once as usize).min(Semaphore::MAX_PERMITS),
        };
        Self { file, bounds, known: Mutex::new(Known { stamp: None, passes: Ok(Arc::default()) }) }
    }

    /// The tokens as the file has them now.
    pub(crate) fn look(&self) -> Look {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.stamp();
        if matches!((&stamp, &known.stamp), (Ok(now), Some(then)) if now == then) {
            return Look { passes: known.passes.clone(), news: None };
        }
        // The stamp is from before: what is written from here on is seen at the next look.
        let read = match (&self.file, stamp) {
            (Some(file), Ok(stamp)) => match file.read() {
                Ok(tokens) => Ok((tokens, stamp)),
                Err(error @ TokenError::Unsound { .. }) => Err((error.to_string(), Some(stamp))),
                // It may pass.
                Err(error) => Err((error.to_string(), None)),
            },
            (_, Err(error)) => Err((error.to_string(), None)),
            (None, Ok(stamp)) => Ok((Vec::new(), stamp)),
        };
        let news = match read {
            Ok((tokens, stamp)) => {
                let before = known.passes.clone().unwrap_or_default();
                let pass = |token: Token| {
                    let same = before.iter().find(|pass| pass.token == token).cloned();
                    same.or_else(|| Pass::new(token, &self.bounds).map(Arc::new))
                };
                let passes: Arc<[_]> = tokens.into_iter().filter_map(pass).collect();
                let count = passes.len();
                (known.stamp, known.passes) = (Some(stamp), Ok(passes));
                Some(Ok(count))
            }
            Err((why, stamp)) => {
                let is_new = known.passes.is_ok() || stamp.is_some();
                (known.stamp, known.passes) = (stamp, Err(()));
                is_new.then_some(Err(why))
            }
        };
        Look { passes: known.passes.clone(), news }
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        self.file.as_ref().map_or(Ok(None), |file| Stamp::of(file.path()))
    }
}
