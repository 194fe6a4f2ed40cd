//! Holds the valid tokens, and the remaining limits of each.
//!
//! The file is checked for changes with each request that has a token, and with each of its methods, which costs one
//! system call each: additions and revocations apply from the next method on. The used limits of a token survive a
//! change of the file.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};

use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};
use guild_contract::Limits;
use guild_fs::fingerprint::StrictFingerprint;
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    refused::Refused,
    tokens::{Token, TokenError, TokenFile, digest},
};

/// The limits of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    requests_per_second: NonZeroU32,
    dispatches_per_minute: NonZeroU32,
    requests_at_once: usize,
}

/// A token in the file.
pub(crate) struct Credential {
    pub(crate) token: Token,
    requests: DefaultDirectRateLimiter,
    dispatches: DefaultDirectRateLimiter,
    places: Arc<Semaphore>,
}

impl Credential {
    fn new(token: Token, bounds: &Bounds) -> Self {
        Self {
            token,
            requests: RateLimiter::direct(Quota::per_second(bounds.requests_per_second)),
            dispatches: RateLimiter::direct(Quota::per_minute(bounds.dispatches_per_minute)),
            places: Arc::new(Semaphore::new(bounds.requests_at_once)),
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    ///
    /// Returns a refusal when there were too many requests.
    pub(crate) fn count_request(&self) -> Result<(), Refused> {
        count(&self.requests, &self.token, "token_requests_per_second")
    }

    /// Counts a dispatch.
    ///
    /// # Errors
    ///
    /// Returns a refusal when there were too many dispatches.
    pub(crate) fn count_dispatch(&self) -> Result<(), Refused> {
        count(&self.dispatches, &self.token, "token_dispatches_per_minute")
    }

    /// Acquires a place for a running request.
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

/// The result of a check of the file.
pub(crate) struct Look {
    /// The tokens; none if the file cannot be read.
    pub(crate) good: Option<Good>,
    /// The change since the last check: the number of tokens, or the error of the file.
    pub(crate) change: Option<Result<usize, TokenError>>,
}

/// The tokens of a file.
#[derive(Clone, Default)]
pub(crate) struct Good(Arc<[Arc<Credential>]>);

impl Good {
    /// Finds the credential of a presented token. All are compared, each in constant time, whether or not an earlier
    /// one was equal.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Arc<Credential>> {
        let presented = digest(token);
        let mut found = None;
        for credential in self.0.iter() {
            let equal = credential.token.sha256.ct_eq(&presented);
            if bool::from(equal) {
                found = Some(credential);
            }
        }
        found.filter(|credential| !credential.token.has_expired(Timestamp::now())).cloned()
    }

    /// Finds the credential of the token with this SHA-256, with which a session began.
    pub(crate) fn of_session(&self, sha256: &[u8; 32]) -> Option<Arc<Credential>> {
        let found = self.0.iter().find(|credential| credential.token.sha256 == *sha256);
        found.filter(|credential| !credential.token.has_expired(Timestamp::now())).cloned()
    }

    /// The token with this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Token> {
        self.0.iter().map(|credential| &credential.token).find(|token| token.name == name)
    }

    /// Whether a credential that was found earlier is still valid.
    pub(crate) fn has(&self, credential: &Credential) -> bool {
        let is_there = self.0.iter().any(|now| now.token == credential.token);
        is_there && !credential.token.has_expired(Timestamp::now())
    }
}

struct Known {
    /// The file's fingerprint when it was read; none if it must be read again.
    stamp: Option<Option<StrictFingerprint>>,
    /// The tokens when the file was last readable.
    credentials: Good,
    is_readable: bool,
}

/// The tokens of a host.
pub(crate) struct Credentials {
    file: Option<TokenFile>,
    bounds: Bounds,
    known: Mutex<Known>,
}

impl Bounds {
    fn of(limits: &Limits) -> Self {
        let at_least_one = |count: u32| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        Self {
            requests_per_second: at_least_one(limits.token_requests_per_second),
            dispatches_per_minute: at_least_one(limits.token_dispatches_per_minute),
            requests_at_once: (limits.token_requests_at_once as usize).min(Semaphore::MAX_PERMITS),
        }
    }
}

impl Credentials {
    /// Makes credentials without tokens: the first check reads the file.
    pub(crate) fn new(file: Option<TokenFile>, limits: &Limits) -> Self {
        let bounds = Bounds::of(limits);
        Self { file, bounds, known: Mutex::new(Known { stamp: None, credentials: Good::default(), is_readable: true }) }
    }

    /// Whether the limits of each token are the same as in `limits`.
    pub(crate) fn is_bounded_by(&self, limits: &Limits) -> bool {
        self.bounds == Bounds::of(limits)
    }

    /// Checks the file, and returns its present tokens.
    pub(crate) fn look(&self) -> Look {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let change = self.change(&mut known);
        Look { good: known.is_readable.then(|| known.credentials.clone()), change }
    }

    fn change(&self, known: &mut Known) -> Option<Result<usize, TokenError>> {
        let stamp = self.stamp();
        if matches!((&stamp, &known.stamp), (Ok(now), Some(then)) if now == then) {
            return None;
        }
        // The fingerprint was taken before the read, so later changes are seen at the next check.
        let read = stamp.map_err(|error| (error, None)).and_then(|stamp| match self.tokens() {
            Ok(tokens) => Ok((tokens, stamp)),
            Err(error @ TokenError::Unsound { .. }) => Err((error, Some(stamp))),
            // The error may be temporary.
            Err(error) => Err((error, None)),
        });
        match read {
            Ok((tokens, stamp)) => {
                let credential = |token: Token| {
                    let same = known.credentials.0.iter().find(|credential| credential.token == token).cloned();
                    same.unwrap_or_else(|| Arc::new(Credential::new(token, &self.bounds)))
                };
                let credentials: Arc<[_]> = tokens.into_iter().map(credential).collect();
                let count = credentials.len();
                *known = Known { stamp: Some(stamp), credentials: Good(credentials), is_readable: true };
                Some(Ok(count))
            }
            Err((error, stamp)) => {
                let is_new = known.is_readable || stamp.is_some();
                (known.stamp, known.is_readable) = (stamp, false);
                is_new.then_some(Err(error))
            }
        }
    }

    fn tokens(&self) -> Result<Vec<Token>, TokenError> {
        self.file.as_ref().map_or(Ok(Vec::new()), TokenFile::read)
    }

    fn stamp(&self) -> Result<Option<StrictFingerprint>, TokenError> {
        let Some(file) = &self.file else { return Ok(None) };
        StrictFingerprint::of(file.path()).map_err(|source| file.failed(source))
    }
}
