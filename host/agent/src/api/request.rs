//! One request to the provider, and its repetition while it fails in a way that passes.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use genai::chat::{CacheControl, ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, StreamEnd, Tool};
use guild_jobs::{
    session::{Ending, Session},
    transcript::Entry,
};
use serde_json::json;
use tokio::time::{sleep_until, timeout};
use tracing::{Dispatch, instrument::WithSubscriber as _};

use super::{
    Api,
    answer::{Answer, tokens},
    failure::Failure,
    prices::Tokens,
    provider::Provider,
};

/// No answer of a model is larger; a server that sends more does not speak the protocol.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

impl Api {
    /// Asks for the next answer, again and again while that may help, with pauses between.
    pub(super) async fn ask(
        &self,
        session: &Session,
        model: &str,
        messages: &[ChatMessage],
    ) -> Result<(Answer, Option<Tokens>), Ending> {
        let mut failures = 0;
        loop {
            let request = Box::pin(timeout(self.options.request, self.send(session, model, messages)));
            let failure = match within(session, request).await? {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::passing(format!("no answer within {} s", self.options.request.as_secs_f64())),
            };
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
            let number = session.number;
            let (retries, seconds) = (self.options.retries, pause.as_secs_f64());
            let text = format!("{text}; asking again in {seconds:.1} s ({failures} of {retries})");
            session.journal.write(&Entry::Note { session: number, text });
            within(session, tokio::time::sleep(pause)).await?;
        }
    }

    /// Sends a request and reads its answer to the end.
    async fn send(
        &self,
        session: &Session,
        model: &str,
        messages: &[ChatMessage],
    ) -> Result<(Answer, Option<Tokens>), Failure> {
        let key = self.place.key().map_err(Failure::last)?;
        let named = self.place.key_named();
        let exchange = async {
            let target = self.place.target(model, key.as_ref()).map_err(Failure::last)?;
            let failed = |error| Failure::of(error, named.as_deref());
            let options = self.chat_options(model);
            let request = self.chat_request(session, messages);
            let mut stream = self
                .client()
                .map_err(Failure::last)?
                .exec_chat_stream(target, request, Some(&options))
                .await
                .map_err(failed)?
                .stream;
            let (mut said, mut call) = (0, 0);
            while let Some(event) = stream.next().await {
                match event.map_err(failed)? {
                    ChatStreamEvent::Chunk(chunk) | ChatStreamEvent::ReasoningChunk(chunk) => {
                        said += chunk.content.len();
                    }
                    // Its input as far as it has come.
                    ChatStreamEvent::ToolCallChunk(chunk) => {
                        call = chunk.tool_call.fn_arguments.as_str().map_or(0, str::len);
                    }
                    ChatStreamEvent::End(end) if self.is_whole(&end) => {
                        let used = tokens(&end);
                        return Ok((Answer::new(end), used));
                    }
                    _ => {}
                }
                if said + call > MAX_ANSWER_BYTES {
                    return Err(Failure::last(format!("the answer is larger than {MAX_ANSWER_BYTES} bytes")));
                }
            }
            Err(Failure::passing("the answer broke off before its end"))
        };
        // genai writes errors to the log as the provider sent them, and a provider may quote the key in one. What is
        // worth telling is in the failure.
        exchange.with_subscriber(Dispatch::none()).await.map_err(|failure: Failure| failure.without(key.as_ref()))
    }

    /// Whether the stream came to its end: for Gemini and Ollama, genai makes an end of a cut stream too.
    fn is_whole(&self, end: &StreamEnd) -> bool {
        match self.place.provider() {
            Provider::Anthropic | Provider::OpenAi => true,
            Provider::Gemini => end.captured_stop_reason.is_some(),
            Provider::Ollama => end.captured_stop_reason.is_some() || end.captured_usage.is_some(),
        }
    }

    fn chat_options(&self, model: &str) -> ChatOptions {
        let provider = self.place.provider();
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
        // A session with tools asks many times with the same beginning: Anthropic is told to keep it, up to the end of
        // the system prompt, and up to the end of what is sent. The others keep it unasked.
        if self.place.provider() == Provider::Anthropic && !tools.is_empty() {
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
