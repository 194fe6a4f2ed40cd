//! What a member may do: what its manifest asks for, and what `guild.toml` allows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use guild_fakes::{Gate, OpenAi, Provider, Received, Reply, Script};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{
    guest::{self, Guest},
    host::{Client, Home, Host, wait_for},
    web,
};

/// A home whose members are all the probe.
fn probes(names: &[&str]) -> Home {
    let home = Home::new();
    for name in names {
        home.member(name, "autonomous-worker", &guest::built("probe"));
        asking(&home, name, guest::everything());
    }
    home
}

fn asking(home: &Home, name: &str, grants: Value) {
    home.edit_manifest(name, |manifest| {
        manifest["component"]["grants"] = grants;
        manifest["component"]["tools"] = json!(["Read", "Grep", "Glob", "WebSearch", "WebFetch"]);
    });
}

/// Writes `guild.toml`, with two read roots, and serves all members.
fn serve(home: &Home, top: &str, tables: &str) -> Host {
    configure(home, top, tables);
    home.serve_roster(&["--config", home.path("guild.toml").to_str().unwrap()])
}

fn configure(home: &Home, top: &str, tables: &str) {
    home.write("docs/owls.md", "# Owls\n\nOwls turn their heads by 270 degrees.\n");
    home.write("src/main.rs", "// A program about owls: they turn their heads.\nfn main() {}\n");
    let roots = "[[roots]]\npath = \"docs\"\n[[roots]]\npath = \"src\"\n";
    home.write("guild.toml", format!("{top}\n{roots}{tables}"));
}

/// Writes a manifest so that each of its keys has a line of its own.
fn pretty(home: &Home, name: &str, grants: Value) {
    home.edit_manifest(name, |manifest| manifest["component"]["grants"] = grants);
    let path = home.path(&format!("members/{name}/guild-member.json"));
    let manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fs::write(path, serde_json::to_string_pretty(&manifest).unwrap()).unwrap();
}

/// In which line of a member's manifest a text stands first.
fn line_of(home: &Home, name: &str, text: &str) -> usize {
    let manifest = fs::read_to_string(home.path(&format!("members/{name}/guild-member.json"))).unwrap();
    manifest.lines().position(|line| line.contains(text)).unwrap() + 1
}

/// Carries a task out; the outcome of each of its lines.
fn report(client: &Client, task: &str) -> BTreeMap<String, String> {
    let id = client.dispatch(json!({"description": "probing", "task": task})).unwrap();
    let status = client.ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    let output = client.result(&id).unwrap()["output"].as_str().unwrap().to_owned();
    let lines = output.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(step, outcome)| (step.to_owned(), outcome.to_owned())).collect()
}

fn is_refused(outcomes: &BTreeMap<String, String>, step: &str, why: &str) {
    let outcome = &outcomes[step];
    assert!(outcome.starts_with("error ") && outcome.contains(why), "{step}: {outcome}");
}

fn is_done(outcomes: &BTreeMap<String, String>, step: &str) {
    assert!(outcomes[step].starts_with("ok"), "{step}: {}", outcomes[step]);
}

#[test]
fn deny_wins_over_allow_and_a_denied_interface_answers_why() {
    let home = probes(&["team/ann", "bob"]);
    let tables = "[member.\"team/ann\"]\nallow = [\"*\"]\n[member.\"team/*\"]\ndeny = [\"memory\", \"status\"]\n";
    pretty(&home, "team/ann", guest::everything());
    let host = serve(&home, "", tables);
    let task = "recall k\nstatus\nsummary seen\nfile docs/owls.md";
    let ann = report(&host.at("team/ann"), task);
    is_refused(&ann, "recall k", r#"[member."team/*"] in guild.toml denies it; take "memory" out of its `deny`"#);
    is_refused(&ann, "status", r#"take "status" out"#);
    is_done(&ann, "summary seen");
    is_done(&ann, "file docs/owls.md");
    // The rule is for others.
    let bob = report(&host.at("bob"), task);
    ["recall k", "status", "summary seen", "file docs/owls.md"].iter().for_each(|step| is_done(&bob, step));
    // What was denied is logged when the member is loaded, with the line that asks for it.
    let line = line_of(&home, "team/ann", "\"memory\"");
    let expected = format!("guild-member.json:{line} asks for `memory`, which is not granted");
    host.prints(&expected);
}

#[test]
fn where_something_is_allowed_nothing_else_is() {
    let home = probes(&["ann"]);
    let host = serve(&home, "", "[member.\"a*\"]\nallow = [\"job-tools\", \"files:docs\", \"memory\"]\n");
    let outcomes =
        report(&host.at("ann"), "summary seen\nstatus\nask x\nrecall k\nfile docs/owls.md\nfile src/main.rs");
    is_done(&outcomes, "summary seen");
    is_done(&outcomes, "recall k");
    is_done(&outcomes, "file docs/owls.md");
    is_refused(&outcomes, "file src/main.rs", "paths begin with docs/");
    is_refused(&outcomes, "status", r#"add "status" to `allow` of [member."ann"]"#);
    is_refused(&outcomes, "ask x", r#"add "agent" to `allow` of [member."ann"]"#);
}

#[test]
fn each_member_reads_its_own_roots_and_searches_no_others() {
    let home = probes(&["docs-reader", "src-reader", "all-reader", "none-reader"]);
    // One by its manifest, one by the policy.
    let mut grants = guest::everything();
    grants["files"] = json!({"roots": ["docs"]});
    asking(&home, "docs-reader", grants);
    let tables = "[member.src-reader]\ndeny = [\"files:d*\"]\n[member.none-reader]\ndeny = [\"files\"]\n";
    let host = serve(&home, "", tables);
    let ask = "ask How far do owls turn their heads?";
    let task = format!("file docs/owls.md\nfile src/main.rs\n{ask}");
    let of = |member: &str| report(&host.at(member), &task);

    let docs = of("docs-reader");
    is_done(&docs, "file docs/owls.md");
    is_refused(&docs, "file src/main.rs", "paths begin with docs/");
    assert!(docs[ask].contains("docs/owls.md") && !docs[ask].contains("src/main.rs"), "{}", docs[ask]);
    let src = of("src-reader");
    is_done(&src, "file src/main.rs");
    is_refused(&src, "file docs/owls.md", "paths begin with src/");
    assert!(!src[ask].contains("docs/owls.md"), "{}", src[ask]);
    let both = of("all-reader");
    is_done(&both, "file docs/owls.md");
    is_done(&both, "file src/main.rs");
    let none = report(&host.at("none-reader"), "file docs/owls.md\nask x");
    is_refused(&none, "file docs/owls.md", "take \"files\" out of its `deny`");
    is_refused(&none, "ask x", "\"Read\": [member.\"none-reader\"] in guild.toml denies it");
}

#[test]
fn hosts_are_those_that_are_asked_for_and_allowed_also_behind_a_redirect() {
    let runtime = Runtime::new().unwrap();
    let address = runtime.block_on(web::pages());
    let other = format!("localhost:{}", address.port());
    let home = probes(&["asks-one", "allowed-one", "denied-one", "none"]);
    let mut grants = guest::everything();
    grants["web"] = json!({"hosts": [other]});
    asking(&home, "asks-one", grants);
    let web = format!(
        "[web]\nallow = [\"{address}\", \"{other}\"]\nprivate = [\"{address}\", \"{other}\"]\nrobots = false\n\
         [member.allowed-one]\nallow = [\"*\"]\n[member.denied-one]\ndeny = [\"web:{address}\"]\n\
         [member.none]\nallow = [\"job-tools\", \"web:search\"]\n"
    );
    let host = serve(&home, "", &web);
    let (by_address, by_name) = (format!("fetch http://{address}/moths"), format!("fetch http://{other}/moths"));
    // It redirects from one host to the other.
    let over = format!("fetch http://{other}/to?{address}");
    let task = format!("{by_address}\n{by_name}\n{over}");
    let of = |member: &str| report(&host.at(member), &task);
    let allowed = of("allowed-one");
    [&by_address, &by_name, &over].into_iter().for_each(|step| is_done(&allowed, step));
    let asks = of("asks-one");
    is_done(&asks, &by_name);
    is_refused(&asks, &by_address, &format!("is granted {other} only"));
    is_refused(&asks, &over, &format!("the host {address} is not granted to this member"));
    let denied = of("denied-one");
    is_done(&denied, &by_name);
    is_refused(&denied, &by_address, &format!("\"web:{address}\" in `deny`"));
    is_refused(&denied, &over, &format!("\"web:{address}\" in `deny`"));
    let none = of("none");
    [&by_address, &by_name, &over].into_iter().for_each(|step| is_refused(&none, step, "not granted"));
}

#[test]
fn a_manifest_that_asks_for_no_host_is_an_error_with_its_line() {
    let home = probes(&["ann"]);
    home.edit_manifest("ann", |manifest| manifest["component"]["grants"]["web"] = json!({"hosts": ["https://a/"]}));
    let host = serve(&home, "", "");
    let refused = host.at("ann").dispatch(json!({"description": "d", "task": "t"})).unwrap_err().message;
    assert!(refused.contains("guild-member.json:1: `component.grants.web.hosts`: \"https://a/\""), "{refused}");
}

#[test]
fn strict_imports_refuses_what_is_not_granted_and_names_both_lines() {
    let home = Home::new();
    home.member(
        "ann",
        "autonomous-worker",
        &Guest::importing(&["memory"]).run("(call $ok (i32.const 0) (i32.const 0))").build(),
    );
    pretty(&home, "ann", json!({"memory": {}}));
    let dispatch = |host: &Host| host.at("ann").dispatch(json!({"description": "d", "task": "t"}));
    let lenient = serve(&home, "", "[member.ann]\ndeny = [\"memory\"]\n");
    dispatch(&lenient).unwrap();
    drop(lenient);
    let strict = serve(&home, "strict_imports = true", "[member.ann]\ndeny = [\"memory\"]\n");
    let why = dispatch(&strict).unwrap_err().message;
    let line = line_of(&home, "ann", "\"memory\"");
    assert!(why.contains(&format!("guild-member.json:{line}: ")) && why.contains("strict_imports = true"), "{why}");
    assert!(why.contains("guild:worker/memory@0.1.0") && why.contains("take \"memory\" out of its `deny`"), "{why}");
}

#[test]
fn an_import_that_is_not_asked_for_refuses_the_load_and_names_the_line() {
    let home = Home::new();
    home.member(
        "ann",
        "autonomous-worker",
        &Guest::importing(&["files"]).run("(call $ok (i32.const 0) (i32.const 0))").build(),
    );
    pretty(&home, "ann", json!({"log": {}}));
    let host = serve(&home, "", "");
    let why = host.at("ann").dispatch(json!({"description": "d", "task": "t"})).unwrap_err().message;
    let line = line_of(&home, "ann", "\"grants\"");
    assert!(
        why.contains(&format!("guild-member.json:{line}: the component imports `guild:worker/files@0.1.0`")),
        "{why}"
    );
    assert!(why.contains("add the line `\"files\": {}` to `component.grants`"), "{why}");
}

#[test]
fn an_unknown_capability_is_an_error_with_its_line_and_the_nearest_one() {
    let home = Home::new();
    home.quick("ann");
    pretty(&home, "ann", json!({"files": {"root": ["docs"]}}));
    let shown = home.guild().args(["members", "--members"]).arg(home.path("members")).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let line = line_of(&home, "ann", "\"root\"");
    let expected = format!("ann/guild-member.json:{line}: unknown field `root`; did you mean `roots`?");
    assert!(shown.contains(&expected), "{shown}");
}

#[test]
fn a_component_that_may_search_but_not_read_files_does_not_reach_the_read_roots_by_searching() {
    // `run` searches, and fails with the host's own text where that is an error.
    let search = "(local $at i32) (local.set $at (i32.const 8192))
        (call $web.search (i32.const 1024) (i32.const 4) (i32.const 5) (local.get $at))
        (if (result i32) (i32.load8_u (local.get $at))
          (then (call $failed (i32.load offset=8 (local.get $at)) (i32.load offset=12 (local.get $at))))
          (else (call $ok (i32.const 1024) (i32.const 4))))";
    let guest = Guest::importing(&["web"]).run(search).with("(data (i32.const 1024) \"owls\")").build();
    let home = Home::new();
    for (name, grants) in
        [("blind", json!({"web": {"search": true}})), ("reader", json!({"web": {"search": true}, "files": {}}))]
    {
        home.member(name, "autonomous-worker", &guest);
        asking(&home, name, grants);
    }
    let host = serve(&home, "", "[web]\n");
    let ended = |name: &str| {
        let client = host.at(name);
        client.ended(&client.start("search"))
    };
    assert_eq!(ended("reader")["status"], "completed");
    let blind = ended("blind");
    assert!(blind["error"].as_str().unwrap().contains("nothing to search"), "{blind}");
}

/// A provider, and members whose sessions ask it.
struct Fixture {
    home: Home,
    provider: Provider,
    top: String,
    prices: &'static str,
    runtime: Runtime,
}

impl Fixture {
    fn new(members: &[&str], script: impl Into<Script>) -> Self {
        let runtime = Runtime::new().unwrap();
        let provider = runtime.block_on(OpenAi::start(script));
        let home = Home::new();
        members.iter().for_each(|name| drop(home.researcher(name)));
        let url = provider.url();
        let top =
            format!("agent = \"api\"\napi = {{provider = \"openai\", base_url = \"{url}/v1/\", model = \"m\"}}\n");
        let prices = "[[prices]]\nmodel = \"m\"\ninput = 0.0\noutput = 0.0\n";
        Self { home, provider, top, prices, runtime }
    }

    fn serve(&self, tables: &str) -> Host {
        serve(&self.home, &self.top, &format!("{}{tables}", self.prices))
    }

    fn asked(&self, times: usize) -> Vec<Received> {
        self.runtime.block_on(self.provider.received(times))
    }
}

/// The tools that a model was offered, and what is said about them.
fn offered(request: &Received) -> BTreeMap<String, String> {
    let tools = request.body["tools"].as_array().cloned().unwrap_or_default();
    let text = |tool: &Value, field: &str| tool["function"][field].as_str().unwrap().to_owned();
    tools.iter().map(|tool| (text(tool, "name"), text(tool, "description"))).collect()
}

fn names(tools: &BTreeMap<String, String>) -> BTreeSet<&str> {
    tools.keys().map(String::as_str).collect()
}

#[test]
fn what_a_session_is_not_granted_does_not_exist_for_it() {
    let fixture = Fixture::new(&["plain", "docs", "closed"], |_: &Received| Reply::text("done"));
    let host = fixture.serve(
        "[member.docs]\ndeny = [\"files:src\", \"memory:write\"]\n\
         [member.closed]\nallow = [\"log\", \"memory:write\"]\ndeny = [\"memory\"]\n",
    );
    for (name, number) in [("plain", 1), ("docs", 2), ("closed", 3)] {
        fixture.home.write(&format!("members/{name}/memory/note.md"), "The password is swordfish.");
        let client = host.at(name);
        assert_eq!(client.ended(&client.start("Find it out"))["status"], "completed");
        assert_eq!(fixture.asked(number).len(), number);
    }
    let asked = fixture.asked(3);
    let (plain, docs, closed) = (offered(&asked[0]), offered(&asked[1]), offered(&asked[2]));
    let internal = ["log_question", "record_decision", "submit_result", "update_summary"];
    let with = |more: &[&'static str]| internal.iter().chain(more).copied().collect::<BTreeSet<_>>();
    let reading = ["Glob", "Grep", "Read", "WebSearch"];
    assert_eq!(names(&plain), with(&[&reading[..], &["store_memory", "write_artifact"]].concat()));
    assert_eq!(names(&docs), with(&[&reading[..], &["write_artifact"]].concat()));
    assert_eq!(names(&closed), with(&[]));
    // The definitions name the roots that there are for it.
    for (tools, both) in [(&plain, true), (&docs, false)] {
        for tool in ["Read", "Grep"] {
            assert!(tools[tool].contains("docs/") && tools[tool].contains("src/") == both, "{}", tools[tool]);
        }
    }
    // Memories are injected where they are granted.
    let has_memory = |request: &Received| request.body.to_string().contains("swordfish");
    assert_eq!(asked.iter().map(has_memory).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn a_resumed_job_has_what_was_granted_when_it_began_and_still_is() {
    let gate = Gate::closed();
    let script_gate = gate.clone();
    let script = move |request: &Received| match request.number {
        0 => Reply::call("Read", json!({"file_path": "docs/owls.md"})),
        1 => Reply::text("never heard").behind(&script_gate),
        2 => Reply::call("Read", json!({"file_path": "src/main.rs"})),
        3 => Reply::call("store_memory", json!({"key": "k", "content": "c"})),
        _ => Reply::text("done"),
    };
    let fixture = Fixture::new(&["ann"], script);
    // It begins without `src`, and with memory.
    let host = fixture.serve("[member.ann]\ndeny = [\"files:src\"]\n");
    let id = host.at("ann").start("Find it out");
    fixture.asked(2);
    host.kill();
    // Meanwhile `src` is opened, and memory is closed.
    let host = fixture.serve("[member.ann]\ndeny = [\"memory:write\"]\n");
    let status = host.at("ann").ended(&id);
    assert_eq!(status["status"], "completed", "{status}");
    gate.open();
    let asked = fixture.asked(5);
    let (before, after) = (offered(&asked[0]), offered(&asked[2]));
    assert!(before.contains_key("store_memory") && !after.contains_key("store_memory"));
    assert!(after["Read"].contains("docs/") && !after["Read"].contains("src/"), "{}", after["Read"]);
    let answer =
        |request: &Received| request.body["messages"].as_array().unwrap().last().unwrap()["content"].to_string();
    assert!(answer(&asked[3]).contains("in no read root"), "{}", answer(&asked[3]));
    assert!(answer(&asked[4]).contains("no tool"), "{}", answer(&asked[4]));
    assert!(!fixture.home.path("members/ann/memory/k.md").exists());
}

#[test]
fn a_members_own_limits_hold_for_it_and_for_nobody_else() {
    let home = Home::new();
    home.quick("ann");
    home.quick("bob");
    let host = serve(&home, "", "[limits]\ndescription_bytes = 20\n[member.ann.limits]\ndescription_bytes = 10\n");
    let dispatch = |name: &str, bytes: usize| {
        host.at(name).dispatch(json!({"description": "x".repeat(bytes), "task": "t"})).map_err(|e| e.message)
    };
    assert!(dispatch("ann", 10).is_ok());
    let why = dispatch("ann", 11).unwrap_err();
    assert!(why.contains("`description` has 11 bytes, more than the fixed limit description_bytes = 10"), "{why}");
    assert!(dispatch("bob", 20).is_ok());
    assert!(dispatch("bob", 21).unwrap_err().contains("the fixed limit description_bytes = 20"));
}

#[test]
fn a_members_own_limits_bound_its_jobs_and_nobody_elses() {
    let home = Home::new();
    // It takes three pages more than the two it begins with, and fails without them; or runs for ever.
    let run = "(if (i32.eq (call $case (local.get 0)) (i32.const 4))
          (then (if (i32.eq (memory.grow (i32.const 3)) (i32.const -1)) (then unreachable)))
          (else (loop (br 0))))
        (call $ok (i32.const 1024) (i32.const 4))";
    let guest = Guest::default().run(run).with("(data (i32.const 1024) \"done\")").build();
    ["ann", "bob", "eve"].iter().for_each(|name| drop(home.member(name, "autonomous-worker", &guest)));
    let host = serve(
        &home,
        "",
        "[member.ann.limits]\nmemory_bytes = 262144\nrun_seconds = 1\n[member.eve.limits]\nmemory_bytes = 327680\n",
    );
    let looping = ["bob", "ann"].map(|name| (host.at(name), host.at(name).start("loop for ever")));
    let [(bob, of_bob), (ann, of_ann)] = &looping;
    assert_eq!(ann.ended(of_ann)["error"], "`run` did not end within its deadline of 1 s (limits.run_seconds)");
    assert_eq!(bob.status(of_bob).unwrap()["status"], "running");
    bob.cancel(of_bob).unwrap();

    let grows = |name: &str| host.at(name).ended(&host.at(name).start("grow"));
    assert_eq!(grows("ann")["error"], "`run` needs more than limits.memory_bytes = 262144");
    for name in ["bob", "eve"] {
        assert_eq!(grows(name)["status"], "completed", "{name}");
    }
}

#[test]
fn the_log_says_what_each_member_is_granted_when_it_is_loaded() {
    let home = probes(&["ann", "bob"]);
    let tables = "[member.ann]\nallow = [\"log\", \"files:docs\"]\n[member.ann.limits]\nrun_seconds = 7\nhandles = 70\n\
                  [member.bob]\ndeny = [\"*\"]\n";
    configure(&home, "", tables);
    let host = home.serve_roster(&["-v", "--config", home.path("guild.toml").to_str().unwrap()]);
    let logged =
        |line: &str| wait_for(line, || host.output().lines().any(|logged| logged.ends_with(line)).then_some(()));
    logged(
        r#"granted member=ann granted="log, files, Read, Grep, Glob, WebSearch" roots="docs" narrowed="handles, run_seconds""#,
    );
    logged(r#"granted member=bob granted="" roots="" narrowed="""#);
}

fn guild(home: &Home, arguments: &[&str]) -> String {
    let output = home.run(arguments);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    format!("{out}{err}")
}

fn json_of(home: &Home, arguments: &[&str]) -> Value {
    let text = guild(home, arguments);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

const LOOK: [&str; 4] = ["--config", "guild.toml", "--members", "members"];

#[test]
fn members_shows_what_is_granted_and_why_the_rest_is_not() {
    let home = probes(&["team/ann"]);
    configure(&home, "", "[member.\"team/*\"]\ndeny = [\"memory:write\", \"files:src\"]\n");
    let shown = guild(&home, &[&["members", "team/ann", "--grants"][..], &LOOK].concat());
    let row = |name: &str| {
        let rows: Vec<&str> = shown.lines().map(str::trim).filter(|line| line.starts_with(name)).collect();
        rows.first().unwrap_or_else(|| panic!("{name}: {shown}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(row("team/ann") == "team/ann" && row("log") == "log granted" && row("Read") == "Read granted", "{shown}");
    assert!(row("web ").starts_with("web denied guild.toml has no [web]"), "{shown}");
    let why = r#"[member."team/*"] in guild.toml denies it; take "memory:write" out of its `deny` to allow it"#;
    assert_eq!(row("memory:write"), format!("memory:write denied {why}"));
    assert_eq!(row("files:docs"), "files:docs granted");
    let why = "\"files:src\" in a `deny` of guild.toml names it; remove it to allow the root";
    assert_eq!(row("files:src"), format!("files:src denied {why}"));
    // What there is, and not what was asked for: no web is open here.
    assert_eq!(row("session tools"), "session tools Read, Grep, Glob, WebSearch");
    let why = "`web:search` is not granted";
    assert_eq!(row("a search finds"), format!("a search finds the files in the granted read roots: {why}"));
    assert_eq!(row("memory "), "memory granted");
    assert!(row("a job uses at most").contains("500 turns, 5.00 USD, 3,600 s"), "{shown}");

    let all = json_of(&home, &[&["members", "--grants", "--json"][..], &LOOK].concat());
    let requested = &all[0]["grants"]["requested"];
    assert_eq!((&all[0]["member"], &requested["memory:write"]["verdict"]), (&json!("team/ann"), &json!("denied")));
    assert_eq!(requested["log"]["verdict"], "granted");
    assert_eq!(all[0]["grants"]["readRoots"][1]["verdict"], "denied");
    let plain = json_of(&home, &[&["members", "--json"][..], &LOOK].concat());
    assert!(plain[0]["state"] == "ready" && plain[0]["grants"][0] == "log", "{plain}");

    let doctor = guild(&home, &[&["doctor"][..], &LOOK].concat());
    assert!(doctor.contains("`memory:write` is not granted: [member.\"team/*\"]"), "{doctor}");
}

#[test]
fn members_shows_every_limit_and_where_it_comes_from() {
    let home = probes(&["ann"]);
    let mut grants = guest::everything();
    grants["artifacts"] = json!({"bytes": 5000, "entries": 1_000_000});
    asking(&home, "ann", grants);
    home.edit_manifest("ann", |manifest| {
        manifest["component"]["resources"] = json!({"maxTurns": 7, "maxBudgetUsd": 9.0, "deadlineSeconds": 60});
    });
    let tables = "[limits]\nnote_bytes = 2000\nconnections = 4096\n[member.\"*\".limits]\nnote_bytes = 1000\nresumes = 2\n\
                  [member.ann.limits]\nnote_bytes = 1500\n";
    configure(&home, "", tables);
    let shown = guild(&home, &[&["members", "ann", "--limits"][..], &LOOK].concat());
    let row = |name: &str| {
        let row = shown.lines().find(|line| line.trim().starts_with(name)).unwrap_or_else(|| panic!("{name}: {shown}"));
        row.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("note_bytes"), "1,000 [member.\"*\".limits]");
    assert_eq!(row("resumes"), "2 [member.\"*\".limits]");
    assert_eq!(row("artifacts_bytes"), "5,000 manifest");
    assert_eq!((row("artifacts_entries"), row("connections")), ("4,096 default".into(), "4,096 [limits]".into()));
    assert_eq!((row("session_turns"), row("session_seconds")), ("7 manifest".into(), "60 manifest".into()));
    assert_eq!((row("session_seconds"), row("session_budget_usd")), ("60 manifest".into(), "5.0 default".into()));
    let bounds = json_of(&home, &[&["members", "ann", "--grants", "--json"][..], &LOOK].concat());
    let bounds = &bounds[0]["grants"]["bounds"];
    assert_eq!(bounds, &json!({"maxTurns": 7, "maxBudgetUsd": 5.0, "deadlineSeconds": 60}));
    let all = json_of(&home, &[&["members", "ann", "--limits", "--json"][..], &LOOK].concat());
    let limits = all[0]["limits"].as_array().unwrap();
    assert_eq!(limits.len(), guild_contract::Limits::ALL.len());
    assert!(limits.contains(&json!({"name": "note_bytes", "value": 1000, "source": "[member.\"*\".limits]"})));

    configure(&home, "", "[member.ann.limits]\n\nmemory_bytes = 67108865\n");
    let refused = guild(&home, &[&["members"][..], &LOOK].concat());
    assert!(refused.contains("memory_bytes = 67108865 is above limits.memory_bytes = 67108864"), "{refused}");
    assert!(refused.contains("guild.toml:8: member.ann.limits: "), "{refused}");
}

#[test]
fn a_member_that_says_it_is_another_one_has_its_own_grants() {
    let home = probes(&["ann", "eve"]);
    home.edit_manifest("eve", |manifest| manifest["name"] = json!("ann"));
    configure(&home, "members = \"members\"\n", "[member.eve]\ndeny = [\"files\"]\n");
    let eve: PathBuf = home.path("members/eve");
    let config = home.path("guild.toml");
    let host = home.serve(Path::new(&eve), &["--config", config.to_str().unwrap()]);
    let outcomes = report(&host.client(), "file docs/owls.md");
    is_refused(&outcomes, "file docs/owls.md", "[member.\"eve\"]");
}

#[test]
fn a_second_root_of_the_same_name_is_an_error_and_no_other_name_for_the_first() {
    let home = probes(&["ann"]);
    configure(&home, "", "[[roots]]\npath = \"other/docs\"\n[member.\"*\"]\ndeny = [\"files:docs\"]\n");
    home.write("other/docs/secret.md", "swordfish");
    let text = guild(&home, &[&["members", "--grants"][..], &LOOK].concat());
    assert!(text.contains("two read roots are called \"docs\"") && text.contains("a `name` of its own"), "{text}");
    home.write("guild.toml", "[[roots]]\npath = \"docs\"\n");
    let run = ["run", "ann", "file docs/owls.md", "--sources", "other/docs", "--config", "guild.toml"];
    let text = guild(&home, &[&run[..], &["--members", "members"]].concat());
    assert!(text.contains("two read roots are called \"docs\""), "{text}");
}

#[test]
fn members_says_what_is_not_in_service_and_what_there_is_nothing_for() {
    let home = probes(&["ann", "bob", "eve"]);
    asking(&home, "ann", json!({"log": {}}));
    home.edit_manifest("ann", |manifest| manifest["component"]["tools"] = json!(["WebFetch"]));
    asking(&home, "bob", json!({"log": {}}));
    home.edit_manifest("eve", |manifest| manifest["component"]["file"] = json!("gone.wasm"));
    configure(&home, "", "[web]\nallow = []\n[member.bob]\ndeny = [\"files\"]\n");
    let shown = json_of(&home, &[&["members", "--grants", "--json"][..], &LOOK].concat());
    let of = |n: usize| &shown[n]["grants"];
    assert_eq!((&of(0)["roots"], of(0)["hosts"].is_null()), (&Value::Null, false));
    assert_eq!((&of(0)["sessionTools"], &of(0)["searched"]), (&json!([]), &json!("nothing")));
    assert_eq!((&of(1)["sessionTools"], &of(1)["searched"]), (&json!([]), &json!("nothing")));
    // What it would be granted is shown as well.
    assert!(shown[2]["reason"].as_str().unwrap().contains("gone.wasm") && of(2).is_object(), "{shown}");
    let text = guild(&home, &[&["members", "bob", "--grants"][..], &LOOK].concat());
    assert!(text.contains("nothing: guild.toml has no [web.search], and no read root is granted"), "{text}");
    let text = guild(&home, &[&["members", "eve", "--grants"][..], &LOOK].concat());
    assert!(text.contains("not in service: ") && text.contains("gone.wasm"), "{text}");
}

#[test]
fn a_manifest_forges_no_row_of_another_member() {
    let home = probes(&["ann", "eve"]);
    home.edit_manifest("eve", |manifest| manifest["component"]["world"] = json!("x\nforged  ready\u{1b}[2J"));
    configure(&home, "", "");
    for more in [&[][..], &["--grants"], &["--limits"]] {
        let shown = guild(&home, &[&["members"], more, &LOOK].concat());
        assert!(shown.contains("forged") && !shown.lines().any(|line| line.starts_with("forged")), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
    home.edit_manifest("eve", |manifest| {
        manifest["component"]["world"] = json!("autonomous-worker");
        manifest["component"]["file"] = json!("x\nforged  ready");
    });
    let shown = guild(&home, &[&["members"][..], &LOOK].concat());
    assert!(shown.contains("control character") && !shown.lines().any(|line| line.starts_with("forged")), "{shown}");
}

/// Runs a job of a member with the policy in `config/guild`.
fn run(home: &Home, member: &str) -> String {
    guild(home, &["run", member, "a task", "--members", "members"])
}

#[test]
fn an_edited_manifest_is_a_change_and_what_it_asks_for_more_is_shown() {
    let home = Home::new();
    home.quick("quick");
    assert!(run(&home, "quick").starts_with("date\n"));
    home.edit_manifest("quick", |manifest| manifest["component"]["grants"]["artifacts"] = json!({}));
    let shown = run(&home, "quick");
    assert!(shown.contains("+ identity guild-member.json: ") && !shown.contains("+ capability"), "{shown}");
    home.edit_manifest("quick", |manifest| manifest["component"]["grants"]["artifacts"] = json!({"bytes": 7}));
    assert!(run(&home, "quick").contains("+ capability artifacts.bytes: 7"));
}

#[test]
fn no_members_directory_is_a_place_for_the_policy_of_another() {
    let home = Home::new();
    home.quick("quick");
    home.quick("other");
    let policy = home.write("members/other/etc/guild.toml", "");
    let config = ["--config", policy.to_str().unwrap()];
    let text = guild(&home, &[&["run", "quick", "t", "--members", "members"][..], &config].concat());
    assert!(text.contains("guild.toml is in a member's directory"), "{text}");
    assert!(!policy.with_file_name("guild.lock").exists());
}

#[test]
fn what_others_can_write_decides_nothing() {
    let home = Home::new();
    home.quick("quick");
    home.write("config/guild/guild.toml", "");
    home.write("config/guild/guild.trust", "");
    assert!(run(&home, "quick").starts_with("date\n"));
    for file in ["guild.toml", "guild.trust", "guild.lock"] {
        let path = home.path(&format!("config/guild/{file}"));
        for mode in [0o666, 0o646] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let text = run(&home, "quick");
            assert!(text.contains(file) && text.contains("`chmod o-w` it"), "{file}: {text}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    assert!(run(&home, "quick").starts_with("date\n"));
    let lock = home.path("config/guild/guild.lock");
    fs::rename(&lock, home.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(home.path("elsewhere"), &lock).unwrap();
    let text = run(&home, "quick");
    assert!(text.contains("guild.lock") && text.contains("it is a symlink, which is not followed"), "{text}");
}

#[test]
fn what_a_host_writes_can_be_read_again_whatever_the_umask() {
    let home = Home::new();
    home.quick("quick");
    let command = "umask 000; \"$0\" \"$@\" run quick t --members members && \"$0\" token add ci";
    let guild = home.guild();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", command]).arg(guild.get_program()).current_dir(home.path("."));
    shell.envs(guild.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mode = |file: &str| fs::metadata(home.path(&format!("config/guild/{file}"))).unwrap().permissions().mode();
    assert_eq!((mode("guild.lock") & 0o777, mode("guild.tokens") & 0o777), (0o644, 0o600));
    assert!(run(&home, "quick").starts_with("date\n"));
}

#[test]
fn an_approval_reads_no_more_of_a_component_than_its_member_may_have() {
    let home = Home::new();
    home.quick("quick");
    home.write("config/guild/guild.toml", "[member.quick.limits]\ncomponent_bytes = 10\n");
    let text = guild(&home, &["approve", "quick", "--yes", "--members", "members"]);
    assert!(text.contains("component_bytes = 10"), "{text}");
    let shown = json_of(&home, &["members", "--json", "--members", "members"]);
    assert!(shown[0]["approval"].is_null() && shown[0]["state"] == "error", "{shown}");
}
