//! What callers can make a host hold: with what they send, and with what they do not take.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::harness::{Case, Hostile};
use crate::support::{
    guest::Guest,
    mcp::{Endpoint, NEW, OLD, error, initialize, modern_meta},
};

/// How long to wait for an answer: longer than a request waits for memory.
const PATIENCE: Duration = Duration::from_secs(60);
/// The largest result of the hostile member.
const RESULT: usize = 4 << 20;

/// A guest that completes its job with a large result, and whose healthy callers have tokens.
fn talkative() -> Hostile {
    let run = format!(
        "(memory.fill (i32.const 65536) (i32.const 120) (i32.const {RESULT}))
         (call $ok (i32.const 65536) (i32.const {RESULT}))"
    );
    Hostile::autonomous(Guest::default().pages(80).run(&run).build()).behind_tokens()
}

/// The header of another caller than the healthy ones, who may read.
fn reader(case: &Case) -> String {
    let made = case.home.run(&["token", "add", "reader", "--role", "view"]);
    assert!(made.status.success(), "{made:?}");
    format!("Bearer {}", String::from_utf8(made.stdout).unwrap().trim_end())
}

/// How much more memory the host had at most during this, in MiB.
fn grew(case: &Case, happens: impl FnOnce()) -> u64 {
    let process = format!("/proc/{}", case.host.pid());
    let kib = |field: &str| -> u64 {
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // Forgets how much it had before.
    fs::write(format!("{process}/clear_refs"), "5").unwrap();
    let before = kib("VmRSS:");
    happens();
    kib("VmHWM:").saturating_sub(before) / 1024
}

/// Sends a request without waiting for its answer.
fn send(case: &Case, token: &str, more: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", case.host.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "POST /members/hostile/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: {token}\r\n\
         Connection: close\r\n{more}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

/// As much of an answer as says what it is.
fn beginning(mut stream: &TcpStream) -> String {
    let mut read = vec![0; 1024];
    let mut length = 0;
    while length < read.len() {
        match stream.read(&mut read[length..]).unwrap() {
            0 => break,
            more => length += more,
        }
    }
    String::from_utf8_lossy(&read[..length]).into_owned()
}

fn whole(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A request with so many empty arrays: three bytes each as text, and 64 as values.
fn arrays(count: usize) -> String {
    let meta = modern_meta(NEW, json!({}));
    let many = "[],".repeat(count);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"worker/list","params":{{"_meta":{meta},"x":[{many}0]}}}}"#)
}

/// The same of no version of MCP.
fn plain(count: usize) -> String {
    arrays(count).replace("io.modelcontextprotocol", "io.example")
}

/// The header lines by which the three kinds of clients are known; a session is opened where one is needed.
fn ways(case: &Case, token: &str) -> [String; 3] {
    let endpoint = Endpoint::new(&case.host, "/members/hostile/mcp").with("Authorization", token);
    let (session, _) = endpoint.open(OLD);
    let headers = |endpoint: &Endpoint| {
        let lines = endpoint.headers.iter().filter(|(name, _)| name != "Authorization");
        lines.map(|(name, value)| format!("{name}: {value}\r\n")).collect::<String>()
    };
    [
        String::new(),
        headers(&session),
        headers(&endpoint.with("MCP-Protocol-Version", NEW).with("Mcp-Method", "worker/list")),
    ]
}

#[test]
fn what_initialize_sends_is_not_stored_while_its_session_lives() {
    talkative().growth_mib(56).attacks(|case| {
        let endpoint = Endpoint::new(&case.host, "/members/hostile/mcp").with("Authorization", &reader(case));
        let large = json!({"experimental": {"x": {"y": "z".repeat(2 << 20)}}});
        // They are open when the host's memory is looked at: what they brought is 80 MiB.
        for _ in 0..40 {
            assert_eq!(endpoint.post(&initialize(OLD, large.clone())).status, 200);
        }
    });
}

#[test]
fn what_opens_a_stream_is_small() {
    talkative().attacks(|case| {
        let endpoint = Endpoint::new(&case.host, "/members/hostile/mcp").with("Authorization", &reader(case));
        let listen = |uris: usize| {
            let filter = json!({"toolsListChanged": true, "resourceSubscriptions": vec!["guild://x"; uris]});
            endpoint.modern("subscriptions/listen", json!({"notifications": filter}))
        };
        let small = listen(10);
        assert_eq!((small.status, small.is_stream()), (200, true));
        let (status, code, why) = error(listen(10_000));
        assert!((status, code) == (400, -32600) && why.contains("more than 65536"), "{why}");
    });
}

#[test]
fn json_that_takes_many_times_its_text_is_refused_whichever_way_it_comes() {
    talkative().limit("parsed_bytes = 4194304").attacks(|case| {
        let token = reader(case);
        // 300 KB of text, and 6 MB of values.
        let (modern_body, plain_body) = (arrays(100_000), plain(100_000));
        let [_, session, modern] = ways(case, &token);
        for (way, body, status) in [
            ("", plain_body.clone(), 200),
            ("", format!("[{plain_body}]"), 200),
            (&session, plain_body, 400),
            ("Accept: application/json, text/event-stream\r\n", modern_body.clone(), 400),
            (&modern, modern_body, 400),
        ] {
            let answer = whole(send(case, &token, way, &body));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{way}: {answer}");
            assert!(
                answer.contains("-32600") && answer.contains("the fixed limit parsed_bytes = 4194304"),
                "{way}: {answer}"
            );
        }
    });
}

#[test]
fn many_requests_at_once_hold_no_more_than_the_limit_whichever_way_they_come() {
    // Freed small values that the allocator retains, for each thread.
    let hostile = talkative().limit("requests_bytes = 25165824").growth_mib(192);
    hostile.attacks(|case| {
        let token = reader(case);
        // 150 KB of text each, and 3 MB of values: without a bound, 32 of them three times are some 300 MB.
        let [none, session, modern] = ways(case, &token);
        for (way, body) in [(none, plain(50_000)), (session, plain(50_000)), (modern, arrays(50_000))] {
            let grown = grew(case, || {
                thread::scope(|scope| {
                    let asked: Vec<_> = (0..32)
                        .map(|n| {
                            let body = body.replacen("\"id\":1", &format!("\"id\":{n}"), 1);
                            let (token, way) = (&token, &way);
                            scope.spawn(move || whole(send(case, token, way, &body)))
                        })
                        .collect();
                    for answer in asked {
                        let answer = answer.join().unwrap();
                        let busy = answer.starts_with("HTTP/1.1 503 ") && answer.contains("limits.requests_bytes");
                        assert!(busy || answer.contains("\"jobs\":[]"), "{answer}");
                    }
                });
            });
            assert!(grown < 96, "{way}: {grown} MiB");
        }
    });
}

#[test]
fn bodies_that_do_not_come_leave_room_for_others() {
    talkative().limit("requests_bytes = 33554432").limit("client_seconds = 10").attacks(|case| {
        let token = reader(case);
        let announced: Vec<_> = (0..16)
            .map(|_| {
                let mut stream = TcpStream::connect(("127.0.0.1", case.host.port)).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                write!(
                    stream,
                    "POST /members/hostile/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Authorization: {token}\r\nExpect: 100-continue\r\nContent-Length: 4000000\r\n\r\n"
                )
                .unwrap();
                stream
            })
            .collect();
        // Seven eighths are seven bodies.
        let wanted = announced.iter().filter(|stream| {
            let (mut stream, mut status) = (*stream, [0; 12]);
            stream.read_exact(&mut status).unwrap();
            assert!([b"HTTP/1.1 100", b"HTTP/1.1 503"].contains(&&status), "{}", String::from_utf8_lossy(&status));
            status.ends_with(b"100")
        });
        assert_eq!(wanted.count(), 7);
        // Another caller's has room.
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y".repeat(2_000_000)}});
        assert_eq!(case.client().post(&body.to_string()).unwrap().0, 200);
    });
}

#[test]
fn answers_that_are_not_taken_hold_no_more_than_the_limit_and_leave_room_for_others() {
    // The allocator retains less of the freed answers than they had.
    let hostile = talkative().limit("requests_bytes = 67108864").limit("result_bytes = 4194304").growth_mib(128);
    hostile.attacks(|case| {
        let (id, result) = case.completes(1);
        assert_eq!(result.len(), RESULT);
        let token = reader(case);
        let ask = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut tool = ask("resources/read", json!({"uri": format!("guild://hostile/jobs/{id}/result")}));
        tool["params"]["_meta"] = modern_meta(NEW, json!({}));
        let modern = format!(
            "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {NEW}\r\nMcp-Method: resources/read\r\n\
             Mcp-Name: guild://hostile/jobs/{id}/result\r\n"
        );
        for (way, request) in [("", ask("worker/result", json!({"jobId": id}))), (&modern, tool)] {
            let request = request.to_string();
            let mut counts = String::new();
            let grown = grew(case, || {
                let asked: Vec<_> = (0..48).map(|_| send(case, &token, way, &request)).collect();
                let answers: Vec<String> = asked.iter().map(beginning).collect();
                let (busy, taken): (Vec<&String>, Vec<_>) =
                    answers.iter().partition(|answer| answer.contains("limits.requests_bytes"));
                assert!(taken.iter().all(|answer| answer.contains("xxxxxxxx")), "{taken:?}");
                assert!(!busy.is_empty() && !taken.is_empty(), "{} {}", busy.len(), taken.len());
                counts = format!("{} busy, {} answered", busy.len(), taken.len());
                // Other callers do not wait.
                assert_eq!(case.client().result(&id).unwrap()["output"].as_str().unwrap().len(), RESULT);
            });
            assert!(grown < 128, "{grown} MiB: {counts}");
        }
    });
}

#[test]
fn one_token_does_not_take_all_subscriptions() {
    talkative().limit("listeners = 8").attacks(|case| {
        let token = reader(case);
        let listen = |token: &str| {
            let mut stream = TcpStream::connect(("127.0.0.1", case.host.port)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n").unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).unwrap();
            (String::from_utf8_lossy(&status[9..]).into_owned(), stream)
        };
        let session = Endpoint::new(&case.host, "/members/hostile/mcp").with("Authorization", &token);
        let (session, _) = session.open(OLD);
        let stream = session.send("GET", "");
        assert_eq!(stream.status, 200);
        let listeners: Vec<_> = (0..8).map(|_| listen(&token)).collect();
        let statuses: Vec<&str> = listeners.iter().map(|(status, _)| status.as_str()).collect();
        assert_eq!(statuses, ["200", "200", "200", "200", "200", "200", "503", "503"]);
        assert_eq!(session.send("GET", "").status, 503);
        let another = format!("Bearer {}", case.host.token.as_ref().unwrap());
        assert_eq!(listen(&another).0, "200");
    });
}

#[test]
fn what_a_page_of_another_site_makes_a_browser_send_is_not_answered() {
    let component = Guest::default().run("(call $ok (i32.const 1024) (i32.const 0))").build();
    Hostile::autonomous(component).attacks(|case| {
        let sent = |site: &str| {
            let head = format!("GET /members HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: {site}\r\n");
            case.send(format!("{head}Sec-Fetch-Mode: no-cors\r\nConnection: close\r\n\r\n").as_bytes())
        };
        for site in ["cross-site", "same-site"] {
            assert!(sent(site).starts_with("HTTP/1.1 403 "), "{site}");
        }
        for site in ["none", "same-origin"] {
            assert!(sent(site).starts_with("HTTP/1.1 200 "), "{site}");
        }
    });
}

#[test]
fn a_caller_behind_a_proxy_needs_a_token_whatever_the_proxy_adds() {
    let component = Guest::default().run("(call $ok (i32.const 1024) (i32.const 0))").build();
    Hostile::autonomous(component).attacks(|case| {
        let sent = |field: &str| {
            let head = format!("GET /members HTTP/1.1\r\nHost: localhost\r\n{field}: 192.0.2.1\r\n");
            case.send(format!("{head}Connection: close\r\n\r\n").as_bytes())
        };
        assert!(sent("X-Other").starts_with("HTTP/1.1 200 "));
        for field in [
            "Forwarded",
            "Via",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Real-IP",
            "True-Client-IP",
            "CF-Connecting-IP",
            "CF-Connecting-IPv6",
            "Fastly-Client-IP",
            "X-Client-IP",
            "X-Cluster-Client-IP",
            "X-Original-Forwarded-For",
            "X-Envoy-External-Address",
            "Fly-Client-IP",
            "X-Azure-ClientIP",
            "X-Azure-SocketIP",
            "X-Appengine-User-IP",
            "X-Vercel-Forwarded-For",
            "DO-Connecting-IP",
            "Ali-CDN-Real-IP",
            "CDN-Loop",
        ] {
            assert!(sent(field).starts_with("HTTP/1.1 401 "), "{field}");
        }
    });
}
