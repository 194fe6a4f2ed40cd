//! Admits the requests of callers on their connections, and accounts for the memory that requests reserve.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use guild_contract::{Limits, operation::Access, secret::Secret};
use guild_telemetry::record;
use http::{HeaderMap, StatusCode, header::AUTHORIZATION, uri::Authority};
use subtle::ConstantTimeEq as _;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    audit_log::{Event, Outcome, Who},
    budget::{Identity, Permit},
    ingress::Ingress,
    names::CalledBy,
    operation::Operation,
    refused::Refused,
    rules::Rules,
    tokens::credentials::Credential,
    tokens::digest,
};

/// The address of callers on this machine that have no other address.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A connection to a host.
pub struct Connection {
    pub(crate) ingress: Arc<Ingress>,
    /// The address of the peer.
    pub(crate) peer: SocketAddr,
    /// The address of the host's end, if that is a name of the host.
    at: Option<SocketAddr>,
    /// The peer's process on a Unix socket, as the system reports it.
    pub(crate) process: Option<Process>,
}

/// A peer process on a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id; 0 if the system does not report it.
    pub pid: i32,
    /// The id of its user.
    pub user: u32,
}

impl Connection {
    /// A connection from `peer` to `at`, if that address is a name of the host.
    pub fn new(ingress: Arc<Ingress>, peer: SocketAddr, at: Option<SocketAddr>) -> Self {
        Self { ingress, peer, at, process: None }
    }

    /// A connection of a process of this host's user, on a Unix socket that no other user can open.
    pub fn of_process(ingress: Arc<Ingress>, process: Process) -> Self {
        Self { process: Some(process), ..Self::new(ingress, LOCAL, None) }
    }

    /// Admits a request on a Unix socket, which needs no token.
    pub fn admit_user(self: &Arc<Self>) -> Caller {
        let request = Arc::new(RequestResources { _place: None, memory: OnceLock::new() });
        Caller { rules: self.ingress.rules(), from: self.clone(), credential: None, request }
    }

    /// The address of the other end, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.process.is_none().then_some(self.peer)
    }

    /// Checks that a request uses a name of this host; the error is the text of a 403.
    pub fn called_by(
        &self,
        rules: &Rules,
        target: Option<&Authority>,
        headers: &HeaderMap,
    ) -> Result<CalledBy, &'static str> {
        let at = self.at;
        rules.names.check(target, headers, at).inspect_err(|_| {
            record::denied("host-name");
            if let Some(log) = &rules.log {
                log.record_refusal(&Event {
                    event: "request",
                    who: Who::Unknown,
                    peer: self.address(),
                    outcome: Outcome::Forbidden,
                    status: Some(StatusCode::FORBIDDEN.as_u16()),
                    detail: Some("its Host or Origin does not belong to this host".into()),
                    ..Event::default()
                });
            }
        })
    }

    /// Admits a request, to the endpoint of `member` if there is one; or returns the refusal.
    pub fn admit(
        self: &Arc<Self>,
        rules: &Arc<Rules>,
        called_by: CalledBy,
        headers: &HeaderMap,
        member: Option<&str>,
    ) -> Result<Caller, Refused> {
        if self.needs_no_token(rules, called_by, headers) {
            return Ok(self.caller(rules, None, None));
        }
        let credential = match bearer(headers) {
            Some(token) => rules.tokens().and_then(|good| good.find(token).ok_or(Refused::Unauthorized)),
            None => Err(Refused::Unauthorized),
        };
        self.enter(rules, credential, member)
    }

    /// Admits a request of a browser to a page: by the session of its cookie, or as a caller on this machine that needs
    /// no token. No other request is admitted by a cookie.
    pub fn admit_browser(
        self: &Arc<Self>,
        rules: &Arc<Rules>,
        called_by: CalledBy,
        headers: &HeaderMap,
    ) -> Result<(Caller, Browser), Refused> {
        let sessions = &self.ingress.sessions;
        let Some(session) = sessions.find(headers, Instant::now()) else {
            if self.needs_no_token(rules, called_by, headers) && !sessions.csrf().is_empty() {
                let browser = Browser { csrf: sessions.csrf().to_owned() };
                return Ok((self.caller(rules, None, None), browser));
            }
            return Err(Refused::Unauthorized);
        };
        // The token may have been revoked since.
        let credential = rules.tokens().and_then(|good| good.of_session(&session.token).ok_or(Refused::Unauthorized));
        Ok((self.enter(rules, credential, None)?, Browser { csrf: session.csrf }))
    }

    /// Begins a session with a token.
    ///
    /// # Errors
    ///
    /// Returns an error when the token is not valid or made too many requests, or the system has no random numbers.
    pub fn sign_in(self: &Arc<Self>, rules: &Arc<Rules>, token: &str) -> Result<Cookie, Refused> {
        let credential = rules.tokens().and_then(|good| good.find(token.as_bytes()).ok_or(Refused::Unauthorized));
        let caller = self.enter(rules, credential, None)?;
        let sha256 = caller.credential.as_ref().map(|credential| credential.token.sha256).unwrap_or_default();
        let begun = self.ingress.sessions.begin(sha256, Instant::now());
        let (name, id) = begun.map_err(|_| Refused::Unreadable)?;
        rules.record(&Event { event: "signed-in", who: caller.who(), peer: self.address(), ..Event::default() });
        Ok(self.cookie(name, id.expose(), ""))
    }

    /// Ends the session of a request, and returns the cookie that removes its cookie.
    fn sign_out(&self, headers: &HeaderMap) -> Cookie {
        self.cookie(self.ingress.sessions.end(headers), "", "; Max-Age=0")
    }

    fn cookie(&self, name: &str, value: &str, rest: &str) -> Cookie {
        let secure = if self.ingress.scheme() == "https" { "; Secure" } else { "" };
        Cookie(Secret::from(format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{rest}")))
    }

    /// Whether this is a caller on this machine that needs no token.
    fn needs_no_token(&self, rules: &Rules, called_by: CalledBy, headers: &HeaderMap) -> bool {
        let is_local = called_by == CalledBy::Loopback;
        match &self.ingress.private {
            Some(private) => is_local && bearer(headers).is_some_and(|token| private.has_token(token)),
            None => is_local && !rules.token_required && headers.get(AUTHORIZATION).is_none(),
        }
    }

    /// Admits a request with this credential; or returns and records the refusal.
    fn enter(
        self: &Arc<Self>,
        rules: &Arc<Rules>,
        credential: Result<Arc<Credential>, Refused>,
        member: Option<&str>,
    ) -> Result<Caller, Refused> {
        let entered = credential.and_then(|credential| {
            if let Some(member) = member.filter(|member| !credential.token.is_for(member)) {
                let member = member.parse().ok();
                return Err(Refused::Member { token: credential.token.name.clone(), member });
            }
            credential.count_request()?;
            let place = credential.place()?;
            Ok(self.caller(rules, Some(credential), Some(place)))
        });
        entered.inspect_err(|refused| rules.record_refusal(self.address(), refused, member, None))
    }

    fn caller(
        self: &Arc<Self>,
        rules: &Arc<Rules>,
        credential: Option<Arc<Credential>>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Caller {
        let request = Arc::new(RequestResources { _place: place, memory: OnceLock::new() });
        Caller { from: self.clone(), rules: rules.clone(), credential, request }
    }
}

/// The browser of an admitted request to a page.
#[derive(Clone)]
pub struct Browser {
    csrf: String,
}

impl Browser {
    /// The secret that the forms of a page send back. Pages of other sites cannot read it.
    pub fn csrf(&self) -> &str {
        &self.csrf
    }

    /// Whether a form was sent by a page of this session.
    pub fn has_sent(&self, csrf: &str) -> bool {
        bool::from(self.csrf.as_bytes().ct_eq(csrf.as_bytes()))
    }
}

/// The value of a `Set-Cookie` header.
pub struct Cookie(Secret);

impl Cookie {
    /// The header's value.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}

/// The token of a request with exactly one.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut brought = headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (brought.next(), brought.next()) else { return None };
    let (scheme, token) = only.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Requests with no more memory than this are not counted, and do not hold their caller's place until the response is
/// with the system: smaller responses fit into the system's own buffers, so no caller can make the host hold them. So
/// small requests take no shared lock.
pub const LARGE: u64 = 64 * 1024;
/// The maximum size of a response to a change. A larger response is only the result of a read, and can be refused.
const MAX_MUTATION_RESPONSE: u64 = 512 * 1024;
/// The longest wait of a request for memory that other requests hold.
const MEMORY_WAIT: Duration = Duration::from_secs(2);

fn lock(memory: &Mutex<Permit>) -> MutexGuard<'_, Permit> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An admitted caller. As long as this value or a copy of it lives, the request has its place among those of its token,
/// and its memory is counted.
#[derive(Clone)]
pub struct Caller {
    pub(crate) from: Arc<Connection>,
    /// The rules by which the request was admitted.
    pub(crate) rules: Arc<Rules>,
    pub(crate) credential: Option<Arc<Credential>>,
    pub(crate) request: Arc<RequestResources>,
}

/// The resources of a request.
pub(crate) struct RequestResources {
    pub(crate) _place: Option<OwnedSemaphorePermit>,
    /// Set once the request has reserved more than [`LARGE`].
    pub(crate) memory: OnceLock<Mutex<Permit>>,
}

/// A response that has not been sent, and its caller.
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
    /// A caller on this machine without a token.
    pub fn of_this_machine(ingress: Arc<Ingress>) -> Self {
        Arc::new(Connection::new(ingress, LOCAL, None)).admit_user()
    }

    /// Ends the session of a request, and returns the cookie that removes its cookie.
    pub fn sign_out(&self, headers: &HeaderMap) -> Cookie {
        self.from.sign_out(headers)
    }

    /// The limits of the caller's rules.
    pub fn limits(&self) -> &Limits {
        &self.rules.limits
    }

    /// The identity of the caller.
    pub fn identity(&self) -> Identity {
        match (&self.credential, self.from.process) {
            (Some(credential), _) => Identity(Some(credential.token.sha256)),
            (None, Some(process)) => Identity::of_process(process.pid),
            (None, None) => Identity(None),
        }
    }

    /// Whether the caller is a process on a Unix socket.
    pub fn is_process(&self) -> bool {
        self.from.process.is_some()
    }

    /// The caller's identity for the logs.
    pub fn who(&self) -> Who<'_> {
        match (&self.credential, self.from.process) {
            (Some(credential), _) => Who::Token(&credential.token.name),
            (None, Some(process)) => Who::User(process.user),
            (None, None) => Who::Local,
        }
    }

    /// The name of the caller's token, if it has one.
    pub fn token(&self) -> Option<&str> {
        self.credential.as_ref().map(|credential| credential.token.name.as_str())
    }

    /// Whether the caller may see a member: its token permits it, or the caller needs no token.
    pub fn is_for(&self, member: &str) -> bool {
        self.credential.as_ref().is_none_or(|credential| credential.token.is_for(member))
    }

    /// Whether the caller may access objects of all members.
    pub fn is_for_all(&self) -> bool {
        self.credential.as_ref().is_none_or(|credential| credential.token.is_for_all())
    }

    /// Passes on a caller that may access objects of all members, such as the hall.
    ///
    /// # Errors
    ///
    /// Returns an error when the token permits only some members.
    pub fn require_all_members(self) -> Result<Self, Refused> {
        match &self.credential {
            Some(credential) if !self.is_for_all() => {
                let refused = Refused::SomeMembers { token: credential.token.name.clone() };
                self.rules.record_refusal(self.from.address(), &refused, None, None);
                Err(refused)
            }
            _ => Ok(self),
        }
    }

    /// Whether this is the caller's token. A caller that needs none has the empty one.
    pub fn is_token(&self, token: &str) -> bool {
        match &self.credential {
            Some(credential) => bool::from(credential.token.sha256.ct_eq(&digest(token.as_bytes()))),
            None => token.is_empty(),
        }
    }

    /// Whether the caller's token permits methods of this class. Nothing is counted or logged, so a method must not run
    /// without [`Self::authorize`].
    pub fn permits(&self, access: Access) -> bool {
        self.credential.as_ref().is_none_or(|credential| credential.token.role.permits(access))
    }

    /// Counts a further request of a batch.
    ///
    /// # Errors
    ///
    /// Returns an error when there were too many requests.
    pub fn another(&self, member: &str, operation: Operation<'_>) -> Result<(), Refused> {
        self.checked(member, operation, |credential| credential.count_request())
    }

    /// Accounts for a response that replaces all other memory of the request. A large response holds the caller's place
    /// until it is sent.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no memory for a response so large that it can only come from a read. Responses to
    /// changes are always sent.
    pub fn respond(&self, answer: Bytes) -> Result<Bytes, Refused> {
        self.resize(answer.len() as u64, answer.len() as u64)?;
        if answer.len() as u64 <= LARGE {
            return Ok(answer);
        }
        Ok(Bytes::from_owner(Awaited { answer, _caller: self.clone() }))
    }

    /// The number of bytes that are reserved for the request.
    pub fn reserved(&self) -> u64 {
        self.request.memory.get().map_or(0, |memory| lock(memory).amount())
    }

    /// Reserves further memory for the request, after waiting for other requests to release enough.
    ///
    /// # Errors
    ///
    /// Returns an error when no memory became free within a few seconds.
    pub async fn reserve(&self, bytes: u64) -> Result<(), Refused> {
        if bytes <= LARGE {
            return Ok(());
        }
        let (budget, memory) = (&self.from.ingress.memory, self.memory());
        // A request for more than the maximum of one caller gets that maximum, once the caller holds nothing else.
        let wanted = lock(memory).amount().saturating_add(bytes).min(budget.of_one());
        match budget.retry(MEMORY_WAIT, || lock(memory).try_resize(wanted)).await {
            true => Ok(()),
            false => Err(self.no_memory()),
        }
    }

    /// Sets the size of the memory that the request has reserved, including a response of this length.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no memory for a response so large that it can only come from a read.
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
        self.rules.record_refusal(self.from.address(), &refused, None, None);
        refused
    }

    /// The gate: checks that the caller may call a method of a member now.
    ///
    /// # Errors
    ///
    /// Returns an error when the token is no longer valid, does not permit the method, or was used too much.
    pub fn authorize(&self, member: &str, operation: Operation<'_>) -> Result<Authorized, Refused> {
        self.checked(member, operation, |credential| {
            // The token may have been revoked while the body, or an earlier request of the batch, took time.
            if !self.rules.tokens()?.has(credential) {
                return Err(Refused::Unauthorized);
            }
            let Operation { name, access } = operation;
            if !credential.token.role.permits(access) {
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
        let peer = self.from.address();
        check(credential).inspect_err(|refused| self.rules.record_refusal(peer, refused, Some(member), Some(operation)))
    }
}

/// A caller that [`Caller::authorize`] has admitted to a method of a member. The outcome of the method is logged.
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
