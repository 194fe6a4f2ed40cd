//! Keeps the sessions of browsers, in memory.
//!
//! A browser sends its cookies to every server on a host's name, whatever its port. So the cookie never has the token
//! with which its user signed in, but a random id, which only this host can use and which ends with it. Only the SHA-256
//! of an id is kept, so finding one takes no time that depends on its digits.

use std::{
    collections::HashMap,
    io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use guild_contract::secret::Secret;
use http::{HeaderMap, header::COOKIE};

use crate::tokens::{digest, random_digits};

/// The time after which an unused session ends.
const IDLE: Duration = Duration::from_secs(12 * 60 * 60);
/// The most sessions. A new one ends the one that was unused for the longest time.
const MOST: usize = 1000;

/// The sessions of a host.
pub(crate) struct Sessions {
    /// The name of the cookie, which has the host's port: other hosts on the same name have their own.
    cookie: String,
    /// The secret of callers without a session.
    csrf: String,
    open: Mutex<HashMap<[u8; 32], Session>>,
}

/// A session.
struct Session {
    /// The SHA-256 of its token.
    token: [u8; 32],
    csrf: String,
    used: Instant,
}

/// An open session, for one request.
pub(crate) struct Found {
    /// The SHA-256 of its token.
    pub(crate) token: [u8; 32],
    pub(crate) csrf: String,
}

impl Sessions {
    /// No sessions, for a host that listens at this port.
    pub(crate) fn new(port: u16) -> Self {
        Self { cookie: format!("guild-{port}"), csrf: random_digits().unwrap_or_default(), open: Mutex::default() }
    }

    /// Begins a session of a token, and returns the cookie's name and value.
    ///
    /// # Errors
    ///
    /// Returns an error when the system has no random numbers.
    pub(crate) fn begin(&self, token: [u8; 32], now: Instant) -> io::Result<(&str, Secret)> {
        let (id, csrf) = (Secret::from(random_digits()?), random_digits()?);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, session| now.duration_since(session.used) < IDLE);
        if open.len() >= MOST
            && let Some(oldest) = open.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id)
        {
            open.remove(&oldest);
        }
        open.insert(digest(id.expose().as_bytes()), Session { token, csrf, used: now });
        Ok((&self.cookie, id))
    }

    /// The session of a request.
    pub(crate) fn find(&self, headers: &HeaderMap, now: Instant) -> Option<Found> {
        let id = self.id(headers)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let session = open.get_mut(&id).filter(|session| now.duration_since(session.used) < IDLE)?;
        session.used = now;
        Some(Found { token: session.token, csrf: session.csrf.clone() })
    }

    /// Ends the session of a request, and returns the cookie's name.
    pub(crate) fn end(&self, headers: &HeaderMap) -> &str {
        if let Some(id) = self.id(headers) {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
        &self.cookie
    }

    /// The secret for the forms of callers that have no session; empty if the system has no random numbers.
    pub(crate) fn csrf(&self) -> &str {
        &self.csrf
    }

    /// The SHA-256 of the id that a request brings.
    fn id(&self, headers: &HeaderMap) -> Option<[u8; 32]> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == self.cookie).map(|(_, id)| digest(id.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_by_its_cookie_until_it_ends_or_is_unused_for_long() {
        let (sessions, began) = (Sessions::new(7433), Instant::now());
        let headers = |id: &str| HeaderMap::from_iter([(COOKIE, format!("a=b; guild-7433={id}").parse().unwrap())]);
        let (name, id) = sessions.begin([1; 32], began).unwrap();
        assert_eq!(name, "guild-7433");
        let of = |headers: &HeaderMap, after| sessions.find(headers, began + after).map(|found| found.token);
        let brought = headers(id.expose());
        assert_eq!(of(&brought, Duration::ZERO), Some([1; 32]));
        assert_eq!(of(&headers("0"), Duration::ZERO), None);
        // Each use prolongs it.
        assert_eq!(of(&brought, IDLE / 2), Some([1; 32]));
        assert_eq!(of(&brought, IDLE), Some([1; 32]));
        assert_eq!(of(&brought, IDLE * 2), None);
        let (_, other) = sessions.begin([2; 32], began).unwrap();
        sessions.end(&headers(other.expose()));
        assert_eq!(of(&headers(other.expose()), Duration::ZERO), None);
    }

    #[test]
    fn a_host_has_no_more_than_a_thousand_sessions() {
        let (sessions, began) = (Sessions::new(1), Instant::now());
        for number in 0..=MOST {
            sessions.begin([0; 32], began + Duration::from_millis(number as u64)).unwrap();
        }
        assert_eq!(sessions.open.lock().unwrap().len(), MOST);
    }
}
