//! Callers whose streams are open for longer than a request takes.

use std::sync::{Arc, OnceLock};

use crate::{
    audit_log::{Event, Who},
    caller::{Caller, Connection, Underway},
    credentials::Credential,
    refused::Refused,
};

/// What a listener is called in the audit log.
const EVENTS: &str = "events";

/// Which events a listener may receive. It has no permit among the requests of its token: streams have bounds of their own.
pub struct Subscription {
    from: Arc<Connection>,
    credential: Option<Arc<Credential>>,
}

impl Caller {
    /// Releases the permit of the request, for a stream of the events of these members; if none are named, of all.
    ///
    /// # Errors
    /// Where the token is not for one of them.
    pub fn subscribe<'a>(self, members: impl Iterator<Item = &'a str> + Clone) -> Result<Subscription, Refused> {
        let subscription = self.into_subscription();
        let (peer, rules, credential) =
            (&subscription.from.peer, subscription.from.ingress.rules(), &subscription.credential);
        for member in members.clone() {
            if let Some(credential) = credential.as_ref().filter(|credential| !credential.token.is_for(member)) {
                let refused = Refused::Member { token: credential.token.name.clone(), member: member.parse().ok() };
                rules.record_refusal(*peer, &refused, Some(member), None);
                return Err(refused);
            }
        }
        if rules.log_reads {
            let mut members = members;
            rules.record(&Event {
                event: "request",
                who: credential.as_ref().map_or(Who::Local, |credential| Who::Token(&credential.token.name)),
                peer: Some(*peer),
                method: Some(EVENTS),
                // Where there are several, none is named.
                member: members.next().filter(|_| members.next().is_none()),
                ..Event::default()
            });
        }
        Ok(subscription)
    }

    /// Releases the permit of the request, for a stream that was authorised as any request is.
    pub fn into_subscription(self) -> Subscription {
        Subscription { from: self.from, credential: self.credential }
    }
}

impl Subscription {
    /// Who it is, as one who asks now. It has no place among the requests of its token.
    pub fn caller(&self) -> Caller {
        let request = Arc::new(Underway { _place: None, memory: OnceLock::new() });
        Caller {
            from: self.from.clone(),
            rules: self.from.ingress.rules(),
            credential: self.credential.clone(),
            request,
        }
    }

    /// Whether it may go on: its token is in the file still, and has not expired; it has none, and still needs none.
    pub fn is_good(&self) -> bool {
        match &self.credential {
            Some(credential) => self.from.ingress.rules().tokens().is_ok_and(|good| good.has(credential)),
            None => self.from.process.is_some() || !self.from.ingress.rules().token_required,
        }
    }

    /// Whether it may hear of a member.
    pub fn may_see(&self, member: &str) -> bool {
        self.credential.as_ref().is_none_or(|credential| credential.token.is_for(member))
    }
}
