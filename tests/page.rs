//! The pages of a host, as a browser requests them.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
};

use serde_json::json;

use crate::{
    auth::add,
    support::host::{Home, Host, PATIENCE, wait_for},
};

const FORM: &str = "application/x-www-form-urlencoded";

/// A browser without a screen: it keeps its cookie, and sends what browsers send.
struct Browser {
    port: u16,
    cookie: String,
}

struct Answer {
    status: u16,
    head: String,
    stream: BufReader<TcpStream>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(prefix.as_str()))
    }

    fn body(mut self) -> String {
        let mut body = String::new();
        self.stream.read_to_string(&mut body).unwrap();
        body
    }

    /// The next message of a stream.
    fn message(&mut self) -> String {
        let mut message = String::new();
        loop {
            let mut line = String::new();
            assert!(self.stream.read_line(&mut line).unwrap() > 0, "the stream ended after {message:?}");
            match line.trim_end().strip_prefix("data: ") {
                Some(data) => message += data,
                None if !message.is_empty() && line == "\n" => return message,
                None => {}
            }
        }
    }
}

impl Browser {
    fn of(host: &Host) -> Self {
        Self { port: host.port, cookie: String::new() }
    }

    fn send(&self, method: &str, path: &str, more: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (port, cookie) = (self.port, &self.cookie);
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost:{port}\r\nCookie: {cookie}\r\n{more}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).unwrap() > 0, "no answer: {head:?}");
        }
        Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, stream }
    }

    fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "")
    }

    fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.head);
        answer.body()
    }

    fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        let form = pairs.collect::<Vec<_>>().join("&");
        let more = format!("Content-Type: {FORM}\r\nOrigin: http://localhost:{}\r\n", self.port);
        self.send("POST", path, &more, &form)
    }

    /// The secret of the session, from a form of a page.
    fn csrf(&self, path: &str) -> String {
        let page = self.page(path);
        let (_, rest) = page.split_once(r#"name="csrf" value=""#).unwrap_or_else(|| panic!("no form in {page}"));
        rest.split('"').next().unwrap().to_owned()
    }

    fn sign_in(&mut self, token: &str) -> Answer {
        let answer = self.submit("/page/sign-in", &[("to", "/"), ("token", token)]);
        if let Some(cookie) = answer.header("set-cookie") {
            self.cookie = cookie.split(';').next().unwrap().to_owned();
        }
        answer
    }
}

fn job_page(member: &str, id: &str) -> String {
    format!("/page/jobs/{id}/{member}")
}

#[test]
fn a_browser_on_this_machine_sees_the_members_and_what_runs() {
    let home = Home::new();
    home.endless("endless");
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let hostile = "<script>alert(1)</script> \u{202e}\u{1b}[2J";
    let id = host.at("endless").start(hostile);
    let browser = Browser::of(&host);
    let answer = browser.get("/");
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let page = answer.body();
    for shown in ["endless", "quick", "&lt;script&gt;alert(1)&lt;/script&gt;", &job_page("endless", &id)] {
        assert!(page.contains(shown), "{shown} is not in {page}");
    }
    for path in ["/".to_owned(), job_page("endless", &id), "/page/members/endless".to_owned()] {
        let page = browser.page(&path);
        assert!(!page.contains("<script>") && !page.contains('\u{202e}') && !page.contains('\u{1b}'), "{page}");
        // Everything that it loads is on this host.
        let loaded = page.split(['"', '\'']).filter(|text| text.contains("://") || text.starts_with("//"));
        assert_eq!(loaded.count(), 0, "{page}");
    }
    assert_eq!(browser.get("/page/members/nobody").status, 404);
    assert_eq!(browser.get(&job_page("endless", "nothing")).status, 400);
}

#[test]
fn a_token_is_asked_for_in_a_form_and_the_cookie_is_not_the_token() {
    let mut home = Home::new();
    let file = home.write("guild.toml", "require_token = true\n");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home.quick("quick");
    home.quick("other");
    let token = add(&home, &["looker", "--members", "quick", "--methods", "read"]);
    let host = home.serve_roster(&[]);
    let mut browser = Browser::of(&host);
    let asked = browser.get("/page/members/quick");
    assert_eq!((asked.status, asked.header("location")), (303, Some("/page/sign-in?to=%2Fpage%2Fmembers%2Fquick")));
    assert!(browser.page("/page/sign-in?to=/").contains(r#"<input id="token""#));
    assert_eq!(browser.sign_in("guild_wrong").status, 401);
    let signed_in = browser.sign_in(&token);
    assert_eq!((signed_in.status, signed_in.header("location")), (303, Some("/")));
    let cookie = signed_in.header("set-cookie").unwrap();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict") && !cookie.contains(&token), "{cookie}");
    assert!(browser.page("/").contains("looker"));
    // It sees the members of its token, and dispatches nothing.
    assert!(!browser.page("/").contains("other"));
    assert_eq!(browser.get("/page/members/other").status, 404);
    let csrf = browser.csrf("/page/members/quick");
    let fields = [("csrf", &*csrf), ("description", "d"), ("task", "t")];
    let refused = browser.submit("/page/members/quick", &fields);
    assert_eq!(refused.status, 403);
    assert!(refused.body().contains("worker/dispatch"));
    // The cookie opens pages, and nothing else.
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "worker/list"}).to_string();
    assert_eq!(browser.send("POST", "/members/quick/mcp", "Content-Type: application/json\r\n", &body).status, 401);
    assert_eq!(browser.submit("/page/sign-out", &[("csrf", &csrf)]).status, 303);
    assert_eq!(browser.get("/").status, 303);
    // A session ends with its token.
    browser.sign_in(&token);
    assert_eq!(browser.get("/").status, 200);
    assert!(home.run(&["token", "revoke", "looker"]).status.success());
    assert_eq!(browser.get("/").status, 303);
}

#[test]
fn a_form_needs_the_secret_of_its_session_and_calls_one_operation() {
    let home = Home::new();
    let endless = home.endless("endless");
    let host = home.serve(&endless, &[]);
    let worker = host.client();
    let id = worker.start("to be cancelled");
    let (browser, page) = (Browser::of(&host), job_page("endless", &id));
    for fields in [&[("do", "cancel")][..], &[("do", "cancel"), ("csrf", "guessed")]] {
        let refused = browser.submit(&page, fields);
        assert_eq!(refused.status, 403, "{}", refused.head);
        assert!(refused.body().contains("not from a page of your session"));
    }
    let csrf = browser.csrf(&page);
    let foreign = format!("Content-Type: {FORM}\r\nOrigin: http://evil.example\r\n");
    assert_eq!(browser.send("POST", &page, &foreign, &format!("do=cancel&csrf={csrf}")).status, 403);
    assert_eq!(worker.status(&id).unwrap()["status"], "running");
    let cancelled = browser.submit(&page, &[("do", "cancel"), ("csrf", &csrf)]);
    assert_eq!((cancelled.status, cancelled.header("location")), (303, Some(page.as_str())));
    assert_eq!(worker.status(&id).unwrap()["status"], "cancelled");
    let deleted = browser.submit(&page, &[("do", "delete"), ("csrf", &csrf)]);
    assert_eq!((deleted.status, deleted.header("location")), (303, Some("/page/members/endless")));
    assert!(worker.status(&id).is_err());
}

#[test]
fn a_task_is_dispatched_by_a_form_and_its_report_is_shown() {
    let home = Home::new();
    home.researcher("researcher");
    let sources = home.write("sources/ada.md", "# Ada\n\nAda wrote the first program.\n");
    let host = home.serve_roster(&["--sources", sources.parent().unwrap().to_str().unwrap()]);
    let browser = Browser::of(&host);
    let csrf = browser.csrf("/page/members/researcher");
    let fields = [("csrf", &*csrf), ("description", "Ada"), ("task", "Who wrote the first program?"), ("config", "[")];
    let refused = browser.submit("/page/members/researcher", &fields);
    assert_eq!(refused.status, 400);
    assert!(refused.body().contains("the config is not a JSON object"));
    let dispatched = browser.submit("/page/members/researcher", &fields[..3]);
    assert_eq!(dispatched.status, 303, "{}", dispatched.head);
    let page = dispatched.header("location").unwrap().to_owned();
    let id = page.split('/').nth(3).unwrap().to_owned();
    assert_eq!(host.at("researcher").ended(&id)["status"], "completed");
    let shown = browser.page(&page);
    assert!(shown.contains(r#"<section class="report""#) && shown.contains("Ada wrote the first program"), "{shown}");
    assert!(shown.contains(r#"<rect class="tool""#) && shown.contains("Who wrote the first program?"), "{shown}");
}

#[test]
fn a_live_page_is_sent_again_when_something_changes() {
    let home = Home::new();
    let endless = home.endless("endless");
    let host = home.serve(&endless, &[]);
    let mut live = Browser::of(&host).get("/page/now/live");
    assert_eq!(live.header("content-type"), Some("text/event-stream"));
    assert!(live.message().contains("No job runs."));
    let id = host.client().start("seen at once");
    let shown = live.message();
    assert!(shown.contains("seen at once") && shown.contains(&job_page("endless", &id)), "{shown}");
}

#[test]
fn states_of_jobs_are_read_page_by_page_with_their_numbers() {
    let home = Home::new();
    let quick = home.quick("quick");
    for number in 0..5 {
        let status = if number == 0 { "failed" } else { "completed" };
        home.job(
            "quick",
            &format!("j{number}"),
            json!({"status": status, "startedAt": format!("2026-01-0{}T00:00:00Z", number + 1)}),
        );
    }
    let host = home.serve(&quick, &[]);
    let worker = host.client();
    let page = |params| {
        let view = worker.call("worker/jobs", params).unwrap();
        let ids = view["jobs"].as_array().unwrap().iter().map(|job| job["jobId"].as_str().unwrap().to_owned());
        (ids.collect::<Vec<_>>().join(" "), view["more"].as_bool().unwrap(), view["counts"].clone())
    };
    let counts = json!({"running": 0, "completed": 4, "failed": 1, "cancelled": 0});
    assert_eq!(page(json!({"limit": 2})), ("j4 j3".to_owned(), true, counts.clone()));
    assert_eq!(page(json!({"limit": 2, "offset": 4})), ("j0".to_owned(), false, counts.clone()));
    assert_eq!(page(json!({"status": "failed"})), ("j0".to_owned(), false, counts));
    for (params, why) in [
        (json!({"limit": 0}), "limit is 0"),
        (json!({"limit": 201}), "limit is 201"),
        (json!({"status": "new"}), "new"),
    ] {
        let error = worker.call("worker/jobs", params).unwrap_err();
        assert!(error.code == -32602 && error.message.contains(why), "{error:?}");
    }
    let id = worker.dispatch(json!({"description": "d", "task": "the task", "config": {"a": 1}})).unwrap();
    wait_for("the job", || (worker.status(&id).unwrap()["status"] != "running").then_some(()));
    let task = worker.call("worker/task", json!({"jobId": id})).unwrap();
    assert_eq!(task, json!({"jobId": id, "description": "d", "task": "the task", "config": {"a": 1}}));
    assert_eq!(worker.call("worker/task", json!({"jobId": "nothing"})).unwrap_err().code, -32602);
}
