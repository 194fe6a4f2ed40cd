//! The pages of a hall, as a browser requests them.

use guild_fakes::{Gate, OpenAi, Received, Reply};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    auth::add,
    commissions::Hall,
    page::Browser,
    support::{
        host::{Home, wait_for},
        mcp::Answer,
    },
};

const PROJECT: &str = "/page/hall/projects/demo";
const HOSTILE: &str = "<script>alert(1)</script> \"><img src=x onerror=alert(1)> \u{202e}\u{1b}[2J";

fn commission_page(id: &str) -> String {
    format!("{PROJECT}/commissions/{id}")
}

/// Submits a form that has to succeed, and returns the page that it leads to.
fn submitted(browser: &Browser, path: &str, csrf: &str, fields: &[(&str, &str)]) -> String {
    let answer = browser.submit(path, &[&[("csrf", csrf)], fields].concat());
    let (status, location) = (answer.status, answer.header("location").map(str::to_owned));
    assert_eq!(status, 303, "{fields:?}: {}", answer.text());
    location.unwrap()
}

/// Creates a commission by the form of the project's page, and returns its id.
fn created(browser: &Browser, csrf: &str, title: &str, prompt: &str, dependencies: &str) -> String {
    let fields = [("title", title), ("worker", "researcher"), ("prompt", prompt), ("dependencies", dependencies)];
    let page = submitted(browser, PROJECT, csrf, &[&fields[..], &[("do", "commission")]].concat());
    page.strip_prefix(&commission_page("")).unwrap().to_owned()
}

fn assert_harmless(page: &str) {
    for never in ["<script>", "<img", "\u{202e}", "\u{1b}"] {
        assert!(!page.contains(never), "{never:?} in {page}");
    }
}

/// Reads a stream until a text has come, and returns all lines up to there.
fn until(live: &mut Answer, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        let line = live.data().unwrap_or_else(|| panic!("{text} is not in {all}"));
        all.push_str(&line);
        all.push('\n');
    }
    all
}

#[test]
fn a_host_without_a_hall_says_how_one_is_started() {
    let home = Home::new();
    home.quick("quick");
    let host = home.serve_roster(&[]);
    let browser = Browser::of(&host);
    let page = browser.page("/page/hall");
    assert!(page.contains("This host has no hall.") && page.contains("guild serve --hall HOME"), "{page}");
    assert_eq!(browser.get(PROJECT).status, 404);
}

#[test]
fn a_board_has_commissions_by_state_and_their_dependencies_and_hostile_texts_do_nothing() {
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    let host = hall.serve();
    let browser = Browser::of(&host);
    let page = browser.page("/page/hall");
    assert!(page.contains(&format!("href=\"{PROJECT}\"")) && page.contains(r#"aria-current="page">Hall"#), "{page}");
    assert_eq!(browser.get("/page/hall/projects/nothing").status, 404);

    let fields = [("title", "T"), ("worker", "researcher"), ("prompt", "P"), ("do", "commission"), ("csrf", "guessed")];
    for fields in [&fields[..4], &fields] {
        assert_eq!(browser.submit(PROJECT, fields).status, 403);
    }
    let csrf = browser.csrf(PROJECT);
    // A title has no control characters.
    let title = HOSTILE.split(" \u{202e}").next().unwrap();
    assert_eq!(browser.submit(PROJECT, &[&fields[1..4], &[("title", HOSTILE), ("csrf", &csrf)]].concat()).status, 400);
    let first = created(&browser, &csrf, title, HOSTILE, "");
    let second = created(&browser, &csrf, "The second", "After the first", &format!("{first}\r\n\r\n"));
    let board = browser.page(PROJECT);
    assert_harmless(&board);
    let column = |state: &str| {
        let (_, rest) = board.split_once(&format!("aria-labelledby=\"column-{state}\"")).unwrap();
        rest.split("</section>").next().unwrap().to_owned()
    };
    assert!(column("pending").contains(&commission_page(&first)) && column("pending").contains("&lt;script&gt;"));
    assert!(column("blocked").contains("The second") && column("blocked").contains(&format!("waits for {first}")));
    assert!(!column("completed").contains("<li"), "{board}");
    // The picture has both commissions with a line between them, and the list says the same.
    let (_, picture) = board.split_once("<svg class=\"graph\"").unwrap();
    assert_eq!(picture.matches("<path class=\"edge\"").count(), 1, "{picture}");
    assert_eq!(picture.matches("<rect class=\"node").count(), 2, "{picture}");
    assert!(picture.contains("waits for"), "{picture}");
    let pending = browser.page(&format!("{PROJECT}?state=pending"));
    assert!(pending.contains(&commission_page(&first)) && !pending.contains(&second), "{pending}");
    assert_eq!(browser.get(&format!("{PROJECT}?state=lost")).status, 400);

    let path = commission_page(&first);
    assert_eq!(browser.submit(&path, &[("do", "note"), ("text", "n")]).status, 403);
    submitted(&browser, &path, &csrf, &[("do", "note"), ("text", HOSTILE)]);
    submitted(&browser, &path, &csrf, &[("do", "update"), ("prompt", "Another task"), ("dependencies", "")]);
    let page = browser.page(&path);
    assert_harmless(&page);
    for shown in ["user_note", "Another task", "No attempt has begun.", r#"value="dispatch""#, r#"value="abandon""#] {
        assert!(page.contains(shown), "{shown} is not in {page}");
    }
    let unknown = browser.submit(&path, &[("csrf", &*csrf), ("do", "merge")]);
    assert_eq!(unknown.status, 400);
    submitted(&browser, &path, &csrf, &[("do", "abandon"), ("text", "No need")]);
    let page = browser.page(&path);
    assert!(page.contains("No need") && !page.contains(r#"value="dispatch""#), "{page}");
    // What waited for it can be dispatched.
    assert!(browser.page(&commission_page(&second)).contains("status pending"));
    let refused = browser.submit(&path, &[("csrf", &*csrf), ("do", "dispatch")]);
    assert_eq!(refused.status, 400);
    assert_eq!(browser.get(&commission_page("nothing")).status, 400);
}

#[test]
fn a_commission_is_live_while_it_runs_and_then_shows_result_documents_and_changes() {
    let runtime = Runtime::new().unwrap();
    let gate = Gate::closed();
    let answer = {
        let gate = gate.clone();
        move |request: &Received| match request.turn() {
            0 => Reply::call("write_artifact", json!({"relativePath": "reports/moths.md", "content": HOSTILE}))
                .and_call("report_progress", json!({"summary": "Half of it is done."})),
            1 => Reply::call("submit_result", json!({"summary": HOSTILE, "artifacts": ["reports/moths.md"]}))
                .behind(&gate),
            _ => Reply::text("Done."),
        }
    };
    let provider = runtime.block_on(OpenAi::start(answer));
    let hall = Hall::with_researcher(&provider);
    let host = hall.serve();
    let browser = Browser::of(&host);
    let csrf = browser.csrf(PROJECT);
    let id = created(&browser, &csrf, "Moths", "How long do moths live?", "");
    let path = commission_page(&id);
    let diff = format!("/hall/commission/request/commission/diff?projectName=demo&commissionId={id}");
    let refused = browser.get(&diff);
    let (status, why) = (refused.status, refused.text());
    assert!(status == 409 && why.contains("no attempt has begun"), "{status}: {why}");
    submitted(&browser, &path, &csrf, &[("do", "dispatch")]);
    let page = browser.page(&path);
    assert!(page.contains(&format!("hx-sse:connect=\"{path}?live\" hx-sse:close=\"done\"")), "{page}");
    let mut live = browser.get(&format!("{path}?live"));
    let shown = until(&mut live, "Half of it is done.");
    assert!(shown.contains("in progress"), "{shown}");
    // Changes are shown before the attempt commits them.
    let so_far: Value = serde_json::from_str(&browser.get(&diff).text()).unwrap();
    assert!(so_far["underWay"] == true && so_far["patch"].as_str().unwrap().contains("+<script>"), "{so_far}");
    assert!(browser.page(&path).contains("<code>.lore/reports/moths.md</code> <span class=\"added\">+1</span>"));
    assert!(until(&mut browser.get(&format!("{PROJECT}?live")), "Half of it is done.").contains("in progress"));
    gate.open();
    until(&mut live, "status completed");
    // The stream ends with the commission.
    while live.data().is_some() {}
    let page = browser.page(&path);
    assert_harmless(&page);
    for shown in [
        "status completed",
        "result_submitted",
        &format!("{PROJECT}?document=reports/moths.md"),
        &format!("claude/commission/{id}"),
        "<code>.lore/reports/moths.md</code> <span class=\"added\">+1</span>",
        "<span class=\"added\">+&lt;script&gt;alert(1)&lt;/script&gt;",
        "/page/jobs/",
    ] {
        assert!(page.contains(shown), "{shown} is not in {page}");
    }
    assert!(!page.contains("hx-sse:connect"), "{page}");
    let document = browser.page(&format!("{PROJECT}?document=reports/moths.md"));
    assert_harmless(&document);
    assert!(document.contains("&lt;script&gt;"), "{document}");
    let patch: Value =
        serde_json::from_str(&browser.get(&format!("{diff}&file=.lore/reports/moths.md")).text()).unwrap();
    assert_eq!(patch["branch"], format!("claude/commission/{id}"));
    assert!(patch["patch"].as_str().unwrap().starts_with("diff --git a/.lore/reports/moths.md"), "{patch}");
}

#[test]
fn a_user_talks_in_a_meeting_whose_answers_come_as_they_are_written() {
    let runtime = Runtime::new().unwrap();
    let gate = Gate::closed();
    let answer = {
        let gate = gate.clone();
        move |request: &Received| {
            let messages = request.body["messages"].as_array().unwrap();
            let said = messages.iter().rev().find(|message| message["role"] == "user").unwrap();
            match said.to_string() {
                said if said.contains("# Transcript") => Reply::text("Moths were discussed."),
                said if said.contains("Link it") && request.turn() < 2 => {
                    Reply::call("link_artifact", json!({"artifactPath": "specs/moths.md"}))
                }
                said if said.contains("Link it") => Reply::text(format!("**Linked.** {HOSTILE}")).slowly(&gate),
                _ => Reply::text("I am the researcher."),
            }
        }
    };
    let provider = runtime.block_on(OpenAi::start(answer));
    let hall = Hall::with_researcher(&provider);
    let host = hall.serve();
    let browser = Browser::of(&host);
    let csrf = browser.csrf(PROJECT);
    let agenda = format!("Moths {HOSTILE}");
    let opened =
        submitted(&browser, PROJECT, &csrf, &[("worker", "researcher"), ("agenda", &agenda), ("do", "meeting")]);
    let path = opened.strip_suffix("#answer").unwrap();
    let first = wait_for("the first answer", || {
        let page = browser.page(path);
        page.contains("I am the researcher.").then_some(page)
    });
    assert_harmless(&first);
    for shown in [r#"<label for="message">"#, r#"aria-live="polite""#, "Taking part: you, and", r#"value="close""#] {
        assert!(first.contains(shown), "{shown} is not in {first}");
    }
    assert!(browser.page(PROJECT).contains(path));
    assert_eq!(browser.submit(path, &[("do", "send"), ("message", "m")]).status, 403);

    let message = format!("Link it {HOSTILE}");
    submitted(&browser, path, &csrf, &[("do", "send"), ("message", &message)]);
    gate.pass(2);
    let page = browser.page(path);
    let (_, rest) = page.split_once("hx-sse:connect=\"").unwrap();
    let mut live = browser.get(&rest.split('"').next().unwrap().replace("&amp;", "&"));
    let shown = until(&mut live, "Linked.") + &until(&mut live, "called <code>link_artifact</code>");
    assert!(shown.contains(r#"aria-busy="true""#) && shown.contains("is answering"), "{shown}");
    // One turn at a time.
    let refused = browser.submit(path, &[("csrf", &*csrf), ("do", "send"), ("message", "m")]);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("a turn is running"));
    gate.open();
    let last = until(&mut live, r#"aria-busy="false""#);
    assert_harmless(&last);
    while live.data().is_some() {}
    let page = browser.page(path);
    assert_harmless(&page);
    assert!(page.contains("<strong>Linked.</strong>") && page.contains("Link it &lt;script&gt;"), "{page}");
    assert!(page.contains(&format!("{PROJECT}?document=specs/moths.md")), "{page}");
    // A page that was loaded before the message has it from the stream.
    let mut live = browser.get(&format!("{path}?live&after=1"));
    let replayed = until(&mut live, r#"aria-busy="false""#);
    assert!(replayed.contains("Link it &lt;script&gt;") && replayed.contains("<strong>Linked.</strong>"), "{replayed}");

    submitted(&browser, path, &csrf, &[("do", "close")]);
    let closed = browser.page(path);
    assert!(closed.contains("Moths were discussed.") && closed.contains("status closed"), "{closed}");
    assert!(!closed.contains(r#"id="message""#) && !closed.contains("hx-sse:connect"), "{closed}");
}

#[test]
fn a_token_for_some_members_does_not_see_the_hall_and_one_that_reads_changes_nothing() {
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    let id = {
        let _host = hall.serve();
        hall.create("demo", "researcher", json!({}))
    };
    let config = hall.home.path("config/guild/guild.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("require_token = true\n{before}")).unwrap();
    let some = add(&hall.home, &["some", "--members", "researcher"]);
    let reader = add(&hall.home, &["reader", "--role", "view"]);
    let host = hall.serve();
    let mut browser = Browser::of(&host);
    browser.sign_in(&some);
    let path = commission_page(&id);
    for path in ["/page/hall", PROJECT, &path, &format!("{path}?live")] {
        let refused = browser.get(path);
        // A stream that may not begin is empty.
        if path.ends_with("?live") {
            assert_eq!(refused.text(), "");
        } else {
            assert_eq!(refused.status, 403, "{path}");
        }
    }
    let mut browser = Browser::of(&host);
    browser.sign_in(&reader);
    let csrf = browser.csrf(PROJECT);
    let refused = browser.submit(&path, &[("csrf", &*csrf), ("do", "dispatch")]);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("commission/dispatch"));
}
