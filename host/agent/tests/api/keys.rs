//! Keys: where they come from, whom they are shown, and where they never appear.

use std::{
    io,
    sync::{Arc, Mutex},
};

use guild_agent::api::Api;
use guild_config::{ApiOptions, KeySource, Provider};
use guild_fakes::{OpenAi, Received, Reply};
use guild_session::{
    meter::Ending,
    session::{AgentRuntime as _, Wanted},
};
use serde_json::json;

use crate::setting::{Desk, PROVIDERS, fake_server, key_file, options, plain, run, with_tools};

const KEY: &str = "sk-sentinel-4f1d9c";

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_missing_key_or_model_is_refused_with_what_to_set() {
    let check = |options: ApiOptions| Api::new(options).unwrap().check(&Wanted::default()).unwrap_err();
    let configured = |key| ApiOptions { key: Some(key), ..options(Provider::OpenAi, "http://[::1]:9/v1") };
    let unset = check(configured(KeySource::Env("GUILD_TEST_NO_SUCH_KEY".to_owned())));
    assert!(unset.contains("GUILD_TEST_NO_SUCH_KEY") && unset.contains("key_env"), "{unset}");
    let absent = check(configured(KeySource::File("/nowhere/key".into())));
    assert!(absent.contains("/nowhere/key") && absent.contains("key_file"), "{absent}");
    let no_model = check(ApiOptions { model: None, ..options(Provider::OpenAi, "http://[::1]:9/v1") });
    assert!(no_model.contains("`model` under [api] in guild.toml"), "{no_model}");
}

#[tokio::test]
async fn the_key_is_sent_as_each_provider_wants_it_and_read_for_each_request() {
    for provider in PROVIDERS {
        let (server, base) = fake_server(provider, vec![Reply::call("act", json!({})), Reply::text("Done.")]).await;
        let (directory, source) = key_file(KEY);
        let path = directory.path().join("key");
        // The operator replaces the key while the session runs.
        let desk = Desk::answering(move |_| {
            std::fs::write(&path, "sk-new").unwrap();
            Box::pin(async { Ok(json!("ok")) })
        });
        run(ApiOptions { key: Some(source), ..options(provider, &base) }, with_tools(&desk).session).await;
        let (header, before) = match provider {
            Provider::Anthropic => ("x-api-key", ""),
            Provider::OpenAi | Provider::Ollama => ("authorization", "Bearer "),
            Provider::Gemini => ("x-goog-api-key", ""),
        };
        let requests = server.requests();
        assert_eq!(requests[0].header(header), format!("{before}{KEY}"), "{provider:?}");
        assert_eq!(requests[1].header(header), format!("{before}sk-new"), "{provider:?}");
        assert!(
            !requests.iter().any(|request| request.path.contains("sk-") || request.body.to_string().contains("sk-"))
        );
    }
}

#[tokio::test]
async fn an_endpoint_without_a_key_is_sent_none() {
    for provider in PROVIDERS {
        let (server, base) = fake_server(provider, vec![Reply::text("Done.")]).await;
        run(options(provider, &base), plain().session).await;
        for header in ["x-api-key", "authorization", "x-goog-api-key"] {
            assert_eq!(server.requests()[0].header(header), "", "{provider:?}");
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_key() {
    let elsewhere = OpenAi::start(vec![Reply::text("caught")]).await;
    let target = elsewhere.url() + "/v1/chat/completions";
    let script = move |_: &Received| Reply::status(307).header("location", target.as_str());
    let (_server, base) = fake_server(Provider::OpenAi, script).await;
    let (_directory, source) = key_file(KEY);
    let end = run(ApiOptions { key: Some(source), ..options(Provider::OpenAi, &base) }, plain().session).await;
    assert!(matches!(end.ending, Ending::Error(text) if text.contains("307")));
    assert_eq!(elsewhere.count(), 0);
}

#[tokio::test]
async fn a_key_that_a_provider_quotes_is_in_no_error_log_or_transcript() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    // One thread runs this test, and this is its log.
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let mut seen = String::new();
    for provider in PROVIDERS {
        let quoting = |status| Reply::status(status).message(format!("Incorrect API key provided: {KEY}."));
        let replies = vec![quoting(500), Reply::text("It begins").fails_after(0, KEY), quoting(401)];
        let (_server, base) = fake_server(provider, replies).await;
        let (_directory, source) = key_file(KEY);
        let fixture = plain();
        let options = ApiOptions { key: Some(source), ..options(provider, &base) };
        let api = Api::new(options.clone()).unwrap();
        let end = run(options.clone(), fixture.session).await;
        assert!(matches!(&end.ending, Ending::Error(text) if text.contains("***")), "{provider:?}: {end:?}");
        seen += &format!("{end:?} {:?} {options:?} {api:?}", fixture.transcript.entries());
        seen += &format!("{:?}", fixture.meter.account());
    }
    tracing::warn!("the log is heard");
    seen += &String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(seen.contains("the log is heard"));
    assert!(!seen.contains("sentinel"), "the key is visible: {seen}");
}

#[tokio::test]
async fn the_error_of_a_refused_key_names_where_the_key_is() {
    let (_server, base) = fake_server(Provider::OpenAi, vec![Reply::status(401).message("no such key")]).await;
    let (directory, source) = key_file(KEY);
    let end = run(ApiOptions { key: Some(source), ..options(Provider::OpenAi, &base) }, plain().session).await;
    let Ending::Error(text) = end.ending else { panic!() };
    assert!(text.contains(&directory.path().join("key").display().to_string()), "{text}");
}
