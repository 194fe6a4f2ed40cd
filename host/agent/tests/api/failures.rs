//! What fails for a while is asked again; what fails for good is an error at once.

use std::time::{Duration, Instant, SystemTime};

use guild_config::{ApiOptions, Provider};
use guild_contract::Bounds;
use guild_fakes::{Received, Reply};
use guild_session::{
    meter::Ending,
    session::{NoTools, SessionEnd},
};

use crate::setting::{PROVIDERS, Setting, fake_server, options, plain, run, setting};

async fn against(provider: Provider, replies: Vec<Reply>) -> (SessionEnd, Setting, usize) {
    let (server, base) = fake_server(provider, replies).await;
    let fixture = plain();
    let end = run(options(provider, &base), fixture.session.clone()).await;
    (end, fixture, server.count())
}

fn whole() -> SessionEnd {
    SessionEnd { ending: Ending::Success, text: "Whole.".to_owned() }
}

fn error(end: SessionEnd) -> String {
    let Ending::Error(text) = end.ending else { panic!("{:?}", end.ending) };
    text
}

#[tokio::test]
async fn rate_limits_overload_and_server_errors_are_asked_again() {
    for provider in PROVIDERS {
        for status in [408, 429, 500, 502, 503, 504, 529] {
            let (end, fixture, asked) = against(provider, vec![Reply::status(status), Reply::text("Whole.")]).await;
            assert_eq!((end, asked), (whole(), 2), "{provider:?} {status}");
            let note = &fixture.transcript.notes()[0];
            assert!(note.contains(&status.to_string()) && note.contains("(1 of 5)"), "{note}");
            let used = fixture.meter.account().usage;
            assert_eq!((used.turns, fixture.transcript.turns()), (1, 1), "asking again is no new turn");
        }
    }
}

#[tokio::test]
async fn retry_after_in_seconds_is_waited_for() {
    let started = Instant::now();
    let reply = Reply::status(429).retry_after("1");
    let (end, fixture, _) = against(Provider::Anthropic, vec![reply, Reply::text("Whole.")]).await;
    assert_eq!(end, whole());
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
    assert!(fixture.transcript.notes()[0].contains("retrying in 1.0 s"), "{:?}", fixture.transcript.notes());
}

#[tokio::test]
async fn retry_after_as_a_date_is_waited_for() {
    let started = Instant::now();
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(2));
    let (end, ..) = against(Provider::OpenAi, vec![Reply::status(503).retry_after(date), Reply::text("Whole.")]).await;
    assert_eq!(end, whole());
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_wait_that_is_longer_than_the_session_ends_it_at_once() {
    for wait in ["86400", "18446744073709551615", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let (_server, base) = fake_server(Provider::Anthropic, vec![Reply::status(429).retry_after(wait)]).await;
        let fixture = setting(std::sync::Arc::new(NoTools), Bounds { deadline_seconds: Some(60), ..Bounds::default() });
        let text = error(run(options(Provider::Anthropic, &base), fixture.session).await);
        assert!(text.contains("429") && text.contains("the session ends before the next attempt"), "{wait}: {text}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_requested_again_and_nothing_of_it_remains() {
    for provider in PROVIDERS {
        let begun = || Reply::text("It begins, and it would have gone on for a while.");
        let replies =
            vec![begun().broken_after(2), begun().ends_after(2), begun().ends_after(0), Reply::text("Whole.")];
        let (end, fixture, asked) = against(provider, replies).await;
        assert_eq!((end, asked), (whole(), 4), "{provider:?}");
        assert_eq!((fixture.transcript.turns(), fixture.transcript.notes().len()), (1, 3), "{provider:?}");
    }
}

#[tokio::test]
async fn an_answer_that_turns_into_an_error_is_asked_for_again_unless_the_error_lasts() {
    let cases = [
        (Provider::Anthropic, "overloaded_error", "invalid_request_error"),
        (Provider::OpenAi, "server_error", "invalid_request_error"),
        (Provider::Gemini, "UNAVAILABLE", "INVALID_ARGUMENT"),
    ];
    for (provider, passing, lasting) in cases {
        let begun = || Reply::text("It begins, and would go on.");
        let (end, fixture, _) = against(provider, vec![begun().fails_after(2, passing), Reply::text("Whole.")]).await;
        assert_eq!(end, whole(), "{provider:?}");
        assert!(fixture.transcript.notes()[0].contains(passing), "{:?}", fixture.transcript.notes());
        let (end, _, asked) = against(provider, vec![begun().fails_after(2, lasting), Reply::text("Whole.")]).await;
        let text = error(end);
        assert!(asked == 1 && text.contains("the fake failed") && text.contains(lasting), "{provider:?}: {text}");
    }
}

#[tokio::test]
async fn a_request_that_is_wrong_is_an_error_at_once_in_the_providers_words() {
    for provider in PROVIDERS {
        for status in [400, 401, 403, 404, 413, 422] {
            let reply = Reply::status(status).message("max_tokens: 9000 > 8192");
            let (end, fixture, asked) = against(provider, vec![reply]).await;
            let text = error(end);
            assert!(text.contains(&format!("the provider answered {status}")), "{provider:?}: {text}");
            assert!(text.contains("max_tokens: 9000 > 8192"), "{provider:?}: {text}");
            assert_eq!((asked, fixture.transcript.entries().len()), (1, 0), "{provider:?} {status}");
        }
    }
}

#[tokio::test]
async fn an_error_without_end_is_shown_only_in_part() {
    let reply = Reply::status(400).message("x".repeat(1_000_000));
    let (end, ..) = against(Provider::OpenAi, vec![reply]).await;
    assert!(error(end).len() < 2000);
}

#[tokio::test]
async fn retries_end_with_what_failed_last() {
    let (server, base) =
        fake_server(Provider::Anthropic, |_: &Received| Reply::status(529).message("Overloaded")).await;
    let options = ApiOptions { retries: 3, ..options(Provider::Anthropic, &base) };
    let text = error(run(options, plain().session).await);
    assert!(text.contains("529") && text.contains("Overloaded; the request was made 4 times"), "{text}");
    assert_eq!(server.count(), 4);
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_asked_again_and_then_named_as_unreachable() {
    let (server, base) = fake_server(Provider::Anthropic, vec![]).await;
    drop(server);
    let fixture = plain();
    let options = ApiOptions { retries: 2, ..options(Provider::Anthropic, &base) };
    let text = error(run(options, fixture.session).await);
    assert!(text.contains("the provider cannot be reached") && text.contains("refused"), "{text}");
    assert_eq!(fixture.transcript.notes().len(), 2);
}

#[tokio::test]
async fn an_answer_that_is_no_answer_is_an_error() {
    let (end, _, asked) =
        against(Provider::Anthropic, vec![Reply::status(302).header("location", "http://[::1]:9/")]).await;
    let text = error(end);
    assert!(asked == 1 && text.contains("302"), "{text}");
}
