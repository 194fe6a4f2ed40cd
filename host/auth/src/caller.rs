//! Who asks, from the connection on.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use guild_contract::{Limits, operation::Access};
use http::{HeaderMap, StatusCode, header::AUTHORIZATION, uri::Authority};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    audit_log::{Event, Outcome, Who},
    budget::{Identity, Permit},
    credentials::Credential,
    ingress::Ingress,
    names::CalledBy,
    operation::{Operation, required_methods},
    refused::Refused,
    rules::Rules,
};

/// The address of whoever is on this machine and has no other.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A connection to a host.
pub struct Connection {
    pub(crate) ingress: Arc<Ingress>,
    /// The other end.
    pub(crate) peer: SocketAddr,
    /// This end, where it is a name of the host.
    at: Option<SocketAddr>,
    /// The process at the other end, where it came by a Unix socket: the system vouches for it.
    pub(crate) process: Option<Process>,
}

/// A process at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id; 0 where the system does not tell.
    pub pid: i32,
    /// Its user.
    pub user: u32,
}

impl Connection {
    /// A connection from `peer`, to `at`, where that is a name of the host.
    pub fn new(ingress: Arc<Ingress>, peer: SocketAddr, at: Option<SocketAddr>) -> Self {
        Self { ingress, peer, at, process: None }
    }

    /// A connection of a process of this host's user, by a Unix socket that nobody else can open.
    pub fn of_process(ingress: Arc<Ingress>, process: Process) -> Self {
        Self { process: Some(process), ..Self::new(ingress, LOCAL, None) }
    }

    /// Lets a request in that came by a Unix socket: it needs no token.
    pub fn admit_user(self: &Arc<Self>) -> Caller {
        let request = Arc::new(Underway { _place: None, memory: OnceLock::new() });
        Caller { rules: self.ingress.rules(), from: self.clone(), credential: None, request }
    }

    /// The address of the other end, where it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.process.is_none().then_some(self.peer)
    }

    /// The other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether a request calls this host by one of its names; else the text of a 403.
    pub fn called_by(
        &self,
        rules: &Rules,
        target: Option<&Authority>,
        headers: &HeaderMap,
    ) -> Result<CalledBy, &'static str> {
        let Self { peer, at, .. } = self;
        rules.names.check(target, headers, *at).inspect_err(|_| {
            if let Some(log) = &rules.log {
                log.record_refusal(&Event {
                    event: "request",
                    who: Who::Unknown,
                    peer: Some(*peer),
                    outcome: Outcome::Forbidden,
                    status: Some(StatusCode::FORBIDDEN.as_u16()),
                    detail: Some("its Host or Origin is none of this host's".into()),
                    ..Event::default()
                });
            }
        })
    }

    /// Lets a request in, to the endpoint of a member where it is for one; or says why not.
    pub fn admit(
        self: &Arc<Self>,
        rules: &Arc<Rules>,
        called_by: CalledBy,
        headers: &HeaderMap,
        member: Option<&str>,
    ) -> Result<Caller, Refused> {
        let peer = &self.peer;
        let caller = |credential, place| {
            let request = Arc::new(Underway { _place: place, memory: OnceLock::new() });
            Caller { from: self.clone(), rules: rules.clone(), credential, request }
        };
        let token = bearer(headers);
        let is_local = called_by == CalledBy::Loopback;
        let is_admitted = match &self.ingress.private {
            Some(private) => is_local && token.is_some_and(|token| private.has_token(token)),
            None => is_local && !rules.token_required && headers.get(AUTHORIZATION).is_none(),
        };
        if is_admitted {
            return Ok(caller(None, None));
        }
        let credential = match token {
            Some(token) => rules.tokens().and_then(|good| good.find(token).ok_or(Refused::Unauthorized)),
            None => Err(Refused::Unauthorized),
        };
        let entered = credential.and_then(|credential| {
            if let Some(member) = member.filter(|member| !credential.token.is_for(member)) {
                let member = member.parse().ok();
                return Err(Refused::Member { token: credential.token.name.clone(), member });
            }
            credential.count_request()?;
            let place = credential.place()?;
            Ok(caller(Some(credential), Some(place)))
        });
        entered.inspect_err(|refused| rules.record_refusal(*peer, refused, member, None))
    }
}

/// The token of a request that brings one, and one only.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut brought = headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (brought.next(), brought.next()) else { return None };
    let (scheme, token) = only.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// What a request holds is counted where it is more than so many bytes, and such an answer keeps its caller's place until
/// the last of it is with the system: what is smaller fits into the system's own buffers, and nobody can make the host hold
/// it. So a small request takes no lock that others take.
pub const LARGE: u64 = 64 * 1024;
/// The largest answer of an operation that changes anything. A larger answer was only read, and can be refused.
const MAX_MUTATION_RESPONSE: u64 = 512 * 1024;
/// How long a request waits for memory that others hold.
const MEMORY_WAIT: Duration = Duration::from_secs(2);

fn lock(memory: &Mutex<Permit>) -> MutexGuard<'_, Permit> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who came in. As long as this or a copy of it lives, the request has its place among those of its token, and what it
/// holds is counted.
#[derive(Clone)]
pub struct Caller {
    pub(crate) from: Arc<Connection>,
    /// By which it was let in.
    pub(crate) rules: Arc<Rules>,
    pub(crate) credential: Option<Arc<Credential>>,
    pub(crate) request: Arc<Underway>,
}

/// What a request has taken.
pub(crate) struct Underway {
    pub(crate) _place: Option<OwnedSemaphorePermit>,
    /// Once it has held more than [`LARGE`].
    pub(crate) memory: OnceLock<Mutex<Permit>>,
}

/// An answer that has not been sent, and the caller who waits for it.
struct Awaited {
    answer: Bytes,
    _caller: Caller,
}

impl AsRef<[u8]> for Awaited {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

impl Caller {
    /// Whoever is on this machine and brought no token.
    pub fn of_this_machine(ingress: Arc<Ingress>) -> Self {
        Arc::new(Connection::new(ingress, LOCAL, None)).admit_user()
    }

    /// What it may take.
    pub fn limits(&self) -> &Limits {
        &self.rules.limits
    }

    /// Who it is.
    pub fn identity(&self) -> Identity {
        match (&self.credential, self.from.process) {
            (Some(credential), _) => Identity(Some(credential.token.sha256)),
            (None, Some(process)) => Identity::of_process(process.pid),
            (None, None) => Identity(None),
        }
    }

    /// Whether it is a process that came by a Unix socket.
    pub fn is_process(&self) -> bool {
        self.from.process.is_some()
    }

    /// Who it is, for the logs.
    pub(crate) fn who(&self) -> Who<'_> {
        match (&self.credential, self.from.process) {
            (Some(credential), _) => Who::Token(&credential.token.name),
            (None, Some(process)) => Who::User(process.user),
            (None, None) => Who::Local,
        }
    }

    /// The name of its token, if it brought one.
    pub fn token(&self) -> Option<&str> {
        self.credential.as_ref().map(|credential| credential.token.name.as_str())
    }

    /// Whether a member exists for the caller: its token is for it, or it needs none.
    pub fn is_for(&self, member: &str) -> bool {
        self.credential.as_ref().is_none_or(|credential| credential.token.is_for(member))
    }

    /// Lets the caller on to what is of all members, as the hall is.
    ///
    /// # Errors
    /// Where its token is for some members only.
    pub fn of_all(self) -> Result<Self, Refused> {
        match &self.credential {
            Some(credential) if !credential.token.is_for_all() => {
                let refused = Refused::SomeMembers { token: credential.token.name.clone() };
                self.rules.record_refusal(self.from.peer, &refused, None, None);
                Err(refused)
            }
            _ => Ok(self),
        }
    }

    /// Whether the caller's token is for methods that do that. Nothing is counted or written down: whoever has one carried
    /// out asks [`Self::authorize`].
    pub fn permits(&self, access: Access) -> bool {
        self.credential.as_ref().is_none_or(|credential| credential.token.methods >= required_methods(access))
    }

    /// Counts one more request of a batch.
    ///
    /// # Errors
    /// Where there were too many.
    pub fn another(&self, member: &str, operation: Operation<'_>) -> Result<(), Refused> {
        self.checked(member, operation, |credential| credential.count_request())
    }

    /// The answer, in whose place nothing else of the request is in memory any more. A large answer keeps the caller's place
    /// until it is sent.
    ///
    /// # Errors
    /// Where the answer is so large that it was only read, and there is no memory for it. A caller is always told that its
    /// change was carried out.
    pub fn respond(&self, answer: Bytes) -> Result<Bytes, Refused> {
        self.resize(answer.len() as u64, answer.len() as u64)?;
        if answer.len() as u64 <= LARGE {
            return Ok(answer);
        }
        Ok(Bytes::from_owner(Awaited { answer, _caller: self.clone() }))
    }

    /// How many bytes of memory are reserved for the request.
    pub fn reserved(&self) -> u64 {
        self.request.memory.get().map_or(0, |memory| lock(memory).amount())
    }

    /// Reserves memory that the request is about to use besides, once other requests have released enough.
    ///
    /// # Errors
    /// Where they do not within a few seconds.
    pub async fn reserve(&self, bytes: u64) -> Result<(), Refused> {
        if bytes <= LARGE {
            return Ok(());
        }
        let (budget, memory) = (&self.from.ingress.memory, self.memory());
        // A request for more than one caller can have gets all of that, when the caller has nothing else.
        let wanted = lock(memory).amount().saturating_add(bytes).min(budget.of_one());
        match budget.retry(MEMORY_WAIT, || lock(memory).try_resize(wanted)).await {
            true => Ok(()),
            false => Err(self.no_memory()),
        }
    }

    /// Sets the memory that is reserved for the request, with an answer of this length among it.
    ///
    /// # Errors
    /// Where the answer is so large that it was only read, and there is no memory for it.
    pub fn resize(&self, bytes: u64, answer: u64) -> Result<(), Refused> {
        let bytes = if bytes > LARGE { bytes } else { 0 };
        let memory = match self.request.memory.get() {
            Some(memory) => memory,
            None if bytes == 0 => return Ok(()),
            None => self.memory(),
        };
        let bytes = bytes.min(self.from.ingress.memory.of_one());
        if lock(memory).try_resize(bytes) {
            return Ok(());
        }
        if answer > MAX_MUTATION_RESPONSE {
            return Err(self.no_memory());
        }
        lock(memory).resize(bytes);
        Ok(())
    }

    fn memory(&self) -> &Mutex<Permit> {
        self.request.memory.get_or_init(|| Mutex::new(self.from.ingress.memory.permit(self.identity())))
    }

    fn no_memory(&self) -> Refused {
        let refused =
            Refused::NoMemory { token: self.credential.as_ref().map(|credential| credential.token.name.clone()) };
        self.rules.record_refusal(self.from.peer, &refused, None, None);
        refused
    }

    /// The one gate: whether the caller may have a method of a member carried out now.
    ///
    /// # Errors
    /// Where its token is not good any more, not for this, or used too much.
    pub fn authorize(&self, member: &str, operation: Operation<'_>) -> Result<Authorized, Refused> {
        self.checked(member, operation, |credential| {
            // The body may have taken its time, and so may what came before in the batch.
            if !self.rules.tokens()?.has(credential) {
                return Err(Refused::Unauthorized);
            }
            let Operation { name, access } = operation;
            if credential.token.methods < required_methods(access) {
                return Err(Refused::Method { token: credential.token.name.clone(), method: name.to_owned() });
            }
            if access == Access::Dispatches { credential.count_dispatch() } else { Ok(()) }
        })?;
        Ok(Authorized::new(self, member, operation))
    }

    fn checked(
        &self,
        member: &str,
        operation: Operation<'_>,
        check: impl FnOnce(&Credential) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let Some(credential) = &self.credential else { return Ok(()) };
        let peer = self.from.peer;
        check(credential).inspect_err(|refused| self.rules.record_refusal(peer, refused, Some(member), Some(operation)))
    }
}

/// A caller who may have a method of a member carried out, as [`Caller::authorize`] found. What comes of it is written down.
#[derive(Clone)]
pub struct Authorized {
    pub(crate) caller: Caller,
    pub(crate) member: String,
    pub(crate) method: String,
    pub(crate) access: Access,
}

impl Authorized {
    fn new(caller: &Caller, member: &str, Operation { name, access }: Operation<'_>) -> Self {
        Self { caller: caller.clone(), member: member.to_owned(), method: name.to_owned(), access }
    }
}
