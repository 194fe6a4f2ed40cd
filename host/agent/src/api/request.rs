//! One request to the provider, and its repetition after temporary failures.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use genai::chat::{CacheControl, ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, StreamEnd, Tool, ToolCall};
use guild_contract::Usage;
use guild_session::{
    meter::{Ending, OpenCost},
    session::Session,
};
use serde_json::{Value, json};
use tokio::time::{sleep_until, timeout};
use tracing::{Dispatch, instrument::WithSubscriber as _};

use super::{
    Api,
    answer::{ModelAnswer, tokens},
    failure::Failure,
    messages::going_on,
    prices::Tokens,
    provider::Provider,
};
use crate::shown::Shown;

/// Bytes of one answer: its text, its reasoning and all of its calls together. It bounds what genai delivers. What genai
/// buffers before it delivers anything, such as the body of an error or a line without an end, is bounded by the
/// request's time only.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// An answer, and the cost that has to be booked for it.
pub(super) struct Completion {
    pub(super) answer: ModelAnswer,
    /// What was used, where the provider says it.
    pub(super) tokens: Option<Tokens>,
    /// The cost, open until it is resolved; `None` where the model costs nothing.
    pub(super) cost: Option<OpenCost>,
}

impl Api {
    /// Whether another request may be made. Where the price is known, dollars bound the job, by what is known to be
    /// spent; where it is not, tokens do, or nothing is asked at all.
    pub(super) fn check_bounds(&self, session: &Session, model: &str) -> Result<(), Ending> {
        let meter = &session.meter;
        if Instant::now() >= meter.deadline() {
            return Err(Ending::Deadline);
        }
        if meter.left().max_budget_usd.is_some_and(|left| left <= 0.0) {
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
    /// request that breaks off after it was sent is unknown. Of a conversation, the answer is shown as it comes: the model
    /// is asked to go on with one that broke off.
    pub(super) async fn ask(
        &self,
        session: &Session,
        model: &str,
        messages: &[ChatMessage],
    ) -> Result<Completion, Ending> {
        let mut failures = 0;
        let mut shown = Shown::default();
        loop {
            let more = is_shown(&shown).then(|| going_on(messages, shown.text()));
            let messages = more.as_deref().unwrap_or(messages);
            // Dropped, as by a cancel, it makes the cost unknown.
            let cost = (!self.options.prices.is_free(model)).then(|| session.meter.open_cost());
            let request = Box::pin(timeout(self.options.request, self.send(session, model, messages, &mut shown)));
            let failure = match within(session, request).await? {
                Ok(Ok((answer, tokens))) => {
                    session.piece(&shown.finish());
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
                return Err(Ending::Error(format!("{text}; it was asked {failures} times")));
            }
            let pause = failure.pause(self.options.first_pause, failures);
            if pause >= session.meter.deadline().saturating_duration_since(Instant::now()) {
                let seconds = pause.as_secs();
                return Err(Ending::Error(format!(
                    "{text}; the session ends before it could ask again, in {seconds} s"
                )));
            }
            let (retries, seconds) = (self.options.retries, pause.as_secs_f64());
            session.note(format!("{text}; asking again in {seconds:.1} s ({failures} of {retries})"));
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
        messages: &[ChatMessage],
        shown: &mut Shown,
    ) -> Result<(ModelAnswer, Option<Tokens>), Failure> {
        let key = self.endpoint.key().map_err(Failure::unsent)?;
        let named = self.endpoint.key_named();
        let exchange = async {
            let target = self.endpoint.target(model, key.as_ref()).map_err(Failure::unsent)?;
            let failed = |error| Failure::of(error, named.as_deref());
            let options = self.chat_options(model);
            let request = self.chat_request(session, messages);
            let mut stream = self
                .client()
                .map_err(Failure::unsent)?
                .exec_chat_stream(target, request, Some(&options))
                .await
                // It is sent with the first look at the stream.
                .map_err(|error| Failure { unpaid: true, ..failed(error) })?
                .stream;
            let mut size = Size::default();
            while let Some(event) = stream.next().await {
                match event.map_err(failed)? {
                    ChatStreamEvent::Chunk(chunk) => {
                        size.total += chunk.content.len();
                        if session.converses {
                            session.piece(&shown.accept(&chunk.content));
                        }
                    }
                    ChatStreamEvent::ReasoningChunk(chunk) | ChatStreamEvent::ThoughtSignatureChunk(chunk) => {
                        size.total += chunk.content.len();
                    }
                    ChatStreamEvent::ToolCallChunk(chunk) => size.add_call(&chunk.tool_call),
                    ChatStreamEvent::End(end) if self.is_whole(&end) => {
                        let used = tokens(&end);
                        return Ok((ModelAnswer::new(end), used));
                    }
                    _ => {}
                }
                if size.total > MAX_ANSWER_BYTES {
                    return Err(Failure::last(format!("the answer is larger than {MAX_ANSWER_BYTES} bytes")));
                }
            }
            Err(Failure::passing("the answer broke off before its end"))
        };
        // genai writes errors to the log as the provider sent them, and a provider may quote the key in one. The
        // failure has what matters.
        exchange.with_subscriber(Dispatch::none()).await.map_err(|failure: Failure| failure.without(key.as_ref()))
    }

    /// Whether the stream is complete: for Gemini and Ollama, genai reports the end of a cut stream too.
    fn is_whole(&self, end: &StreamEnd) -> bool {
        match self.endpoint.provider {
            Provider::Anthropic | Provider::OpenAi => true,
            Provider::Gemini => end.captured_stop_reason.is_some(),
            Provider::Ollama => end.captured_stop_reason.is_some() || end.captured_usage.is_some(),
        }
    }

    fn chat_options(&self, model: &str) -> ChatOptions {
        let provider = self.endpoint.provider;
        let options = ChatOptions::default()
            .with_max_tokens(self.options.max_output_tokens)
            .with_capture_content(true)
            .with_capture_tool_calls(true)
            .with_capture_usage(true)
            // Gemini's is asked for by a setting that its models without thoughts refuse.
            .with_capture_reasoning_content(provider != Provider::Gemini);
        match provider {
            // The model's name is in the URL, or sent by genai as it is.
            Provider::Gemini | Provider::Ollama => options,
            Provider::Anthropic | Provider::OpenAi => options.with_extra_body(json!({"model": model})),
        }
    }

    /// The whole conversation so far, as a request. It lives for as long as it takes to send it.
    fn chat_request(&self, session: &Session, messages: &[ChatMessage]) -> ChatRequest {
        let tools: Vec<Tool> = session
            .tools
            .definitions()
            .into_iter()
            .map(|tool| {
                Tool::new(tool.name.clone())
                    .with_description(tool.description.clone())
                    .with_schema(tool.input_schema.clone())
            })
            .collect();
        let mut all = Vec::with_capacity(messages.len() + 1);
        if !session.system_prompt.is_empty() {
            all.push(ChatMessage::system(session.system_prompt.as_str()));
        }
        all.extend_from_slice(messages);
        // A session with tools sends the same beginning many times. Anthropic caches it where the request asks for that:
        // up to the end of the system prompt, and up to the end of the request. The others cache it by themselves.
        if self.endpoint.provider == Provider::Anthropic && !tools.is_empty() {
            let last = all.len().saturating_sub(1);
            for (index, message) in all.iter_mut().enumerate() {
                if index == 0 || index == last {
                    message.options = Some(CacheControl::Ephemeral.into());
                }
            }
        }
        let request = ChatRequest::from_messages(all);
        if tools.is_empty() { request } else { request.with_tools(tools) }
    }
}

/// Whether something was shown that a model can be asked to go on with.
fn is_shown(shown: &Shown) -> bool {
    !shown.text().trim().is_empty()
}

/// Bytes of an answer that were received.
#[derive(Default)]
struct Size {
    total: usize,
    /// Of each call that is received in pieces, by its id.
    calls: HashMap<String, usize>,
}

impl Size {
    /// Counts what was received of a call: some providers send it whole, others its input as text in pieces, which genai
    /// repeats with each further piece.
    fn add_call(&mut self, call: &ToolCall) {
        let Value::String(input) = &call.fn_arguments else {
            self.total += call.fn_name.len() + call.fn_arguments.to_string().len();
            return;
        };
        let now = call.fn_name.len() + input.len();
        let before = self.calls.insert(call.call_id.clone(), now).unwrap_or_default();
        // What is smaller than before is another call under the same id.
        self.total += if now < before { now } else { now - before };
    }
}

/// Waits for something as long as the session lasts.
pub(super) async fn within<T>(session: &Session, future: impl Future<Output = T>) -> Result<T, Ending> {
    tokio::select! {
        biased;
        () = session.cancel.cancelled() => Err(Ending::Interrupted),
        () = sleep_until(session.meter.deadline().into()) => Err(Ending::Deadline),
        value = future => Ok(value),
    }
}

/// A client, for all requests of a runtime.
pub(super) fn client() -> Result<genai::Client, String> {
    let client = reqwest::Client::builder()
        // Requests go where the operator said, not where a variable of the environment or an answer leads: a proxy or a
        // redirect would be shown the key.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        // Over HTTP/2 all sessions would share one connection, and its limit of streams.
        .http1_only()
        .connect_timeout(Duration::from_secs(30))
        .tcp_keepalive(Duration::from_secs(60))
        .tcp_nodelay(true)
        .pool_max_idle_per_host(16)
        // Asking again is the session's own decision, and one that it writes down.
        .retry(reqwest::retry::never())
        // Decompression takes more memory than a session that waits.
        .no_gzip()
        .build()
        .map_err(|e| format!("the HTTP client cannot be made: {e}"))?;
    genai::Client::builder().with_reqwest(client).build().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, input: Value) -> ToolCall {
        ToolCall { call_id: id.to_owned(), fn_name: "f".to_owned(), fn_arguments: input, thought_signatures: None }
    }

    #[test]
    fn each_call_counts_once_and_all_of_them_count() {
        let mut size = Size::default();
        for (id, input) in [("a", ""), ("a", "12"), ("b", "123"), ("a", "1234"), ("b", "123")] {
            size.add_call(&call(id, json!(input)));
        }
        assert_eq!(size.total, 5 + 4);
        // Another call that has the id of one before it.
        size.add_call(&call("a", json!("")));
        assert_eq!(size.total, 9 + 1);
        for _ in 0..2 {
            size.add_call(&call("a", json!({"x": 1})));
        }
        assert_eq!(size.total, 10 + 2 * (1 + r#"{"x":1}"#.len()));
    }
}
