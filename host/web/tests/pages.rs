//! Texts of pages, and errors for pages that are not as they should be.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::{
    io::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{Reply, Site, open_to, reader, unavailable};
use flate2::{Compression, write};
use guild_config::WebOptions;
use guild_session::{tools::ToolError, web::Fetch};
use guild_web::{Granted, Internet};

async fn read(site: &Site, path: &str) -> Result<String, ToolError> {
    reader(&open_to(site)).fetch(&site.url("127.0.0.1", path)).await
}

#[tokio::test]
async fn an_article_is_its_title_and_its_text_as_markdown() {
    let site = Site::start(|_| Reply::html(include_str!("pages/article.html"))).await;
    let page = read(&site, "/blog/component-model").await.unwrap();
    let expected = include_str!("pages/article.md").replace("{site}", &site.url("127.0.0.1", ""));
    assert_eq!(page, expected.trim_end());
}

#[tokio::test]
async fn a_page_that_is_no_article_is_shown_whole() {
    let site = Site::start(|_| Reply::html(include_str!("pages/index.html"))).await;
    let page = read(&site, "/").await.unwrap();
    let expected = include_str!("pages/index.md").replace("{site}", &site.url("127.0.0.1", ""));
    assert_eq!(page, expected.trim_end());
}

#[tokio::test]
async fn text_is_shown_as_it_is() {
    for content_type in
        ["text/plain", "text/markdown", "application/json", "application/problem+json", "application/xml", "text/csv"]
    {
        let site = Site::start(move |_| Reply::new(content_type, "{\"a\": [1, 2]}\n# <b>x</b>\n")).await;
        assert_eq!(read(&site, "/").await.unwrap(), "{\"a\": [1, 2]}\n# <b>x</b>\n", "{content_type}");
    }
}

#[tokio::test]
async fn what_is_no_text_is_refused_with_its_type() {
    for content_type in ["application/pdf", "image/png", "application/octet-stream; x=y", "video/mp4"] {
        let site = Site::start(move |_| Reply::new(content_type, "%PDF")).await;
        let why = unavailable(&reader(&open_to(&site)), &site.url("127.0.0.1", "/")).await;
        assert!(why.contains(content_type.split(';').next().unwrap()), "{why}");
    }
    let site = Site::start(|_| Reply::text("a\0b")).await;
    assert!(unavailable(&reader(&open_to(&site)), &site.url("127.0.0.1", "/")).await.contains("no text"));
}

#[tokio::test]
async fn a_page_without_a_type_is_what_it_looks_like() {
    let site = Site::start(|request| match request.path.as_str() {
        "/html" => Reply::new("", "\n<!DOCTYPE HTML><title>T</title><p>a <b>page</b>"),
        _ => Reply::new("", "plain <b>text</b>"),
    })
    .await;
    assert_eq!(read(&site, "/html").await.unwrap(), "# T\n\na **page**");
    assert_eq!(read(&site, "/text").await.unwrap(), "plain <b>text</b>");
}

#[tokio::test]
async fn a_page_is_read_in_its_charset() {
    let site = Site::start(|request| match request.path.as_str() {
        "/header" => Reply::new("text/html; charset=ISO-8859-1", b"<p>caf\xe9".to_vec()),
        "/meta" => Reply::new("text/html", b"<meta charset=windows-1251><p>\xef\xf0\xe8\xe2\xe5\xf2".to_vec()),
        "/bom" => Reply::new("text/plain; charset=latin1", b"\xef\xbb\xbfcaf\xc3\xa9".to_vec()),
        "/japanese" => Reply::new("text/plain; charset=Shift_JIS", b"\x93\xfa\x96\x7b".to_vec()),
        _ => Reply::new("text/plain", b"caf\xe9".to_vec()),
    })
    .await;
    for (path, text) in
        [("/header", "café"), ("/meta", "привет"), ("/bom", "café"), ("/japanese", "日本"), ("/none", "café")]
    {
        assert_eq!(read(&site, path).await.unwrap(), text, "{path}");
    }
}

fn compressed(encoding: &str, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match encoding {
        "gzip" => write::GzEncoder::new(&mut out, Compression::best()).write_all(text).unwrap(),
        "deflate" => write::ZlibEncoder::new(&mut out, Compression::best()).write_all(text).unwrap(),
        "raw deflate" => write::DeflateEncoder::new(&mut out, Compression::best()).write_all(text).unwrap(),
        _ => panic!("{encoding}"),
    }
    out
}

#[tokio::test]
async fn a_compressed_page_is_read() {
    let site = Site::start(|request| {
        let encoding = request.path.trim_start_matches('/');
        let accepted = request.header("accept-encoding").unwrap();
        assert!(accepted.split(',').any(|own| own.trim() == encoding), "{encoding} is not among {accepted}");
        Reply::new("text/plain", compressed(encoding, &b"a page ".repeat(1000))).with("content-encoding", encoding)
    })
    .await;
    for encoding in ["gzip", "deflate"] {
        assert_eq!(read(&site, &format!("/{encoding}")).await.unwrap(), "a page ".repeat(1000), "{encoding}");
    }
}

#[tokio::test]
async fn deflate_without_the_header_of_zlib_is_read_within_the_same_bounds() {
    let site = Site::start(|request| {
        let text = match request.path.as_str() {
            "/page" => b"a page ".repeat(1000),
            "/robots.txt" => b"User-agent: *\nDisallow: /closed\n".to_vec(),
            _ => vec![b'x'; 8 << 20],
        };
        Reply::new("text/plain", compressed("raw deflate", &text)).with("content-encoding", "Deflate")
    })
    .await;
    assert_eq!(read(&site, "/page").await.unwrap(), "a page ".repeat(1000));
    let with_robots = reader(&WebOptions { robots: true, ..open_to(&site) });
    assert!(matches!(with_robots.fetch(&site.url("127.0.0.1", "/closed")).await, Err(ToolError::NotGranted(_))));
    let Err(ToolError::OverLimit(why)) = read(&site, "/bomb").await else { panic!("it is larger than a page") };
    assert!(why.contains("page_bytes"), "{why}");
    let broken = Site::start(|_| Reply::text("no deflate").with("content-encoding", "deflate")).await;
    let why = unavailable(&reader(&open_to(&broken)), &broken.url("127.0.0.1", "/")).await;
    assert!(why.contains("decompressed"), "{why}");
}

#[tokio::test]
async fn a_compression_that_was_not_offered_is_refused() {
    for encoding in ["br", "zstd", "gzip, gzip", "x-own"] {
        let site = Site::start(move |_| Reply::text("(bytes)").with("content-encoding", encoding)).await;
        let why = unavailable(&reader(&open_to(&site)), &site.url("127.0.0.1", "/")).await;
        assert!(why.contains(encoding), "{why}");
    }
}

#[tokio::test]
async fn a_decompression_bomb_stops_at_the_size_of_a_page() {
    let bombs: Vec<(&str, Vec<u8>)> =
        ["gzip", "deflate"].map(|encoding| (encoding, compressed(encoding, &vec![0; 16 * 1024 * 1024]))).into();
    for (encoding, bomb) in bombs {
        assert!(bomb.len() < 32 * 1024, "{encoding}: {} bytes", bomb.len());
        let site =
            Site::start(move |_| Reply::new("text/plain", bomb.clone()).with("content-encoding", encoding)).await;
        let options = WebOptions { page_bytes: 64 * 1024, ..open_to(&site) };
        let started = Instant::now();
        let error = reader(&options).fetch(&site.url("127.0.0.1", "/")).await.unwrap_err();
        assert!(matches!(&error, ToolError::OverLimit(why) if why.contains("[web] page_bytes")), "{error}");
        assert!(started.elapsed() < Duration::from_secs(5), "{encoding}: {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn a_page_is_at_most_as_large_as_configured() {
    let site = Site::start(|request| match request.path.as_str() {
        "/fits" => Reply::text(&"x".repeat(1000)),
        "/long" => Reply::text(&"x".repeat(1001)),
        _ => Reply::endless(&[b'x'; 100], Duration::ZERO),
    })
    .await;
    let reader = reader(&WebOptions { page_bytes: 1000, ..open_to(&site) });
    assert_eq!(reader.fetch(&site.url("127.0.0.1", "/fits")).await.unwrap().len(), 1000);
    for path in ["/long", "/endless"] {
        let error = reader.fetch(&site.url("127.0.0.1", path)).await.unwrap_err();
        assert!(matches!(&error, ToolError::OverLimit(why) if why.contains("1000 bytes")), "{path}: {error}");
    }
    site.abandoned().await;
}

#[tokio::test]
async fn a_body_that_drips_and_a_server_that_is_silent_end_in_time() {
    let site = Site::start(|request| match request.path.as_str() {
        "/drips" => Reply::endless(b"x", Duration::from_millis(20)),
        _ => Reply::silence(),
    })
    .await;
    let reader = reader(&WebOptions { page_seconds: 1, ..open_to(&site) });
    let started = Instant::now();
    let (drips, silent) = (site.url("127.0.0.1", "/drips"), site.url("127.0.0.1", "/silent"));
    let (drips, silent) = tokio::join!(unavailable(&reader, &drips), unavailable(&reader, &silent));
    for why in [drips, silent] {
        assert!(why.contains("within 1 s ([web] page_seconds)"), "{why}");
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    site.abandoned().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_counts_for_a_page_with_all_its_redirects() {
    let site = Site::start(|request| {
        std::thread::sleep(Duration::from_millis(300));
        Reply::redirect(&format!("{}x", request.path))
    })
    .await;
    let reader = reader(&WebOptions { page_seconds: 1, ..open_to(&site) });
    assert!(unavailable(&reader, &site.url("127.0.0.1", "/")).await.contains("page_seconds"));
}

#[tokio::test]
async fn an_error_of_the_server_is_named() {
    let site = Site::start(|request| match request.path.as_str() {
        "/cut" => Reply::cut_short("half a page"),
        path => Reply::status(path.trim_start_matches('/').parse().unwrap()),
    })
    .await;
    let reader = reader(&open_to(&site));
    for (path, expected) in [
        ("/404", "404 Not Found"),
        ("/403", "403 Forbidden"),
        ("/429", "429 Too Many Requests"),
        ("/500", "500 Internal Server Error"),
        ("/304", "304 Not Modified"),
        ("/cut", "broke off"),
    ] {
        let why = unavailable(&reader, &site.url("127.0.0.1", path)).await;
        assert!(why.contains(expected), "{path}: {why}");
    }
    let nobody = format!("http://127.0.0.1:{}/", unused_port().await);
    let options = WebOptions { private: vec!["127.0.0.1".to_owned()], ..open_to(&site) };
    assert!(unavailable(&common::reader(&options), &nobody).await.contains("could not be reached: Connection refused"));
}

async fn unused_port() -> u16 {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_job_reads_a_page_once() {
    let site = Site::start(|request| match request.path.as_str() {
        "/gone" => Reply::status(404),
        path => Reply::text(path),
    })
    .await;
    let internet = Internet::new(&open_to(&site)).unwrap();
    let job: Arc<dyn Fetch> = internet.for_job(&Granted::all()).fetch.unwrap();
    for path in ["/a", "/a", "/a#part", "/b"] {
        job.fetch(&site.url("127.0.0.1", path)).await.unwrap();
    }
    assert_eq!(site.paths(), ["/a", "/b"]);

    let other = internet.for_job(&Granted::all()).fetch.unwrap();
    other.fetch(&site.url("127.0.0.1", "/a")).await.unwrap();
    assert_eq!(site.paths(), ["/a", "/b", "/a"]);

    for _ in 0..2 {
        job.fetch(&site.url("127.0.0.1", "/gone")).await.unwrap_err();
    }
    assert_eq!(site.paths().iter().filter(|path| *path == "/gone").count(), 2);
}

#[tokio::test]
async fn a_job_reads_eight_pages_at_a_time_and_the_time_of_those_that_wait_has_not_begun() {
    let site = Site::start(|_| Reply::silence()).await;
    let reader = reader(&WebOptions { page_seconds: 1, ..open_to(&site) });
    let started = Instant::now();
    let reads = (0..9).map(|page| {
        let (reader, url) = (reader.clone(), site.url("127.0.0.1", &format!("/{page}")));
        tokio::spawn(async move { unavailable(&reader, &url).await })
    });
    for read in reads.collect::<Vec<_>>() {
        assert!(read.await.unwrap().contains("within 1 s"));
    }
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(site.connections(), 9);
}

#[tokio::test]
async fn a_hostile_page_is_refused_and_the_next_is_read() {
    let site = Site::start(|request| match request.path.as_str() {
        "/deep" => Reply::html(&"<div>".repeat(100_000)),
        "/wide" => Reply::html(&"<p>x".repeat(300_000)),
        _ => Reply::html("<p>a page"),
    })
    .await;
    let reader = reader(&open_to(&site));
    assert!(unavailable(&reader, &site.url("127.0.0.1", "/deep")).await.contains("deep in each other"));
    assert!(unavailable(&reader, &site.url("127.0.0.1", "/wide")).await.contains("elements"));
    assert_eq!(reader.fetch(&site.url("127.0.0.1", "/")).await.unwrap(), "a page");
}
