//! The pages of a host, as a browser requests them.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::{
    auth::add,
    support::{
        host::{Home, Host, PATIENCE, wait_for},
        mcp::{Answer, Endpoint},
    },
};

/// A browser without a screen: it keeps its cookie, and sends the headers of a browser.
pub(crate) struct Browser {
    host: Endpoint,
}

impl Browser {
    pub(crate) fn of(host: &Host) -> Self {
        Self { host: Endpoint::new(host, "/").with("Content-Type", "application/x-www-form-urlencoded") }
    }

    pub(crate) fn at(&self, path: &str) -> Endpoint {
        Endpoint { path: path.to_owned(), ..self.host.clone() }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.at(path).send("GET", "")
    }

    pub(crate) fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        let (status, text) = (answer.status, answer.text());
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    pub(crate) fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        let origin = format!("http://localhost:{}", self.host.port);
        self.at(path).with("Origin", &origin).send("POST", &pairs.collect::<Vec<_>>().join("&"))
    }

    /// The secret of the session, from a form of a page.
    pub(crate) fn csrf(&self, path: &str) -> String {
        let page = self.page(path);
        let (_, rest) = page.split_once(r#"name="csrf" value=""#).unwrap_or_else(|| panic!("no form in {page}"));
        rest.split('"').next().unwrap().to_owned()
    }

    pub(crate) fn sign_in(&mut self, token: &str) -> Answer {
        let answer = self.submit("/page/sign-in", &[("to", "/"), ("token", token)]);
        if let Some(cookie) = answer.header("set-cookie") {
            self.host = self.host.with("Cookie", cookie.split(';').next().unwrap());
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
    // With any stricter policy, browsers would send forms without their origin.
    assert_eq!(answer.header("referrer-policy"), Some("same-origin"));
    let page = answer.text();
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
    let token = add(&home, &["looker", "--members", "quick", "--role", "view"]);
    let host = home.serve_roster(&[]);
    let mut browser = Browser::of(&host);
    let asked = browser.get("/page/members/quick");
    assert_eq!((asked.status, asked.header("location")), (303, Some("/page/sign-in?to=%2Fpage%2Fmembers%2Fquick")));
    assert!(browser.page("/page/sign-in?to=/").contains(r#"<input id="token""#));
    let refused = browser.sign_in("guild_wrong");
    assert_eq!(refused.status, 401);
    assert!(refused.text().contains("this host has no such token"));
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
    assert!(refused.text().contains("worker/dispatch"));
    // The cookie opens pages, and nothing else.
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "worker/list"}).to_string();
    assert_eq!(browser.at("/members/quick/mcp").without("Content-Type").send("POST", &body).status, 401);
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
        assert_eq!(refused.status, 403);
        assert!(refused.text().contains("not from a page of your session"));
    }
    let csrf = browser.csrf(&page);
    let foreign = browser.at(&page).with("Origin", "http://evil.example");
    assert_eq!(foreign.send("POST", &format!("do=cancel&csrf={csrf}")).status, 403);
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
    assert!(refused.text().contains("the config is not a JSON object"));
    let dispatched = browser.submit("/page/members/researcher", &fields[..3]);
    assert_eq!(dispatched.status, 303);
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
    assert!(live.data().unwrap().contains("No job runs."));
    let id = host.client().start("seen at once");
    let shown = live.data().unwrap();
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
    assert_eq!(page(json!({"status": "failed"})), ("j0".to_owned(), false, counts.clone()));
    for (params, why) in [
        (json!({"limit": 0}), "limit is 0"),
        (json!({"limit": 201}), "limit is 201"),
        (json!({"status": "new"}), "new"),
    ] {
        let error = worker.call("worker/jobs", params).unwrap_err();
        assert!(error.code == -32602 && error.message.contains(why), "{error:?}");
    }
    // A page with long texts ends early.
    for number in 1..4 {
        let long = "why? ".repeat(140_000);
        home.write(&format!("members/quick/jobs/j{number}/questions.md"), long);
    }
    wait_for("the long texts", || (page(json!({})) == ("j4 j3 j2".to_owned(), true, counts.clone())).then_some(()));
    assert_eq!(page(json!({"offset": 3})).0, "j1 j0");
    let id = worker.dispatch(json!({"description": "d", "task": "the task", "config": {"a": 1}})).unwrap();
    wait_for("the job", || (worker.status(&id).unwrap()["status"] != "running").then_some(()));
    let task = worker.call("worker/task", json!({"jobId": id})).unwrap();
    assert_eq!(task, json!({"jobId": id, "description": "d", "task": "the task", "config": {"a": 1}}));
    assert_eq!(worker.call("worker/task", json!({"jobId": "nothing"})).unwrap_err().code, -32602);
}

#[test]
fn questions_come_first_and_an_answer_dispatches_a_follow_up_with_the_report() {
    let home = Home::new();
    let quick = home.quick("quick");
    home.write("members/quick/jobs/asked/task.md", "Find the tide tables.\n");
    home.write("members/quick/jobs/asked/questions.md", "Which <b>port</b>?\nWhich year?\n");
    home.write("members/quick/jobs/asked/result.md", "There are tables for two ports.\n");
    home.job("quick", "asked", json!({"status": "completed", "description": "Tides"}));
    let host = home.serve(&quick, &[]);
    let browser = Browser::of(&host);
    let first = browser.page("/");
    let place = |text: &str| first.find(text).unwrap_or_else(|| panic!("{text} is not in {first}"));
    assert!(place("Which &lt;b&gt;port&lt;/b&gt;?") < place("Running and queued"));
    let (path, csrf) = (job_page("quick", "asked"), browser.csrf(&job_page("quick", "asked")));
    assert!(browser.page(&path).contains("There are tables for two ports."));
    let answer = |year| {
        let of_form = [("csrf", &*csrf), ("follows", "asked"), ("description", "Answer: Tides")];
        let answers = [("question", "Which port?"), ("answer", ""), ("question", "Which year?"), ("answer", year)];
        browser.submit("/page/members/quick", &[&of_form[..], &answers].concat())
    };
    assert_eq!(answer(" ").status, 400);
    let dispatched = answer("2026,\r\nplease");
    assert_eq!(dispatched.status, 303);
    let id = dispatched.header("location").unwrap().split('/').nth(3).unwrap().to_owned();
    let task = host.client().call("worker/task", json!({"jobId": id})).unwrap();
    assert_eq!(task["description"], "Answer: Tides");
    assert_eq!(
        task["task"],
        "Find the tide tables.\n\n\n# Your earlier report on this task\n\nThere are tables for two ports.\n\n\n\
         # Answers to your questions\n\nQuestion: Which year?\nAnswer: 2026,\nplease\n\nContinue the task with these \
         answers.\n"
    );
    // An answered question does not wait for anybody.
    assert!(!browser.page("/").contains("Which &lt;b&gt;port"));
    assert!(browser.page(&job_page("quick", &id)).contains(&format!("<a href=\"{path}\">an earlier job</a>")));
}

#[test]
fn a_table_of_a_job_is_shown_with_its_columns() {
    let home = Home::new();
    let quick = home.quick("quick");
    let rows: String = (0..1500).map(|n| format!("{n},\"a, \"\"b\"\"<script>\"\n")).collect();
    home.write("members/quick/jobs/made/artifacts/table.csv", format!("n,text\n{rows}"));
    home.job("quick", "made", json!({"status": "completed"}));
    let host = home.serve(&quick, &[]);
    let (browser, path) = (Browser::of(&host), job_page("quick", "made"));
    let page = browser.page(&format!("{path}?file=artifacts/table.csv"));
    assert!(page.contains(r#"<th scope="col">text</th>"#), "{page}");
    assert!(page.contains(r#"<td class="number">7</td><td>a, &quot;b&quot;&lt;script&gt;</td>"#), "{page}");
    assert!(page.contains("the first 999 rows") && !page.contains(">1000<"), "{page}");
    let raw = browser.get(&format!("{path}?raw&file=artifacts/table.csv"));
    assert_eq!(raw.header("content-type"), Some("text/plain; charset=utf-8"));
}

#[test]
fn files_of_a_job_are_shown_but_none_that_could_run() {
    let home = Home::new();
    let quick = home.quick("quick");
    let files: [(&str, &[u8], &str, &str); 5] = [
        ("notes.txt", b"a,b\n1,2\n", "text/plain; charset=utf-8", "inline"),
        ("with a space.png", b"\x89PNG\r\n", "image/png", "inline"),
        ("page.html", b"<script>alert(1)</script>", "application/octet-stream", "attachment"),
        ("drawing.SVG", b"<svg onload='alert(1)'/>", "application/octet-stream", "attachment"),
        ("data.bin", b"\xff\xfe\x00", "application/octet-stream", "attachment"),
    ];
    for (name, bytes, ..) in files {
        home.write(&format!("members/quick/jobs/made/artifacts/{name}"), bytes);
    }
    home.write("members/quick/jobs/made/result.md", "Made.\n");
    home.job("quick", "made", json!({"status": "completed"}));
    let host = home.serve(&quick, &[]);
    let (browser, path) = (Browser::of(&host), job_page("quick", "made"));
    let page = browser.page(&path);
    for (name, bytes, content_type, disposition) in files {
        let link = format!("{path}?file=artifacts/{}", name.replace(' ', "%20"));
        assert!(page.contains(&link), "{link} is not in {page}");
        let answer = browser.get(&link);
        assert_eq!(
            (answer.header("content-type"), answer.header("content-disposition")),
            (Some(content_type), Some(disposition))
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert!(answer.header("content-security-policy").unwrap().ends_with("; sandbox"));
        assert_eq!(answer.bytes(), bytes);
    }
    for path in [format!("{path}?file=artifacts/none"), format!("{path}?file=artifacts/../meta.json")] {
        assert_eq!(browser.get(&path).status, 400, "{path}");
    }
}

#[test]
fn a_sign_in_that_does_not_arrive_ends_its_connection() {
    let mut home = Home::new();
    let file = home.write("guild.toml", "require_token = true\n[limits]\nclient_seconds = 1\n");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home.quick("quick");
    add(&home, &["somebody"]);
    let host = home.serve_roster(&[]);
    let mut stream = TcpStream::connect(("127.0.0.1", host.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = "POST /page/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    write!(stream, "{head}Content-Length: 20\r\n\r\ntoken=").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("did not arrive in time"), "{answer}");
}

#[test]
fn a_member_is_approved_with_its_difference_in_sight_and_the_token_again() {
    let mut home = Home::new();
    let file = home.write("guild.toml", "require_token = true\nrequire_approval = true\n");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home.quick("quick");
    let (approver, viewer) = (add(&home, &["ann", "--role", "approve"]), add(&home, &["bob", "--role", "view"]));
    let host = home.serve_roster(&[]);
    let path = "/page/members/quick";
    let mut browser = Browser::of(&host);
    browser.sign_in(&viewer);
    assert!(!browser.page(path).contains("Approve this state"));
    let mut browser = Browser::of(&host);
    browser.sign_in(&approver);
    let page = browser.page(path);
    assert!(page.contains("<span class=\"added\">+ identity sha256"), "{page}");
    // What a browser sends of the form, besides the token.
    let hidden = |name: &str| {
        let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\""))?;
        rest.split('"').next().map(str::to_owned)
    };
    let (csrf, sha256) = (browser.csrf(path), hidden("approve").unwrap());
    let others = ["manifest", "package", "posture"].map(|name| Some((name, hidden(name)?)));
    let others: Vec<_> = others.into_iter().flatten().collect();
    let approve = |sha256: &str, token: &str| {
        let mut fields = vec![("csrf", &*csrf), ("approve", sha256), ("token", token)];
        fields.extend(others.iter().map(|(name, value)| (*name, value.as_str())));
        let answer = browser.submit(path, &fields);
        (answer.status, answer.text())
    };
    assert_eq!(approve(&sha256, "guild_other").0, 403);
    assert_eq!(approve(&sha256, &viewer).0, 403);
    assert_eq!(approve(&"0".repeat(64), &approver).0, 400);
    assert!(browser.page(path).contains("Approve this state"));
    let (status, answer) = approve(&sha256, &approver);
    assert_eq!(status, 303, "{answer}");
    wait_for("the member to be in service", || {
        browser.page(path).contains("<span class=\"status ready\">").then_some(())
    });
    assert!(!browser.page(path).contains("Approve this state"));
}

#[test]
fn memories_of_a_member_are_read_and_forgotten_on_its_page() {
    let home = Home::new();
    home.quick("quick");
    home.write("members/quick/memory/luna.md", "It lives for a week. <script>");
    home.write("members/quick/memory/atlas.md", "It is larger.");
    let host = home.serve_roster(&[]);
    let (browser, path) = (Browser::of(&host), "/page/members/quick");
    let page = browser.page(path);
    assert!(page.contains("It lives for a week. &lt;script&gt;") && page.contains("It is larger."), "{page}");
    let csrf = browser.csrf(path);
    assert_eq!(browser.submit(path, &[("csrf", &csrf), ("forget", "luna")]).status, 303);
    let page = browser.page(path);
    assert!(!page.contains("for a week") && page.contains("It is larger."), "{page}");
    assert_eq!(browser.submit(path, &[("csrf", &csrf), ("forget", "luna")]).status, 400);
    assert_eq!(browser.submit(path, &[("csrf", "x"), ("forget", "atlas")]).status, 403);
}

#[test]
fn a_member_page_says_what_the_audit_of_the_member_says() {
    let home = Home::new();
    home.researcher("researcher");
    home.edit_manifest("researcher", |manifest| {
        manifest["component"]["tools"] = json!(["Read", "WebFetch"]);
        manifest["component"]["grants"]["web"] = json!({"hosts": ["evil.example"]});
    });
    let host = home.serve_roster(&[]);
    let audited = home.run(&["audit", "researcher", "--members", home.path("members").to_str().unwrap(), "--json"]);
    let audit: Value = serde_json::from_slice(&audited.stdout).unwrap();
    let names: Vec<&str> = audit["facts"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"flow"), "{audit}");
    let ways: usize =
        audit["flows"].as_array().unwrap().iter().map(|flow| flow["from"].as_array().unwrap().len()).sum();
    let page = Browser::of(&host).page("/page/members/researcher?audit");
    assert!(names.iter().all(|name| page.contains(&format!("<td><code>{name}</code>"))), "{page}");
    assert_eq!(page.matches("<path class=\"edge ").count(), ways, "{page}");
    assert!(
        page.contains("<path class=\"edge medium\"") && page.contains("evil.example, once [web] is opened"),
        "{page}"
    );
}

#[test]
fn a_member_page_says_what_the_last_probe_of_the_member_found() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let browser = Browser::of(&host);
    assert!(browser.page("/page/members/quick").contains("These files were not probed."));
    assert!(home.run(&["probe", home.path("members/quick").to_str().unwrap()]).status.success());
    let page = browser.page("/page/members/quick");
    for shown in ["Probed <time", "<td>canaries</td><td>none</td>", "<td>planted files</td><td>none</td>"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    // Other files were not probed.
    home.edit_manifest("quick", |manifest| manifest["version"] = json!("0.2.0"));
    assert!(browser.page("/page/members/quick").contains("These files were not probed."));
}
