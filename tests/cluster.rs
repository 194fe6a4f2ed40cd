//! Hosts of one cluster, on a real NATS server.

mod operating;

use std::{fs, process::Stdio, time::Duration};

use async_nats::jetstream;
use guild_cluster::{
    link::{Link, Options},
    log::{Append, JobName, Logs},
    record::{Content, Needs, Owner},
};
use guild_fakes::{Gate, Nats, OpenAi, Received, Reply};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::commissions::Hall;
use crate::support::{
    host::{Client, Home, Host, free_port, wait_for},
    mcp::Endpoint,
    output::stderr,
};

/// Two homes of hosts of one cluster, each with the same members.
fn homes(nats: &Nats) -> [Home; 2] {
    homes_with(nats, "")
}

/// [`homes`], with this before the table of the cluster in guild.toml.
fn homes_with(nats: &Nats, settings: &str) -> [Home; 2] {
    let homes = ["a", "b"].map(|host| {
        let home = home(nats, settings, host);
        home.write("docs/moths.md", "# Moths\n\nThe luna moth lives for a week.\n");
        home.researcher("researcher");
        home.endless("endless");
        home.quick("quick");
        home
    });
    init(nats, &homes[0], "acme.key");
    fs::copy(homes[0].path("acme.key"), homes[1].path("acme.key")).unwrap();
    homes
}

/// Makes the streams, and the cluster's key in a home.
fn init(nats: &Nats, home: &Home, key: &str) {
    let (servers, key, replicas) = (nats.urls().join(","), home.path(key), nats.urls().len().to_string());
    let init = ["cluster", "init", "--servers", &servers, "--replicas", &replicas, "--log-gib", "1", "--blob-gib", "1"];
    let made = home.run(&[&init[..], &["--key", key.to_str().unwrap()]].concat());
    assert!(made.status.success(), "{}", stderr(&made));
}

/// The table of a host of the cluster.
fn table(nats: &Nats, host: &str) -> String {
    let (servers, monitor) = (nats.urls(), nats.monitors());
    format!(
        "[cluster]\nname = \"acme\"\nservers = {servers:?}\nmonitor = {monitor:?}\nkey_file = \"acme.key\"\nhost = {host:?}\n"
    )
}

/// The home of a host without members.
fn home(nats: &Nats, settings: &str, host: &str) -> Home {
    let mut home = Home::new();
    let file = home.write("guild.toml", format!("{settings}\n{}", table(nats, host)));
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    home
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
    wait_for("the job's log to be the same at both hosts", || {
        let log = |host: &Host| host.at("endless").call("worker/log", json!({"jobId": id})).unwrap();
        let (here, there) = (log(&a), log(&b));
        (here == there && here["status"] == "running").then_some(())
    });
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

/// Waits until a host hands its jobs over.
fn until_draining(host: &Host) {
    let readiness = Endpoint::new(host, "/readyz");
    wait_for("the host to drain", || (readiness.send("GET", "").status == 503).then_some(()));
}

/// Stops a host that does not wait for the ends of its jobs' turns.
fn stop_at_once(host: Host) {
    host.signal("-TERM");
    until_draining(&host);
    host.stop();
}

#[test]
fn a_host_that_leaves_hands_its_jobs_over_at_once() {
    let nats = Nats::start(1);
    let homes = homes(&nats);
    let [a, b] = serve(&homes);
    let id = a.at("endless").start("goes on");
    until_known(&b.at("endless"), &id, "running");
    stop_at_once(a);
    assert_eq!(b.at("endless").ended(&id)["status"], "failed");
}

#[test]
fn a_host_can_be_stopped_while_nats_is_away() {
    let mut nats = Nats::start(1);
    let homes = homes(&nats);
    let [a, b] = serve(&homes);
    let id = a.at("endless").start("goes on");
    until_known(&b.at("endless"), &id, "running");
    nats.kill(0);
    stop_at_once(a);
    nats.restart(0);
    // It could not give its job back, so another host takes the job once it has been silent for long.
    assert_eq!(b.at("endless").ended(&id)["status"], "failed");
}

#[test]
fn a_host_can_be_stopped_while_it_waits_for_its_start() {
    let nats = Nats::start(1);
    let homes = homes(&nats);
    let _a = homes[0].serve_roster(&[]);
    // A host of the same name, with another directory, looks whether the first one lives.
    let same = home(&nats, "", "a");
    fs::copy(homes[0].path("acme.key"), same.path("acme.key")).unwrap();
    let (members, port) = (same.path("members"), free_port());
    let mut command = same.guild();
    command.args(["serve", "--port", &port.to_string(), "--members", members.to_str().unwrap()]);
    command.env("GUILD_LOG", "info").current_dir(same.path("."));
    let host = Host::start(command, port, "");
    host.prints("whether another host named a is alive");
    let (status, output) = host.stop();
    assert!(status.success(), "{output}");
}

/// The settings of sessions that ask this provider, and read `docs/`.
fn with_model(url: &str, sessions: u32) -> String {
    format!(
        "agent = \"api\"\n[[roots]]\npath = \"docs\"\n[api]\nprovider = \"openai\"\nbase_url = \"{url}/v1/\"\nmodel = \"fake\"\n\
         unknown_cost_tokens = 100000\nsessions = {sessions}\n"
    )
}

/// The number of times that a job's record counts it as interrupted, at whichever host carried it out.
fn interruptions(homes: &[Home; 2], id: &str) -> u64 {
    let meta = |home: &Home| {
        let text = fs::read(home.path(&format!("members/researcher/.jobs/{id}/meta.json"))).ok()?;
        Some(serde_json::from_slice::<Value>(&text).unwrap()["resumes"].as_u64().unwrap_or(0))
    };
    homes.iter().filter_map(meta).max().unwrap()
}

fn submit(text: &str) -> Reply {
    Reply::call("submit_result", json!({"output": text}))
}

/// A model whose sessions submit their result once the gate is open.
fn submits_behind(gate: &Gate) -> impl Fn(&Received) -> Reply + use<> {
    let gate = gate.clone();
    move |request| match request.turn() {
        0 => submit("done").behind(&gate),
        _ => Reply::text("Done."),
    }
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
    stop_at_once(a);
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
fn a_host_that_is_stopped_hands_its_jobs_over_at_the_end_of_their_turns() {
    let nats = Nats::start(1);
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::closed());
    let held = gate.clone();
    let provider = runtime.block_on(OpenAi::start(move |request: &Received| match request.turn() {
        0 => Reply::call("store_memory", json!({"key": "luna", "content": "It lives for a week."})).behind(&held),
        1 => submit("by the other host"),
        _ => Reply::text("Done."),
    }));
    let homes = homes_with(&nats, &with_model(&provider.url(), 4));
    let [a, b] = serve(&homes);
    let id = a.at("researcher").start("How long does a luna moth live?");
    runtime.block_on(provider.received(1));
    let mut draining = homes[0].guild().args(["cluster", "drain"]).stderr(Stdio::null()).spawn().unwrap();
    until_draining(&a);
    let refused = a.at("researcher").dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(refused.message.contains("this host is about to stop"), "{}", refused.message);
    gate.open();
    let (status, output) = a.wait();
    assert!(status.success(), "{output}");
    assert!(draining.wait().unwrap().success());
    assert!(stderr(&homes[0].run(&["cluster", "drain"])).contains("the host a does not run"));
    let ended = b.at("researcher").ended(&id);
    assert_eq!(ended["status"], "completed", "{ended}\n{}", b.output());
    // No turn was asked for twice.
    let turns: Vec<_> = runtime.block_on(provider.received(3)).iter().map(Received::turn).collect();
    assert_eq!(turns, [0, 1, 2]);
    assert_eq!(interruptions(&homes, &id), 0);
}

#[test]
fn a_host_that_is_stopped_does_not_wait_for_a_job_that_is_held_back() {
    let nats = Nats::start(1);
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::closed());
    let provider = runtime.block_on(OpenAi::start(submits_behind(&gate)));
    let homes = homes_with(&nats, &with_model(&provider.url(), 1));
    let mut a = homes[0].serve_roster(&[]);
    let id = a.at("researcher").start("How long does a luna moth live?");
    let is_held_back = |host: &Host| {
        let status = host.at("researcher").status(&id).unwrap();
        (status["heldBack"] == true).then_some(())
    };
    // The end of a host while it carries the job out alone is taken for the job's doing.
    for times in 1..=3 {
        runtime.block_on(provider.received(times));
        a.kill();
        a = homes[0].serve_roster(&[]);
    }
    wait_for("the job to be held back", || is_held_back(&a));
    let b = homes[1].serve_roster(&[]);
    let (status, output) = a.stop();
    assert!(status.success() && !output.contains("did not reach the end of a turn"), "{output}");
    let client = b.at("researcher");
    wait_for("the other host to hold it back", || client.call("worker/resume", json!({"jobId": id})).ok());
    gate.open();
    assert_eq!(client.ended(&id)["status"], "completed");
}

#[test]
fn a_job_that_finds_no_place_is_taken_by_a_host_that_has_one() {
    let nats = Nats::start(1);
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::closed());
    let provider = runtime.block_on(OpenAi::start(submits_behind(&gate)));
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
        assert_eq!(interruptions(&homes, id), 0);
    }
}

#[test]
fn a_job_with_a_missing_file_is_passed_over_and_the_others_go_on() {
    let nats = Nats::start(1);
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::closed());
    let provider = runtime.block_on(OpenAi::start(submits_behind(&gate)));
    let homes = homes_with(&nats, &with_model(&provider.url(), 1));
    let a = homes[0].serve_roster(&[]);
    let client = a.at("researcher");
    let first = client.start("takes the place");
    runtime.block_on(provider.received(1));
    // The file is too large for a record of the log.
    let file = json!([{"path": "a.txt", "text": "x".repeat(400_000)}]);
    let damaged = client.dispatch(json!({"description": "d", "task": "t", "attachments": file})).unwrap();
    let last = client.start("waits behind it");
    runtime.block_on(async {
        let context = jetstream::new(async_nats::connect(nats.urls()).await.unwrap());
        context.get_stream("guild_blobs").await.unwrap().purge().await.unwrap();
    });
    gate.open();
    for id in [&first, &last] {
        assert_eq!(client.ended(id)["status"], "completed");
    }
    a.prints("is missing in guild_blobs; restore that stream from a backup of NATS");
    assert_eq!(client.status(&damaged).unwrap()["status"], "running");
    assert_eq!(client.cancel(&damaged).unwrap()["status"], "cancelled");
}

#[test]
fn a_plan_that_no_host_has_sealed_is_not_carried_out() {
    let nats = Nats::start(1);
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::closed());
    let held = gate.clone();
    let provider = runtime.block_on(OpenAi::start(move |_: &Received| submit("done").behind(&held)));
    let homes = homes_with(&nats, &with_model(&provider.url(), 4));
    let [a, b] = serve(&homes);
    let id = a.at("researcher").start("How long does a luna moth live?");
    runtime.block_on(provider.received(1));
    // Somebody with a host's credentials at NATS makes a job with the plan and the seal of another one.
    let dir = homes[0].path(&format!("members/researcher/.jobs/{id}"));
    let content = |file: &str| fs::read_to_string(dir.join(file)).unwrap().replace(&id, "forged");
    let files =
        ["meta.json", "plan.json", "task.md"].map(|file| (file.to_owned(), Content::Text { text: content(file) }));
    let meta: Value = serde_json::from_str(&content("meta.json")).unwrap();
    let append = Append { head: json!({"meta": meta}).to_string(), ..Append::default() };
    let name = JobName { member: "researcher".parse().unwrap(), job: "forged".parse().unwrap() };
    runtime.block_on(async {
        let options = Options { servers: nats.urls(), host: "x".to_owned(), ..Options::default() };
        let logs = Logs::new(Link::connect(&options).await.unwrap(), Owner::new("x"), Duration::from_secs(10));
        assert!(logs.begin(&name, Needs::of("api"), files.into(), false, append).await.unwrap().is_some());
    });
    let forged = b.at("researcher").ended("forged");
    assert_eq!(forged["status"], "failed", "{forged}");
    assert!(forged["error"].as_str().unwrap().contains("does not have this host's seal"), "{forged}");
    assert_eq!(provider.count(), 1, "no model was asked");
    gate.open();
    assert_eq!(a.at("researcher").ended(&id)["status"], "completed");
}

#[test]
fn a_request_sees_at_once_what_another_host_has_answered() {
    // A server that follows may lag behind the one that acknowledged.
    let nats = Nats::start(3);
    let homes = homes(&nats);
    let [a, b] = serve(&homes);
    let status = |host: &Host, member: &str, id: &str| {
        host.at(member).status(id).ok().map(|status| status["status"].as_str().unwrap().to_owned())
    };
    for _ in 0..20 {
        let id = a.at("endless").start("goes on");
        assert_eq!(status(&b, "endless", &id).as_deref(), Some("running"));
        b.at("endless").cancel(&id).unwrap();
        assert_eq!(status(&a, "endless", &id).as_deref(), Some("cancelled"));
        a.at("endless").delete(&id).unwrap();
        assert_eq!(status(&b, "endless", &id), None);
        let id = a.at("quick").start("ends");
        assert_eq!(b.at("quick").ended(&id)["status"], "completed");
        assert_eq!(a.at("quick").result(&id).unwrap(), b.at("quick").result(&id).unwrap());
    }
}

#[test]
fn a_published_member_is_at_every_host_as_it_was_approved_once() {
    let nats = Nats::start(1);
    let homes = homes(&nats);
    let [a, b] = serve(&homes);
    // The machine of the operator, who has the cluster's key and serves nothing.
    let operator = home(&nats, "", "operator");
    fs::copy(homes[0].path("acme.key"), operator.path("acme.key")).unwrap();
    let members = operator.path("members");
    let run = |arguments: &[&str]| {
        let done = operator.run(&[&["cluster"], arguments].concat());
        assert!(done.status.success(), "{}", stderr(&done));
    };
    let publish = |member: &str| run(&["publish", member, "--members", members.to_str().unwrap()]);
    let is_served = |host: &Host| host.members().iter().any(|member| member["member"] == "brief");
    let ends = |host: &Host, status: &str| {
        wait_for("the member to be in the roster", || is_served(host).then_some(()));
        wait_for("the published member to be served", || {
            let id = host.at("brief").dispatch(json!({"description": "d", "task": "t"})).ok()?;
            (host.at("brief").ended(&id)["status"] == status).then_some(())
        });
    };
    operator.quick("brief");
    publish("brief");
    for host in [&a, &b] {
        ends(host, "completed");
    }
    let runtime = Runtime::new().unwrap();
    let thief = runtime.block_on(async_nats::connect(nats.urls())).unwrap();
    let subject = "$KV.guild_members.brief";
    let first = runtime.block_on(async {
        let stream = jetstream::new(thief.clone()).get_stream("KV_guild_members").await.unwrap();
        stream.get_last_raw_message_by_subject(subject).await.unwrap()
    });
    // The next version is at both, where the first was put in place.
    operator.failing("brief");
    publish("brief");
    for host in [&a, &b] {
        ends(host, "failed");
    }
    // Who has credentials of NATS cannot bring the first one back.
    runtime.block_on(thief.publish(subject, first.payload)).unwrap();
    runtime.block_on(thief.flush()).unwrap();
    for host in [&a, &b] {
        wait_for("the host to refuse the repeated publication", || {
            host.output().contains("a later publication was seen here").then_some(())
        });
        ends(host, "failed");
    }
    // A member that a host has of its own stays as it is.
    operator.failing("quick");
    publish("quick");
    wait_for("the host to refuse the publication", || {
        b.output().contains("has other files, which were not published").then_some(())
    });
    assert_eq!(b.at("quick").ended(&b.at("quick").start("t"))["status"], "completed");
    run(&["withdraw", "brief"]);
    for (host, home) in [(&a, &homes[0]), (&b, &homes[1])] {
        wait_for("the member to be withdrawn", || (!is_served(host)).then_some(()));
        assert!(!home.path("members/brief/guest.wasm").exists());
        assert!(home.path("members/brief/.jobs").exists());
    }
}

#[test]
fn the_hall_of_one_host_is_served_by_all_and_its_attempts_wait_for_it() {
    let nats = Nats::start(1);
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::closed());
    let held = gate.clone();
    let provider = runtime.block_on(OpenAi::start(move |request: &Received| match request.turn() {
        0 if request.number == 0 => submit("never").behind(&held),
        0 => Reply::call("submit_result", json!({"summary": "A week."})),
        _ => Reply::text("Done."),
    }));
    let hall = Hall::with_researcher(&provider);
    hall.configure(&table(&nats, "a"));
    init(&nats, &hall.home, "config/guild/acme.key");
    let other = home(&nats, "", "b");
    fs::copy(hall.home.path("config/guild/acme.key"), other.path("acme.key")).unwrap();
    other.quick("quick");
    let (a, b) = (hall.serve(), other.serve_roster(&[]));
    let ask = |method: &str, path: &str, body: &str| {
        Endpoint::new(&b, &format!("/hall{path}")).with("Content-Type", "application/json").send(method, body)
    };
    wait_for("the other host to know the hall", || {
        (ask("GET", "/system/runtime/daemon/health", "").status == 200).then_some(())
    });
    let create = json!({"projectName": "demo", "workerName": "researcher", "title": "Moths", "prompt": "How long?"});
    let created = ask("POST", "/commission/request/commission/create", &create.to_string());
    assert_eq!(created.status, 201);
    let id: Value = serde_json::from_str(&created.text()).unwrap();
    let dispatch = json!({"commissionId": id["commissionId"]}).to_string();
    assert_eq!(ask("POST", "/commission/run/dispatch", &dispatch).status, 202);
    runtime.block_on(provider.received(1));
    // A second hall is refused, in another home too.
    let third = home(&nats, "", "c");
    fs::copy(other.path("acme.key"), third.path("acme.key")).unwrap();
    fs::create_dir(third.path("hall")).unwrap();
    let refused = third.run(&["serve", "--port", "0", "--hall", third.path("hall").to_str().unwrap()]);
    assert!(stderr(&refused).contains("the host a serves the hall of this cluster"), "{}", stderr(&refused));
    a.kill();
    let away = ask("GET", "/system/runtime/daemon/health", "");
    assert_eq!(away.status, 503);
    let why = away.text();
    assert!(why.contains("attempts and meetings wait for it"), "{why}");
    let a = hall.serve();
    gate.open();
    let id = id["commissionId"].as_str().unwrap();
    let read = hall.until("demo", id, "completed");
    assert!(read["commission"].to_string().contains("A week."), "{read}\n{}", a.output());
}

#[test]
fn a_meeting_goes_on_where_another_host_serves_the_hall() {
    let nats = Nats::start(1);
    let runtime = Runtime::new().unwrap();
    let provider = runtime
        .block_on(OpenAi::start(|request: &Received| Reply::text(format!("Said after {} answers.", request.turn()))));
    let hall = Hall::with_researcher(&provider);
    hall.configure(&table(&nats, "a"));
    init(&nats, &hall.home, "config/guild/acme.key");
    let other = home(&nats, "", "b");
    fs::copy(hall.home.path("config/guild/acme.key"), other.path("acme.key")).unwrap();
    other.quick("quick");
    let (a, b) = (hall.serve(), other.serve_roster(&[]));
    let post = |path: &str, body: Value| {
        let path = format!("/hall/meeting/{path}");
        Endpoint::new(&b, &path).with("Content-Type", "application/json").send("POST", &body.to_string())
    };
    // The events of a turn, through the host that does not serve the hall.
    let turn = |path: &str, body: Value| {
        let (mut answer, mut events) = (post(path, body), Vec::new());
        while events.last().is_none_or(|event: &Value| event["type"] != "turn_end") {
            events.push(serde_json::from_str(&answer.data().unwrap()).unwrap());
        }
        events
    };
    let is_known = || Endpoint::new(&b, "/hall/system/runtime/daemon/health").send("GET", "").status == 200;
    wait_for("the other host to know the hall", || is_known().then_some(()));
    let open = json!({"projectName": "demo", "workerName": "researcher", "prompt": "Moths"});
    let opened = turn("request/meeting/create", open);
    let id = opened.iter().find_map(|event| event["meetingId"].as_str()).unwrap();
    a.stop();
    let say = |message: &str| json!({"meetingId": id, "message": message});
    let away = post("session/message/send", say("Are you there?"));
    assert_eq!(away.status, 503);
    assert!(away.text().contains("attempts and meetings wait for it"));
    // Another host has the volume with the hall now.
    let config = hall.home.path("config/guild/guild.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("host = \"a\"", "host = \"c\"")).unwrap();
    let c = hall.serve();
    wait_for("the other host to know the hall", || is_known().then_some(()));
    let said: String = turn("session/message/send", say("Go on."))
        .iter()
        .filter_map(|event| event["text"].as_str().map(str::to_owned))
        .collect();
    assert!(said.contains("Said after 1 answers."), "{said}\n{}", c.output());
}

#[test]
fn a_backup_of_a_cluster_is_served_by_a_host_alone_and_goes_into_another_cluster() {
    let nats = Nats::start(1);
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|request: &Received| match request.turn() {
        0 => Reply::call("store_memory", json!({"key": "luna", "content": "It lives for a week."})),
        1 => submit("a week"),
        _ => Reply::text("Done."),
    }));
    let homes = homes_with(&nats, &with_model(&provider.url(), 4));
    let [a, b] = serve(&homes);
    let id = a.at("researcher").start("How long does a luna moth live?");
    assert_eq!(a.at("researcher").ended(&id)["status"], "completed");
    let (status, result) = (a.at("researcher").status(&id).unwrap(), a.at("researcher").result(&id).unwrap());
    // The backup is made at the other host, which has carried nothing out.
    let file = homes[1].path("backup.tar.gz");
    let members = homes[1].path("members");
    let made = homes[1].run(&["backup", file.to_str().unwrap(), "--members", members.to_str().unwrap()]);
    assert!(made.status.success(), "{}", stderr(&made));
    a.stop();
    b.stop();
    let alone = Home::new();
    let restored = alone.run(&["restore", file.to_str().unwrap(), alone.path("restored").to_str().unwrap()]);
    assert!(stderr(&restored).contains("guild cluster import"), "{}", stderr(&restored));
    let members = alone.path("members");
    fs::rename(alone.path("restored/members"), &members).unwrap();
    let note = fs::read_to_string(members.join("researcher/memory/luna.md")).unwrap();
    assert!(note.contains("It lives for a week."), "{note}");
    let host = alone.serve_roster(&[]);
    assert_eq!(host.at("researcher").status(&id).unwrap(), status);
    assert_eq!(host.at("researcher").result(&id).unwrap(), result);
    // Another cluster, whose hosts have members and no jobs.
    let other = Nats::start(1);
    let homes = homes_with(&other, &with_model(&provider.url(), 4));
    let import = || homes[0].run(&["cluster", "import", "--members", members.to_str().unwrap()]);
    let refused = import();
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("serves it; stop that host first"), "{}", stderr(&refused));
    host.stop();
    let imported = import();
    assert!(stderr(&imported).contains("researcher: new in the cluster: jobs 1, notes 1"), "{}", stderr(&imported));
    assert!(stderr(&import()).contains("researcher: new in the cluster: jobs 0, notes 0"));
    let [_, b] = serve(&homes);
    wait_for("the job to be known", || b.at("researcher").status(&id).ok());
    assert_eq!(b.at("researcher").status(&id).unwrap(), status);
    assert_eq!(b.at("researcher").result(&id).unwrap(), result);
}

#[test]
fn a_dispatch_beyond_the_queue_is_refused_with_the_setting_to_change() {
    let nats = Nats::start(1);
    let (runtime, gate) = (Runtime::new().unwrap(), Gate::closed());
    let provider = runtime.block_on(OpenAi::start(submits_behind(&gate)));
    let homes = homes_with(&nats, &with_model(&provider.url(), 1));
    for home in &homes {
        let config = fs::read_to_string(home.path("guild.toml")).unwrap();
        home.write("guild.toml", config + "queued_jobs = 1\n");
    }
    let [a, b] = serve(&homes);
    // Each host has one place, and the third job waits.
    let dispatch = |task: &str| a.at("researcher").dispatch(json!({"description": task, "task": task}));
    let accepted = |task: &str| wait_for("the job to be accepted", || dispatch(task).ok());
    let (one, two) = (accepted("one"), accepted("two"));
    runtime.block_on(provider.received(2));
    let ids = [one, two, accepted("three")];
    let fourth = || dispatch("four");
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
