//! Meetings through the real host: its socket, a real component, a local provider that streams. `host/hall` has what holds of
//! one meeting; here is that all of it is wired, and that what was said survives the host.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
};

use guild_fakes::{Gate, OpenAi, Received, Reply};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    commissions::Hall,
    support::{
        guest,
        host::{Client, PATIENCE, wait_for},
    },
};

/// A stream of events, as it comes.
pub(crate) struct Events(BufReader<UnixStream>);

impl Events {
    fn ask(hall: &Hall, method: &str, path: &str, body: &Value) -> Self {
        let mut stream = UnixStream::connect(hall.home.path("hall/guild-hall.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = body.to_string();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn post(hall: &Hall, path: &str, body: &Value) -> Self {
        Self::ask(hall, "POST", path, body)
    }

    fn open(hall: &Hall, agenda: &str) -> Self {
        Self::open_with(hall, "researcher", agenda)
    }

    pub(crate) fn open_with(hall: &Hall, worker: &str, agenda: &str) -> Self {
        let body = json!({"projectName": "demo", "workerName": worker, "prompt": agenda});
        Self::post(hall, "/meeting/request/meeting/create", &body)
    }

    /// Opens a meeting, and waits for the end of its first turn. Its id.
    fn opened(hall: &Hall) -> String {
        let mut first = Self::open(hall, "Moths");
        let id = first.until("session").1["meetingId"].as_str().unwrap().to_owned();
        first.until("turn_end");
        id
    }

    fn say(hall: &Hall, id: &str, message: &str) -> Self {
        Self::post(hall, "/meeting/session/message/send", &json!({"meetingId": id, "message": message}))
    }

    /// The next event with its number, if it has one; `None` at the end.
    fn next(&mut self) -> Option<(u64, Value)> {
        let mut number = 0;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(id) = line.strip_prefix("id: ") {
                number = id.trim().parse().unwrap();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some((number, serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// The next event of that kind; those before it are skipped.
    fn until(&mut self, kind: &str) -> (u64, Value) {
        loop {
            let (number, event) = self.next().unwrap_or_else(|| panic!("no {kind} came"));
            if event["type"] == kind {
                return (number, event);
            }
            assert!(event["type"] != "error", "{event}");
        }
    }

    pub(crate) fn rest(mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.next()).map(|(_, event)| event).collect()
    }
}

/// The texts of events, joined.
fn text(events: &[Value]) -> String {
    events.iter().filter(|event| event["type"] == "text_delta").map(|event| event["text"].as_str().unwrap()).collect()
}

/// What the user said, of a request to a model.
fn said(request: &Received) -> Vec<String> {
    let messages = request.body["messages"].as_array().unwrap();
    let of_user = messages.iter().filter(|message| message["role"] == "user");
    of_user
        .map(|message| message["content"].as_str().map_or_else(|| message["content"].to_string(), str::to_owned))
        .collect()
}

fn read(hall: &Hall, id: &str) -> Value {
    hall.get(&format!("/meeting/request/meeting/read?projectName=demo&meetingId={id}"))
}

#[test]
fn a_client_of_mcp_talks_in_a_meeting_by_tools_and_gets_whole_turns() {
    let runtime = Runtime::new().unwrap();
    let answer = |request: &Received| match said(request).last().map(String::as_str) {
        Some("Link it") if request.turn() < 2 => {
            Reply::call("link_artifact", json!({"artifactPath": "specs/moths.md"}))
        }
        Some("Link it") => Reply::text("Linked."),
        _ => Reply::text("Shall we?"),
    };
    let provider = runtime.block_on(OpenAi::start(answer));
    let hall = Hall::with_researcher(&provider);
    let host = hall.serve();
    let client = Client::new(host.port, "/hall/mcp");
    let call = |tool: &str, arguments: Value| {
        client.call("tools/call", json!({"name": tool, "arguments": arguments})).unwrap()
    };
    let opened = call("open_meeting", json!({"projectName": "demo", "workerName": "researcher", "prompt": "Moths"}));
    assert_eq!((&opened["isError"], &opened["structuredContent"]["text"]), (&json!(false), &json!("Shall we?")));
    let id = opened["structuredContent"]["meetingId"].clone();
    let said = call("send_message", json!({"meetingId": id, "message": "Link it"}));
    let turn = &said["structuredContent"];
    assert_eq!((&turn["text"], &turn["tools"]), (&json!("Linked."), &json!(["link_artifact"])), "{said}");
    assert_eq!(turn.get("error"), None);
    // The same by the method of JSON-RPC.
    let said = client.call("meeting/send", json!({"meetingId": id, "message": "Go on"})).unwrap();
    assert_eq!((&said["meetingId"], &said["text"]), (&id, &json!("Shall we?")));
    let refused = call("open_meeting", json!({"projectName": "demo", "workerName": "nobody", "prompt": "Moths"}));
    assert_eq!(refused["isError"], true, "{refused}");
}

#[test]
fn a_user_talks_with_a_worker_as_it_streams_and_goes_on_after_a_restart() {
    let runtime = Runtime::new().unwrap();
    let gate = Gate::closed();
    let answer = {
        let gate = gate.clone();
        move |request: &Received| match said(request).last().map(String::as_str) {
            Some("Go on") => Reply::text("And so it goes."),
            Some("Link it") if request.turn() < 2 => {
                Reply::call("link_artifact", json!({"artifactPath": "specs/moths.md"}))
            }
            Some("Link it") => Reply::text("Linked."),
            Some(notes) if notes.contains("# Transcript") => Reply::text("Moths were discussed."),
            _ => Reply::text("I am the researcher. Shall we?").slowly(&gate),
        }
    };
    let provider = runtime.block_on(OpenAi::start(answer));
    let hall = Hall::with_researcher(&provider);
    let host = hall.serve();
    let mut first = Events::open(&hall, "How long do moths live?");
    // The first piece is there before the answer has an end.
    gate.pass(3);
    let (_, session) = first.until("session");
    let id = session["meetingId"].as_str().unwrap().to_owned();
    first.until("text_delta");
    gate.open();
    let rest = first.rest();
    assert_eq!(rest.last().unwrap()["type"], "turn_end", "{rest:?}");

    let linked = Events::say(&hall, &id, "Link it").rest();
    let result = linked.iter().find(|event| event["type"] == "tool_result").unwrap();
    assert_eq!((&result["name"], &result["output"]), (&json!("link_artifact"), &json!("specs/moths.md is linked.")));
    assert_eq!(read(&hall, &id)["meeting"]["linked_artifacts"], json!(["specs/moths.md"]));
    drop(host);

    let _host = hall.serve();
    let on = Events::say(&hall, &id, "Go on").rest();
    assert_eq!(text(&on), "And so it goes.");
    let last = provider.requests().pop().unwrap();
    assert_eq!(said(&last).len(), 3, "the model is told all that was said: {}", last.body);
    let calls = provider.requests().iter().filter(|request| request.tool_names().contains("submit_result")).count();
    assert_eq!(calls, 0, "there is no submit_result in a meeting");
    let detail = read(&hall, &id);
    let messages = detail["parsedMessages"].as_array().unwrap();
    assert_eq!(messages.len(), 6, "{messages:#?}");
    assert_eq!(messages[3]["toolUses"][0]["name"], "link_artifact");

    let (status, closed) = hall.post("/meeting/session/meeting/close", json!({"meetingId": id}));
    assert_eq!((status, &closed["notes"]), (200, &json!("Moths were discussed.")), "{closed}");
    let record = fs::read_to_string(hall.home.path("hall/projects/demo/.lore/work/meetings").join(format!("{id}.md")));
    assert!(record.unwrap().ends_with("---\nMoths were discussed.\n"));
}

#[test]
fn a_turn_that_the_host_was_killed_in_is_marked_as_cut_off_and_no_call_is_made_again() {
    let runtime = Runtime::new().unwrap();
    let gate = Gate::closed();
    let answer = {
        let gate = gate.clone();
        move |request: &Received| match (said(request).last().map(String::as_str), request.turn()) {
            (Some("Write it"), _) if said(request).len() == 2 => match request.body.to_string().contains("is noted") {
                false => Reply::call("summarize_progress", json!({"summary": "Once"})),
                true => Reply::text("I have noted that. What else is there to say?").slowly(&gate),
            },
            (Some("Go on"), _) => Reply::text("Yes."),
            _ => Reply::text("Hello."),
        }
    };
    let provider = runtime.block_on(OpenAi::start(answer));
    let hall = Hall::with_researcher(&provider);
    let host = hall.serve();
    let id = Events::opened(&hall);
    let mut turn = Events::say(&hall, &id, "Write it");
    turn.until("tool_result");
    gate.pass(3);
    turn.until("text_delta");
    host.kill();
    gate.open();

    let _host = hall.serve();
    let detail = wait_for("the turn to be marked", || {
        let detail = read(&hall, &id);
        let last = detail["parsedMessages"].as_array().unwrap().last().unwrap().clone();
        (last["role"] == "system").then_some(detail)
    });
    let messages = detail["parsedMessages"].as_array().unwrap();
    assert!(messages.last().unwrap()["content"].as_str().unwrap().contains("cut off"), "{messages:#?}");
    assert_eq!(messages[2]["content"], "Write it", "all that was said before is there");
    assert!(!messages[3]["content"].as_str().unwrap().is_empty(), "what had been streamed, too");
    let on = Events::say(&hall, &id, "Go on").rest();
    assert_eq!(text(&on), "Yes.");
    let record = fs::read_to_string(
        hall.home.path("hall/worktrees/demo").join(format!("meeting-{id}/.lore/work/meetings/{id}.md")),
    );
    assert_eq!(record.unwrap().matches("event: progress_summary").count(), 1);
}

#[test]
fn a_meeting_goes_on_once_its_worker_that_was_built_anew_is_approved() {
    let runtime = Runtime::new().unwrap();
    let provider =
        runtime.block_on(OpenAi::start(|request: &Received| Reply::text(format!("{}.", said(request).len()))));
    let hall = Hall::with_researcher(&provider);
    let host = hall.serve();
    let id = Events::opened(&hall);
    host.kill();
    let rebuild = || {
        let file = hall.home.path("members/researcher/researcher.wasm");
        fs::write(&file, [fs::read(&file).unwrap(), vec![0, 2, 1, b'v']].concat()).unwrap();
    };
    let approve = || {
        let output = hall.home.run(&["approve", "researcher", "--members", "members", "--yes"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };

    rebuild();
    let host = hall.serve();
    let refused = Events::say(&hall, &id, "B").rest();
    let why = refused.last().unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("researcher is not in service") && why.contains("guild approve"), "{why}");
    approve();
    // It is in service within a moment.
    let on = wait_for("the meeting to go on", || {
        let events = Events::say(&hall, &id, "C").rest();
        (events.last().unwrap()["type"] == "turn_end").then_some(events)
    });
    assert_eq!(text(&on), "2.");
    host.kill();

    // Nor is it lost where no host runs meanwhile.
    rebuild();
    approve();
    let _host = hall.serve();
    assert_eq!(text(&Events::say(&hall, &id, "D").rest()), "3.");
    let (status, answer) = hall.post("/meeting/session/meeting/close", json!({"meetingId": id}));
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn notes_are_written_also_where_a_toolbox_of_the_worker_is_gone() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|request: &Received| match said(request).last() {
        Some(asked) if asked.contains("# Transcript") => Reply::text("Moths were discussed."),
        _ => Reply::text("Hello."),
    }));
    let hall = Hall::with_researcher(&provider);
    hall.toolbox("tools", &guest::toolbox("(call $ok (local.get 2) (local.get 3))"));
    let host = hall.serve();
    let id = Events::opened(&hall);
    host.kill();
    hall.home.write("members/tools/guest.wasm", "garbage");
    let _host = hall.serve();
    let refused = Events::say(&hall, &id, "B").rest();
    assert!(refused.last().unwrap()["reason"].as_str().unwrap().contains("tools"), "{refused:?}");
    let (status, closed) = hall.post("/meeting/session/meeting/close", json!({"meetingId": id}));
    assert_eq!((status, &closed["notes"]), (200, &json!("Moths were discussed.")), "{closed}");
}

#[test]
fn a_turn_outlives_its_listeners_and_whoever_comes_back_joins_it() {
    let runtime = Runtime::new().unwrap();
    let gate = Gate::closed();
    let answer = {
        let gate = gate.clone();
        move |request: &Received| match said(request).last().map(String::as_str) {
            Some("Slowly") => Reply::text("one two three four five six seven eight nine ten").slowly(&gate),
            _ => Reply::text("Hello."),
        }
    };
    let provider = runtime.block_on(OpenAi::start(answer));
    let hall = Hall::with_researcher(&provider);
    let _host = hall.serve();
    let id = Events::opened(&hall);

    let mut turn = Events::say(&hall, &id, "Slowly");
    gate.pass(4);
    let (number, piece) = turn.until("text_delta");
    drop(turn);
    let refused = Events::say(&hall, &id, "Faster").rest();
    assert_eq!((refused.len(), &refused[0]["type"]), (1, &json!("error")));
    assert!(refused[0]["reason"].as_str().unwrap().contains("a turn is running"), "{refused:?}");
    let join = |after: u64| {
        let path = format!("/meeting/session/generation/subscribe?meetingId={id}&after={after}");
        Events::ask(&hall, "GET", &path, &json!({}))
    };
    let (all, late) = (join(0), join(number));
    gate.open();
    let (all, late) = (all.rest(), late.rest());
    assert_eq!(text(&all), "one two three four five six seven eight nine ten");
    assert_eq!(format!("{}{}", piece["text"].as_str().unwrap(), text(&late)), text(&all));
    assert_eq!(late.last().unwrap()["type"], "turn_end");
}

#[test]
fn the_built_in_runtime_searches_and_says_that_it_does_not_converse() {
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    let _host = hall.serve();
    let first = Events::open(&hall, "How long does the luna moth live?").rest();
    assert_eq!(first.last().unwrap()["type"], "turn_end", "{first:?}");
    assert!(text(&first).contains("I do not converse"), "{}", text(&first));
    assert!(text(&first).contains("The luna moth lives for a week."), "{}", text(&first));
    let id = first[0]["meetingId"].as_str().unwrap().to_owned();
    let (status, closed) = hall.post("/meeting/session/meeting/close", json!({"meetingId": id}));
    assert_eq!(status, 200, "{closed}");
    assert!(closed["notes"].as_str().unwrap().starts_with("These notes were not written by a model"), "{closed}");
}

#[test]
fn a_call_that_the_host_was_killed_in_is_not_made_again_and_the_model_is_told_what_it_may_do() {
    let runtime = Runtime::new().unwrap();
    let gate = Gate::closed();
    let answer = {
        let gate = gate.clone();
        move |request: &Received| match said(request).last().map(String::as_str) {
            Some("Write it") if request.turn() < 2 => Reply::call("read_artifact", json!({"path": "specs/moths.md"}))
                .and_call("summarize_progress", json!({"summary": "Once"})),
            Some("Write it") => Reply::text("That is noted.").slowly(&gate),
            Some("Go on") => Reply::text("Yes."),
            _ => Reply::text("Hello."),
        }
    };
    let provider = runtime.block_on(OpenAi::start(answer));
    let hall = Hall::with_researcher(&provider);
    let host = hall.serve();
    let first = Events::open(&hall, "Moths").rest();
    let id = first[0]["meetingId"].as_str().unwrap().to_owned();
    let job = first[0]["sessionId"].as_str().unwrap();
    let mut turn = Events::say(&hall, &id, "Write it");
    for _ in 0..2 {
        turn.until("tool_result");
    }
    host.kill();
    gate.open();
    // As if it had been killed a moment before: both calls have begun, and neither was answered.
    let path = hall.home.path(&format!("members/researcher/jobs/{job}/transcript.jsonl"));
    let before = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = before.lines().collect();
    let last_call = lines.iter().rposition(|line| line.contains("\"type\":\"call\"")).unwrap();
    let kept = lines[..=last_call].iter().filter(|line| !line.contains("\"type\":\"result\""));
    fs::write(&path, kept.map(|line| format!("{line}\n")).collect::<String>()).unwrap();

    let _host = hall.serve();
    let on = Events::say(&hall, &id, "Go on").rest();
    assert_eq!((text(&on).as_str(), &on[0]["type"]), ("Yes.", &json!("text_delta")), "{on:?}");
    let told = provider.requests().pop().unwrap().body.to_string();
    assert!(told.contains("the tool only reads, so you can call it again"), "{told}");
    assert!(told.contains("it may have had its effect"), "{told}");
    let record = format!("hall/worktrees/demo/meeting-{id}/.lore/work/meetings/{id}.md");
    let record = fs::read_to_string(hall.home.path(&record)).unwrap();
    assert_eq!(record.matches("event: progress_summary").count(), 1);
}

#[test]
fn a_turn_has_the_bounds_of_a_session_and_a_meeting_is_resumed_as_often_as_hosts_start() {
    let runtime = Runtime::new().unwrap();
    let provider =
        runtime.block_on(OpenAi::start(|request: &Received| match said(request).last().map(String::as_str) {
            Some("Look") => Reply::call("list_artifacts", json!({})),
            _ => Reply::text("Hello."),
        }));
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    hall.configure("[limits]\nsession_turns = 1\nresumes = 1");
    hall.ask(&provider);
    let host = hall.serve();
    let first = Events::open(&hall, "Moths").rest();
    let id = first[0]["meetingId"].as_str().unwrap().to_owned();
    host.kill();
    for _ in 0..4 {
        let host = hall.serve();
        let turn = Events::say(&hall, &id, "Go on").rest();
        assert_eq!(turn.last().unwrap()["type"], "turn_end", "{turn:?}");
        host.kill();
    }
    let _host = hall.serve();
    let turn = Events::say(&hall, &id, "Look").rest();
    let why = turn.last().unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("turn"), "{turn:?}");
}

#[test]
fn a_meeting_whose_transcript_is_full_takes_no_message_and_can_be_closed() {
    let runtime = Runtime::new().unwrap();
    let provider =
        runtime.block_on(OpenAi::start(|request: &Received| match said(request).last().map(String::as_str) {
            // It never ends by itself.
            Some("Talk") => Reply::text("moths ".repeat(20_000)).stalls_after(9_000),
            _ => Reply::text("Hello."),
        }));
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    hall.configure("[limits]\ntranscript_bytes = 65536");
    hall.ask(&provider);
    let _host = hall.serve();
    let first = Events::open(&hall, "Moths").rest();
    let id = first[0]["meetingId"].as_str().unwrap().to_owned();
    let full = Events::say(&hall, &id, "Talk").rest();
    let why = full.last().unwrap()["reason"].as_str().unwrap_or_else(|| panic!("{:?}", full.last()));
    assert!(why.contains("transcript_bytes"), "{why}");
    let refused = Events::say(&hall, &id, "More").rest();
    assert!(refused[0]["reason"].as_str().unwrap().contains("close it, and open another"), "{refused:?}");
    let (status, closed) = hall.post("/meeting/session/meeting/close", json!({"meetingId": id}));
    assert_eq!(status, 200, "{closed}");
}

#[test]
fn nobody_can_talk_with_a_worker_that_carries_its_work_out_itself() {
    let hall = Hall::new(&["demo"]);
    hall.home.endless("endless");
    let _host = hall.serve();
    let events = Events::open_with(&hall, "endless", "Moths").rest();
    let why = events.last().unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("carries its work out itself") && why.contains("`run`"), "{events:?}");
    assert_eq!(hall.get("/meeting/session/meeting/list")["sessions"], json!([]));
    for of in ["", "&status=open", "&projectName=demo", "&status=asleep"] {
        assert_eq!(hall.get(&format!("/meeting/request/meeting/list?view=all{of}"))["meetings"], json!([]), "{of}");
    }
}

#[test]
fn a_call_that_an_interrupt_ends_is_answered_in_its_own_turn() {
    let runtime = Runtime::new().unwrap();
    let provider =
        runtime.block_on(OpenAi::start(|request: &Received| match said(request).last().map(String::as_str) {
            Some("Do it") => Reply::call("box__do", json!({})),
            _ => Reply::text("Hello."),
        }));
    let hall = Hall::with_researcher(&provider);
    hall.toolbox("box", &guest::toolbox("(loop (br 0)) (i32.const 0)"));
    let _host = hall.serve();
    let first = Events::open(&hall, "Moths").rest();
    let id = first[0]["meetingId"].as_str().unwrap().to_owned();
    let mut turn = Events::say(&hall, &id, "Do it");
    let (_, call) = turn.until("tool_use");
    hall.post("/meeting/session/generation/interrupt", json!({"meetingId": id}));
    let rest = turn.rest();
    let kinds: Vec<&str> = rest.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["tool_result", "error"], "{rest:?}");
    assert_eq!((&rest[0]["toolUseId"], &rest[0]["isError"]), (&call["id"], &json!(true)));
    let on = Events::say(&hall, &id, "Go on").rest();
    assert_eq!((text(&on).as_str(), &on[0]["type"]), ("Hello.", &json!("text_delta")), "{on:?}");
}
