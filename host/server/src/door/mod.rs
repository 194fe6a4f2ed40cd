//! The door: who may ask, and how much of it.
//!
//! A request passes here before anything is done for it, and again with each method that it asks for:
//!
//! - [`names`]: it calls the host by one of its names, so that no web page can have sent it;
//! - [`tokens`], [`passes`]: it brings a token that is good, for this member and this method, and that has not been
//!   used too much. Whoever is on this machine, and calls the host by loopback's names, needs none unless
//!   `require_token` says so;
//! - [`shares`]: what its requests hold, together with what those of others hold, is not too much;
//! - [`audit`], [`audit_log`]: what was asked for, and what came of it, is written down.
//!
//! How the request travels is for [`tls`] and [`patience`].

mod audit;
pub mod audit_log;
mod class;
mod names;
mod passes;
pub(crate) mod patience;
pub(crate) mod shares;
mod stay;
pub(crate) mod tls;
pub mod tokens;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use axum::http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, HeaderValue},
    uri::Authority,
};
use bytes::Bytes;
use guild_contract::{Limits, MemberKey, rpc::code, text::one_line};
use tokio::sync::OwnedSemaphorePermit;

pub(crate) use audit::Audit;
pub(crate) use class::is_known;
pub(crate) use names::CalledBy;
pub use names::HostName;
pub(crate) use stay::Stay;

use self::{
    audit_log::{AuditLogError, Event, Log, Outcome, Who},
    class::Class,
    names::Names,
    passes::{Good, Look, Pass, Passes},
    shares::{Share, Shares},
    tls::{Tls, TlsError},
    tokens::{TokenError, TokenFile},
};
use crate::{
    config::Config,
    reload::LOGGED_CHARS,
    roster::{Reading, Roster},
    rpc::RpcError,
};

/// Why a host does not start with the door that it was given.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// Others can reach the host, and nobody could come in.
    #[error(
        "{address} can be reached from other machines, so requests need a token, and there is none in {tokens}; make one \
         with `{command}`"
    )]
    NoToken {
        /// Where the host would listen.
        address: SocketAddr,
        /// Where the tokens would be.
        tokens: String,
        /// What makes one.
        command: String,
    },
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The certificate or its key is not sound.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The audit log cannot be written.
    #[error(transparent)]
    AuditLog(#[from] AuditLogError),
}

/// A host's door.
pub struct Door {
    /// What is in service, and by which rules it may be asked.
    roster: Arc<Roster>,
    /// Where the host listens.
    address: SocketAddr,
    /// Whether callers have to speak TLS, for as long as the host runs.
    has_tls: bool,
    /// The bytes that may be held for requests.
    memory: Arc<Shares>,
}

/// Who may come in, and what is written down of it.
pub(crate) struct Rules {
    names: Names,
    passes: Arc<Passes>,
    /// Whether every request needs a token.
    token_required: bool,
    log: Option<Arc<Log>>,
    /// What of `guild.toml` names that log.
    log_path: Option<PathBuf>,
    log_reads: bool,
    tls: Option<Arc<Tls>>,
    /// What a request may take.
    limits: Arc<Limits>,
}

/// A connection at a door.
pub(crate) struct Connected {
    door: Arc<Door>,
    /// The other end.
    peer: SocketAddr,
    /// This end, where it is a name of the host.
    at: Option<SocketAddr>,
}

impl Door {
    /// The door of a host that listens at `address`, as `guild.toml` has it.
    ///
    /// # Errors
    /// Where the certificate, the named audit log or the tokens cannot be read, or there is no token and nobody could
    /// come in without.
    pub fn open(config: &Config, address: SocketAddr) -> Result<Self, DoorError> {
        let rules = Rules::of(config, address, None)?;
        let has_tls = rules.tls.is_some();
        let memory = Shares::new(config.limits.requests_bytes);
        Ok(Self { roster: Arc::new(Roster::new(rules)), address, has_tls, memory })
    }

    /// A door for this machine only, without tokens and without an audit log.
    pub fn of_this_machine(limits: &Limits) -> Self {
        let rules = Rules {
            names: Names::default(),
            passes: Arc::new(Passes::new(None, limits)),
            token_required: false,
            log: None,
            log_path: None,
            log_reads: false,
            tls: None,
            limits: Arc::new(limits.clone()),
        };
        Self {
            roster: Arc::new(Roster::new(rules)),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            has_tls: false,
            memory: Shares::new(limits.requests_bytes),
        }
    }

    /// What is in service behind it.
    pub(crate) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// What is in service now.
    pub(crate) fn now(&self) -> Arc<Reading> {
        self.roster.now()
    }

    /// What another `guild.toml` says, ready to hold: the address, and whether it is TLS, stay as they are.
    ///
    /// # Errors
    /// As where a host starts with it.
    pub(crate) fn prepare(&self, config: &Config) -> Result<Rules, DoorError> {
        Rules::of(config, self.address, Some(self))
    }

    /// Where this machine's own processes reach it, which may listen on all addresses.
    pub(crate) fn url(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("{}://{}", self.scheme(), SocketAddr::new(ip, self.address.port()))
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.has_tls { "https" } else { "http" }
    }

    pub(crate) fn tls(&self) -> Option<Arc<Tls>> {
        if self.has_tls { self.now().rules.tls.clone() } else { None }
    }

    /// Whether connections have to say which address they lead to.
    pub(crate) fn own_address(&self) -> bool {
        !self.address.ip().is_loopback()
    }

    /// Writes a line into the audit log, where there is one.
    pub fn record(&self, event: &Event<'_>) {
        if let Some(log) = &self.now().rules.log {
            log.record(event);
        }
    }

    /// Whether every request needs a token, as it is now.
    fn token_required(&self) -> bool {
        self.now().rules.token_required
    }

    /// Whether what is only read is written down, too.
    fn log_reads(&self) -> bool {
        self.now().rules.log_reads
    }

    /// The tokens as they are now, under these rules. That they are others than before is told.
    fn tokens(&self, rules: &Rules) -> Result<Good, Refused> {
        let Look { good, news } = rules.passes.look();
        match news {
            None => {}
            Some(Ok(count)) => {
                tracing::info!(count, "the tokens have changed");
                self.record(&Event {
                    event: "tokens-read",
                    detail: Some(format!("{count} tokens").into()),
                    ..Event::default()
                });
            }
            Some(Err(why)) => {
                unreadable(&why);
                self.record(&Event { event: "tokens-read", outcome: Outcome::Failed, ..Event::default() });
            }
        }
        good.ok_or(Refused::Unreadable)
    }

    fn record_refusal(&self, peer: SocketAddr, refused: &Refused, member: Option<&str>, method: Option<&str>) {
        let name = |text: &str| one_line(text, LOGGED_CHARS);
        tracing::debug!(
            %peer,
            member = member.map(name),
            method = method.map(name),
            status = refused.status().as_u16(),
            "refused: {refused}"
        );
        let Some(log) = &self.now().rules.log else { return };
        log.record_refusal(&Event {
            event: "request",
            who: match refused {
                Refused::NoMemory { token: None } => Who::Local,
                refused => refused.token().map_or(Who::Unknown, Who::Token),
            },
            peer: Some(peer),
            method: method.filter(|method| Class::of(method).is_known()),
            member: member.filter(|member| member.parse::<MemberKey>().is_ok()),
            outcome: refused.outcome(),
            status: Some(refused.status().as_u16()),
            ..Event::default()
        });
    }
}

fn no_token(address: SocketAddr, file: &TokenFile) -> DoorError {
    DoorError::NoToken { address, tokens: file.path().display().to_string(), command: file.command("add NAME") }
}

impl Rules {
    /// What `guild.toml` says of the door of a host that listens at `address`. Of a door that is there already, it keeps
    /// what is the same.
    fn of(config: &Config, address: SocketAddr, door: Option<&Door>) -> Result<Self, DoorError> {
        let (options, now) = (&config.door, door.map(Door::now));
        let before = now.as_ref().map(|now| &now.rules);
        let is_local = address.ip().is_loopback();
        let token_required = options.require_token || !is_local;
        let file = match TokenFile::of(config) {
            Ok(file) => Some(file),
            Err(error) if token_required => return Err(error.into()),
            Err(_) => None,
        };
        let passes = match before {
            // What has been used of the bounds stays used.
            Some(before) if before.passes.is_bounded_by(&config.limits) => before.passes.clone(),
            _ => Arc::new(Passes::new(file.clone(), &config.limits)),
        };
        if before.is_some() {
            // A file that is not sound refuses what else is new, too.
            let tokens = file.as_ref().map_or(Ok(Vec::new()), TokenFile::read)?;
            if let (true, false, Some(file)) = (tokens.is_empty(), is_local, file) {
                return Err(no_token(address, &file));
            }
        } else {
            // The first look is no news, but where it fails.
            match (passes.look().news, file) {
                (Some(Ok(0)), Some(file)) if !is_local => {
                    return Err(no_token(address, &file));
                }
                (Some(Err(error)), _) if token_required => return Err(error.into()),
                (Some(Err(why)), _) => unreadable(&why),
                _ => {}
            }
        }
        let log = match before {
            Some(before) if before.log_path == options.audit_log => before.log.clone(),
            _ => Log::of_host(config)?.map(Arc::new),
        };
        let tls = options.tls.as_ref().map(Tls::open).transpose()?.map(Arc::new);
        let tls = match before {
            // Whether it is TLS is known since the start.
            Some(before) => before.tls.as_ref().map(|before| tls.unwrap_or_else(|| before.clone())),
            None => tls,
        };
        Ok(Self {
            names: Names::new(options.hosts.clone()),
            passes,
            token_required,
            log,
            log_path: options.audit_log.clone(),
            log_reads: options.audit_log_reads,
            tls,
            limits: Arc::new(config.limits.clone()),
        })
    }

    /// Whether these have a certificate, and it is another one than that of `before`.
    pub(crate) fn has_other_certificate(&self, before: &Self) -> bool {
        self.tls.as_ref().zip(before.tls.as_ref()).is_some_and(|(tls, before)| !tls.is_same(before))
    }
}

impl Connected {
    /// A connection from `peer`, to `at`, where that is a name of the host.
    pub(crate) fn new(door: Arc<Door>, peer: SocketAddr, at: Option<SocketAddr>) -> Self {
        Self { door, peer, at }
    }

    /// The other end.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What is in service now: for all that becomes of one request.
    pub(crate) fn now(&self) -> Arc<Reading> {
        self.door.now()
    }

    /// Whether a request calls this host by one of its names; else the text of a 403.
    pub(crate) fn called_by(
        &self,
        Reading { rules, .. }: &Reading,
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
    pub(crate) fn admit(
        self: &Arc<Self>,
        reading: &Arc<Reading>,
        called_by: CalledBy,
        headers: &HeaderMap,
        member: Option<&str>,
    ) -> Result<Caller, Refused> {
        let Self { door, peer, .. } = &**self;
        let caller = |pass, place| {
            let request = Arc::new(Underway { _place: place, memory: OnceLock::new() });
            Caller { from: self.clone(), reading: reading.clone(), pass, request }
        };
        let brought = headers.get(AUTHORIZATION);
        if brought.is_none() && !reading.rules.token_required && called_by == CalledBy::Loopback {
            return Ok(caller(None, None));
        }
        let pass = match bearer(headers) {
            Some(token) => door.tokens(&reading.rules).and_then(|good| good.find(token).ok_or(Refused::Unauthorized)),
            None => Err(Refused::Unauthorized),
        };
        let entered = pass.and_then(|pass| {
            if let Some(member) = member.filter(|member| !pass.token.is_for(member)) {
                let member = member.parse().ok();
                return Err(Refused::Member { token: pass.token.name.clone(), member });
            }
            pass.count_request()?;
            let place = pass.place()?;
            Ok(caller(Some(pass), Some(place)))
        });
        entered.inspect_err(|refused| door.record_refusal(*peer, refused, member, None))
    }
}

fn unreadable(why: &TokenError) {
    tracing::error!("the tokens cannot be read, and none is good until they can be: {why}");
}

/// The token of a request that brings one, and one only.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut brought = headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (brought.next(), brought.next()) else { return None };
    let (scheme, token) = only.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Why a request, or one method of a batch, is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No token, or no good one: unknown, expired or revoked, which nobody is told apart.
    Unauthorized,
    /// The host cannot tell which tokens are good.
    Unreadable,
    /// The token is not for this member.
    Member {
        /// The token's name.
        token: String,
        /// The member, where the name can be one.
        member: Option<MemberKey>,
    },
    /// The token is not for this method.
    Method {
        /// The token's name.
        token: String,
        /// The method.
        method: String,
    },
    /// There were too many with this token.
    TooMany {
        /// The token's name.
        token: String,
        /// The limit's name.
        limit: &'static str,
        /// After how long to ask again.
        seconds: u64,
    },
    /// The host holds as much for requests as it may.
    NoMemory {
        /// The token's name, where there is one.
        token: Option<String>,
    },
}

impl Refused {
    /// The status of an HTTP answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Unreadable | Self::NoMemory { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Member { .. } | Self::Method { .. } => StatusCode::FORBIDDEN,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// `Retry-After`, in seconds.
    pub(crate) fn retry_after(&self) -> Option<HeaderValue> {
        match self {
            Self::TooMany { seconds, .. } => Some((*seconds).into()),
            Self::NoMemory { .. } => Some(AGAIN_SECONDS.into()),
            _ => None,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Unauthorized => Outcome::Unauthorized,
            Self::Unreadable => Outcome::Failed,
            Self::Member { .. } | Self::Method { .. } => Outcome::Forbidden,
            Self::TooMany { .. } | Self::NoMemory { .. } => Outcome::Busy,
        }
    }

    fn token(&self) -> Option<&str> {
        match self {
            Self::Unauthorized | Self::Unreadable => None,
            Self::Member { token, .. } | Self::Method { token, .. } | Self::TooMany { token, .. } => Some(token),
            Self::NoMemory { token } => token.as_deref(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unauthorized => f.write_str("a token is needed that is good: Authorization: Bearer TOKEN"),
            Self::Unreadable => f.write_str("the host cannot check tokens at the moment"),
            Self::Member { token, member: Some(member) } => {
                write!(f, "the token {token} is not for the member {member}")
            }
            Self::Member { token, member: None } => write!(f, "the token {token} is not for this member"),
            Self::Method { token, method } => write!(f, "the token {token} is not for {method}"),
            Self::TooMany { token, limit, seconds } => {
                write!(f, "too many requests with the token {token} (limits.{limit}); ask again in {seconds} s")
            }
            Self::NoMemory { .. } => write!(
                f,
                "the requests that are under way hold as much memory as limits.requests_bytes allows, of all callers or of \
                 this one; ask again in {AGAIN_SECONDS} s"
            ),
        }
    }
}

/// As an element of a batch is answered.
impl From<Refused> for RpcError {
    fn from(refused: Refused) -> Self {
        let code = match refused {
            Refused::TooMany { .. } | Refused::Unreadable | Refused::NoMemory { .. } => code::BUSY,
            _ => code::FORBIDDEN,
        };
        Self::new(code, refused.to_string())
    }
}

/// What a request holds is counted where it is more than so many bytes, and such an answer keeps its caller's place until
/// the last of it is with the system: what is smaller fits into the system's own buffers, and nobody can make the host hold
/// it. So a small request takes no lock that others take.
pub(crate) const LARGE: u64 = patience::PIECE as u64;
/// An answer of more than so many bytes has only been read: what changes anything is answered with less.
const TOLD: u64 = 512 * 1024;
/// How long a request waits for memory that others hold.
const MEMORY_WAIT: Duration = Duration::from_secs(2);
/// When to ask again where there was none.
const AGAIN_SECONDS: u64 = 1;

fn lock(memory: &Mutex<Share>) -> MutexGuard<'_, Share> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who came in. As long as this or a copy of it lives, the request has its place among those of its token, and what it
/// holds is counted.
#[derive(Clone)]
pub struct Caller {
    from: Arc<Connected>,
    /// By which it was let in, and is served.
    reading: Arc<Reading>,
    pass: Option<Arc<Pass>>,
    request: Arc<Underway>,
}

/// What a request has taken.
struct Underway {
    _place: Option<OwnedSemaphorePermit>,
    /// Once it has held more than [`LARGE`].
    memory: OnceLock<Mutex<Share>>,
}

/// Who somebody is that came in, to be compared with who comes later: whoever has one token is one and the same, and so is
/// everybody without.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity(Option<[u8; 32]>);

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
    pub(crate) fn of_this_machine(door: Arc<Door>) -> Self {
        let reading = door.now();
        let from = Arc::new(Connected::new(door, SocketAddr::from(([127, 0, 0, 1], 0)), None));
        Self { from, reading, pass: None, request: Arc::new(Underway { _place: None, memory: OnceLock::new() }) }
    }

    /// What the request is served by.
    pub(crate) fn reading(&self) -> &Arc<Reading> {
        &self.reading
    }

    /// What it may take.
    pub(crate) fn limits(&self) -> &Limits {
        &self.reading.rules.limits
    }

    /// Who it is.
    pub(crate) fn identity(&self) -> Identity {
        Identity(self.pass.as_ref().map(|pass| pass.token.sha256))
    }

    /// Whether a member exists for the caller: its token is for it, or it needs none.
    pub(crate) fn is_for(&self, member: &str) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.token.is_for(member))
    }

    /// Whether the caller's token is for a method. Nothing is counted or written down: whoever has it carried out asks
    /// [`Self::may`].
    pub(crate) fn permits(&self, name: &str) -> bool {
        self.pass.as_ref().is_none_or(|pass| pass.token.methods >= Class::of(name).least())
    }

    /// Counts one more request of a batch.
    pub(crate) fn another(&self, member: &str, name: &str) -> Result<(), Refused> {
        self.checked(member, name, |pass| pass.count_request())
    }

    /// An answer, from now on all that the request holds. A large one keeps the caller's place until it is sent.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub(crate) fn awaits(&self, answer: Bytes) -> Result<Bytes, Refused> {
        self.answers(answer.len() as u64, answer.len() as u64)?;
        if answer.len() as u64 <= LARGE {
            return Ok(answer);
        }
        Ok(Bytes::from_owner(Awaited { answer, _caller: self.clone() }))
    }

    /// How many bytes the request holds that are counted.
    pub(crate) fn held(&self) -> u64 {
        self.request.memory.get().map_or(0, |memory| lock(memory).amount())
    }

    /// Counts so many bytes more that the request is about to hold, once others hold few enough.
    ///
    /// # Errors
    /// Where they do not within a few seconds.
    pub(crate) async fn takes(&self, bytes: u64) -> Result<(), Refused> {
        if bytes <= LARGE {
            return Ok(());
        }
        let (shares, memory) = (&self.from.door.memory, self.memory());
        // What is more than one caller can have, it has when it has nothing else.
        let wanted = lock(memory).amount().saturating_add(bytes).min(shares.of_one());
        if shares.retry(MEMORY_WAIT, || lock(memory).try_set(wanted)).await { Ok(()) } else { Err(self.no_memory()) }
    }

    /// Says that so many bytes are all that the request holds from now on.
    ///
    /// # Errors
    /// Where they are more than before, and others hold too many.
    pub(crate) fn holds(&self, bytes: u64) -> Result<(), Refused> {
        let bytes = if bytes > LARGE { bytes } else { 0 };
        let memory = match self.request.memory.get() {
            Some(memory) => memory,
            None if bytes == 0 => return Ok(()),
            None => self.memory(),
        };
        let bytes = bytes.min(self.from.door.memory.of_one());
        if lock(memory).try_set(bytes) { Ok(()) } else { Err(self.no_memory()) }
    }

    /// Says so of what the request holds with an answer of so many bytes, which is there already. A small one is sent in any
    /// case: what was carried out is told.
    pub(crate) fn answers(&self, answer: u64, bytes: u64) -> Result<(), Refused> {
        if answer > TOLD {
            return self.holds(bytes);
        }
        self.holds_already(bytes);
        Ok(())
    }

    /// Says so of what is there already, and cannot be refused any more.
    pub(crate) fn holds_already(&self, bytes: u64) {
        if bytes > LARGE || self.request.memory.get().is_some() {
            lock(self.memory()).set(bytes);
        }
    }

    fn memory(&self) -> &Mutex<Share> {
        self.request.memory.get_or_init(|| Mutex::new(self.from.door.memory.share(self.identity())))
    }

    fn no_memory(&self) -> Refused {
        let refused = Refused::NoMemory { token: self.pass.as_ref().map(|pass| pass.token.name.clone()) };
        self.from.door.record_refusal(self.from.peer, &refused, None, None);
        refused
    }

    /// Whether the caller may have a method carried out now.
    pub(crate) fn may(&self, member: &str, name: &str) -> Result<(), Refused> {
        self.checked(member, name, |pass| {
            // The body may have taken its time, and so may what came before in the batch.
            if !self.from.door.tokens(&self.reading.rules)?.has(pass) {
                return Err(Refused::Unauthorized);
            }
            let class = Class::of(name);
            if pass.token.methods < class.least() {
                return Err(Refused::Method { token: pass.token.name.clone(), method: name.to_owned() });
            }
            if class == Class::Dispatches { pass.count_dispatch() } else { Ok(()) }
        })
    }

    fn checked(
        &self,
        member: &str,
        name: &str,
        check: impl FnOnce(&Pass) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let Some(pass) = &self.pass else { return Ok(()) };
        let Connected { door, peer, .. } = &*self.from;
        check(pass).inspect_err(|refused| door.record_refusal(*peer, refused, Some(member), Some(name)))
    }
}
