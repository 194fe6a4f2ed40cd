//! Sends a request to the provider, and repeats it after temporary failures.

use std::time::{Duration, Instant};

use guild_config::Tokens;
use guild_contract::Usage;
use guild_session::{
    meter::{Ending, OpenCost},
    session::Session,
};
use guild_telemetry::trace;
use reqwest::Response;
use tokio::time::{sleep_until, timeout, timeout_at};

use super::{
    Api,
    chat::{Message, ModelAnswer, Received, Request},
    failure::Failure,
    messages::going_on,
    protocol::{Protocol, Reader},
    provider::target,
};
use crate::shown::Shown;

/// The most bytes that are read of the body of an error.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// The longest wait for the end of a body after the model's reason to stop. The count of tokens may follow, but some
/// servers keep the connection open instead of ending the body.
const END_OF_BODY: Duration = Duration::from_secs(30);

/// An answer, and the cost that has to be booked for it.
pub(super) struct Completion {
    pub(super) answer: ModelAnswer,
    /// The tokens, if the provider counted them.
    pub(super) tokens: Option<Tokens>,
    /// The cost, open until it is resolved; `None` for a model that costs nothing.
    pub(super) cost: Option<OpenCost>,
}

impl Api {
    /// Whether another request may be made. For a model with a known price, the known dollars spent bound the job. For
    /// another model, tokens bound it, or the request is refused.
    pub(super) fn check_bounds(&self, session: &Session, model: &str) -> Result<(), Ending> {
        let meter = &session.meter;
        if Instant::now() >= meter.deadline() {
            return Err(Ending::Deadline);
        }
        if meter.left().map_err(Ending::Error)?.max_budget_usd.is_some_and(|left| left <= 0.0) {
            return Err(Ending::MaxBudget);
        }
        if self.options.prices.knows(model) {
            return Ok(());
        }
        let used = meter.job_account().usage.tokens();
        match self.options.unknown_cost_tokens {
            Some(max) if used < max => Ok(()),
            Some(max) => Err(Ending::Error(format!(
                "the job used {used} tokens, the price of {model} is not known, and api.unknown_cost_tokens is {max}"
            ))),
            None => Err(Ending::Error(super::unknown_price(model))),
        }
    }

    /// Requests the next answer, and repeats the request after temporary failures, with pauses between. The cost of a
    /// request that breaks off after it was sent is unknown. In a conversation the answer is shown while it is
    /// received, and the model is asked to continue an answer that broke off.
    pub(super) async fn ask(&self, session: &Session, model: &str, messages: &[Message]) -> Result<Completion, Ending> {
        let mut failures = 0;
        let mut shown = Shown::default();
        loop {
            let more = is_shown(&shown).then(|| going_on(messages, shown.text()));
            let messages = more.as_deref().unwrap_or(messages);
            // Dropping it, as a cancellation does, makes the cost unknown.
            let cost = (!self.options.prices.is_free(model)).then(|| session.meter.open_cost());
            let request = Box::pin(timeout(self.options.request, self.send(session, model, messages, &mut shown)));
            let failure = match within(session, request).await? {
                Ok(Ok(Received { answer, tokens, notes })) => {
                    session.piece(&shown.finish());
                    notes.into_iter().for_each(|note| session.note(note));
                    let again = session.converses && failures > 0;
                    let answer = if again { answer.with_text(shown.text()) } else { answer };
                    return Ok(Completion { answer, tokens, cost });
                }
                Ok(Err(failure)) => failure,
                Err(_) => Failure::passing(format!("no answer within {} s", self.options.request.as_secs_f64())),
            };
            match cost {
                Some(cost) if failure.unpaid => cost.resolve(Usage::default(), None),
                lost => drop(lost),
            }
            let text = &failure.text;
            if !failure.again {
                return Err(Ending::Error(failure.text));
            }
            failures += 1;
            if failures > self.options.retries {
                return Err(Ending::Error(format!("{text}; the request was made {failures} times")));
            }
            let pause = failure.pause(self.options.first_pause, failures);
            if pause >= session.meter.deadline().saturating_duration_since(Instant::now()) {
                let seconds = pause.as_secs();
                return Err(Ending::Error(format!("{text}; the session ends before the next attempt, in {seconds} s")));
            }
            let (retries, seconds) = (self.options.retries, pause.as_secs_f64());
            session.note(format!("{text}; retrying in {seconds:.1} s ({failures} of {retries})"));
            within(session, tokio::time::sleep(pause)).await?;
            self.check_bounds(session, model)?;
            shown.begin_again(is_shown(&shown));
        }
    }

    /// Sends a request and reads its answer to the end.
    async fn send(
        &self,
        session: &Session,
        model: &str,
        messages: &[Message],
        shown: &mut Shown,
    ) -> Result<Received, Failure> {
        let key = self.endpoint.key().map_err(Failure::unsent)?;
        let exchange = async {
            let (url, headers) = target(&self.endpoint, model, key.as_ref()).map_err(Failure::unsent)?;
            let client = self.client().map_err(Failure::unsent)?;
            let mut request = client.post(url).headers(headers).json(&self.body(session, model, messages));
            if let Some(traceparent) = trace::traceparent() {
                request = request.header(trace::TRACEPARENT, traceparent);
            }
            let mut response = request.send().await.map_err(Failure::of_connection)?;
            if !response.status().is_success() {
                let (status, headers) = (response.status(), response.headers().clone());
                let body = error_body(&mut response).await;
                return Err(Failure::of_status(status, &body, &headers, self.endpoint.key_named().as_deref()));
            }
            self.read(session, response, shown).await
        };
        let received: Received = exchange.await.map_err(|failure: Failure| failure.without(key.as_ref()))?;
        Ok(match &key {
            Some(key) => received.without(key),
            None => received,
        })
    }

    /// Reads an answer to its end, and shows it while it is received.
    async fn read(&self, session: &Session, mut response: Response, shown: &mut Shown) -> Result<Received, Failure> {
        let mut reader = Reader::new(Protocol::of(self.endpoint.provider));
        let mut show = |text: &str| {
            if session.converses {
                session.piece(&shown.accept(text));
            }
        };
        // The time until which the rest of a possibly complete answer is awaited.
        let mut until = None;
        while !reader.is_ended() {
            if until.is_none() && reader.may_end() {
                until = Some(Instant::now() + END_OF_BODY);
            }
            let chunk = match until {
                Some(until) => timeout_at(until.into(), response.chunk()).await.unwrap_or(Ok(None)),
                None => response.chunk().await,
            };
            let bytes = match chunk {
                Ok(Some(bytes)) => bytes,
                Err(error) if until.is_none() => return Err(Failure::of_connection(error)),
                Ok(None) | Err(_) => break,
            };
            match reader.push(&bytes) {
                Ok(text) => show(&text),
                Err(failure) if until.is_none() => return Err(failure),
                Err(_) => break,
            }
        }
        let (received, rest) = reader.finish()?;
        show(&rest);
        Ok(received)
    }

    /// The whole conversation so far, as the body of a request. It is kept only while it is sent.
    fn body(&self, session: &Session, model: &str, messages: &[Message]) -> serde_json::Value {
        let protocol = Protocol::of(self.endpoint.provider);
        let tools = session.tools.definitions();
        let request = Request {
            model,
            system_prompt: &session.system_prompt,
            messages,
            tools: &tools,
            max_output_tokens: self.options.max_output_tokens,
            // Sessions with tools and conversations send the same beginning many times.
            cache: protocol.caches_on_request && (session.converses || !tools.is_empty()),
        };
        protocol.body(&request)
    }
}

/// The beginning of the body of an error.
async fn error_body(response: &mut Response) -> String {
    let mut body = Vec::new();
    while body.len() < MAX_ERROR_BYTES
        && let Ok(Some(bytes)) = response.chunk().await
    {
        body.extend_from_slice(bytes.get(..MAX_ERROR_BYTES - body.len()).unwrap_or(&bytes));
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// Whether a text was shown that a model can continue.
fn is_shown(shown: &Shown) -> bool {
    !shown.text().trim().is_empty()
}

/// Waits for a future as long as the session lasts.
pub(super) async fn within<T>(session: &Session, future: impl Future<Output = T>) -> Result<T, Ending> {
    tokio::select! {
        biased;
        () = session.cancel.cancelled() => Err(Ending::Interrupted),
        () = sleep_until(session.meter.deadline().into()) => Err(Ending::Deadline),
        value = future => Ok(value),
    }
}

/// A client, for all requests of a runtime.
pub(super) fn client() -> Result<reqwest::Client, String> {
    reqwest::Client::builder()
        // Requests go only to the operator's address, not to a proxy from the environment or the target of a redirect,
        // which would be shown the key.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        // Over HTTP/2 all sessions would share one connection, and its limit of streams.
        .http1_only()
        .connect_timeout(Duration::from_secs(30))
        .tcp_keepalive(Duration::from_secs(60))
        .tcp_nodelay(true)
        .pool_max_idle_per_host(16)
        // The session decides on a repetition, and records it.
        .retry(reqwest::retry::never())
        // Decompression takes more memory than a waiting session.
        .no_gzip()
        .build()
        .map_err(|e| format!("the HTTP client cannot be made: {e}"))
}
