//! A client of a host's hall. Guild Hall's own daemon has the same API.

use std::{path::Path, time::Duration};

use futures::StreamExt as _;
use guild_contract::{
    hall::{HallEvent, JoinTurn, TurnEvent},
    operation::{Operation, Verbs},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, Url, header::HeaderMap};
use serde_json::{Value, json, value::RawValue};
use sse_stream::Sse;

use crate::{
    Error, Options, Reply, TurnEvents,
    connect::{self, EVENT_BYTES, FIRST, SILENCE, longer, protocol},
    endpoint,
};

/// The maximum size of an answer: a list of all commissions, each with its prompt and result.
const ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// The least timeout of an operation that waits for a network or a model.
const SLOW: Duration = Duration::from_secs(600);
/// The URL that requests over a socket carry.
const LOCAL: &str = "http://localhost/";

/// A client of a host's hall.
#[derive(Clone, Debug)]
pub struct HallClient {
    http: reqwest::Client,
    base: Url,
    timeout: Duration,
}

impl HallClient {
    /// The hall with this socket. No token is sent: the socket's mode protects it.
    ///
    /// # Errors
    /// The HTTP client cannot be made.
    pub fn at_socket(socket: &Path, options: &Options) -> Result<Self, Error> {
        let invalid = |reason: String| Error::Address { url: socket.display().to_string(), reason };
        let base: Url = LOCAL.parse().map_err(|_| invalid(LOCAL.to_owned()))?;
        let options = Options { token: None, ..options.clone() };
        let http = connect::builder(&base, &options, HeaderMap::new())?.unix_socket(socket);
        let http = http.build().map_err(|e| invalid(e.to_string()))?;
        Ok(Self { http, base, timeout: options.timeout })
    }

    /// The hall of the host at `url`, through its port.
    ///
    /// # Errors
    /// If the address is not that of a host, or the token would be sent there unencrypted.
    pub fn at_url(url: &str, options: &Options) -> Result<Self, Error> {
        let base = endpoint::hall(url)?;
        let http = connect::client(&base, options, HeaderMap::new(), None)?;
        Ok(Self { http, base, timeout: options.timeout })
    }

    /// Calls an operation.
    ///
    /// ```no_run
    /// # async fn example(hall: guild_client::HallClient) -> Result<(), guild_client::Error> {
    /// use guild_client::hall::{CommissionFilter, ListCommissions};
    ///
    /// let all = hall.ask::<ListCommissions>(&CommissionFilter::default()).await?.value;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ask<O: Operation>(&self, input: &O::Input) -> Result<Reply<O::Output>, Error> {
        let (url, request) = self.request::<O>(input)?;
        let timeout = if O::ROW.slow { self.timeout.max(SLOW) } else { self.timeout };
        let sent = request.timeout(timeout).send().await;
        let response = sent.map_err(|e| connect::failed(e, &url, timeout))?;
        Reply::parse(&url, connect::json(&url, response, ANSWER_BYTES, timeout).await?)
    }

    /// Calls an operation that responds with the events of a turn.
    ///
    /// # Errors
    /// See [`Error`]. A refusal of the hall is an event.
    pub async fn turn<O: Operation<Output = TurnEvent>>(&self, input: &O::Input) -> Result<TurnEvents, Error> {
        let (url, request) = self.request::<O>(input)?;
        let now = connect::events(&url, request, EVENT_BYTES, self.timeout.max(SLOW)).await?;
        let meeting = json!(input).get("meetingId").and_then(Value::as_str).map(str::to_owned);
        Ok(TurnEvents { meeting, now: Some(now), is_joined: false, ..self.turn_events()? })
    }

    /// The turn under way, or else the last one, from after the event with the number `after`; the whole turn after 0.
    /// Nothing is sent before the first call of [`TurnEvents::next`].
    ///
    /// # Errors
    ///
    /// Returns an error when the hall's address cannot have a path.
    pub fn join_turn(&self, id: &str, after: u64) -> Result<TurnEvents, Error> {
        Ok(TurnEvents { meeting: Some(id.to_owned()), after, ..self.turn_events()? })
    }

    /// The events of a turn that will be joined.
    fn turn_events(&self) -> Result<TurnEvents, Error> {
        let route = JoinTurn::ROW.route.map_or("", |route| route.path);
        Ok(TurnEvents {
            http: self.http.clone(),
            route: self.url(route.trim_start_matches('/'))?,
            timeout: self.timeout,
            meeting: None,
            after: 0,
            now: None,
            is_joined: true,
            is_empty: true,
            is_over: false,
            pause: None,
        })
    }

    /// The request for an operation, and its address.
    fn request<O: Operation>(&self, input: &O::Input) -> Result<(Url, RequestBuilder), Error> {
        let no_route = || protocol(&self.base, format!("{} has no route", O::ROW.name));
        let route = O::ROW.route.ok_or_else(no_route)?;
        let Value::Object(mut fields) = json!(input) else { return Err(no_route()) };
        let mut path = String::new();
        for part in route.path.trim_start_matches('/').split('/') {
            let field = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
            let value = field.and_then(|field| fields.remove(field));
            path.push('/');
            match value.as_ref().and_then(Value::as_str) {
                Some(value) => path.extend(utf8_percent_encode(value, NON_ALPHANUMERIC)),
                None => path.push_str(part),
            }
        }
        let mut url = self.url(path.trim_start_matches('/'))?;
        if route.verbs != Verbs::Get {
            let request = self.http.request(Method::POST, url.clone()).json(&fields);
            return Ok((url, request));
        }
        let text = |value: Value| match value {
            Value::String(text) => text,
            value => value.to_string(),
        };
        if !fields.is_empty() {
            url.query_pairs_mut().extend_pairs(fields.into_iter().map(|(name, value)| (name, text(value))));
        }
        let request = self.http.request(Method::GET, url.clone());
        Ok((url, request))
    }

    /// The events from now on. Nothing is sent before the first call of [`HallEvents::connect`] or
    /// [`HallEvents::next`].
    pub fn events(&self) -> HallEvents {
        HallEvents { hall: self.clone(), now: None, pause: None }
    }

    fn url(&self, path: &str) -> Result<Url, Error> {
        self.base.join(path).map_err(|e| protocol(&self.base, e.to_string()))
    }
}

/// The events of a hall. Earlier events are not sent again, so those without a connection are lost.
pub struct HallEvents {
    hall: HallClient,
    now: Option<connect::Stream>,
    pause: Option<Duration>,
}

impl HallEvents {
    /// Connects, if there is no connection. No later event is missed as long as it holds.
    ///
    /// # Errors
    /// See [`Error`]. After one that [may pass](Error::may_pass), the next call waits briefly and tries again.
    pub async fn connect(&mut self) -> Result<(), Error> {
        if self.now.is_some() {
            return Ok(());
        }
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
        }
        self.pause = Some(self.pause.map_or(FIRST, longer));
        let (url, timeout) = (self.hall.url("system/events/stream/subscribe")?, self.hall.timeout);
        self.now = Some(connect::events(&url, self.hall.http.get(url.clone()), EVENT_BYTES, timeout).await?);
        Ok(())
    }

    /// Waits for the next event. Dropping the future is safe.
    ///
    /// # Errors
    /// If there is no connection, or it ended: see [`Error`]. After one that [may pass](Error::may_pass), the next call
    /// makes a new connection.
    pub async fn next(&mut self) -> Result<Reply<HallEvent>, Error> {
        loop {
            self.connect().await?;
            let Some(stream) = &mut self.now else { continue };
            let url = &self.hall.base;
            match tokio::time::timeout(SILENCE, stream.next()).await {
                Ok(Some(Ok(Sse { data: Some(data), .. }))) => {
                    self.pause = None;
                    let json = RawValue::from_string(data).map_err(|e| protocol(url, e.to_string()))?;
                    return Reply::parse(url, json);
                }
                // A keep-alive.
                Ok(Some(Ok(_))) => {}
                ended => {
                    let reason = match ended {
                        Ok(Some(Err(e))) => e.to_string(),
                        Ok(_) => "the host ended it".to_owned(),
                        Err(_) => format!("nothing came for {} s", SILENCE.as_secs()),
                    };
                    let error = Error::Broken { url: url.clone(), reason };
                    self.now = None;
                    return Err(error);
                }
            }
        }
    }
}
