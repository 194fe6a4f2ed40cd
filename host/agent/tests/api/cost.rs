//! What sessions cost, and what bounds them where that cannot be known.

use guild_agent::api::Api;
use guild_config::{ApiOptions, Price, Prices, Provider};
use guild_contract::Bounds;
use guild_fakes::{Gate, Received, Reply, Tokens};
use guild_session::{
    meter::Ending,
    session::{AgentRuntime as _, Wanted},
};
use serde_json::json;

use crate::setting::{Desk, MODEL, PROVIDERS, fake_server, options, plain, run, setting, with_tools};

fn priced(model: &str, input: f64, output: f64) -> Prices {
    let model = model.to_owned();
    Prices::new(vec![Price { model, input, cached_input: None, cache_write: None, output, above_input_tokens: 0 }])
        .unwrap()
}

#[tokio::test]
async fn every_token_is_counted_once_and_priced_by_its_kind_on_every_provider() {
    for provider in PROVIDERS {
        let (cached, cache_write) = match provider {
            Provider::Anthropic => (600, 300),
            // They do not tell of writing; Ollama's fake not of its cache either.
            Provider::OpenAi | Provider::Gemini => (600, 0),
            Provider::Ollama => (0, 0),
        };
        let tokens = Tokens { input: 1000, cached, cache_write, output: 50 };
        let replies = vec![Reply::call("look", json!({})).tokens(tokens), Reply::text("Done.").tokens(tokens)];
        let (_server, base) = fake_server(provider, replies).await;
        let fixture = with_tools(&Desk::new());
        run(options(provider, &base), fixture.session).await;
        let account = fixture.meter.account();
        let used = account.usage;
        assert_eq!(
            (used.input_tokens, used.cached_tokens, used.output_tokens),
            (2000, 2 * cached, 100),
            "{provider:?}"
        );
        let plain = (1000 - cached - cache_write) as f64;
        let turn = (plain * 3.0 + cached as f64 * 0.3 + cache_write as f64 * 3.75 + 50.0 * 15.0) / 1e6;
        assert!((used.cost_usd.unwrap() - 2.0 * turn).abs() < 1e-12, "{provider:?}: {used:?}");
        assert_eq!(account.models, [MODEL]);
    }
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_at_dispatch() {
    let api = |options: ApiOptions| Api::new(options).unwrap();
    let open =
        |model: &str| ApiOptions { model: Some(model.to_owned()), ..options(Provider::OpenAi, "http://[::1]:9/v1") };
    let refused = api(open("my-own")).check(&Wanted::default()).unwrap_err();
    assert!(refused.contains("my-own") && refused.contains("[[prices]]"), "{refused}");
    assert!(refused.contains("unknown_cost_tokens"), "{refused}");
    assert!(api(ApiOptions { unknown_cost_tokens: Some(1), ..open("my-own") }).check(&Wanted::default()).is_ok());
    assert!(api(ApiOptions { prices: priced("my-*", 0.0, 0.0), ..open("my-own") }).check(&Wanted::default()).is_ok());
    // The dispatch's model counts, not the configured one.
    let wanted = Wanted { model: Some("other"), ..Wanted::default() };
    assert!(api(open(MODEL)).check(&Wanted::default()).is_ok() && api(open(MODEL)).check(&wanted).is_err());
}

#[tokio::test]
async fn a_component_cannot_have_a_model_without_a_price_either() {
    let (server, base) = fake_server(Provider::OpenAi, vec![]).await;
    let mut session = with_tools(&Desk::new()).session;
    session.model = Some("another".to_owned());
    let Ending::Error(text) = run(options(Provider::OpenAi, &base), session).await.ending else { panic!() };
    assert!(text.contains("[[prices]]") && server.count() == 0, "{text}");
}

#[tokio::test]
async fn a_job_of_unknown_cost_is_bounded_by_tokens_and_says_that_its_cost_is_unknown() {
    let tokens = Tokens { input: 400, output: 100, ..Tokens::default() };
    let script = move |_: &Received| Reply::call("look", json!({})).tokens(tokens);
    let (server, base) = fake_server(Provider::OpenAi, script).await;
    let fixture = with_tools(&Desk::new());
    let mut session = fixture.session;
    session.model = Some("my-own".to_owned());
    let options = ApiOptions { unknown_cost_tokens: Some(1200), ..options(Provider::OpenAi, &base) };
    let Ending::Error(text) = run(options, session).await.ending else { panic!() };
    assert!(text.contains("1500 tokens") && text.contains("api.unknown_cost_tokens is 1200"), "{text}");
    assert_eq!((server.count(), fixture.meter.account().usage.cost_usd), (3, None));
}

#[tokio::test]
async fn a_provider_that_does_not_count_ends_the_session_unless_its_model_is_free() {
    let script = || vec![Reply::call("look", json!({})).without_usage(), Reply::text("Done.").without_usage()];
    let (server, base) = fake_server(Provider::OpenAi, script()).await;
    let end = run(options(Provider::OpenAi, &base), with_tools(&Desk::new()).session).await;
    let Ending::Error(text) = end.ending else { panic!("{:?}", end.ending) };
    assert!(text.contains("does not report the usage of") && server.count() == 1, "{text}");

    let (_server, base) = fake_server(Provider::OpenAi, script()).await;
    let fixture = with_tools(&Desk::new());
    let free = ApiOptions { prices: priced(MODEL, 0.0, 0.0), ..options(Provider::OpenAi, &base) };
    assert_eq!(run(free, fixture.session).await.ending, Ending::Success);
    assert_eq!(fixture.meter.account().usage.cost_usd, Some(0.0));
}

/// 0.30 USD.
const DEAR: Tokens = Tokens { input: 100_000, cached: 0, cache_write: 0, output: 0 };

#[tokio::test]
async fn a_request_that_breaks_off_makes_the_cost_unknown_but_for_what_was_counted() {
    for provider in PROVIDERS {
        let lost = Reply::text("It begins, and would go on.").tokens(DEAR).broken_after(2);
        let (server, base) = fake_server(provider, vec![lost, Reply::text("Whole.").tokens(DEAR)]).await;
        let fixture = plain();
        assert_eq!(run(options(provider, &base), fixture.session).await.ending, Ending::Success, "{provider:?}");
        let account = fixture.meter.account();
        assert_eq!((account.open, account.usage.cost_usd, account.usage.turns, server.count()), (0, None, 1, 2));
        assert!((account.usage.known_cost_usd.unwrap() - 0.3).abs() < 1e-9, "{provider:?}: {account:?}");
    }
}

#[tokio::test]
async fn a_request_that_was_refused_or_never_arrived_costs_nothing() {
    let (_server, base) =
        fake_server(Provider::Anthropic, vec![Reply::status(429), Reply::text("Whole.").tokens(DEAR)]).await;
    let fixture = plain();
    assert_eq!(run(options(Provider::Anthropic, &base), fixture.session).await.ending, Ending::Success);
    assert!((fixture.meter.account().usage.cost_usd.unwrap() - 0.3).abs() < 1e-9);

    let (server, base) = fake_server(Provider::Anthropic, vec![]).await;
    drop(server);
    let fixture = plain();
    let unreachable = ApiOptions { retries: 1, ..options(Provider::Anthropic, &base) };
    assert!(matches!(run(unreachable, fixture.session).await.ending, Ending::Error(_)));
    let account = fixture.meter.account();
    assert_eq!((account.open, account.usage.cost_usd), (0, Some(0.0)));
}

#[tokio::test]
async fn what_a_cancelled_request_cost_is_unknown_unless_its_model_is_free() {
    for (prices, cost) in [(Prices::default(), None), (priced(MODEL, 0.0, 0.0), Some(0.0))] {
        let reply = Reply::text("late").behind(&Gate::closed());
        let (server, base) = fake_server(Provider::Anthropic, vec![reply]).await;
        let fixture = plain();
        let options = ApiOptions { prices, ..options(Provider::Anthropic, &base) };
        let running = tokio::spawn(run(options, fixture.session));
        server.received(1).await;
        assert_eq!(fixture.meter.account().open, u32::from(cost.is_none()));
        fixture.cancel.cancel();
        assert_eq!(running.await.unwrap().ending, Ending::Interrupted);
        let account = fixture.meter.account();
        assert_eq!((account.open, account.usage.cost_usd), (0, cost));
    }
}

#[tokio::test]
async fn a_model_with_a_price_is_asked_again_after_a_lost_request_within_the_known_dollars() {
    let lost = || Reply::call("look", json!({})).tokens(DEAR).ends_after(1);
    let counted = || Reply::call("look", json!({})).tokens(DEAR);
    let (server, base) = fake_server(Provider::OpenAi, vec![lost(), counted(), lost(), counted(), counted()]).await;
    let bounds = Bounds { max_budget_usd: Some(0.5), ..Bounds::default() };
    let fixture = setting(Desk::new(), bounds);
    assert_eq!(run(options(Provider::OpenAi, &base), fixture.session).await.ending, Ending::MaxBudget);
    let used = fixture.meter.account().usage;
    assert_eq!((server.count(), used.turns, used.cost_usd), (4, 2, None));
    assert!((used.known_cost() - 0.6).abs() < 1e-9, "{used:?}");
}

#[tokio::test]
async fn a_request_is_not_made_again_once_the_jobs_other_sessions_have_spent_its_budget() {
    let job = guild_session::meter::Meter::new(Bounds { max_budget_usd: Some(0.5), ..Bounds::default() });
    let others = job.for_session(Bounds::default());
    let script = move |_: &Received| {
        others.book(guild_contract::Usage { cost_usd: Some(0.5), ..Default::default() }, None);
        Reply::status(503)
    };
    let (server, base) = fake_server(Provider::Anthropic, script).await;
    let mut session = plain().session;
    session.meter = job.for_session(Bounds::default());
    assert_eq!(run(options(Provider::Anthropic, &base), session).await.ending, Ending::MaxBudget);
    assert_eq!(server.count(), 1);
}

#[test]
fn the_models_of_a_provider_are_its_own_and_those_of_the_operators_prices() {
    let of = |options: ApiOptions| Api::new(options).unwrap();
    let mut own = ApiOptions::new(Provider::OpenAi);
    own.prices = priced("my-own", 1.0, 1.0);
    let runtime = of(own.clone());
    let models = runtime.models();
    assert!(models.contains(&"my-own".to_owned()) && models.contains(&"gpt-5".to_owned()), "{models:?}");
    assert!(models.iter().all(|model| !model.starts_with("claude-")), "{models:?}");
    assert!(models.iter().all(|model| runtime.check_model(model).is_ok()));
    assert!(runtime.check_model("gpt-5-2025-08-07").is_ok() && runtime.check_model("my-own").is_ok());
    let foreign = runtime.check_model("claude-opus-5").unwrap_err();
    assert!(foreign.contains("another provider") && foreign.contains("openai"), "{foreign}");
    assert!(runtime.check_model("gpt-99").unwrap_err().contains("[[prices]]"));
    // Another address has models that nobody here knows.
    let elsewhere = of(ApiOptions { base_url: Some("http://127.0.0.1:1/v1".to_owned()), ..own.clone() });
    assert_eq!(elsewhere.models(), ["my-own"]);
    assert!(elsewhere.check_model("claude-opus-5").is_ok());
    assert!(of(ApiOptions { unknown_cost_tokens: Some(1), ..own }).check_model("gpt-99").is_ok());
}
