//! Turns, dollars, deadlines, and cancellation wherever a session waits.

use std::time::{Duration, Instant};

use guild_config::{ApiOptions, Provider};
use guild_contract::Bounds;
use guild_fakes::{Gate, Received, Reply, Tokens};
use guild_session::{meter::Ending, session::SessionEnd};
use serde_json::json;

use crate::setting::{Desk, fake_server, options, plain, run, setting};

fn short(base: &str, request: Duration, retries: u32) -> ApiOptions {
    ApiOptions { request, retries, ..options(Provider::Anthropic, base) }
}

#[tokio::test]
async fn no_request_is_made_beyond_the_last_turn() {
    let (server, base) = fake_server(Provider::Anthropic, |_: &Received| Reply::call("look", json!({}))).await;
    let fixture = setting(Desk::new(), Bounds { max_turns: Some(3), ..Bounds::default() });
    let end = run(options(Provider::Anthropic, &base), fixture.session).await;
    assert_eq!((end.ending, server.count()), (Ending::MaxTurns, 3));
}

#[tokio::test]
async fn no_request_is_made_once_the_budget_is_spent() {
    // 100,000 tokens of input are 0.30 USD.
    let tokens = Tokens { input: 100_000, output: 0, ..Tokens::default() };
    let script = move |_: &Received| Reply::call("look", json!({})).tokens(tokens);
    let (server, base) = fake_server(Provider::Anthropic, script).await;
    let fixture = setting(Desk::new(), Bounds { max_budget_usd: Some(0.5), ..Bounds::default() });
    let end = run(options(Provider::Anthropic, &base), fixture.session).await;
    assert_eq!((end.ending, server.count()), (Ending::MaxBudget, 2));
    assert!((fixture.meter.account().usage.cost_usd.unwrap() - 0.6).abs() < 1e-9);
}

#[tokio::test]
async fn a_session_ends_at_its_deadline_in_the_middle_of_an_answer() {
    let (_server, base) = fake_server(Provider::Anthropic, vec![Reply::text("It begins").stalls_after(4)]).await;
    let started = Instant::now();
    let fixture = setting(Desk::new(), Bounds { deadline_seconds: Some(1), ..Bounds::default() });
    let end = run(options(Provider::Anthropic, &base), fixture.session).await;
    assert_eq!(end.ending, Ending::Deadline);
    assert!((1..10).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_answer_that_stalls_ends_at_the_requests_deadline_and_is_asked_for_again() {
    for provider in [Provider::Anthropic, Provider::OpenAi] {
        let replies = vec![Reply::text("It begins").stalls_after(3), Reply::text("Whole.")];
        let (server, base) = fake_server(provider, replies).await;
        let fixture = plain();
        let options = ApiOptions { provider, ..short(&base, Duration::from_millis(300), 5) };
        let end = run(options, fixture.session).await;
        assert_eq!(end, SessionEnd { ending: Ending::Success, text: "Whole.".to_owned() });
        assert_eq!((server.count(), fixture.transcript.turns()), (2, 1));
        assert!(fixture.transcript.notes()[0].contains("no answer within 0.3 s"), "{:?}", fixture.transcript.notes());
    }
}

#[tokio::test]
async fn a_provider_that_never_answers_ends_the_session_with_what_it_did_not_do() {
    let gate = Gate::closed();
    let silent = gate.clone();
    let (server, base) =
        fake_server(Provider::Anthropic, move |_: &Received| Reply::text("late").behind(&silent)).await;
    let end = run(short(&base, Duration::from_millis(500), 2), plain().session).await;
    let Ending::Error(text) = end.ending else { panic!() };
    assert!(text.contains("no answer within 0.5 s; the request was made 3 times"), "{text}");
    assert_eq!(server.count(), 3);
}

#[tokio::test]
async fn a_slow_answer_arrives_whole() {
    let gate = Gate::closed();
    let (server, base) = fake_server(Provider::Anthropic, vec![Reply::text("As slow as it gets.").slowly(&gate)]).await;
    let running = tokio::spawn(run(options(Provider::Anthropic, &base), plain().session));
    server.received(1).await;
    for _ in 0..50 {
        gate.pass(1);
        tokio::task::yield_now().await;
    }
    assert_eq!(running.await.unwrap().text, "As slow as it gets.");
}

/// Cancels a session once the fake has been asked, and expects it to end at once.
async fn cancelled(reply: Reply, first_pause: Duration) {
    let (server, base) = fake_server(Provider::Anthropic, vec![reply]).await;
    let fixture = plain();
    let options = ApiOptions { first_pause, ..options(Provider::Anthropic, &base) };
    let running = tokio::spawn(run(options, fixture.session));
    server.received(1).await;
    // In the pause between two requests, the note of it is there.
    while first_pause > Duration::from_secs(1) && fixture.transcript.notes().is_empty() {
        tokio::task::yield_now().await;
    }
    let started = Instant::now();
    fixture.cancel.cancel();
    assert_eq!(running.await.unwrap().ending, Ending::Interrupted);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_cancel_ends_a_session_that_waits_for_an_answer() {
    cancelled(Reply::text("late").behind(&Gate::closed()), Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_cancel_ends_a_session_in_the_middle_of_an_answer() {
    cancelled(Reply::text("It begins").stalls_after(4), Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_cancel_ends_a_session_that_pauses_before_it_asks_again() {
    cancelled(Reply::status(503), Duration::from_secs(1000)).await;
}

#[tokio::test]
async fn a_cancel_ends_a_session_whose_tool_does_not_return() {
    let (_server, base) = fake_server(Provider::Anthropic, vec![Reply::call("act", json!({}))]).await;
    let desk = Desk::answering(|_| Box::pin(std::future::pending()));
    let fixture = setting(desk.clone(), Bounds::default());
    let running = tokio::spawn(run(options(Provider::Anthropic, &base), fixture.session));
    while desk.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    fixture.cancel.cancel();
    assert_eq!(running.await.unwrap().ending, Ending::Interrupted);
}

#[tokio::test]
async fn an_answer_is_bounded_over_all_of_its_calls_together() {
    for provider in [Provider::Gemini, Provider::Ollama] {
        let large = json!({"value": "x".repeat(5 << 20)});
        let reply = Reply::call("look", large.clone()).and_call("look", large);
        let (_server, base) = fake_server(provider, vec![reply]).await;
        let desk = Desk::new();
        let end = run(options(provider, &base), setting(desk.clone(), Bounds::default()).session).await;
        assert!(matches!(&end.ending, Ending::Error(text) if text.contains("is larger than 8388608 bytes")), "{end:?}");
        assert!(desk.calls().is_empty(), "{provider:?}");
    }
}
