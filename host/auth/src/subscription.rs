//! Implements subscriptions: callers whose streams outlive their requests.

use std::sync::{Arc, OnceLock};

use crate::{
    audit_log::{Event, Who},
    caller::{Caller, Connection, RequestResources},
    refused::Refused,
    tokens::credentials::Credential,
};

/// The operation of a listener in the audit log.
const EVENTS: &str = "events";

/// The permissions of a listener. It holds no place among the requests of its token: streams have limits of their own.
pub struct Subscription {
    from: Arc<Connection>,
    credential: Option<Arc<Credential>>,
}

impl Caller {
    /// Releases the place of the request, for a stream of the events of these members; of all members if none is named.
    ///
    /// # Errors
    ///
    /// Returns an error when the token does not permit one of them.
    pub fn subscribe<'a>(self, members: impl Iterator<Item = &'a str> + Clone) -> Result<Subscription, Refused> {
        let subscription = self.into_subscription();
        let (peer, rules, credential) =
            (subscription.from.address(), subscription.from.ingress.rules(), &subscription.credential);
        for member in members.clone() {
            if let Some(credential) = credential.as_ref().filter(|credential| !credential.token.is_for(member)) {
                let refused = Refused::Member { token: credential.token.name.clone(), member: member.parse().ok() };
                rules.record_refusal(peer, &refused, Some(member), None);
                return Err(refused);
            }
        }
        if rules.log_reads {
            let mut members = members;
            rules.record(&Event {
                event: "request",
                who: credential.as_ref().map_or(Who::Local, |credential| Who::Token(&credential.token.name)),
                peer,
                method: Some(EVENTS),
                // The member is logged only if there is exactly one.
                member: members.next().filter(|_| members.next().is_none()),
                ..Event::default()
            });
        }
        Ok(subscription)
    }

    /// Releases the place of the request, for a stream that was authorised like any request.
    pub fn into_subscription(self) -> Subscription {
        Subscription { from: self.from, credential: self.credential }
    }
}

impl Subscription {
    /// The caller with its present permissions. It holds no place among the requests of its token.
    pub fn caller(&self) -> Caller {
        let request = Arc::new(RequestResources { _place: None, memory: OnceLock::new() });
        Caller {
            from: self.from.clone(),
            rules: self.from.ingress.rules(),
            credential: self.credential.clone(),
            request,
        }
    }

    /// Whether the stream may continue: its token is still in the file and has not expired; or it has none, and still
    /// needs none.
    pub fn is_good(&self) -> bool {
        match &self.credential {
            Some(credential) => self.from.ingress.rules().tokens().is_ok_and(|good| good.has(credential)),
            None => self.from.process.is_some() || !self.from.ingress.rules().token_required,
        }
    }

    /// Whether the listener may see a member.
    pub fn may_see(&self, member: &str) -> bool {
        self.credential.as_ref().is_none_or(|credential| credential.token.is_for(member))
    }
}
