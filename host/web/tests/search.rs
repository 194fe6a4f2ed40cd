//! Searches through the providers.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{fs, path::Path, sync::Arc, time::Duration};

use common::{Reply, Site};
use guild_config::{KeySource, SearchOptions, WebOptions};
use guild_session::{
    tools::ToolError,
    web::{Hit, Search},
};
use guild_web::{Granted, Internet};
use serde_json::json;

fn options(search: SearchOptions) -> WebOptions {
    WebOptions { search: Some(search), page_seconds: 10, ..WebOptions::default() }
}

fn searcher(search: SearchOptions) -> Arc<dyn Search> {
    Internet::new(&options(search)).unwrap().for_job(&Granted::all()).search.unwrap()
}

fn searxng(site: &Site) -> Arc<dyn Search> {
    searcher(SearchOptions::SearXng { url: site.url("127.0.0.1", "") })
}

fn brave_at(site: &Site, key: &Path) -> SearchOptions {
    let url = Some(site.url("127.0.0.1", "/res/v1/web/search"));
    SearchOptions::Brave { url, key: KeySource::File(key.to_owned()) }
}

async fn unavailable(search: &Arc<dyn Search>) -> String {
    match search.search("wasm", 5).await {
        Err(ToolError::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn searxng_answers_with_hits_in_plain_text() {
    let site = Site::start(|_| {
        let results: Vec<_> = (0..30)
            .map(|n| {
                json!({
                    "title": format!("Page <b>{n}</b> &amp; more"), "url": format!("https://example.org/{n}"),
                    "content": "a  <em>component</em>\nmodel", "engine": "some", "score": 1.5
                })
            })
            .chain([json!({"title": "no page", "url": "magnet:?xt=x", "content": null})])
            .collect();
        Reply::json(
            &json!({"query": "q", "results": results, "unresponsive_engines": [["other", "timeout"]]}).to_string(),
        )
    })
    .await;
    let search = searxng(&site);
    let hits = search.search(" wasm & components? ", 3).await.unwrap();
    assert_eq!(hits.len(), 3);
    assert_eq!(
        hits[0],
        Hit {
            title: "Page 0 & more".to_owned(),
            url: "https://example.org/0".to_owned(),
            snippet: "a component model".to_owned(),
        }
    );
    assert_eq!(site.paths(), ["/search?q=wasm+%26+components%3F&format=json"]);
    assert_eq!(search.search("wasm", 1000).await.unwrap().len(), 20);
    assert_eq!(search.search("wasm", 0).await.unwrap(), []);
}

#[tokio::test]
async fn searxng_may_stand_below_a_path() {
    let site = Site::start(|_| Reply::json(r#"{"results": []}"#)).await;
    for path in ["/searx", "/searx/", "/searx/search"] {
        let search = searcher(SearchOptions::SearXng { url: site.url("127.0.0.1", path) });
        assert_eq!(search.search("wasm", 5).await.unwrap(), []);
    }
    assert_eq!(site.paths(), vec!["/searx/search?q=wasm&format=json"; 3]);
}

#[tokio::test]
async fn the_errors_of_searxng_say_what_to_do() {
    for (reply, expected) in [
        (Reply::status(403), "add `json` to `search.formats` in the settings.yml"),
        (Reply::status(429), "limiter.toml"),
        (Reply::status(500), "500 Internal Server Error"),
        (Reply::redirect("http://127.0.0.1:1/"), "name its final address in `[web.search] url`"),
        (Reply::html("<p>not JSON"), "not what was expected"),
        (
            Reply::json(r#"{"results": [], "unresponsive_engines": [["duckduckgo", "CAPTCHA"]]}"#),
            "duckduckgo (CAPTCHA)",
        ),
        (Reply::endless(&[b' '; 65536], Duration::ZERO), "larger than"),
        (Reply::cut_short("{"), "broke off"),
    ] {
        let site = Site::start(move |_| reply.clone()).await;
        let why = unavailable(&searxng(&site)).await;
        assert!(why.contains(expected) && why.contains(&site.at("127.0.0.1")), "{why}");
        assert_eq!(site.connections(), 1);
    }
}

#[tokio::test]
async fn a_provider_that_is_silent_ends_in_time() {
    let site = Site::start(|_| Reply::silence()).await;
    let search = SearchOptions::SearXng { url: site.url("127.0.0.1", "") };
    let internet = Internet::new(&WebOptions { page_seconds: 1, ..options(search) }).unwrap();
    assert!(unavailable(&internet.for_job(&Granted::all()).search.unwrap()).await.contains("within 1 s"));
    site.abandoned().await;
}

#[tokio::test]
async fn a_query_has_words_and_a_bound() {
    let site = Site::start(|_| Reply::json(r#"{"results": []}"#)).await;
    for query in ["", "  ", &"x".repeat(401)] {
        let error = searxng(&site).search(query, 5).await.unwrap_err();
        assert!(matches!(error, ToolError::InvalidInput(_)), "{error}");
    }
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn brave_is_asked_with_the_key_of_the_moment() {
    let site = Site::start(|_| {
        Reply::json(
            &json!({"type": "search", "web": {"results": [
                {"title": "A", "url": "https://example.org/", "description": "some <strong>text</strong> &#x27;here&#x27;"},
                {"title": "B", "url": "https://example.org/b"},
            ]}})
            .to_string(),
        )
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "first-key\n").unwrap();
    let search = searcher(brave_at(&site, &key));
    let hits = search.search("wasm", 7).await.unwrap();
    assert_eq!(hits.len(), 2);
    assert_eq!((hits[0].title.as_str(), hits[0].snippet.as_str()), ("A", "some text 'here'"));
    fs::write(&key, "second-key\n").unwrap();
    search.search("wasm", 7).await.unwrap();

    let requests = site.requests();
    assert_eq!(requests[0].path, "/res/v1/web/search?q=wasm&count=7");
    let keys: Vec<_> = requests.iter().map(|request| request.header("x-subscription-token").unwrap()).collect();
    assert_eq!(keys, ["first-key", "second-key"]);
}

#[tokio::test]
async fn the_errors_of_brave_say_what_to_do_and_never_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let refused = r#"{"type":"ErrorResponse","error":{"status":422,"code":"SUBSCRIPTION_TOKEN_INVALID"}}"#;
    for (key_text, reply, expected) in [
        ("secret-key", Reply::status(401), "key_env or key_file"),
        ("secret-key", Reply::status(403), "key_env or key_file"),
        ("secret-key", Reply::json(refused).with_status(422), "key_env or key_file"),
        ("secret-key", Reply::json(r#"{"error":{"code":"VALIDATION"}}"#).with_status(422), "VALIDATION"),
        ("secret-key", Reply::status(429), "search again later"),
        ("secret-key", Reply::status(502), "502 Bad Gateway"),
        ("secret-key", Reply::redirect("https://example.org/"), "not followed"),
        ("secret\u{7f}key", Reply::status(500), "characters that no key has"),
        ("", Reply::status(500), "there is no key"),
    ] {
        fs::write(&key, "secret-key").unwrap();
        let site = Site::start(move |_| reply.clone()).await;
        let search = searcher(brave_at(&site, &key));
        fs::write(&key, key_text).unwrap();
        let why = unavailable(&search).await;
        assert!(why.contains(expected), "{why}");
        assert!(!why.contains("secret"), "{why}");
    }
}

#[test]
fn a_provider_that_cannot_work_is_an_error_before_it_is_asked() {
    let missing = KeySource::Env("GUILD_TEST_NO_SUCH_KEY".to_owned());
    for (search, expected) in [
        (SearchOptions::Brave { url: None, key: missing.clone() }, "GUILD_TEST_NO_SUCH_KEY"),
        (SearchOptions::Brave { url: Some("http://example.org/search".to_owned()), key: missing }, "unencrypted"),
        (SearchOptions::SearXng { url: "example.org".to_owned() }, "[web.search] url"),
        (SearchOptions::SearXng { url: "https://user:pw@example.org/".to_owned() }, "[web.search] url"),
        (SearchOptions::SearXng { url: "ftp://example.org/".to_owned() }, "[web.search] url"),
    ] {
        let error = Internet::new(&options(search)).err().unwrap();
        assert!(error.contains(expected), "{error}");
    }
}
