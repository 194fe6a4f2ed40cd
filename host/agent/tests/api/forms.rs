//! Answers that deviate from the protocol in form. Each is understood as the servers mean it that send it, or is an
//! error that quotes the provider. No call is made whose input was not received whole.

use guild_config::{ApiOptions, Price, Prices, Provider};
use guild_fakes::Reply;
use guild_session::{meter::Ending, tools::ToolCall};
use serde_json::{Value, json};

use crate::setting::{Desk, MODEL, Setting, fake_server, options, run, with_tools};

const SSE: &str = "text/event-stream";

/// What a session made of an answer that was sent as it is, and was followed by "Done." where it was asked again.
struct Outcome {
    ending: Ending,
    text: String,
    calls: Vec<ToolCall>,
    notes: Vec<String>,
    requests: Vec<Value>,
}

impl Outcome {
    fn said(&self) -> &str {
        assert_eq!(self.ending, Ending::Success, "{:?}", self.notes);
        &self.text
    }

    fn error(&self) -> &str {
        let Ending::Error(text) = &self.ending else { panic!("{:?} {:?}", self.ending, self.text) };
        text
    }

    fn inputs(&self) -> Vec<&Value> {
        self.calls.iter().map(|call| &call.input).collect()
    }
}

async fn outcome(provider: Provider, reply: Reply) -> Outcome {
    let (server, base) = fake_server(provider, vec![reply, Reply::text("Done.")]).await;
    let desk = Desk::new();
    let Setting { session, transcript, .. } = with_tools(&desk);
    // Answers here seldom say what was used.
    let free = Price {
        model: MODEL.to_owned(),
        input: 0.0,
        cached_input: None,
        cache_write: None,
        output: 0.0,
        above_input_tokens: 0,
    };
    let prices = Prices::new(vec![free]).unwrap();
    let end = run(ApiOptions { retries: 0, prices, ..options(provider, &base) }, session).await;
    let requests = server.requests().into_iter().map(|request| request.body).collect();
    Outcome { ending: end.ending, text: end.text, calls: desk.calls(), notes: transcript.notes(), requests }
}

async fn answer(provider: Provider, content_type: &'static str, body: impl Into<String>) -> Outcome {
    outcome(provider, Reply::raw(content_type, body)).await
}

/// A stream of chat completions with these choices' contents, that ends as OpenAI's do.
fn chunks(choices: &[Value]) -> String {
    let chunk =
        |choice: &Value| format!("data: {}\n\n", json!({"object": "chat.completion.chunk", "choices": [choice]}));
    choices.iter().map(chunk).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

/// The calls of a stream of chat completions that has these pieces of calls, and why the model stopped.
async fn calls(pieces: &[Value], finish: &str) -> Outcome {
    let delta = |call: &Value| json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null});
    let mut choices: Vec<Value> = pieces.iter().map(delta).collect();
    choices.push(json!({"index": 0, "delta": {}, "finish_reason": finish}));
    answer(Provider::OpenAi, SSE, chunks(&choices)).await
}

fn function(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

#[tokio::test]
async fn an_index_is_a_name_and_neither_a_size_nor_a_position() {
    for index in [json!(1), json!(4_294_967_295_u64), json!(u64::MAX), json!(-1), json!(1e300), json!("a"), json!(null)]
    {
        let pieces = [
            json!({"index": index, "id": "a", "function": function("look", json!(""))}),
            json!({"index": index, "function": {"arguments": "{\"value\":"}}),
            json!({"index": index, "function": {"arguments": "7}"}}),
        ];
        let outcome = calls(&pieces, "tool_calls").await;
        assert_eq!((outcome.said(), outcome.inputs()), ("Done.", vec![&json!({"value": 7})]), "{index}");
        assert_eq!(outcome.requests[1]["messages"][2]["tool_calls"].as_array().unwrap().len(), 1, "{index}");
    }
}

#[tokio::test]
async fn calls_of_an_openai_server_are_told_apart_however_it_numbers_them() {
    let two = [&json!({"value": 1}), &json!({"value": 2})];
    let cases = [
        // One index for all, as some gateways to Gemini have it.
        [
            json!({"index": 0, "id": "a", "function": function("look", json!("{\"value\":1}"))}),
            json!({"index": 0, "id": "b", "function": function("look", json!("{\"value\":2}"))}),
        ],
        // The same without ids.
        [
            json!({"index": 0, "function": function("look", json!("{\"value\":1}"))}),
            json!({"index": 0, "function": function("look", json!("{\"value\":2}"))}),
        ],
        // No index.
        [
            json!({"id": "a", "function": function("look", json!("{\"value\":1}"))}),
            json!({"id": "b", "function": function("look", json!("{\"value\":2}"))}),
        ],
        // Neither.
        [
            json!({"function": function("look", json!("{\"value\":1}"))}),
            json!({"function": function("look", json!({"value": 2}))}),
        ],
        // One id for two indexes, and inputs that are objects.
        [
            json!({"index": 5, "id": "a", "function": function("look", json!({"value": 1}))}),
            json!({"index": 3, "id": "a", "function": function("look", json!({"value": 2}))}),
        ],
    ];
    for pieces in cases {
        let outcome = calls(&pieces, "tool_calls").await;
        assert_eq!((outcome.said(), outcome.inputs()), ("Done.", two.to_vec()), "{pieces:?}");
        let sent = &outcome.requests[1]["messages"];
        let ids: Vec<&str> = [0, 1].map(|n| sent[2]["tool_calls"][n]["id"].as_str().unwrap()).into();
        assert!(!ids[0].is_empty() && ids[0] != ids[1], "{ids:?}");
        assert_eq!([&sent[3]["tool_call_id"], &sent[4]["tool_call_id"]], [ids[0], ids[1]], "{pieces:?}");
    }
}

#[tokio::test]
async fn an_input_is_understood_in_every_form_that_servers_send() {
    let whole = json!({"value": {"n": [1]}});
    let text = whole.to_string();
    let (start, rest) = text.split_at(5);
    let of = |arguments: Value| json!({"index": 0, "id": "a", "function": {"arguments": arguments}});
    let named = |arguments: Value| json!({"index": 0, "id": "a", "function": function("look", arguments)});
    for pieces in [
        vec![named(whole.clone())],
        vec![named(whole.clone()), of(json!(""))],
        vec![named(json!(null)), of(json!(start)), of(json!(rest))],
        // The name and the id with each piece.
        vec![named(json!(start)), named(json!(rest))],
        // An empty beginning, before the pieces of the input.
        vec![named(json!("{}")), of(json!(text))],
        // JSON in a text of JSON.
        vec![named(json!(json!(text).to_string()))],
    ] {
        let outcome = calls(&pieces, "tool_calls").await;
        assert_eq!((outcome.said(), outcome.inputs()), ("Done.", vec![&whole]), "{pieces:?}");
    }
    for pieces in [vec![named(json!(""))], vec![named(json!(null))], vec![named(json!({}))], vec![named(json!("{}"))]] {
        let outcome = calls(&pieces, "tool_calls").await;
        assert_eq!((outcome.said(), outcome.inputs()), ("Done.", vec![&json!({})]), "{pieces:?}");
    }
}

#[tokio::test]
async fn no_call_is_made_whose_input_did_not_come_whole() {
    let named = |arguments: Value| json!({"index": 0, "id": "a", "function": function("look", arguments)});
    let cut = "it was cut off at the limit";
    let no_object = "its input is not a JSON object";
    for (arguments, finish, why) in [
        (json!("{\"value\": 1"), "length", cut),
        (json!(""), "length", cut),
        (json!("{\"value\": 1"), "tool_calls", no_object),
        (json!("{\"value\": 1"), "stop", no_object),
        (json!("{\"value\": 1}{"), "tool_calls", no_object),
        (json!([1]), "tool_calls", no_object),
        (json!(7), "tool_calls", no_object),
        (json!("7"), "tool_calls", no_object),
    ] {
        let outcome = calls(&[named(arguments.clone())], finish).await;
        assert_eq!((outcome.said(), outcome.calls.len()), ("Done.", 0), "{arguments} {finish}");
        assert!(outcome.requests[1].to_string().contains(why), "{arguments} {finish}");
    }
    let contradictions = [
        vec![named(json!({"value": 1})), named(json!("{\"value\":2}"))],
        vec![named(json!("{\"val")), json!({"index": 0, "id": "a", "function": function("act", json!("ue\":1}"))})],
        vec![json!({"index": 0, "function": {"arguments": "{}"}})],
        vec![json!({"index": 0, "id": "a", "function": {"arguments": "{}"}})],
    ];
    for pieces in contradictions {
        let outcome = calls(&pieces, "tool_calls").await;
        assert!(outcome.error().contains("the provider"), "{}", outcome.error());
        assert!(outcome.calls.is_empty(), "{pieces:?}");
    }
}

#[tokio::test]
async fn calls_of_one_answer_are_bounded_in_number() {
    let pieces: Vec<Value> =
        (0..129).map(|n| json!({"index": n, "id": n.to_string(), "function": function("look", json!("{}"))})).collect();
    let outcome = calls(&pieces, "tool_calls").await;
    assert!(outcome.error().contains("more than 128 calls"), "{}", outcome.error());
    assert!(outcome.calls.is_empty());
    let outcome = calls(&pieces[..128], "tool_calls").await;
    assert_eq!((outcome.said(), outcome.calls.len()), ("Done.", 128));
}

#[tokio::test]
async fn parts_and_inputs_are_bounded_in_every_form() {
    // Text and reasoning in turn are a part each.
    let piece = |n: usize| match n % 2 {
        0 => json!({"delta": {"content": "a"}}),
        _ => json!({"delta": {"reasoning": "b"}}),
    };
    let many: Vec<Value> = (0..4097).map(piece).collect();
    let outcome = answer(Provider::OpenAi, SSE, chunks(&many)).await;
    assert!(outcome.error().contains("more than 4096 parts"), "{}", outcome.error());
    // A text of JSON takes little, and what it says much.
    let large = format!("{{\"value\":[{}0]}}", "0,".repeat(1_200_000));
    let call = json!({"index": 0, "id": "a", "function": function("look", json!(json!(large).to_string()))});
    let outcome = calls(&[call], "tool_calls").await;
    assert!(outcome.error().contains("bytes of memory") && outcome.calls.is_empty(), "{}", outcome.error());
    // Details of the reasoning come in as many pieces as a text, and go back as one.
    let detail = |n: usize| json!({"type": "reasoning.text", "index": 0, "text": format!("{n} ")});
    let mut pieces: Vec<Value> = (0..5000).map(|n| json!({"delta": {"reasoning_details": [detail(n)]}})).collect();
    let call = json!({"index": 0, "id": "a", "function": function("look", json!("{}"))});
    pieces.push(json!({"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}));
    let outcome = answer(Provider::OpenAi, SSE, chunks(&pieces)).await;
    assert_eq!(outcome.said(), "Done.");
    let details = &outcome.requests[1]["messages"][2]["reasoning_details"];
    assert_eq!(details.as_array().unwrap().len(), 1);
    assert!(details[0]["text"].as_str().unwrap().ends_with("4999 "));
}

#[tokio::test]
async fn an_answer_is_whole_by_done_or_by_its_reason_to_stop() {
    let said = json!({"index": 0, "delta": {"content": "All of it."}, "finish_reason": null});
    let end = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
    let done = chunks(&[said.clone(), end.clone()]);
    let without_done = done.replace("data: [DONE]\n\n", "");
    let without_reason = chunks(std::slice::from_ref(&said));
    let null_error = done.replace("\"choices\"", "\"error\":null,\"choices\"");
    let no_space = done.replace("data: ", "data:").replace("\n\n", "\r\n\r\n");
    let no_empty_line = done.replace("\n\n", "\n");
    for body in [done, without_done, without_reason.clone(), null_error, no_space, no_empty_line] {
        let outcome = answer(Provider::OpenAi, SSE, body.clone()).await;
        assert_eq!((outcome.said(), outcome.requests.len()), ("All of it.", 1), "{body}");
    }
    let cut = answer(Provider::OpenAi, SSE, without_reason.replace("data: [DONE]\n\n", "")).await;
    assert!(cut.error().contains("broke off before its end"), "{}", cut.error());
    // A reason to stop that is empty is none.
    let early = chunks(&[json!({"delta": {"content": "All "}, "finish_reason": ""}), said, end]);
    assert_eq!(answer(Provider::OpenAi, SSE, early).await.said(), "All All of it.");
}

#[tokio::test]
async fn gemini_is_read_to_the_end_whatever_it_says_on_the_way() {
    let piece = |text: &str, reason: &str| {
        let candidate = json!({"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": reason});
        json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2}})
    };
    let pieces = [piece("A roster is ", "STOP"), piece("the set of members.", "STOP")];
    let stream: String = pieces.iter().map(|piece| format!("data: {piece}\n\n")).collect();
    let list = serde_json::to_string_pretty(&pieces).unwrap();
    for (content_type, body) in [(SSE, stream), ("application/json", list)] {
        let outcome = answer(Provider::Gemini, content_type, body).await;
        assert_eq!(outcome.said(), "A roster is the set of members.", "{content_type}");
    }
    let broken = answer(Provider::Gemini, SSE, format!("data: {}\n\n", piece("No", "MALFORMED_FUNCTION_CALL"))).await;
    assert!(broken.error().contains("MALFORMED_FUNCTION_CALL"), "{}", broken.error());
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}});
    let blocked = answer(Provider::Gemini, SSE, format!("data: {blocked}\n\n")).await;
    assert!(blocked.error().contains("no answer to this prompt (SAFETY)"), "{}", blocked.error());
    let call = json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "look", "args": "{\"value\":1}"}}]},
        "finishReason": "STOP"}]});
    let outcome = answer(Provider::Gemini, SSE, format!("data: {call}\n\n")).await;
    assert_eq!((outcome.said(), outcome.inputs()), ("Done.", vec![&json!({"value": 1})]));
    let sent = &outcome.requests[1]["contents"];
    assert!(sent[1]["parts"][0]["functionCall"].get("id").is_none(), "an id of the host's is refused: {sent}");
}

#[tokio::test]
async fn the_providers_own_words_of_an_error_are_in_the_jobs() {
    let begun = "data: {\"choices\":[{\"delta\":{\"content\":\"It begins\"}}]}\n\n";
    let cases: Vec<(Provider, &str, String, &str)> = vec![
        (Provider::OpenAi, SSE, format!("{begun}data: {{\"error\":{{\"msg\":\"no slot\"}}}}\n\n"), "no slot"),
        (Provider::OpenAi, SSE, format!("{begun}data: {{\"error\":\"no slot\"}}\n\n"), "no slot"),
        (Provider::OpenAi, SSE, format!("{begun}error: {{\"code\":500,\"message\":\"no slot\"}}\n\n"), "no slot"),
        (Provider::OpenAi, SSE, format!("{begun}event: error\ndata: no slot\n\n"), "no slot"),
        (Provider::OpenAi, SSE, format!("{begun}{{\"error\":{{\"message\":\"no slot\"}}}}\n"), "no slot"),
        (Provider::OpenAi, SSE, "data: {\"object\":\"error\",\"message\":\"no slot\"}\n\n".to_owned(), "no slot"),
        (Provider::OpenAi, "application/json", "{\"error\":{\"message\":\"no slot\"}}".to_owned(), "no slot"),
        (Provider::OpenAi, "application/json", "{\"detail\":\"the model is loading\"}".to_owned(), "is loading"),
        (Provider::OpenAi, "text/html", "<html><body>Bad gateway</body></html>".to_owned(), "Bad gateway"),
        (Provider::OpenAi, SSE, format!("{begun}data: {{\"choices\": oops}}\n\n"), "oops"),
        (Provider::Anthropic, SSE, "event: error\ndata: {\"message\":\"no slot\"}\n\n".to_owned(), "no slot"),
        (Provider::Gemini, "application/json", "[{\"error\":{\"message\":\"no slot\"}}]".to_owned(), "no slot"),
        (
            Provider::Ollama,
            "application/x-ndjson",
            "{\"message\":{\"content\":\"A\"},\"done\":false}\n{\"error\":\"CUDA error: out of memory\"}".to_owned(),
            "CUDA error: out of memory",
        ),
    ];
    for (provider, content_type, body, words) in cases {
        let outcome = answer(provider, content_type, body.clone()).await;
        assert!(outcome.error().contains(words), "{body}: {}", outcome.error());
    }
}

#[tokio::test]
async fn half_a_surrogate_pair_ends_nothing_and_a_pair_cut_in_two_is_joined() {
    let body = |pieces: &[&str]| {
        let chunk = |piece: &&str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{piece}\"}}}}]}}\n\n");
        pieces.iter().map(chunk).collect::<String>() + "data: [DONE]\n\n"
    };
    for (pieces, text) in [
        (&["cut \\ud83d"][..], "cut \u{fffd}"),
        (&["joined \\ud83d", "\\ude00!"], "joined 😀!"),
        (&["\\ude00 and \\ud83d\\ude00"], "\u{fffd} and 😀"),
    ] {
        assert_eq!(answer(Provider::OpenAi, SSE, body(pieces)).await.said(), text, "{pieces:?}");
    }
    let call = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"look\",\
                \"arguments\":{\"value\":\"\\ud83d\"}}}]},\"finish_reason\":\"tool_calls\"}]}\n\n";
    assert_eq!(answer(Provider::OpenAi, SSE, call).await.inputs(), [&json!({"value": "\u{fffd}"})]);
}

#[tokio::test]
async fn an_answer_in_one_piece_is_read_too() {
    let function = json!({"id": "a", "type": "function", "function": function("look", json!("{\"value\":1}"))});
    let openai = json!({"object": "chat.completion", "usage": {"prompt_tokens": 1, "completion_tokens": 2}, "choices":
        [{"index": 0, "message": {"content": "I look.", "tool_calls": [function]}, "finish_reason": "tool_calls"}]});
    let anthropic = json!({"type": "message", "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2},
        "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "a", "name": "look", "input": {"value": 1}}]});
    let ollama = json!({"message": {"content": "I look.", "tool_calls": [{"function": {"name": "look", "arguments":
        {"value": 1}}}]}, "done": true, "done_reason": "stop"});
    for (provider, body) in [(Provider::OpenAi, openai), (Provider::Anthropic, anthropic), (Provider::Ollama, ollama)] {
        let body = serde_json::to_string_pretty(&body).unwrap();
        let outcome = answer(provider, "application/json", body).await;
        assert_eq!((outcome.said(), outcome.inputs()), ("Done.", vec![&json!({"value": 1})]), "{provider:?}");
        assert!(outcome.requests[1].to_string().contains("I look."), "{provider:?}");
    }
}

#[tokio::test]
async fn a_gateway_to_anthropic_may_send_an_input_where_the_call_begins() {
    let event = |data: Value| format!("data: {data}\n\n");
    let block = |index: u32, input: Value| {
        let call = json!({"type": "tool_use", "id": format!("t{index}"), "name": "look", "input": input});
        event(json!({"type": "content_block_start", "index": index, "content_block": call}))
    };
    let piece = |index: u32, piece: &str| {
        let delta = json!({"type": "input_json_delta", "partial_json": piece});
        event(json!({"type": "content_block_delta", "index": index, "delta": delta}))
    };
    // The second and the third block come at the same time.
    let body = [
        block(0, json!({"value": 1})),
        block(7, json!({})),
        block(9, json!({})),
        piece(9, "{\"val"),
        piece(7, "{\"value\":2}"),
        piece(9, "ue\":3}"),
        event(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}})),
    ];
    let outcome = answer(Provider::Anthropic, SSE, body.concat()).await;
    let inputs = [&json!({"value": 1}), &json!({"value": 2}), &json!({"value": 3})];
    assert_eq!((outcome.said(), outcome.inputs()), ("Done.", inputs.to_vec()));
}

#[tokio::test]
async fn what_is_passed_over_is_noted_and_a_refusal_is_no_answer() {
    let unknown = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"hologram\"}}\n\n\
                   data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Here.\"}}\n\n\
                   data: {\"type\":\"message_stop\"}\n\n";
    let outcome = answer(Provider::Anthropic, SSE, unknown).await;
    assert_eq!(outcome.said(), "Here.");
    assert!(outcome.notes.iter().any(|note| note.contains("hologram")), "{:?}", outcome.notes);
    let refusal = chunks(&[json!({"delta": {"refusal": "I will not."}, "finish_reason": "stop"})]);
    let outcome = answer(Provider::OpenAi, SSE, refusal).await;
    assert!(outcome.error().contains("withheld") && outcome.error().contains("I will not."), "{}", outcome.error());
}

#[tokio::test]
async fn reasoning_is_told_apart_from_the_answer_in_every_form() {
    for delta in [
        json!({"reasoning_content": "Hm.", "content": "Yes."}),
        json!({"reasoning": "Hm.", "content": "Yes."}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Yes."}]}),
    ] {
        let body = chunks(&[json!({"delta": delta, "finish_reason": "stop"})]);
        assert_eq!(answer(Provider::OpenAi, SSE, body).await.said(), "Yes.", "{delta}");
    }
}

#[tokio::test]
async fn what_a_session_used_is_counted_wherever_a_server_puts_it() {
    let end = |usage: Value| {
        let chunk = json!({"choices": [{"delta": {"content": "Yes."}, "finish_reason": "stop"}], "usage": usage});
        format!("data: {chunk}\n\ndata: [DONE]\n\n")
    };
    for (body, tokens) in [
        (end(json!({"prompt_tokens": 5, "completion_tokens": 2})), (5, 2)),
        (end(json!({"prompt_tokens": 5.0, "completion_tokens": "2"})), (5, 2)),
        (end(json!({"prompt_tokens": 5, "completion_tokens": -1})), (5, 0)),
    ] {
        let (_server, base) = fake_server(Provider::OpenAi, vec![Reply::raw(SSE, body.clone())]).await;
        let Setting { session, meter, .. } = with_tools(&Desk::new());
        run(options(Provider::OpenAi, &base), session).await;
        let used = meter.account().usage;
        assert_eq!((used.input_tokens, used.output_tokens), tokens, "{body}");
    }
}

#[tokio::test]
async fn a_body_that_stays_open_after_done_is_not_waited_for() {
    let body = chunks(&[json!({"delta": {"content": "All of it."}, "finish_reason": "stop"})]);
    let outcome = outcome(Provider::OpenAi, Reply::raw(SSE, body).stalls_after(0)).await;
    assert_eq!(outcome.said(), "All of it.");
}
