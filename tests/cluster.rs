//! Hosts of one cluster, on a real NATS server.

use std::fs;

use guild_fakes::{Gate, Nats, OpenAi, Received, Reply};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{
    host::{Client, Home, Host, wait_for},
    mcp::Endpoint,
    output::stderr,
};

/// Two homes of hosts of one cluster, each with the same members.
fn homes(nats: &Nats) -> [Home; 2] {
    homes_with(nats, "")
}

/// [`homes`], with this before the table of the cluster in guild.toml.
fn homes_with(nats: &Nats, settings: &str) -> [Home; 2] {
    let (servers, monitor) = (nats.urls(), nats.monitors());
    let homes = ["a", "b"].map(|host| {
        let mut home = Home::new();
        let cluster = format!("servers = {servers:?}\nmonitor = {monitor:?}\nkey_file = \"acme.key\"\nhost = {host:?}");
        let file = home.write("guild.toml", format!("{settings}\n[cluster]\nname = \"acme\"\n{cluster}\n"));
        home.write("docs/moths.md", "# Moths\n\nThe luna moth lives for a week.\n");
        home.researcher("researcher");
        home.set("GUILD_CONFIG", file.to_str().unwrap());
        home.endless("endless");
        home.quick("quick");
        home
    });
    let key = homes[0].path("acme.key");
    let servers = nats.urls().join(",");
    let init = ["cluster", "init", "--servers", &servers, "--replicas", "1", "--log-gib", "1", "--blob-gib", "1"];
    let made = homes[0].run(&[&init[..], &["--key", key.to_str().unwrap()]].concat());
    assert!(made.status.success(), "{}", stderr(&made));
    fs::copy(&key, homes[1].path("acme.key")).unwrap();
    homes
}

fn listed(client: &Client, id: &str) -> Option<Value> {
    let jobs = client.call("worker/list", json!({})).unwrap()["jobs"].as_array().unwrap().clone();
    jobs.into_iter().find(|job| job["jobId"] == id)
}

fn until_known(client: &Client, id: &str, status: &str) {
    wait_for("the other host to know the job's status", || {
        client.status(id).ok().filter(|found| found["status"] == status)
    });
}

fn serve(homes: &[Home; 2]) -> [Host; 2] {
    [homes[0].serve_roster(&[]), homes[1].serve_roster(&[])]
}

#[test]
fn each_host_answers_for_the_jobs_of_all() {
    let nats = Nats::start(1);
    let homes = homes(&nats);
    let [a, b] = serve(&homes);
    let mut events = Endpoint::new(&b, "/events?since=kept").send("GET", "");
    let id = a.at("endless").start("goes on");
    until_known(&b.at("endless"), &id, "running");
    wait_for("the hosts to agree", || {
        let [here, there] = [&a, &b].map(|host| host.at("endless").status(&id).unwrap());
        (here == there).then_some(())
    });
    assert!(listed(&b.at("endless"), &id).is_some());
    // Only who answers is another; the error is the same.
    let refused = [&a, &b].map(|host| host.at("endless").delete(&id).unwrap_err().message);
    assert_eq!(refused[0], refused[1]);
    assert_eq!(b.at("endless").cancel(&id).unwrap()["status"], "cancelled");
    assert_eq!(b.at("endless").status(&id).unwrap()["status"], "cancelled");
    until_known(&a.at("endless"), &id, "cancelled");
    assert_eq!(a.at("endless").status(&id).unwrap(), b.at("endless").status(&id).unwrap());
    let done = a.at("quick").start("ends");
    for host in [&a, &b] {
        until_known(&host.at("quick"), &done, "completed");
    }
    assert_eq!(a.at("quick").result(&done).unwrap(), b.at("quick").result(&done).unwrap());
    b.at("quick").delete(&done).unwrap();
    wait_for("the deletion to be known", || a.at("quick").status(&done).is_err().then_some(()));
    // Events of one host are told at the other, in the same order.
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "job-deleted") {
        let event: Value = serde_json::from_str(&events.data().unwrap()).unwrap();
        if event["jobId"].is_string() {
            kinds.push(event["kind"].as_str().unwrap().to_owned());
        }
    }
    let expected = ["job-started", "job-ended", "job-started", "job-ended", "job-deleted"];
    assert_eq!(kinds, expected);
}

#[test]
fn a_host_that_starts_again_knows_all_and_fails_what_its_component_carried_out() {
    let nats = Nats::start(1);
    let homes = homes(&nats);
    let [a, b] = serve(&homes);
    let id = a.at("endless").start("goes on");
    until_known(&b.at("endless"), &id, "running");
    a.kill();
    let a = homes[0].serve_roster(&[]);
    let failed = a.at("endless").ended(&id);
    assert_eq!(failed["status"], "failed");
    assert!(failed["error"].as_str().unwrap().contains("carried it out itself"), "{failed}");
    until_known(&b.at("endless"), &id, "failed");
    assert_eq!(b.at("endless").cancel(&id).unwrap()["status"], "cancelled");
    until_known(&a.at("endless"), &id, "cancelled");
}

#[test]
fn a_host_that_leaves_hands_its_jobs_over_at_once() {
    let nats = Nats::start(1);
    let homes = homes(&nats);
    let [a, b] = serve(&homes);
    let id = a.at("endless").start("goes on");
    until_known(&b.at("endless"), &id, "running");
    a.stop();
    assert_eq!(b.at("endless").ended(&id)["status"], "failed");
}

/// The settings of sessions that ask this provider, and read `docs/`.
fn with_model(url: &str, sessions: u32) -> String {
    format!(
        "agent = \"api\"\n[[roots]]\npath = \"docs\"\n[api]\nprovider = \"openai\"\nbase_url = \"{url}/v1/\"\nmodel = \"fake\"\n\
         unknown_cost_tokens = 100000\nsessions = {sessions}\n"
    )
}

fn submit(text: &str) -> Reply {
    Reply::call("submit_result", json!({"output": text}))
}

#[test]
fn a_session_goes_on_at_another_host_from_its_transcript_and_its_notes_are_everywhere() {
    let nats = Nats::start(1);
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::closed());
    let held = gate.clone();
    let provider = runtime.block_on(OpenAi::start(move |request: &Received| match request.turn() {
        0 if request.body.to_string().contains("Who lives?") => submit("again"),
        0 => Reply::call("store_memory", json!({"key": "luna", "content": "It lives for a week."})),
        // The first host waits for its second answer until it has left.
        1 if request.number == 1 => submit("never").behind(&held),
        1 => submit("by the other host"),
        _ => Reply::text("Done."),
    }));
    let homes = homes_with(&nats, &with_model(&provider.url(), 4));
    let [a, b] = serve(&homes);
    let id = a.at("researcher").start("How long does a luna moth live?");
    runtime.block_on(provider.received(2));
    a.stop();
    gate.open();
    let ended = b.at("researcher").ended(&id);
    assert_eq!(ended["status"], "completed", "{ended}\n{}", b.output());
    assert_eq!(b.at("researcher").result(&id).unwrap()["output"], "by the other host");
    // The call of the turn before was not made again: its note is there once, at each host that starts.
    let a = homes[0].serve_roster(&[]);
    let next = a.at("researcher").start("Who lives?");
    assert_eq!(a.at("researcher").ended(&next)["status"], "completed");
    let asked = runtime.block_on(provider.received(5));
    assert!(asked.last().unwrap().body.to_string().contains("It lives for a week."), "{:?}", asked.last());
    assert_eq!(a.at("researcher").status(&id).unwrap(), b.at("researcher").status(&id).unwrap());
}

#[test]
fn a_job_that_finds_no_place_is_taken_by_a_host_that_has_one() {
    let nats = Nats::start(1);
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::closed());
    let held = gate.clone();
    let provider = runtime.block_on(OpenAi::start(move |request: &Received| match request.turn() {
        0 => submit("done").behind(&held),
        _ => Reply::text("Done."),
    }));
    let homes = homes_with(&nats, &with_model(&provider.url(), 1));
    let [a, b] = serve(&homes);
    let ids = ["one", "two", "three"].map(|task| a.at("researcher").start(task));
    // Each host has one place, so both ask at once, and the third job waits for either.
    runtime.block_on(provider.received(2));
    gate.open();
    for id in &ids {
        for host in [&a, &b] {
            wait_for("each job to be completed at each host", || {
                let status = host.at("researcher").status(id).unwrap();
                assert_ne!(status["status"], "failed", "{status}");
                (status["status"] == "completed").then_some(())
            });
        }
    }
}

#[test]
fn a_dispatch_beyond_the_queue_is_refused_with_the_setting_to_change() {
    let nats = Nats::start(1);
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::closed());
    let held = gate.clone();
    let provider = runtime.block_on(OpenAi::start(move |request: &Received| match request.turn() {
        0 => submit("done").behind(&held),
        _ => Reply::text("Done."),
    }));
    let homes = homes_with(&nats, &with_model(&provider.url(), 1));
    for home in &homes {
        let config = fs::read_to_string(home.path("guild.toml")).unwrap();
        home.write("guild.toml", config + "queued_jobs = 1\n");
    }
    let [a, b] = serve(&homes);
    // Each host has one place, and one job waits.
    let ids = ["one", "two", "three"].map(|task| a.at("researcher").start(task));
    runtime.block_on(provider.received(2));
    let fourth = || a.at("researcher").dispatch(json!({"description": "four", "task": "four"}));
    let refused = wait_for("the third job to wait", || fourth().err());
    assert_eq!(refused.code, -32000, "{}", refused.message);
    assert!(refused.message.contains("no more may by `queued_jobs` in [cluster]"));
    gate.open();
    for id in &ids {
        assert_eq!(b.at("researcher").ended(id)["status"], "completed");
    }
    wait_for("a dispatch to be accepted again", || fourth().ok());
}

#[test]
fn what_is_wrong_with_a_cluster_is_said_at_the_start() {
    let nats = Nats::start(1);
    let homes = homes(&nats);
    let a = homes[0].serve_roster(&[]);
    let refused = |home: &Home| {
        let members = home.path("members");
        let output = home.run(&["serve", "--port", "0", "--members", members.to_str().unwrap()]);
        assert!(!output.status.success());
        stderr(&output)
    };
    // Another process with the same name and directory.
    assert!(refused(&homes[0]).contains("another process is the host \"a\""));
    let config = homes[1].path("guild.toml");
    let right = fs::read_to_string(&config).unwrap();
    for (from, to, why) in [
        (nats.monitors()[0].as_str(), "http://127.0.0.1:9", "correct `monitor`"),
        (nats.urls()[0].as_str(), "nats://127.0.0.1:9", "check `servers`"),
        ("acme.key", "none.key", "none.key"),
    ] {
        homes[1].write("guild.toml", right.replace(from, to));
        let said = refused(&homes[1]);
        assert!(said.contains(why), "{to}: {said}");
    }
    drop(a);
}

#[test]
fn a_dispatch_while_nats_is_away_is_refused_and_the_host_works_again_after() {
    let mut nats = Nats::start(1);
    let homes = homes(&nats);
    let [a, _] = serve(&homes);
    nats.kill(0);
    let client = a.at("endless");
    let refused = client.dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert_eq!(refused.code, -32000, "{}", refused.message);
    assert!(refused.message.contains("the cluster's store cannot be reached"), "{}", refused.message);
    nats.restart(0);
    nats.wait_until_ready(0);
    let id =
        wait_for("a dispatch to be accepted again", || client.dispatch(json!({"description": "d", "task": "t"})).ok());
    assert_eq!(client.cancel(&id).unwrap()["status"], "cancelled");
    // The first dispatch may have been stored all the same. Then the job is carried out, or fails; nobody forgets it.
    wait_for("no job to be left running", || {
        let jobs = client.call("worker/list", json!({})).unwrap()["jobs"].as_array().unwrap().clone();
        jobs.iter().all(|job| job["status"] != "running").then_some(())
    });
}
