//! HTTP: admission of callers, paths and bodies.
//!
//! The member is broken, so a request that reaches it receives its error.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use guild_contract::Limits;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{PATIENCE, Server, manifest};

const PATH: &str = "/members/broken/mcp";
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

async fn server() -> Server {
    Server::of_a_broken_member(Limits::default()).await
}

/// Posts a ping with these headers, and returns the status.
async fn status(server: &Server, headers: &str) -> u16 {
    let head = format!("POST {PATH} HTTP/1.1\r\nContent-Length: {}{headers}", PING.len());
    server.connect().await.request(&head, PING).await.status
}

#[tokio::test]
async fn a_member_in_state_error_answers_with_its_reason() {
    let server = server().await;
    let answer = server.post(PATH, PING).await.json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32603)));
    let message = answer["error"]["message"].as_str().unwrap();
    let reason = "member broken is in state error: broken/guild-member.json:1: missing field `name`";
    assert!(message.starts_with(reason), "{message}");
    let notification = server.post(PATH, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!((notification.status, notification.body.as_str()), (202, ""));
}

#[tokio::test]
async fn each_member_of_a_roster_answers_under_its_key_and_one_that_cannot_says_why() {
    let mut foreign = manifest("foreign");
    foreign.as_object_mut().unwrap().remove("component");
    let texts = [manifest("first"), manifest("second"), foreign].map(|manifest| manifest.to_string());
    let [first, second, foreign] = texts.each_ref().map(String::as_str);
    let members = [("first", first), ("team/second", second), ("foreign", foreign), ("broken", "{}")];
    let server = Server::of_many(&members, Limits::default()).await;
    let ask = async |key: &str| {
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
        server.post(&format!("/members/{key}/mcp"), initialize).await.json()
    };
    assert_eq!(ask("first").await["result"]["serverInfo"]["name"], "first");
    assert_eq!(ask("team/second").await["result"]["serverInfo"]["name"], "second");
    let message = async |key: &str| ask(key).await["error"]["message"].as_str().unwrap().to_owned();
    assert!(message("foreign").await.contains("it is served by its own process, not by this host"));
    assert!(message("broken").await.contains("broken/guild-member.json:1: missing field `name`"));
}

#[tokio::test]
async fn the_answer_is_json_whatever_the_client_accepts() {
    let server = server().await;
    for accept in ["*/*", "text/event-stream", "application/json, text/event-stream", "text/html;q=0.1"] {
        let json = format!("\r\nContent-Type: application/json\r\nAccept: {accept}");
        let head = format!("POST {PATH} HTTP/1.1\r\nContent-Length: {}{json}", PING.len());
        server.connect().await.request(&head, PING).await.json();
    }
}

#[tokio::test]
async fn only_posts_to_an_endpoint_are_answered() {
    let server = server().await;
    for method in ["GET", "DELETE", "PUT", "OPTIONS", "PATCH"] {
        let reply = server.connect().await.request(&format!("{method} {PATH} HTTP/1.1"), "").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("post")), "{method}");
    }
}

#[tokio::test]
async fn an_unknown_path_or_member_is_404() {
    let server = server().await;
    for path in
        ["/nowhere", "/mcp/", "/members/broken", "/members/other/mcp", "/members/broken/inner/mcp", "/members//mcp"]
    {
        assert_eq!(server.post(path, PING).await.status, 404, "{path}");
    }
    for path in ["/members/..%2Fbroken/mcp", "/members/%00/mcp", "/members/broken/mcp/"] {
        assert_eq!(server.post(path, PING).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn healthz_says_that_the_host_is_up() {
    let reply = server().await.connect().await.request("GET /healthz HTTP/1.1", "").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "ok\n"));
}

#[tokio::test]
async fn an_answer_has_the_id_of_its_request_or_one_of_its_own() {
    let server = server().await;
    let id = async |head: &str| {
        let reply = server.connect().await.request(&format!("GET /healthz HTTP/1.1{head}"), "").await;
        reply.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id("\r\nX-Request-Id: mine").await, "mine");
    let ids = [id("").await, id("\r\nX-Request-Id: no word").await, id("\r\nX-Request-Id:").await];
    assert!(ids.iter().all(|id| id.len() == 36) && ids[0] != ids[1], "{ids:?}");
}

#[tokio::test]
async fn a_large_list_is_compressed_for_a_client_that_accepts_it() {
    let many: Vec<String> = (0..400).map(|n| format!("member-{n}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "{}")).collect();
    let server = Server::of_many(&many, Limits::default()).await;
    let plain = server.connect().await.request("GET /members HTTP/1.1", "").await;
    assert!(plain.header("content-encoding").is_none() && plain.json().as_array().unwrap().len() == 400);
    let mut connection = server.connect().await;
    connection
        .send("GET /members HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n")
        .await;
    let mut bytes = Vec::new();
    connection.0.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8_lossy(&bytes).to_lowercase();
    assert!(text.contains("\r\ncontent-encoding: gzip\r\n") && bytes.len() * 2 < plain.body.len(), "{}", bytes.len());
}

#[tokio::test]
async fn the_content_type_has_to_be_json() {
    let server = server().await;
    for json in ["application/json", "application/json; charset=utf-8", "Application/JSON ;x=y"] {
        assert_eq!(status(&server, &format!("\r\nContent-Type: {json}")).await, 200, "{json}");
    }
    for other in ["text/plain", "application/json-rpc", "application/x-www-form-urlencoded", "", "text/event-stream"] {
        assert_eq!(status(&server, &format!("\r\nContent-Type: {other}")).await, 415, "{other}");
    }
    assert_eq!(status(&server, "").await, 415);
}

#[tokio::test]
async fn a_foreign_host_is_403_on_every_path() {
    let server = server().await;
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:65535", "[::1]", "[::1]:80"] {
        let head = format!("GET /healthz HTTP/1.1\r\nHost: {host}");
        assert_eq!(server.connect().await.request(&head, "").await.status, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example:80", "192.168.0.1", "0.0.0.0", "", "127.0.0.1.nip.io"] {
        for path in ["/healthz", PATH, "/nowhere"] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {host}");
            assert_eq!(server.connect().await.request(&head, "").await.status, 403, "{host} {path}");
        }
    }
    let twice = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example";
    assert_eq!(server.connect().await.request(twice, "").await.status, 403);
    let absolute = "GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost";
    assert_eq!(server.connect().await.request(absolute, "").await.status, 403);
    let mut without = server.connect().await;
    without.send("GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(without.reply().await.status, 403);
}

#[tokio::test]
async fn a_foreign_origin_is_403() {
    let server = server().await;
    let json = "\r\nContent-Type: application/json";
    for origin in ["http://localhost", "http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080"] {
        assert_eq!(status(&server, &format!("{json}\r\nOrigin: {origin}")).await, 200, "{origin}");
    }
    for origin in
        ["null", "http://evil.example", "http://localhost.evil.example", "file://", "http://localhost@evil.example", ""]
    {
        assert_eq!(status(&server, &format!("{json}\r\nOrigin: {origin}")).await, 403, "{origin}");
    }
    let both = format!("{json}\r\nOrigin: http://localhost\r\nOrigin: http://evil.example");
    assert_eq!(status(&server, &both).await, 403);
}

#[tokio::test]
async fn what_a_page_of_another_site_makes_a_browser_send_is_403_on_every_path() {
    let server = server().await;
    for path in ["/healthz", PATH, "/events", "/nowhere"] {
        for site in ["cross-site", "same-site", "", "same-origin, cross-site"] {
            let head = format!("GET {path} HTTP/1.1\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Site: {site}");
            assert_eq!(server.connect().await.request(&head, "").await.status, 403, "{site} {path}");
        }
    }
    for (site, more) in [
        ("none", ""),
        ("same-origin", ""),
        // The header names the page, and that page belongs to this machine.
        ("same-site", "\r\nOrigin: http://localhost:3000"),
        ("cross-site", "\r\nOrigin: http://localhost:3000"),
    ] {
        let head = format!("GET /healthz HTTP/1.1\r\nSec-Fetch-Site: {site}{more}");
        assert_eq!(server.connect().await.request(&head, "").await.status, 200, "{site} {more}");
    }
    let foreign = "GET /healthz HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\nOrigin: http://evil.example";
    assert_eq!(server.connect().await.request(foreign, "").await.status, 403);
}

#[tokio::test]
async fn json_that_takes_exactly_the_limit_as_values_is_read_and_one_byte_more_is_32600() {
    let limits = Limits { parsed_bytes: 100_000, ..Limits::default() };
    let server = Server::of_a_broken_member(limits).await;
    let padded = |values: usize, spaces: usize| {
        let head = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":["#;
        format!("{head}{}{}0]}}}}", "[],".repeat(values), " ".repeat(spaces))
    };
    let why = async |body: String| server.post(PATH, &body).await.json()["error"].clone();
    let refused = why(padded(2000, 0)).await;
    assert_eq!(refused["code"], -32600);
    let told = refused["message"].as_str().unwrap();
    let weight = |told: &str| told.split(' ').find_map(|word| word.parse::<usize>().ok()).unwrap();
    assert!(told.contains("more than the fixed limit parsed_bytes = 100000"), "{told}");
    // Each byte of the text counts as one byte.
    let each = weight(told) - weight(why(padded(1999, 0)).await["message"].as_str().unwrap());
    let values = 2000 - (weight(told) - 100_000).div_ceil(each);
    let left = 100_000 - (weight(told) - (2000 - values) * each);
    assert!(why(padded(values, left)).await["message"].as_str().unwrap().contains("state error"));
    assert_eq!(weight(why(padded(values, left + 1)).await["message"].as_str().unwrap()), 100_001);
}

#[tokio::test]
async fn requests_hold_seven_eighths_of_the_limit_of_one_caller_and_one_that_would_hold_more_waits_or_is_503() {
    let server = Server::of_a_broken_member(Limits { requests_bytes: 160_000, ..Limits::default() }).await;
    let announced = async |bytes: usize| {
        let mut connection = server.connect().await;
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\
             Content-Length: {bytes}\r\n\r\n"
        );
        connection.send(head).await;
        connection
    };
    let (mut first, mut second) = (announced(70_000).await, announced(70_000).await);
    assert_eq!((first.reply().await.status, second.reply().await.status), (100, 100));
    let mut third = announced(70_000).await;
    let refused = third.reply().await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.body.contains("limits.requests_bytes"), "{}", refused.body);
    // Small responses are sent in any case.
    server.post(PATH, PING).await.json();
    let mut fourth = announced(70_000).await;
    drop((first, second));
    assert_eq!(fourth.reply().await.status, 100);
    fourth.send(format!("{PING}{}", " ".repeat(70_000 - PING.len()))).await;
    fourth.reply().await.json();
    let (mut first, mut second) = (announced(70_000).await, announced(70_001).await);
    assert_eq!((first.reply().await.status, second.reply().await.status), (100, 503));
}

fn small() -> Limits {
    Limits { body_bytes: 1000, ..Limits::default() }
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_413() {
    let server = Server::of_a_broken_member(small()).await;
    let padded = |length: usize| format!("{PING}{}", " ".repeat(length - PING.len()));
    server.post(PATH, &padded(1000)).await.json();
    assert_eq!(server.post(PATH, &padded(1001)).await.status, 413);
}

#[tokio::test]
async fn the_limit_holds_for_a_body_of_unannounced_length() {
    let server = Server::of_a_broken_member(small()).await;
    let head = format!("POST {PATH} HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked");
    let chunked = |pieces: &[&str]| {
        let mut body = String::new();
        for piece in pieces {
            write!(body, "{:x}\r\n{piece}\r\n", piece.len()).unwrap();
        }
        body + "0\r\n\r\n"
    };
    let (begin, end) = PING.split_at(7);
    server.connect().await.request(&head, &chunked(&[begin, end])).await.json();
    let spaces = " ".repeat(600);
    let reply = server.connect().await.request(&head, &chunked(&[&spaces, &spaces])).await;
    assert_eq!(reply.status, 413);
}

#[tokio::test]
async fn a_client_that_is_still_sending_sees_the_413() {
    let server = Server::of_a_broken_member(small()).await;
    let body = "x".repeat(8 << 20);
    assert_eq!(server.post(PATH, &body).await.status, 413);
}

#[tokio::test]
async fn a_body_that_is_announced_too_large_is_not_waited_for() {
    let server = Server::of_a_broken_member(small()).await;
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1073741824\r\nExpect: 100-continue"
    );
    let mut connection = server.connect().await;
    assert_eq!(connection.request(&head, "").await.status, 413);
    connection.closed().await;
}

#[tokio::test]
async fn a_client_that_stops_in_the_middle_is_let_go() {
    let server = Server::of_a_broken_member(Limits { client_seconds: 1, ..Limits::default() }).await;
    let mut head = server.connect().await;
    head.send(format!("POST {PATH} HTTP/1.1\r\nHost: local")).await;
    let mut body = server.connect().await;
    body.send(format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")).await;
    body.send("Content-Length: 100\r\n\r\n{").await;
    assert_eq!(body.reply().await.status, 408);
    let mut idle = server.connect().await;
    idle.post(PATH, PING).await.json();
    tokio::join!(head.closed(), body.closed(), idle.closed());
}

/// A ping with a head of this many bytes.
fn with_a_head_of(bytes: usize) -> String {
    let length = PING.len();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nX: "
    );
    let padding = "x".repeat(bytes - head.len() - 4);
    format!("{head}{padding}\r\n\r\n{PING}")
}

#[tokio::test]
async fn a_head_of_exactly_the_limit_is_read_and_one_byte_more_is_431() {
    let server = Server::of_a_broken_member(Limits { header_bytes: 1000, ..Limits::default() }).await;
    let send = async |text: &str| {
        let mut connection = server.connect().await;
        connection.send(text).await;
        let reply = connection.reply().await;
        if reply.status != 200 {
            connection.closed().await;
        }
        reply.status
    };
    assert_eq!((send(&with_a_head_of(1000)).await, send(&with_a_head_of(1001)).await), (200, 431));
    // The host does not wait for the end of an endless head.
    assert_eq!(send(&format!("GET /healthz HTTP/1.1\r\nX: {}", "x".repeat(1000))).await, 431);
    assert_eq!(send(&format!("GET /{}", "x".repeat(1000))).await, 431);
}

#[tokio::test]
async fn as_many_header_fields_as_the_limit_are_read_and_one_more_is_431() {
    for limit in [4, 100, 200] {
        let server = Server::of_a_broken_member(Limits { headers: limit, ..Limits::default() }).await;
        let send = async |more: u32| {
            let fields: String = (3..limit + more).map(|n| format!("\r\nX{n}: x")).collect();
            let head = format!(
                "POST {PATH} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}{fields}",
                PING.len()
            );
            server.connect().await.request(&head, PING).await.status
        };
        assert_eq!((send(0).await, send(1).await), (200, 431), "{limit}");
    }
}

#[tokio::test]
async fn a_head_and_a_body_that_drip_are_cut_by_the_time_that_they_take_together() {
    let server = Server::of_a_broken_member(Limits { client_seconds: 1, ..Limits::default() }).await;
    let begin = Instant::now();
    let drip = async |head: String| {
        let mut connection = server.connect().await;
        connection.send(head).await;
        let (mut reading, mut writing) = connection.0.split();
        let mut pause = tokio::time::interval(Duration::from_millis(100));
        let mut answer = Vec::new();
        let read = reading.read_to_end(&mut answer);
        tokio::pin!(read);
        loop {
            tokio::select! {
                _ = &mut read => return,
                _ = pause.tick() => { let _ = writing.write_all(b"x").await; }
            }
        }
    };
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
    let both =
        async { tokio::join!(drip(format!("{head}X: ")), drip(format!("{head}Content-Length: 100000\r\n\r\n"))) };
    tokio::time::timeout(PATIENCE, both).await.expect("not cut");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_connection_beyond_the_limit_takes_the_place_of_the_longest_idle() {
    let server = Server::of_a_broken_member(Limits { connections: 2, ..Limits::default() }).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    first.post(PATH, PING).await.json();
    second.post(PATH, PING).await.json();
    server.post(PATH, PING).await.json();
    first.closed().await;
    second.post(PATH, PING).await.json();
}

#[tokio::test]
async fn what_is_no_http_is_answered_400_and_hurts_nobody() {
    let server = server().await;
    let mut connection = server.connect().await;
    connection.send("\x16\x03\x01 hello\r\n\r\n").await;
    assert_eq!(connection.reply().await.status, 400);
    server.post(PATH, PING).await.json();
}
