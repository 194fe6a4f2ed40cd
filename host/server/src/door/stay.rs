//! Who came in and stays, for longer than a request takes.

use std::sync::{Arc, OnceLock};

use super::{
    Caller, Connected, Refused, Underway,
    audit_log::{Event, Who},
    passes::Pass,
};

/// What a listener is called in the audit log.
const EVENTS: &str = "events";

/// What a listener may hear. It has no place among the requests of its token: there are other bounds for those who stay.
pub(crate) struct Stay {
    from: Arc<Connected>,
    pass: Option<Arc<Pass>>,
}

impl Caller {
    /// Gives the place of the request back, for one who stays to hear of these members; of none, of all that there are.
    ///
    /// # Errors
    /// Where the token is not for one of them.
    pub(crate) fn stays<'a>(self, members: impl Iterator<Item = &'a str> + Clone) -> Result<Stay, Refused> {
        let stay = self.stays_on();
        let (Connected { door, peer, .. }, pass) = (&*stay.from, &stay.pass);
        for member in members.clone() {
            if let Some(pass) = pass.as_ref().filter(|pass| !pass.token.is_for(member)) {
                let refused = Refused::Member { token: pass.token.name.clone(), member: member.parse().ok() };
                door.record_refusal(*peer, &refused, Some(member), None);
                return Err(refused);
            }
        }
        if door.log_reads() {
            let mut members = members;
            door.record(&Event {
                event: "request",
                who: pass.as_ref().map_or(Who::Local, |pass| Who::Token(&pass.token.name)),
                peer: Some(*peer),
                method: Some(EVENTS),
                // Where there are several, none is named.
                member: members.next().filter(|_| members.next().is_none()),
                ..Event::default()
            });
        }
        Ok(stay)
    }

    /// Gives the place of the request back, for one who stays and was let in as any request is.
    pub(crate) fn stays_on(self) -> Stay {
        Stay { from: self.from, pass: self.pass }
    }
}

impl Stay {
    /// Who it is, as one who asks now. It has no place among the requests of its token.
    pub(crate) fn caller(&self) -> Caller {
        let request = Arc::new(Underway { _place: None, memory: OnceLock::new() });
        Caller { from: self.from.clone(), reading: self.from.now(), pass: self.pass.clone(), request }
    }

    /// Whether it may go on: its token is in the file still, and has not expired; it has none, and still needs none.
    pub(crate) fn is_good(&self) -> bool {
        match &self.pass {
            Some(pass) => {
                let door = &self.from.door;
                door.tokens(&door.now().rules).is_ok_and(|good| good.has(pass))
            }
            None => !self.from.door.token_required(),
        }
    }

    /// Whether it may hear of a member.
    pub(crate) fn may_see(&self, member: &str) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.token.is_for(member))
    }
}
