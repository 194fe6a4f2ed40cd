//! The loop: requests, answers, tool calls.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use guild_config::Provider;
use guild_contract::Bounds;
use guild_fakes::{Anthropic, Reply};
use guild_session::{meter::Ending, session::SessionEnd, tools::ToolError, transcript::Entry};
use serde_json::{Value, json};
use tokio::sync::{Barrier, mpsc};

use crate::setting::{Desk, MODEL, PROVIDERS, fake_server, options, plain, run, setting, tool, with_tools};

fn success(text: &str) -> SessionEnd {
    SessionEnd { ending: Ending::Success, text: text.to_owned() }
}

#[tokio::test]
async fn a_session_asks_calls_tools_and_ends_with_the_models_text_on_every_provider() {
    for provider in PROVIDERS {
        let script = vec![
            Reply::text("I look it up.").and_call("look", json!({"value": "über alles"})),
            Reply::call("act", json!({"value": {"n": [1, 2]}})),
            Reply::text("It is done, 🦀 and all."),
        ];
        let (server, base) = fake_server(provider, script).await;
        let desk = Desk::new();
        let fixture = with_tools(&desk);
        let end = run(options(provider, &base), fixture.session).await;
        assert_eq!(end, success("It is done, 🦀 and all."), "{provider:?}");
        assert_eq!(desk.ids(), ["1.1.0", "1.2.0"], "{provider:?}");
        assert_eq!(desk.calls()[0].input, json!({"value": "über alles"}), "{provider:?}");
        assert_eq!((server.count(), fixture.meter.account().usage.turns), (3, 3), "{provider:?}");
        // What the tools answered was told to the model, and the prompt and the tools in each request.
        let last = server.requests()[2].body.to_string();
        for told in ["You are a researcher.", "Find it out.", "I look it up.", "über alles", "Does look.", "[1,2]"] {
            let told = serde_json::to_string(told).unwrap();
            assert!(last.contains(told.trim_matches('"')), "{provider:?} was not told {told}: {last}");
        }
    }
}

#[tokio::test]
async fn each_provider_gets_results_in_its_own_format() {
    let replies = || vec![Reply::call("look", json!({})).and_call("look", json!({})), Reply::text("Done.")];
    let mut told = Vec::new();
    for provider in PROVIDERS {
        let (server, base) = fake_server(provider, replies()).await;
        run(options(provider, &base), with_tools(&Desk::new()).session).await;
        told.push(server.requests()[1].body.clone());
    }
    let [anthropic, openai, gemini, ollama] = &told[..] else { panic!() };
    assert_eq!(anthropic["messages"].as_array().unwrap().len(), 3);
    assert_eq!(anthropic["messages"][2]["content"][1]["type"], "tool_result");
    assert_eq!(anthropic["messages"][2]["content"][1]["tool_use_id"], anthropic["messages"][1]["content"][1]["id"]);
    assert_eq!(openai["messages"][3]["role"], "tool");
    assert_eq!(openai["messages"][4]["tool_call_id"], openai["messages"][2]["tool_calls"][1]["id"]);
    assert_eq!(gemini["contents"][2]["parts"][1]["functionResponse"]["response"]["content"], "ok");
    let roles: Vec<&Value> = ollama["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
}

#[tokio::test]
async fn a_turn_is_in_the_transcript_before_its_tools_are_called() {
    let seen = Arc::new(AtomicUsize::new(0));
    let (_server, base) =
        fake_server(Provider::Anthropic, vec![Reply::text("Now.").and_call("act", json!({})), Reply::text("Done.")])
            .await;
    let fixture = plain();
    let (transcript, counted) = (fixture.transcript.clone(), seen.clone());
    let desk = Desk::answering(move |_| {
        counted.store(transcript.turns(), Ordering::Relaxed);
        Box::pin(async { Ok(json!("ok")) })
    });
    let mut session = fixture.session;
    session.tools = desk;
    run(options(Provider::Anthropic, &base), session).await;
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    let Entry::Turn { session, turn, model, text, content, usage } = &fixture.transcript.entries()[0] else { panic!() };
    assert_eq!((*session, *turn, model.as_deref(), text.as_str()), (1, 1, Some(MODEL), "Now."));
    assert_eq!((usage.turns, usage.input_tokens, usage.output_tokens), (1, 100, 10));
    assert!(content.as_ref().unwrap().to_string().contains("toolu_"), "the provider's own call id is kept");
}

#[tokio::test]
async fn calls_that_only_read_run_at_the_same_time() {
    let script = vec![
        Reply::call("look", json!({})).and_call("look", json!({})).and_call("look", json!({})),
        Reply::text("Done."),
    ];
    let (_server, base) = fake_server(Provider::Anthropic, script).await;
    // Each call waits for the others: they end only if all of them run.
    let together = Arc::new(Barrier::new(3));
    let desk = Desk::answering(move |call| {
        let together = together.clone();
        Box::pin(async move {
            together.wait().await;
            Ok(json!(call.id))
        })
    });
    assert_eq!(run(options(Provider::Anthropic, &base), with_tools(&desk).session).await, success("Done."));
    assert_eq!(desk.ids(), ["1.1.0", "1.1.1", "1.1.2"]);
}

#[tokio::test]
async fn calls_of_which_one_does_more_than_read_run_one_after_the_other() {
    let script = vec![
        Reply::call("look", json!({})).and_call("act", json!({})).and_call("look", json!({})),
        Reply::text("Done."),
    ];
    let (_server, base) = fake_server(Provider::OpenAi, script).await;
    let running = Arc::new(AtomicUsize::new(0));
    let desk = Desk::answering(move |_| {
        let running = running.clone();
        Box::pin(async move {
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "another call runs");
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(json!("ok"))
        })
    });
    assert_eq!(run(options(Provider::OpenAi, &base), with_tools(&desk).session).await, success("Done."));
    assert_eq!(desk.ids(), ["1.1.0", "1.1.1", "1.1.2"]);
}

#[tokio::test]
async fn a_tool_that_fails_is_a_result_that_the_model_sees() {
    for provider in PROVIDERS {
        let (server, base) = fake_server(provider, vec![Reply::call("look", json!({})), Reply::text("I see.")]).await;
        let desk = Desk::answering(|_| Box::pin(async { Err(ToolError::NotGranted("add it to `allow`".to_owned())) }));
        assert_eq!(run(options(provider, &base), with_tools(&desk).session).await, success("I see."), "{provider:?}");
        let told = server.requests()[1].body.to_string();
        assert!(told.contains("not granted: add it to `allow`"), "{provider:?}: {told}");
        assert_eq!(told.contains("\"is_error\":true"), provider == Provider::Anthropic);
    }
}

#[tokio::test]
async fn a_job_that_has_ended_ends_its_session() {
    let (server, base) = fake_server(Provider::Anthropic, vec![Reply::call("act", json!({}))]).await;
    let desk = Desk::answering(|_| Box::pin(async { Err(ToolError::JobEnded) }));
    let end = run(options(Provider::Anthropic, &base), with_tools(&desk).session).await;
    assert_eq!((end.ending, server.count()), (Ending::Interrupted, 1));
}

#[tokio::test]
async fn a_call_that_breaks_off_at_the_token_limit_is_not_made_and_the_model_gets_an_error() {
    for (provider, stop) in [(Provider::Anthropic, "max_tokens"), (Provider::OpenAi, "length")] {
        let cut = Reply::call("look", json!({"value": "whole"})).and_cut_call("act", r#"{"value": "un"#).stop(stop);
        let (server, base) = fake_server(provider, vec![cut, Reply::text("Shorter then.")]).await;
        let desk = Desk::new();
        let fixture = with_tools(&desk);
        let end = run(options(provider, &base), fixture.session).await;
        assert_eq!(end, success("Shorter then."), "{provider:?}");
        assert_eq!(desk.ids(), ["1.1.0"], "the call before it was whole");
        let told = server.requests()[1].body.to_string();
        assert!(told.contains("it was cut off at the limit of 8192 output tokens"), "{provider:?}: {told}");
        assert!(fixture.transcript.notes()[0].contains("act (1.1.1): the call was not made"));
    }
}

#[tokio::test]
async fn a_call_whose_input_is_no_object_gets_an_error() {
    let script = vec![Reply::default().and_cut_call("act", "[1]").stop("tool_calls"), Reply::text("Sorry.")];
    let (server, base) = fake_server(Provider::OpenAi, script).await;
    let desk = Desk::new();
    assert_eq!(run(options(Provider::OpenAi, &base), with_tools(&desk).session).await, success("Sorry."));
    assert!(desk.calls().is_empty());
    assert!(server.requests()[1].body.to_string().contains("its input is not a JSON object"));
}

#[tokio::test]
async fn an_answer_that_is_cut_is_continued_in_the_next_turn() {
    let script = vec![
        Reply::text("The answer is that forty").stop("max_tokens"),
        Reply::text("-two is ").stop("max_tokens"),
        Reply::text("enough."),
    ];
    let (server, base) = fake_server(Provider::Anthropic, script).await;
    let fixture = plain();
    let end = run(options(Provider::Anthropic, &base), fixture.session).await;
    assert_eq!(end, success("The answer is that forty-two is enough."));
    assert_eq!(fixture.meter.account().usage.turns, 3);
    let messages = &server.requests()[1].body["messages"];
    assert_eq!(messages[1]["content"], "The answer is that forty");
    assert!(messages[2]["content"].as_str().unwrap().contains("cut off"));
}

#[tokio::test]
async fn an_answer_without_anything_in_it_is_an_error() {
    let cases = [
        (Reply::empty(), "empty"),
        (Reply::text("  \n"), "empty"),
        (Reply::empty().stop("max_tokens"), "set max_output_tokens under [api] in guild.toml higher"),
        (Reply::text("I will not").stop("refusal"), "withheld the model's answer (refusal)"),
    ];
    for (reply, reason) in cases {
        let (server, base) = fake_server(Provider::Anthropic, vec![reply]).await;
        let end = run(options(Provider::Anthropic, &base), plain().session).await;
        let Ending::Error(text) = end.ending else { panic!("{:?}", end.ending) };
        assert!(text.contains(reason), "{text}");
        assert_eq!(server.count(), 1);
    }
}

#[tokio::test]
async fn the_reasoning_of_a_model_is_sent_back_with_its_signature() {
    let script =
        vec![Reply::default().and_thinking("Let me see.", "sig-1").and_call("look", json!({})), Reply::text("Done.")];
    let (server, base) = fake_server(Provider::Anthropic, script).await;
    run(options(Provider::Anthropic, &base), with_tools(&Desk::new()).session).await;
    let thinking = &server.requests()[1].body["messages"][1]["content"][0];
    assert_eq!(thinking, &json!({"type": "thinking", "thinking": "Let me see.", "signature": "sig-1"}));
}

#[tokio::test]
async fn a_models_name_is_sent_as_it_is() {
    for provider in PROVIDERS {
        for name in ["o9-high", "vendor::model-max", "qwen3:8b", "hub/model-none"] {
            let (server, base) = fake_server(provider, vec![Reply::text("Here.")]).await;
            let mut options = options(provider, &base);
            options.unknown_cost_tokens = Some(1000);
            let mut session = plain().session;
            session.model = Some(name.to_owned());
            assert_eq!(run(options, session).await, success("Here."), "{provider:?} {name}");
            let request = &server.requests()[0];
            if provider == Provider::Gemini {
                let name = name.replace('/', "%2F");
                assert_eq!(request.path, format!("/v1beta/models/{name}:streamGenerateContent?alt=sse"));
            } else {
                assert_eq!(request.body["model"], name);
            }
            let body = request.body.to_string();
            assert!(!body.contains("effort") && !body.contains("inking"), "{provider:?} {name}: {body}");
        }
    }
}

#[tokio::test]
async fn a_limit_of_output_tokens_is_sent_with_every_request() {
    let paths = ["/max_tokens", "/max_tokens", "/generationConfig/maxOutputTokens", "/options/num_predict"];
    for (provider, path) in PROVIDERS.into_iter().zip(paths) {
        let (server, base) = fake_server(provider, vec![Reply::text("Here.")]).await;
        run(options(provider, &base), plain().session).await;
        assert_eq!(server.requests()[0].body.pointer(path), Some(&json!(8192)), "{provider:?}");
    }
}

#[tokio::test]
async fn anthropic_is_asked_to_cache_what_a_session_with_tools_sends_again() {
    let server =
        Anthropic::start(vec![Reply::call("look", json!({})), Reply::text("Done."), Reply::text("Once.")]).await;
    run(options(Provider::Anthropic, &server.url()), with_tools(&Desk::new()).session).await;
    run(options(Provider::Anthropic, &server.url()), plain().session).await;
    let mark = json!({"type": "ephemeral"});
    let requests = server.requests();
    assert_eq!(requests[1].body["system"][0]["cache_control"], mark);
    assert_eq!(requests[1].body["messages"][2]["content"][0]["cache_control"], mark);
    assert_eq!(requests[1].body.to_string().matches("cache_control").count(), 2);
    assert!(!requests[2].body.to_string().contains("cache_control"), "nothing is asked twice there");
}

#[tokio::test]
async fn texts_reach_a_listener_and_one_that_does_not_listen_blocks_nothing() {
    let script = || vec![Reply::text("First.").and_call("look", json!({})), Reply::text("Second.")];
    let (_server, base) = fake_server(Provider::Anthropic, script()).await;
    let (sender, mut texts) = mpsc::channel(8);
    let mut session = with_tools(&Desk::new()).session;
    session.texts = Some(sender);
    run(options(Provider::Anthropic, &base), session).await;
    assert_eq!((texts.recv().await.unwrap(), texts.recv().await.unwrap()), ("First.".into(), "Second.".into()));

    let (_server, base) = fake_server(Provider::Anthropic, script()).await;
    let (sender, _texts) = mpsc::channel(1);
    let mut session = with_tools(&Desk::new()).session;
    session.texts = Some(sender);
    assert_eq!(run(options(Provider::Anthropic, &base), session).await, success("Second."));
}

#[tokio::test]
async fn a_tool_is_never_taken_for_one_of_the_providers_own() {
    struct Own;
    #[async_trait::async_trait]
    impl guild_session::tools::Tools for Own {
        fn definitions(&self) -> Vec<Arc<guild_session::tools::ToolDefinition>> {
            vec![Arc::new(tool("web_search", true)), Arc::new(tool("googleSearch", true))]
        }
        async fn call(&self, _call: guild_session::tools::ToolCall) -> Result<Value, ToolError> {
            Ok(Value::Null)
        }
    }
    for provider in PROVIDERS {
        let (server, base) = fake_server(provider, vec![Reply::text("Here.")]).await;
        let end = run(options(provider, &base), setting(Arc::new(Own), Bounds::default()).session).await;
        assert_eq!(end, success("Here."), "{provider:?}");
        // Each is declared as a function of the host's, with its schema.
        let tools = server.requests()[0].body["tools"].to_string();
        assert_eq!(tools.matches("Does web_search.").count(), 1, "{provider:?}: {tools}");
        assert_eq!(tools.matches("\"properties\"").count(), 2, "{provider:?}: {tools}");
        assert!(!tools.contains("web_search_20"), "{provider:?}: {tools}");
    }
}

#[tokio::test]
async fn memories_are_condensed_in_one_turn_without_tools() {
    use guild_agent::api::Api;
    use guild_session::{activation::MemoryNote, meter::Meter, session::AgentRuntime as _};
    let (server, base) = fake_server(Provider::Anthropic, vec![Reply::text("Both, in short.")]).await;
    let note = |key: &str| MemoryNote {
        scope: guild_contract::manifest::Scope::Worker,
        key: key.to_owned(),
        content: format!("all about {key}"),
        modified: "2026-01-01T00:00:00Z".into(),
        origin: None,
    };
    let meter = Meter::new(Bounds { max_budget_usd: Some(0.05), ..Bounds::default() });
    let api = Api::new(options(Provider::Anthropic, &base)).unwrap();
    let text = api.condense(vec![note("a"), note("b")], 1000, meter.clone()).await.unwrap();
    assert_eq!(text, "Both, in short.");
    let request = &server.requests()[0].body;
    assert!(request.get("tools").is_none() && request.to_string().contains("all about b"));
    assert!(meter.account().usage.cost_usd.unwrap() > 0.0);
}
