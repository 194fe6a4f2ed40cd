//! What members used over time, and the host itself: as operations, and as pages.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    auth::add,
    page::Browser,
    support::{
        host::{Home, Host},
        mcp::Endpoint,
    },
};

const HOSTILE: &str = "\"><img src=x onerror=alert(1)><script>alert(1)</script>";

fn hours_ago(hours: i64) -> String {
    (Timestamp::now() - SignedDuration::from_hours(hours)).to_string()
}

/// An ended job, as a host leaves it.
fn ended(home: &Home, member: &str, id: &str, status: &str, hours: i64, model: &str, usd: Option<f64>) {
    let at = hours_ago(hours);
    let usage = json!({"agent": "api", "models": [model], "turns": 2, "inputTokens": 1000, "cachedTokens": 100,
        "outputTokens": 50, "costUsd": usd, "wallSeconds": 7.0});
    home.job(member, id, json!({"status": status, "startedAt": at, "completedAt": at, "usage": usage}));
}

/// All numbers of a usage, over all its periods.
fn total(view: &Value, field: &str) -> f64 {
    view["used"].as_array().unwrap().iter().map(|used| used[field].as_f64().unwrap()).sum()
}

#[test]
fn usage_over_time_keeps_deleted_jobs_with_their_cost_and_end() {
    let home = Home::new();
    let quick = home.quick("quick");
    ended(&home, "quick", "a", "completed", 1, "m", Some(0.5));
    ended(&home, "quick", "b", "failed", 1, "m", Some(0.25));
    ended(&home, "quick", "c", "completed", 30, "n", None);
    ended(&home, "quick", "d", "cancelled", 24 * 20, "n", Some(1.0));
    let earlier = "{\"at\":\"2026-01\",\"agent\":\"api\",\"models\":[\"old\"],\"count\":3,\"costUsd\":2.0}\n";
    home.write("members/quick/.usage.jsonl", earlier);
    let mut compaction = json!({"agent": "api", "models": ["m"], "turns": 1, "inputTokens": 10, "cachedTokens": 0,
        "outputTokens": 1, "costUsd": 0.01, "wallSeconds": 1.0});
    compaction["at"] = json!(hours_ago(1));
    home.write("members/quick/memory/.compactions.jsonl", format!("{compaction}\n"));
    let host = home.serve(&quick, &[]);
    let worker = host.client();
    let usage = |params: Value| worker.call("worker/usage", params).unwrap();
    let month = usage(json!({}));
    assert_eq!(month["period"], "day");
    let ends = |view: &Value| ["completed", "failed", "cancelled", "unknown"].map(|field| total(view, field));
    assert_eq!(ends(&month), [2.0, 1.0, 1.0, 0.0]);
    assert_eq!((total(&month, "costUsd"), total(&month, "unknownCosts")), (1.76, 1.0));
    assert_eq!((total(&month, "compactions"), total(&month, "inputTokens")), (1.0, 4010.0));
    let day = usage(json!({"since": hours_ago(23)}));
    assert_eq!((day["period"].as_str(), ends(&day)), (Some("hour"), [1.0, 1.0, 0.0, 0.0]));
    let first = &day["used"][0];
    // Both lasted seven seconds, so at most ten.
    assert_eq!(
        (&first["models"], &first["durations"][3], &first["wallSeconds"]),
        (&json!(["m"]), &json!(2), &json!(14.0))
    );
    for job in ["a", "c", "d"] {
        assert_eq!(worker.call("worker/delete", json!({"jobId": job})).unwrap()["deleted"], true);
    }
    assert_eq!(usage(json!({})), month);
    assert_eq!(usage(json!({"since": hours_ago(23)})), day);
    // Of jobs that were deleted long ago only the month is known.
    let old = usage(json!({"since": "2026-01-10T00:00:00Z", "until": "2026-03-01T00:00:00Z"}));
    assert_eq!(
        (&old["used"][0]["at"], ends(&old), total(&old, "costUsd")),
        (&json!("2026-01"), [0.0, 0.0, 0.0, 3.0], 2.0)
    );
    for (params, why) in [
        (json!({"since": "yesterday"}), "since is not a time"),
        (json!({"since": "2020-01-01T00:00:00Z"}), "100 can be asked for"),
        (json!({"period": "year"}), "year"),
    ] {
        let error = worker.call("worker/usage", params).unwrap_err();
        assert!(error.code == -32602 && error.message.contains(why), "{error:?}");
    }
}

#[test]
fn the_page_of_usage_has_plots_with_the_same_numbers_as_tables() {
    let home = Home::new();
    home.quick("first");
    home.quick("second");
    ended(&home, "first", "a", "completed", 2, HOSTILE, Some(0.5));
    ended(&home, "second", "b", "failed", 24 * 3, "plain", Some(0.25));
    let host = home.serve_roster(&[]);
    let browser = Browser::of(&host);
    let page = browser.page("/page/usage");
    for shown in [
        r#"<a href="/page/usage" aria-current="page">Usage</a>"#,
        r#"<a href="/page/usage?range=7d&amp;by=model&amp;member=first">first</a>"#,
        "$0.7500",
        r#"<rect class="c0""#,
        "second $0.2500</title>",
        "&lt;script&gt;",
    ] {
        assert!(page.contains(shown), "{shown} is not in {page}");
    }
    for path in ["/page/usage", "/page/usage?by=model&range=30d", "/page/usage?range=24h&member=first"] {
        let page = browser.page(path);
        assert!(!page.contains("<script>") && !page.contains("<img") && !page.contains("style="), "{page}");
    }
    let day = browser.page("/page/usage?range=24h");
    assert!(day.contains("$0.5000") && !day.contains("$0.2500"), "{day}");
    let only = browser.page("/page/usage?range=30d&member=second");
    assert!(only.contains("$0.2500") && !only.contains("$0.5000") && only.contains("All members"), "{only}");
    assert_eq!(browser.get(&format!("/page/usage?member={}", HOSTILE.replace(['"', '>', '<', ' '], "+"))).status, 404);
}

/// A home whose host needs tokens: one for all, and one for a member.
fn guarded() -> (Home, [String; 3]) {
    let mut home = Home::new();
    let file =
        home.write("guild.toml", "require_token = true\naudit_log = \"audit.jsonl\"\n[limits]\ntask_bytes = 2000\n");
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home.quick("first");
    home.quick("second");
    let operator = add(&home, &["operator", "--role", "all"]);
    let of_first = add(&home, &["of-first", "--members", "first", "--role", "all"]);
    let reader = add(&home, &["reader", "--role", "view"]);
    (home, [operator, of_first, reader])
}

fn signed_in(host: &Host, token: &str) -> Browser {
    let mut browser = Browser::of(host);
    assert_eq!(browser.sign_in(token).status, 303);
    browser
}

#[test]
fn a_token_of_one_member_sees_its_usage_only_and_not_the_host() {
    let (home, [operator, of_first, reader]) = guarded();
    ended(&home, "first", "a", "completed", 2, "m", Some(0.5));
    ended(&home, "second", "b", "completed", 2, "secret-model", Some(0.25));
    let host = home.serve_roster(&[]);
    let own = signed_in(&host, &of_first);
    let page = own.page("/page/usage");
    assert!(page.contains("$0.5000") && !page.contains("second") && !page.contains("secret-model"), "{page}");
    assert_eq!(own.get("/page/usage?member=second").status, 404);
    for (token, why) in [(&of_first, "for some members"), (&reader, "host/limits")] {
        let refused = signed_in(&host, token).get("/page/host?check=now");
        assert_eq!(refused.status, 403);
        let text = refused.text();
        assert!(text.contains(why) && !text.contains("task_bytes") && !text.contains("second"), "{text}");
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "host/audit", "params": {}}).to_string();
        let endpoint = Endpoint::new(&host, "/host/mcp").with("Authorization", &format!("Bearer {token}"));
        assert_eq!(endpoint.send("POST", &body).status, 403);
    }
    assert!(signed_in(&host, &operator).page("/page/host").contains("task_bytes"));
}

#[test]
fn the_page_of_the_host_shows_checks_limits_and_a_filtered_audit_log() {
    let (home, [operator, ..]) = guarded();
    // Lines of another writer, and of a file that was rotated.
    let line = |event: &str, who: &str| {
        json!({"time": "2026-01-01T00:00:00Z", "event": event, "who": who, "outcome": "ok", "member": HOSTILE, "detail": HOSTILE})
            .to_string()
            + "\n"
    };
    let log = home.path("audit.jsonl");
    let written = fs::read_to_string(&log).unwrap_or_default();
    home.write("audit.jsonl.1", (0..70).map(|nth| line(&format!("rotated-{nth}"), "token:old")).collect::<String>());
    home.write("audit.jsonl", written + &line("made-up", "user:7"));
    let host = home.serve_roster(&[]);
    let browser = signed_in(&host, &operator);
    let page = browser.page("/page/host");
    for shown in [
        "<code>running_jobs</code>",
        "Set in guild.toml",
        "2\u{202f}000",
        "signed-in",
        "This host runs alone.",
        "Check this host now",
    ] {
        assert!(page.contains(shown), "{shown} is not in {page}");
    }
    assert!(page.contains("made-up") && !page.contains("<img") && !page.contains("<script>"), "{page}");
    let checked = browser.page("/page/host?check=now");
    assert!(checked.matches("its component loads").count() == 2 && checked.contains("read roots"), "{checked}");
    let filtered = browser.page("/page/host?who=operator&event=signed-in&outcome=ok&member=");
    assert!(filtered.contains("token:operator") && !filtered.contains("made-up"), "{filtered}");
    let none = browser.page(&format!("/page/host?event={}", "%3Cscript%3E%22"));
    assert!(none.contains("No line matches.") && none.contains("value=\"&lt;script&gt;&quot;\""), "{none}");
    // The older lines follow page by page.
    let (mut path, mut seen) = ("/page/host?who=old".to_owned(), 0);
    loop {
        let page = browser.page(&path);
        let rows = page.matches("rotated-").count();
        assert!(rows <= 50, "{rows} rows");
        seen += rows;
        let Some((before, _)) = page.split_once("\">Older</a>") else { break };
        path = before.rsplit_once('"').unwrap().1.replace("&amp;", "&").replace("#audit", "");
    }
    assert_eq!(seen, 70);
    assert!(browser.page("/page/host?before=1-1").contains("before is no position in this log"));
    // The same by the operations, which say how they are called.
    let endpoint = Endpoint::new(&host, "/host/mcp").with("Authorization", &format!("Bearer {operator}"));
    let call = |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        endpoint.send("POST", &body).message()["result"].clone()
    };
    let audit = call("host/audit", json!({"event": "rotated-3", "limit": 1}));
    assert_eq!((audit["lines"][0]["who"].as_str(), audit["lines"].as_array().unwrap().len()), (Some("token:old"), 1));
    let limits = call("host/limits", json!({}));
    let limit = |name: &str| limits["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == name).unwrap();
    assert_eq!((&limit("task_bytes")["value"], &limit("running_jobs")["inUse"]), (&json!(2000), &json!(0)));
    assert_eq!(
        call("host/doctor", json!({}))["checks"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|check| check["kind"] == "member")
            .count(),
        2
    );
    let methods = call("rpc.discover", json!({}))["methods"].clone();
    let names: Vec<&str> = methods.as_array().unwrap().iter().filter_map(|method| method["name"].as_str()).collect();
    assert!(names.contains(&"host/audit") && !names.contains(&"worker/list"), "{names:?}");
    let elsewhere = Endpoint { path: "/members/first/mcp".to_owned(), ..endpoint };
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "host/audit", "params": {}}).to_string();
    let refused = elsewhere.send("POST", &body).message();
    assert!(refused["error"]["message"].as_str().unwrap().contains("/host/mcp"), "{refused}");
}
