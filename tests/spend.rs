//! What may be spent in a day, of the host and of a token: each turn of a model here costs ten cents.

use guild_fakes::{OpenAi, Received, Reply, Tokens};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    auth,
    commissions::Hall,
    meetings::Events,
    sessions::Fixture,
    support::host::{Client, Host},
};

/// Tokens for ten cents.
const DIME: Tokens = Tokens { input: 100_000, cached: 0, cache_write: 0, output: 0 };

/// Decides for ever.
fn decides(request: &Received) -> Reply {
    let n = request.turn();
    Reply::call("record_decision", json!({"question": format!("q{n}"), "decision": "d", "reasoning": "r"})).tokens(DIME)
}

/// Submits in its first turn, and ends in its second.
fn submits(field: &'static str) -> impl Fn(&Received) -> Reply + Send + Sync + 'static {
    move |request| match request.turn() {
        0 => Reply::call("submit_result", json!({field: "done"})).tokens(DIME),
        _ => Reply::text("Done.").tokens(Tokens { input: 0, ..DIME }),
    }
}

fn refused(client: &Client) -> String {
    let refused = client.dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert_eq!(refused.code, -32000, "{}", refused.message);
    assert!(refused.message.contains("T00:00:00Z"), "{}", refused.message);
    refused.message
}

/// The turns of a job, which failed since no more could be spent.
fn stopped(client: &Client, id: &str, key: &str) -> u64 {
    let status = client.ended(id);
    let error = status["error"].as_str().unwrap_or_default();
    assert!(error.contains(key) && error.contains("try again after"), "{status}");
    status["usage"]["turns"].as_u64().unwrap()
}

#[test]
fn a_host_spends_no_more_in_a_day_than_its_cap_also_after_a_restart() {
    let fixture = Fixture::with("sessions = 8\n", "[spend]\nhost_usd_per_day = 0.25\n", decides);
    let host = fixture.serve();
    let id = host.client().start("job");
    // The turn that passes the cap is the last.
    assert_eq!(stopped(&host.client(), &id, "spend.host_usd_per_day = 0.25"), 3);
    assert!(refused(&host.client()).contains("the host has spent 0.30 US dollars today"));
    host.kill();
    let host = fixture.serve();
    assert!(refused(&host.client()).contains("spend.host_usd_per_day = 0.25"));
    // A deleted job has spent what it has.
    host.client().cancel(&id).unwrap();
    host.client().delete(&id).unwrap();
    refused(&host.client());
    let config = fixture.home.path("guild.toml");
    let doctor = fixture.home.run(&["doctor", "--config", config.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("0.30 USD today (UTC), of 0.25 USD"), "{doctor:?}");
}

#[test]
fn without_a_cap_nothing_is_refused_and_one_that_comes_later_counts_what_was_spent() {
    let fixture = Fixture::new(submits("output"));
    let host = fixture.serve();
    let id = host.client().start("job");
    assert_eq!(host.client().ended(&id)["status"], "completed");
    let config = fixture.home.path("guild.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{before}[spend]\nhost_usd_per_day = 0.1\n")).unwrap();
    host.signal("-HUP");
    host.prints("guild.toml was read again: 1 change");
    assert!(refused(&host.client()).contains("the host has spent 0.10 US dollars today"));
}

#[test]
fn jobs_that_run_side_by_side_stop_at_the_cap_together() {
    let fixture = Fixture::with("sessions = 8\n", "[spend]\nhost_usd_per_day = 0.35\n", decides);
    let host = fixture.serve();
    // The cap may be reached before the last is dispatched.
    let job = json!({"description": "job", "task": "job"});
    let begun = (0..4).filter_map(|_| host.client().dispatch(job.clone()).ok());
    let ids: Vec<String> = begun.collect();
    let turns: u64 = ids.iter().map(|id| stopped(&host.client(), id, "spend.host_usd_per_day")).sum();
    // Each may have had a request under way.
    assert!((4..=7).contains(&turns), "{turns}");
}

#[test]
fn each_token_has_a_cap_of_its_own() {
    let fixture = Fixture::with("sessions = 8\n", "[spend]\ntoken_usd_per_day = 0.05\n", decides);
    let config = fixture.home.path("guild.toml");
    let token = |arguments: &[&str]| {
        let command = [&["token", "add"], arguments, &["--config", config.to_str().unwrap()]].concat();
        String::from_utf8(fixture.home.run(&command).stdout).unwrap().trim().to_owned()
    };
    let (ann, bob) = (token(&["ann"]), token(&["bob", "--usd-per-day", "0.15"]));
    let host = fixture.serve();
    let at = |host: &Host, token: &str| {
        let mut client = host.client();
        client.token = Some(token.to_owned());
        client
    };
    let id = at(&host, &ann).start("job");
    assert_eq!(stopped(&at(&host, &ann), &id, "the token ann has spent 0.10"), 1);
    assert!(refused(&at(&host, &ann)).contains("spend.token_usd_per_day = 0.05"));
    // A job that is resumed counts for its token, too.
    let id = at(&host, &bob).start("job");
    assert_eq!(stopped(&at(&host, &bob), &id, "its --usd-per-day = 0.15"), 2);
    host.kill();
    let host = fixture.serve();
    for token in [&ann, &bob] {
        refused(&at(&host, token));
    }
    // Without a token there is no such cap.
    let id = host.client().start("job");
    assert!(host.client().ended(&id)["error"].as_str().unwrap().contains("budget of 4 USD"));
    let listed = fixture.home.run(&["token", "list", "--json", "--config", config.to_str().unwrap()]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!((&listed[0]["usdPerDay"], &listed[1]["usdPerDay"]), (&Value::Null, &json!(0.15)));
}

#[test]
fn a_commission_counts_for_the_token_that_dispatched_it() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(submits("summary")));
    let hall = Hall::with_researcher(&provider);
    let token = auth::add(&hall.home, &["ann", "--usd-per-day", "0.1"]);
    let host = hall.serve();
    let url = format!("http://127.0.0.1:{}/mcp", host.port);
    let dispatch = |id: &str| {
        let command = ["commission", "dispatch", id, "--url", &url];
        hall.home.guild().env("GUILD_TOKEN", &token).args(command).output().unwrap()
    };
    let (first, second) = (hall.create("demo", "researcher", json!({})), hall.create("demo", "researcher", json!({})));
    let output = dispatch(&first);
    assert!(output.status.success(), "{output:?}");
    hall.until("demo", &first, "completed");
    let output = dispatch(&second);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("the token ann has spent 0.10 US dollars today"), "{error}");
    // The user at the socket has no such cap.
    hall.dispatch(&second);
    hall.until("demo", &second, "completed");
}

#[test]
fn no_commission_and_no_turn_of_a_meeting_begins_at_the_cap() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|_: &Received| Reply::text("I hear you.").tokens(DIME)));
    let hall = Hall::with_researcher(&provider);
    hall.configure("[spend]\nhost_usd_per_day = 0.1");
    let _host = hall.serve();
    let waiting = hall.create("demo", "researcher", json!({}));
    let events = Events::open_with(&hall, "researcher", "Moths").rest();
    assert_eq!(events.last().unwrap()["type"], "turn_end", "{events:?}");
    let meeting = events.iter().find(|event| event["type"] == "session").unwrap()["meetingId"].clone();
    let key = "spend.host_usd_per_day = 0.1";
    let (status, answer) = hall.post("/commission/run/dispatch", json!({"commissionId": waiting}));
    assert_eq!(status, 429, "{answer}");
    assert!(answer["error"].as_str().unwrap().contains(key), "{answer}");
    let message = json!({"meetingId": meeting, "message": "More"});
    let said = Events::post(&hall, "/meeting/session/message/send", &message).rest();
    let opened = Events::open_with(&hall, "researcher", "Moons").rest();
    for events in [said, opened] {
        assert_eq!((events.len(), &events[0]["type"]), (1, &json!("error")), "{events:?}");
        assert!(events[0]["reason"].as_str().unwrap().contains(key), "{events:?}");
    }
    assert_eq!(hall.read("demo", &waiting)["commission"]["status"], "pending");
    // What costs nothing goes on.
    let (status, answer) =
        hall.post("/commission/request/commission/note", json!({"commissionId": waiting, "content": "n"}));
    assert_eq!(status, 200, "{answer}");
}
