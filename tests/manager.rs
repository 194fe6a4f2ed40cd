//! The manager through the real host: a scripted provider in the model's place, real components, real git projects. What holds
//! of each of its tools is in `host/hall`; here is who has them, and who has not.

use guild_fakes::{OpenAi, Provider, Received, Reply};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    auth,
    commissions::Hall,
    meetings::Events,
    support::{
        guest::Guest,
        host::{Home, wait_for},
    },
};

/// The tools that the manager's sessions alone have.
const TOOLS: [&str; 13] = [
    "abandon_commission",
    "add_commission_note",
    "cancel_commission",
    "check_commission_status",
    "create_commission",
    "create_pr",
    "dispatch_commission",
    "git_branch",
    "git_diff",
    "git_log",
    "git_show",
    "git_status",
    "initiate_meeting",
];
const MANAGER: &str = "[hall]\nmanager = \"guild-master\"";

/// The last answer of a tool that a request has.
fn answer(request: &Received) -> Value {
    let messages = request.body["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.iter().rfind(|message| message["role"] == "tool").unwrap().clone();
    let text = last["content"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

fn system_prompt(request: &Received) -> String {
    request.body["messages"][0]["content"].as_str().unwrap().to_owned()
}

fn listed(hall: &Hall) -> Vec<Value> {
    hall.get("/commission/request/commission/list")["commissions"].as_array().unwrap().clone()
}

/// A provider whose model submits a result at once.
fn content(runtime: &Runtime) -> Provider {
    runtime.block_on(OpenAi::start(|request: &Received| match request.turn() {
        0 => Reply::call("submit_result", json!({"summary": "Done."})),
        _ => Reply::text("Done."),
    }))
}

#[test]
fn the_manager_acts_first_and_the_user_reviews() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|request: &Received| match request.turn() {
        0 => {
            let new = json!({"title": "Index", "workerName": "builder", "prompt": "Index it.", "dispatch": false});
            Reply::call("create_commission", new)
        }
        1 => Reply::call("dispatch_commission", json!({"commissionId": answer(request)["commissionId"]})),
        2 => {
            let id = answer(request)["commissionId"].clone();
            Reply::call("add_commission_note", json!({"commissionId": id, "content": "The index comes first."}))
                .and_call("check_commission_status", json!({"commissionId": id}))
        }
        3 => {
            let found = answer(request);
            Reply::call("submit_result", json!({"summary": format!("{} by {}", found["title"], found["createdBy"])}))
        }
        _ => Reply::text("Done."),
    }));
    let hall = Hall::new(&["demo"]);
    hall.home.guild_master("guild-master");
    hall.home.endless("builder");
    hall.configure(MANAGER);
    hall.ask(&provider);
    let host = hall.serve();
    let own = hall.create("demo", "guild-master", json!({"prompt": "Have it indexed."}));
    hall.dispatch(&own);
    let read = hall.until("demo", &own, "completed");
    assert_eq!(read["commission"]["result_summary"], "\"Commission: Index\" by \"manager\"");
    assert_eq!((&read["commission"]["createdBy"], &read["commission"]["source"]), (&json!("user"), &Value::Null));

    let made = listed(&hall).into_iter().find(|one| one["commissionId"] != own.as_str()).unwrap();
    let id = made["commissionId"].as_str().unwrap();
    assert_eq!(
        (&made["createdBy"], &made["worker"], &made["prompt"]),
        (&json!("manager"), &json!("builder"), &json!("Index it."))
    );
    let read = hall.until("demo", id, "in_progress");
    let noted = json!("The index comes first.");
    assert!(
        read["timeline"]
            .as_array()
            .unwrap()
            .iter()
            .any(|entry| entry["event"] == "manager_note" && entry["reason"] == noted)
    );
    let (status, answer) = hall.post("/commission/run/cancel", json!({"commissionId": id, "reason": "Not now"}));
    assert_eq!((status, answer), (200, json!({"status": "ok"})));
    let read = hall.read("demo", id);
    assert_eq!(
        (&read["commission"]["status"], &read["timeline"].as_array().unwrap().last().unwrap()["reason"]),
        (&json!("cancelled"), &json!("Not now"))
    );

    let first = &provider.requests()[0];
    let prompt = system_prompt(first);
    for part in [
        "You are the guild master",
        "Have it indexed.",
        "# The hall at the start of this work",
        "- builder (",
        "- demo; you work on this one",
        &own,
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    let offered = first.tool_names();
    assert!(TOOLS.iter().all(|tool| offered.contains(*tool)), "{offered:?}");
    assert!(!["Write", "Edit", "Bash"].iter().any(|tool| offered.contains(*tool)), "{offered:?}");
    let (status, output) = host.stop();
    assert!(status.success(), "{output}");
}

#[test]
fn its_posture_leaves_three_kinds_of_decisions_to_the_user() {
    let home = Home::new();
    let posture = std::fs::read_to_string(home.guild_master("guild-master").join("posture.md")).unwrap();
    let (_, leaves) = posture.split_once("## What you leave to the user").unwrap();
    let points: Vec<&str> = leaves.split("\n- ").skip(1).collect();
    assert_eq!(points.len(), 3);
    for (point, words) in points.iter().zip([["change", "for"], ["branch", "merges"], ["knowledge", "Ask"]]) {
        assert!(words.iter().all(|word| point.contains(word)), "{point}");
    }
}

#[test]
fn dispatched_without_a_project_the_manager_looks_and_no_more() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|request: &Received| match request.turn() {
        0 => Reply::call("check_commission_status", json!({})),
        1 => Reply::call("submit_result", json!({"output": answer(request)["summary"].to_string()})),
        _ => Reply::text("Done."),
    }));
    let hall = Hall::new(&["demo"]);
    hall.home.guild_master("guild-master");
    hall.home.quick("quick");
    hall.configure(MANAGER);
    hall.ask(&provider);
    let host = hall.serve();
    hall.create("demo", "quick", json!({}));
    let client = host.at("guild-master");
    let job = client.start("How is the work?");
    client.ended(&job);
    let output = client.result(&job).unwrap()["output"].to_string();
    assert!(output.contains(r#"\"pending\":1"#), "{output}");
    let offered = provider.requests()[0].tool_names();
    let own: Vec<_> = TOOLS.into_iter().filter(|tool| offered.contains(*tool)).collect();
    assert_eq!(own, ["check_commission_status"]);
    assert!(system_prompt(&provider.requests()[0]).contains("# The hall at the start of this work"));
}

#[test]
fn a_user_meets_the_manager_and_what_it_commissions_there_says_so() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|request: &Received| match request.turn() {
        0 => Reply::call("create_commission", json!({"title": "Index", "workerName": "quick", "prompt": "Index it."})),
        _ => Reply::text("It is under way."),
    }));
    let hall = Hall::new(&["demo"]);
    hall.home.guild_master("guild-master");
    hall.home.quick("quick");
    hall.configure(MANAGER);
    hall.ask(&provider);
    let _host = hall.serve();
    let events = Events::open_with(&hall, "guild-master", "Have it indexed.").rest();
    assert_eq!(events.last().unwrap()["type"], "turn_end", "{events:?}");
    let first = &provider.requests()[0];
    let offered = first.tool_names();
    assert!(TOOLS.iter().all(|tool| offered.contains(*tool)) && !offered.contains("submit_result"), "{offered:?}");
    assert!(system_prompt(first).contains("# The hall at the start of this work"));
    let made = listed(&hall).pop().unwrap();
    assert_eq!((&made["createdBy"], &made["worker"]), (&json!("manager"), &json!("quick")));
    let id = made["commissionId"].as_str().unwrap();
    hall.until("demo", id, "completed");
    let home = hall.home.path("hall");
    let shown = |arguments: &[&str]| {
        let shown = hall.home.run(&[arguments, &["--home", home.to_str().unwrap()]].concat());
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        String::from_utf8_lossy(&shown.stdout).into_owned()
    };
    assert!(shown(&["commission", "list"]).contains("manager"));
    let one = shown(&["commission", "show", id]);
    assert!(one.lines().any(|line| line.starts_with("made by") && line.ends_with("the manager")), "{one}");
}

#[test]
fn the_built_in_search_cannot_manage_and_says_which_runtimes_can() {
    let hall = Hall::new(&["demo"]);
    hall.home.guild_master("guild-master");
    hall.configure(MANAGER);
    let host = hall.serve();
    let id = hall.create("demo", "guild-master", json!({}));
    hall.dispatch(&id);
    let read = hall.failed("demo", &id);
    let why = read["timeline"].as_array().unwrap().last().unwrap()["reason"].as_str().unwrap().to_owned();
    let refused = host.at("guild-master").dispatch(json!({"description": "d", "task": "t"})).unwrap_err().message;
    for why in [why, refused] {
        assert!(why.contains("cannot work on the runtime `extractive`") && why.contains("`claude` or `api`"), "{why}");
    }
}

#[test]
fn a_copy_of_the_guild_master_under_another_key_is_a_worker_that_manages_nothing() {
    let runtime = Runtime::new().unwrap();
    let provider = content(&runtime);
    let hall = Hall::new(&["demo"]);
    hall.home.guild_master("guild-master");
    // As it comes of `cp -r`.
    hall.home.guild_master("copy");
    hall.home.edit_manifest("copy", |manifest| manifest["name"] = json!("guild-master"));
    // Not by a rule that allows everything either.
    hall.configure(&format!("{MANAGER}\n[member.\"*\"]\nallow = [\"*\"]"));
    hall.ask(&provider);
    let host = hall.serve();
    let id = hall.create("demo", "copy", json!({}));
    hall.dispatch(&id);
    let read = hall.failed("demo", &id);
    let why = read["timeline"].as_array().unwrap().last().unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("copy asks for `hall:manage`") && why.contains("which is guild-master"), "{why}");
    let client = host.at("copy");
    let job = client.start("d");
    client.ended(&job);
    let request = &provider.requests()[0];
    assert!(TOOLS.iter().all(|tool| !request.tool_names().contains(*tool)), "{:?}", request.tool_names());
    assert!(!system_prompt(request).contains("# The hall at the start of this work"));
    let shown =
        hall.home.run(&["members", "copy", "--members", hall.home.path("members").to_str().unwrap(), "--grants"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("hall:manage") && shown.contains("only the manager can hold it"), "{shown}");
    // The key is the manager's, whoever else says that it is called so; what both are called is nobody's.
    let id = hall.create("demo", "guild-master", json!({}));
    hall.dispatch(&id);
    hall.until("demo", &id, "completed");
    let both = json!({"projectName": "demo", "workerName": "Guild Master", "title": "t", "prompt": "p"});
    let (status, answer) = hall.post("/commission/request/commission/create", both);
    let why = answer["error"].as_str().unwrap();
    assert!(status == 409 && why.contains("name one by its key, copy or guild-master"), "{status} {why}");
}

#[test]
fn where_nobody_is_named_nobody_manages() {
    let hall = Hall::new(&["demo"]);
    hall.home.guild_master("guild-master");
    let _host = hall.serve();
    let id = hall.create("demo", "guild-master", json!({}));
    hall.dispatch(&id);
    let read = hall.failed("demo", &id);
    let why = read["timeline"].as_array().unwrap().last().unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("only the manager can hold it, and there is none") && why.contains("[hall]"), "{why}");
}

#[test]
fn a_session_of_another_worker_has_no_tool_of_the_managers() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|request: &Received| match request.turn() {
        0 => Reply::call("create_commission", json!({"title": "t", "workerName": "researcher", "prompt": "p"})),
        1 => Reply::call("submit_result", json!({"summary": answer(request).to_string()})),
        _ => Reply::text("Done."),
    }));
    let hall = Hall::new(&["demo"]);
    hall.home.guild_master("guild-master");
    hall.home.researcher("researcher");
    hall.configure(MANAGER);
    hall.ask(&provider);
    let _host = hall.serve();
    let id = hall.create("demo", "researcher", json!({"createdBy": "manager"}));
    hall.dispatch(&id);
    let read = hall.until("demo", &id, "completed");
    let told = read["commission"]["result_summary"].as_str().unwrap();
    assert!(told.contains("no tool") && told.contains("create_commission"), "{told}");
    let all = listed(&hall);
    assert_eq!((all.len(), &all[0]["createdBy"]), (1, &json!("user")), "who made it is not the caller's to say");
}

#[test]
fn one_message_to_the_manager_leads_to_so_many_commissions_and_dollars() {
    let runtime = Runtime::new().unwrap();
    let asks =
        |new: Value| (0..40).fold(Reply::text("I ask."), |reply, _| reply.and_call("create_commission", new.clone()));
    let provider = runtime.block_on(OpenAi::start(move |request: &Received| {
        let turn = request.turn();
        let new = json!({"title": "Index", "workerName": "quick", "prompt": "Index it.", "dispatch": false});
        if request.body.to_string().contains("Spend it") {
            let mut costly = new;
            costly["resourceOverrides"] = json!({"maxBudgetUsd": 4.0});
            return if turn == 0 { asks(costly) } else { Reply::text("It is asked for.") };
        }
        if turn == 0 { asks(new) } else { Reply::text("It is asked for.") }
    }));
    let hall = Hall::new(&["demo"]);
    hall.home.guild_master("guild-master");
    hall.home.quick("quick");
    hall.configure(&format!("{MANAGER}\ndelegation_commissions = 3\ndelegation_budget_usd = 9.0"));
    hall.home.edit_manifest("quick", |manifest| manifest["component"]["resources"] = json!({"maxBudgetUsd": 1.0}));
    hall.ask(&provider);
    let _host = hall.serve();
    Events::open_with(&hall, "guild-master", "Have it indexed.").rest();
    assert_eq!(listed(&hall).len(), 3);
    let told = provider.requests().last().unwrap().body.to_string();
    assert!(told.contains("hall.delegation_commissions"), "{told}");
    Events::open_with(&hall, "guild-master", "Spend it.").rest();
    assert_eq!(listed(&hall).len(), 5, "two of 4 dollars each are within 9");
    let told = provider.requests().last().unwrap().body.to_string();
    assert!(told.contains("hall.delegation_budget_usd"), "{told}");
}

#[test]
fn a_token_that_is_not_for_the_manager_does_not_reach_it() {
    let hall = Hall::new(&["demo"]);
    hall.home.guild_master("guild-master");
    hall.home.quick("quick");
    hall.configure(MANAGER);
    let token = auth::add(&hall.home, &["ann", "--members", "quick"]);
    let reads = auth::add(&hall.home, &["bob", "--role", "view"]);
    let host = hall.serve();
    let params = json!({"description": "d", "task": "t"});
    let refused = auth::call(&host, "guild-master", &token, "worker/dispatch", params.clone());
    assert_eq!(refused.status, 403, "{}", refused.why());
    assert!(refused.why().contains("guild-master"), "{}", refused.why());
    let refused = auth::call(&host, "guild-master", &reads, "worker/dispatch", params);
    assert_eq!(refused.status, 403, "{}", refused.why());
}

/// A component that manages by itself: it has the text at 1100 done by the worker whose name is at 1024.
fn boss() -> Vec<u8> {
    let text = |at: u32, len: usize| format!("(i32.const {at}) (i32.const {len})");
    let run = format!(
        "(call $manager.create-commission {title} {worker} {prompt} (i32.const 0) (i32.const 0)
           (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (f64.const 0)
           (i32.const 1) (i32.const 8192))
         (if (i32.load8_u (i32.const 8192))
           (then (return (call $failed (i32.load (i32.const 8200)) (i32.load (i32.const 8204))))))
         (call $ok (i32.load (i32.const 8196)) (i32.load (i32.const 8200)))",
        title = text(1100, 8),
        worker = text(1024, 5),
        prompt = text(1100, 8),
    );
    let data = "(data (i32.const 1024) \"quick\") (data (i32.const 1100) \"Index it\")";
    Guest::importing(&["manager"]).run(&run).with(data).build()
}

/// A member of that component, which asks for the grant.
fn boss_in(home: &Home, name: &str) {
    home.member(name, "autonomous-worker", &boss());
    home.edit_manifest(name, |manifest| manifest["component"]["grants"] = json!({"hall": {"manage": true}}));
}

#[test]
fn a_component_manages_by_the_same_tools_where_it_is_the_managers_and_answers_not_granted_elsewhere() {
    let hall = Hall::new(&["demo"]);
    boss_in(&hall.home, "boss");
    boss_in(&hall.home, "copy");
    hall.home.quick("quick");
    hall.configure("[hall]\nmanager = \"boss\"");
    let host = hall.serve();
    let own = hall.create("demo", "boss", json!({}));
    hall.dispatch(&own);
    let made = hall.until("demo", &own, "completed")["commission"]["result_summary"].as_str().unwrap().to_owned();
    let read = hall.until("demo", &made, "completed");
    assert_eq!((&read["commission"]["createdBy"], &read["commission"]["worker"]), (&json!("manager"), &json!("quick")));

    // In a job of its own that belongs to no project it can do nothing.
    let failed = |member: &str| {
        let client = host.at(member);
        let job = client.start("d");
        client.ended(&job)["error"].as_str().unwrap().to_owned()
    };
    let why = failed("boss");
    assert!(why.contains("works on the project of a commission or a meeting"), "{why}");
    let why = failed("copy");
    assert!(why.contains("did not grant `hall:manage`") && why.contains("which is boss"), "{why}");
    let id = hall.create("demo", "copy", json!({}));
    hall.dispatch(&id);
    let read = hall.failed("demo", &id);
    let why = read["timeline"].as_array().unwrap().last().unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("copy asks for `hall:manage`"), "{why}");
    assert_eq!(listed(&hall).iter().filter(|one| one["createdBy"] == "manager").count(), 1);
}

#[test]
fn a_component_that_imports_manager_and_does_not_ask_for_it_is_not_loaded() {
    let hall = Hall::new(&["demo"]);
    hall.home.member("sly", "autonomous-worker", &boss());
    hall.configure("[hall]\nmanager = \"sly\"");
    let host = hall.serve();
    let why = wait_for("the member to be refused", || {
        let members = host.members();
        let sly = members.iter().find(|member| member["member"] == "sly")?;
        sly["error"].as_str().map(str::to_owned)
    });
    assert!(why.contains("guild:worker/manager@0.1.0") && why.contains("\"hall\": {\"manage\": true}"), "{why}");
}

#[test]
fn a_component_reads_the_hall_where_it_was_granted_and_is_told_the_grant_elsewhere() {
    let run = "(call $hall.workers (i32.const 8192)) (call $outcome)";
    let component = Guest::importing(&["hall"]).run(run).build();
    let hall = Hall::new(&["demo"]);
    for name in ["reader", "denied"] {
        hall.home.member(name, "autonomous-worker", &component);
        hall.home.edit_manifest(name, |manifest| manifest["component"]["grants"] = json!({"hall": {"read": true}}));
    }
    hall.configure("[member.denied]\ndeny = [\"hall:read\"]");
    let host = hall.serve();
    let client = host.at("reader");
    let job = client.start("d");
    client.ended(&job);
    assert_eq!(client.result(&job).unwrap()["output"], "ok");
    let client = host.at("denied");
    let job = client.start("d");
    let why = client.ended(&job)["error"].as_str().unwrap().to_owned();
    assert!(why.contains("did not grant `hall:read`") && why.contains("[member.\"denied\"]"), "{why}");
    host.stop();

    let host = hall.home.serve_roster(&[]);
    let client = host.at("reader");
    let job = client.start("d");
    let why = client.ended(&job)["error"].as_str().unwrap().to_owned();
    assert!(why.contains("serves no hall") && why.contains("guild serve --hall"), "{why}");
}
