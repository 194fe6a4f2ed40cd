//! `robots.txt`, if it is honoured.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use common::{Reply, Site, open_to, reader, refusal, unavailable};
use guild_config::WebOptions;
use guild_web::{Granted, Internet};

fn honouring(site: &Site) -> WebOptions {
    WebOptions { robots: true, ..open_to(site) }
}

#[tokio::test]
async fn what_robots_txt_forbids_is_not_read_and_it_is_asked_once_for_all_jobs() {
    let site = Site::start(|request| match request.path.as_str() {
        "/robots.txt" => Reply::text("User-agent: guild\nDisallow: /private\nDisallow: /*?secret\n"),
        "/moved" => Reply::redirect("/private/x"),
        _ => Reply::text("a page"),
    })
    .await;
    let internet = Internet::new(&honouring(&site)).unwrap();
    let job = internet.for_job(&Granted::all()).fetch.unwrap();
    let url = |path: &str| site.url("127.0.0.1", path);
    assert_eq!(job.fetch(&url("/public")).await.unwrap(), "a page");
    for path in ["/private/x", "/public?secret", "/moved"] {
        let why = refusal(&job, &url(path)).await;
        assert!(why.contains("robots.txt") && why.contains("`[web] robots = false`"), "{why}");
    }
    internet.for_job(&Granted::all()).fetch.unwrap().fetch(&url("/other")).await.unwrap();
    assert_eq!(site.paths(), ["/robots.txt", "/public", "/moved", "/other"]);
}

#[tokio::test]
async fn where_it_is_not_honoured_it_is_not_asked_for() {
    let site = Site::start(|_| Reply::text("User-agent: *\nDisallow: /\n")).await;
    reader(&open_to(&site)).fetch(&site.url("127.0.0.1", "/page")).await.unwrap();
    assert_eq!(site.paths(), ["/page"]);
}

#[tokio::test]
async fn a_host_without_robots_txt_may_be_read_and_one_whose_cannot_be_read_may_not() {
    for (status, is_read) in [(404, true), (403, true), (410, true), (429, false), (500, false), (503, false)] {
        let site = Site::start(move |request| match request.path.as_str() {
            "/robots.txt" => Reply::status(status),
            _ => Reply::text("a page"),
        })
        .await;
        let reader = reader(&honouring(&site));
        let url = site.url("127.0.0.1", "/page");
        if is_read {
            assert_eq!(reader.fetch(&url).await.unwrap(), "a page", "{status}");
        } else {
            let why = unavailable(&reader, &url).await;
            assert!(why.contains("robots.txt") && why.contains(&status.to_string()), "{why}");
            assert_eq!(site.paths(), ["/robots.txt"]);
        }
    }
}

#[tokio::test]
async fn a_redirect_of_robots_txt_is_judged_by_the_policy() {
    let inner = Site::start(|_| Reply::text("secret")).await;
    let target = inner.url("127.0.0.1", "/robots.txt");
    let site = Site::start(move |_| Reply::redirect(&target)).await;
    let why = refusal(&reader(&honouring(&site)), &site.url("127.0.0.1", "/page")).await;
    assert!(why.contains("[web] private"), "{why}");
    assert_eq!(inner.connections(), 0);
}

#[tokio::test]
async fn of_a_huge_robots_txt_the_beginning_counts() {
    let site = Site::start(|request| match request.path.as_str() {
        "/robots.txt" => {
            let rest = "# nothing\n".repeat(200_000);
            Reply::text(&format!("User-agent: *\nDisallow: /private\n{rest}Disallow: /page\n"))
        }
        _ => Reply::text("a page"),
    })
    .await;
    let reader = reader(&honouring(&site));
    assert_eq!(reader.fetch(&site.url("127.0.0.1", "/page")).await.unwrap(), "a page");
    refusal(&reader, &site.url("127.0.0.1", "/private")).await;
}
