//! The network policy, observed from a server that must not be reached.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    io::{Read as _, Seek as _},
    process::Command,
    sync::Arc,
};

use common::{Names, Reply, Site, open_to, options, reader, reader_with, refusal, unavailable};
use guild_config::{SearchOptions, WebOptions};
use guild_session::tools::ToolError;
use guild_web::{Granted, Internet};

#[tokio::test]
async fn without_an_allowed_host_there_is_no_reading_and_without_a_provider_no_searching() {
    let web = Internet::new(&WebOptions::default()).unwrap().for_job(&Granted::all());
    assert!(web.fetch.is_none() && web.search.is_none());
    let search = Some(SearchOptions::SearXng { url: "http://127.0.0.1:8888".to_owned() });
    let web = Internet::new(&WebOptions { search, ..WebOptions::default() }).unwrap().for_job(&Granted::all());
    assert!(web.fetch.is_none() && web.search.is_some());
}

#[tokio::test]
async fn a_page_is_read() {
    let site = Site::start(|_| Reply::text("a page")).await;
    assert_eq!(reader(&open_to(&site)).fetch(&site.url("127.0.0.1", "/")).await, Ok("a page".to_owned()));
}

#[tokio::test]
async fn a_loopback_address_is_refused_in_every_spelling() {
    let site = Site::start(|_| Reply::text("secret")).await;
    let reader = reader_with(&options(&["*"], &[]), &Names::of(&[("localhost", "127.0.0.1 ::1")]));
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.0.0.1.",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "localhost",
        "LOCALHOST",
        "localhost.",
    ] {
        let why = refusal(&reader, &site.url(host, "/")).await;
        assert!(why.contains("not on the public internet") && why.contains("`[web] private = ["), "{host}: {why}");
    }
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn the_metadata_services_of_clouds_are_refused() {
    let names =
        Names::of(&[("metadata.google.internal", "169.254.169.254"), ("instance-data.ec2.internal", "fd00:ec2::254")]);
    let reader = reader_with(&options(&["*"], &[]), &names);
    for host in [
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "[fd00:ec2::254]",
        "[fd20:ce::254]",
        "[::ffff:169.254.169.254]",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "metadata.google.internal",
        "instance-data.ec2.internal",
    ] {
        let why = refusal(&reader, &format!("http://{host}/latest/meta-data/")).await;
        assert!(why.contains("not on the public internet"), "{host}: {why}");
    }
}

#[tokio::test]
async fn a_name_is_judged_by_what_it_resolves_to_when_the_connection_is_made() {
    let site = Site::start(|_| Reply::text("secret")).await;
    let names = Names::of(&[
        ("loopback.example", "127.0.0.1"),
        ("mapped.example", "::ffff:127.0.0.1"),
        ("several.example", "10.0.0.1 ::1 127.0.0.1"),
    ]);
    let reader = reader_with(&options(&["*"], &[]), &names);
    for (host, address) in
        [("loopback.example", "127.0.0.1"), ("mapped.example", "::ffff:127.0.0.1"), ("several.example", "10.0.0.1")]
    {
        let why = refusal(&reader, &site.url(host, "/")).await;
        assert!(why.contains(&format!("it resolves to {address}")), "{why}");
        assert!(why.contains(&format!(r#"`[web] private = ["{}"]`"#, site.at(host))), "{why}");
    }
    assert_eq!(site.connections(), 0);
    // A second lookup, after the checked one, could return other addresses, so there is none.
    assert_eq!(names.asked(), ["loopback.example", "mapped.example", "several.example"]);
}

#[tokio::test]
async fn the_line_that_a_refusal_names_lifts_it() {
    let site = Site::start(|_| Reply::text("the intranet")).await;
    let names = Names::of(&[("intranet.example", "127.0.0.1")]);
    let url = site.url("intranet.example", "/");
    let host = site.at("intranet.example");

    let why = refusal(&reader_with(&options(&["other.example"], &[]), &names), &url).await;
    assert!(why.contains(&format!(r#"`[web] allow = ["{host}"]`"#)), "{why}");
    let why = refusal(&reader_with(&options(&[&host], &[]), &names), &url).await;
    assert!(why.contains(&format!(r#"`[web] private = ["{host}"]`"#)), "{why}");
    let page = reader_with(&options(&[&host], &[&host]), &names).fetch(&url).await;
    assert_eq!(page, Ok("the intranet".to_owned()));

    let denied = WebOptions { deny: vec!["*.example".to_owned()], ..options(&[&host], &[&host]) };
    let why = refusal(&reader_with(&denied, &names), &url).await;
    assert!(why.contains(r#"denied by "*.example" in `[web] deny`"#), "{why}");
}

#[tokio::test]
async fn a_refusal_is_in_the_log_too() {
    let mut file = tempfile::tempfile().unwrap();
    let writer = Arc::new(file.try_clone().unwrap());
    let _logging = tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(writer).finish());
    let why = refusal(&reader(&options(&["example.org"], &[])), "http://127.0.0.1/").await;
    let mut log = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut log).unwrap();
    assert!(log.contains(&why), "{log}");
}

#[tokio::test]
async fn each_redirect_is_checked() {
    let inner = Site::start(|_| Reply::text("secret")).await;
    let port = inner.port;
    let outer = Site::start(move |request| {
        let host = request.path.trim_start_matches('/');
        Reply::redirect(&format!("http://{host}:{port}/secret"))
    })
    .await;
    let names =
        Names::of(&[("private.example", "127.0.0.1"), ("outer.example", "127.0.0.1"), ("denied.example", "127.0.0.1")]);
    let deny = vec!["denied.example".to_owned()];
    let reader = reader_with(&WebOptions { deny, ..options(&["*"], &[&outer.at("outer.example")]) }, &names);
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "private.example",
        "denied.example",
        "outer.example",
    ] {
        let why = refusal(&reader, &outer.url("outer.example", &format!("/{host}"))).await;
        assert!(why.contains("guild.toml"), "{host}: {why}");
    }
    assert_eq!(inner.connections(), 0);
}

#[tokio::test]
async fn redirects_are_followed_and_bounded() {
    let site = Site::start(|request| match request.path.as_str() {
        "/there" => Reply::text("a page"),
        "/round" => Reply::redirect("/round"),
        path => match path.strip_prefix("/step/").map(|n| n.parse::<usize>().unwrap()) {
            Some(0) | None => Reply::redirect("there#part"),
            Some(n) => Reply::redirect(&format!("{}", n - 1)),
        },
    })
    .await;
    let reader = reader(&open_to(&site));
    let page = reader.fetch(&site.url("127.0.0.1", "/here")).await.unwrap();
    assert_eq!(page, format!("(read at {})\n\na page", site.url("127.0.0.1", "/there")));
    let why = unavailable(&reader, &site.url("127.0.0.1", "/round")).await;
    assert!(why.contains("more than 10 times"), "{why}");
    assert_eq!(site.paths().iter().filter(|path| *path == "/round").count(), 11);
}

#[tokio::test]
async fn a_redirect_out_of_the_web_is_refused() {
    let site = Site::start(|request| Reply::redirect(request.path.split_once("to=").unwrap().1)).await;
    let reader = reader(&open_to(&site));
    for to in [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1/",
        "data:text/plain,x",
        "http://user:pw@127.0.0.1/",
    ] {
        let why = unavailable(&reader, &site.url("127.0.0.1", &format!("/?to={to}"))).await;
        assert!(why.contains("not followed"), "{to}: {why}");
    }
    assert_eq!(site.connections(), 5);
}

#[tokio::test]
async fn addresses_with_credentials_or_of_other_schemes_are_invalid() {
    let site = Site::start(|_| Reply::text("a page")).await;
    let reader = reader(&open_to(&site));
    for url in [
        format!("http://user@127.0.0.1:{}/", site.port),
        format!("http://user:password@127.0.0.1:{}/", site.port),
        "file:///etc/passwd".to_owned(),
        "ftp://127.0.0.1/".to_owned(),
        "no address".to_owned(),
    ] {
        let error = reader.fetch(&url).await.unwrap_err();
        assert!(matches!(error, ToolError::InvalidInput(_)), "{url}: {error}");
        assert!(!error.to_string().contains("password@"), "{error}");
    }
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn a_request_says_who_asks_and_nothing_else() {
    let site = Site::start(|request| match request.path.as_str() {
        "/first" => Reply::redirect("/second").with("set-cookie", "session=1; Path=/"),
        _ => Reply::text("a page"),
    })
    .await;
    let reader = reader(&open_to(&site));
    reader.fetch(&site.url("127.0.0.1", "/first")).await.unwrap();
    reader.fetch(&site.url("127.0.0.1", "/third")).await.unwrap();
    assert_eq!(site.paths(), ["/first", "/second", "/third"]);
    for request in site.requests() {
        assert_eq!(request.header("user-agent"), Some("guild"));
        for name in ["cookie", "referer", "authorization", "origin"] {
            assert_eq!(request.header(name), None, "{name}");
        }
    }
}

/// Behind a proxy, the proxy would choose the addresses of connections.
#[test]
fn a_proxy_of_the_environment_is_not_used() {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "a_page_is_read"]);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        // No server listens there.
        again.env(name, "http://127.0.0.1:1");
    }
    let output = again.env_remove("no_proxy").env_remove("NO_PROXY").output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
fn bad_options_are_errors_that_name_their_key() {
    let good = || options(&["*"], &[]);
    for (options, key) in [
        (options(&["https://example.org/"], &[]), "[web] allow"),
        (options(&["*"], &["*"]), "[web] private"),
        (WebOptions { deny: vec!["a b".to_owned()], ..good() }, "[web] deny"),
        (WebOptions { page_bytes: 0, ..good() }, "[web] page_bytes"),
        (WebOptions { page_bytes: u64::MAX, ..good() }, "[web] page_bytes"),
        (WebOptions { page_seconds: 0, ..good() }, "[web] page_seconds"),
        (WebOptions { page_seconds: 100_000, ..good() }, "[web] page_seconds"),
        (
            WebOptions { search: Some(SearchOptions::SearXng { url: "localhost:8888".to_owned() }), ..good() },
            "[web.search] url",
        ),
    ] {
        let error = options.check().err().unwrap();
        assert!(error.contains(key), "{error}");
    }
}
