//! A component's tools by the sandbox's own functions: how they are listed, what a call reaches, and how it ends.

use std::fs;

use futures::{StreamExt as _, stream::FuturesUnordered};
use guild_contract::{
    Limits,
    capability::grants::{Pattern, Rule},
};
use guild_sandbox::{CallError, ToolFault};
use guild_session::activation::Refusal;
use serde_json::{Value, json};

use crate::support::{
    guest::{self, ANYTHING, Guest},
    sandbox::{Bench, toolbox, worker},
};

fn asking(grants: Value) -> Value {
    json!({"file": "guest.wasm", "world": "toolbox-plugin", "grants": grants})
}

fn hybrid() -> Value {
    json!({"file": "guest.wasm", "world": "worker-toolbox"})
}

/// What one call of the only tool of this component comes to.
async fn called(limits: Limits, component: &[u8]) -> Result<Result<Value, ToolFault>, CallError> {
    let bench = Bench::new(limits);
    let plugin = bench.prepare(component, toolbox()).unwrap();
    bench.call_tool(&plugin, "do").await
}

/// Answers with what a host function answered at 8192: 9 for no error, else which of `host-error` it was.
const ERROR: &str = "(i32.store8 (i32.const 4112)
       (if (result i32) (i32.load8_u (i32.const 8192))
         (then (i32.add (i32.const 48) (i32.load8_u (i32.const 8196)))) (else (i32.const 57))))
     (call $ok (i32.const 4112) (i32.const 1))";
const NOT_GRANTED: u8 = 1;
const NO_JOB: u8 = 3;
const UNAVAILABLE: u8 = 5;
const NO_ERROR: u8 = 9;

#[test]
fn tools_are_those_that_the_component_lists_in_its_order() {
    let bench = Bench::new(Limits::default());
    let tools = [("b", ANYTHING), ("a", r#"{"type": "object", "required": ["x"]}"#)];
    let plugin = bench.prepare(&Guest::default().tools(&tools).build(), toolbox()).unwrap();
    assert!(plugin.is_toolbox());
    let listed: Vec<_> = plugin.tools().iter().map(|tool| (tool.name.as_str(), tool.input_schema.clone())).collect();
    assert_eq!(listed, tools.map(|(name, schema)| (name, serde_json::from_str(schema).unwrap())));
    let plugin = bench.prepare(&Guest::default().tools(&[]).build(), toolbox()).unwrap();
    assert!(plugin.is_toolbox() && plugin.tools().is_empty());
    let plugin = bench.prepare(&guest::refusing("fine"), worker()).unwrap();
    assert!(!plugin.is_toolbox() && plugin.tools().is_empty());
}

#[test]
fn a_component_whose_tools_cannot_be_offered_is_not_loaded_and_the_error_says_which_and_why() {
    let long = "x".repeat(65);
    for (name, schema, why) in [
        ("same", ANYTHING, r#"names the tool "same" twice"#),
        ("", ANYTHING, r#""" is not"#),
        ("two words", ANYTHING, r#""two words" is not"#),
        ("a.b", ANYTHING, r#""a.b" is not"#),
        (&long, ANYTHING, "1 to 64 letters"),
        ("t", "{", r#"input schema of the tool "t" is no JSON object"#),
        ("t", "[]", r#"input schema of the tool "t" is no JSON object"#),
        ("t", "{}", r#"input schema of the tool "t" must say `"type": "object"`"#),
        ("t", r#"{"type": "array"}"#, r#"input schema of the tool "t" must say"#),
    ] {
        let component = Guest::default().tools(&[("same", ANYTHING), (name, schema)]).build();
        let error = Bench::new(Limits::default()).prepare(&component, toolbox()).err().unwrap().to_string();
        assert!(error.starts_with("the component's tools cannot be offered: ") && error.contains(why), "{error}");
    }
}

#[test]
fn a_component_that_cannot_list_its_tools_is_not_loaded() {
    let bench = Bench::new(Limits { list_tools_seconds: 1, ..Limits::default() });
    for (list, why) in [
        ("unreachable", "the component failed in `list-tools`: wasm `unreachable` instruction executed"),
        (
            "(loop (br 0)) (i32.const 0)",
            "`list-tools` did not end within its deadline of 1 s (the fixed limit list_tools_seconds)",
        ),
    ] {
        let error = bench.prepare(&Guest::default().list(list).build(), toolbox()).err().unwrap();
        assert_eq!(error.to_string(), format!("the component's tools cannot be offered: {why}"));
    }
}

#[test]
fn nothing_can_be_reached_while_tools_are_listed() {
    let list = format!(
        "(call $memory.list (i32.const 0) (i32.const 8192))
         (if (i32.ne (i32.load8_u (i32.const 8196)) (i32.const {UNAVAILABLE})) (then unreachable))
         (call $preopens.get-directories (i32.const 8192))
         (if (i32.load (i32.const 8196)) (then unreachable))
         (i32.const 4096)"
    );
    let component = Guest::importing(&["memory", "filesystem/types", "filesystem/preopens"]).list(&list).build();
    Bench::new(Limits::default()).prepare(&component, asking(json!({"memory": {}}))).unwrap();
}

#[tokio::test]
async fn a_call_is_given_its_input_and_answers_with_json() {
    let bench = Bench::new(Limits::default());
    let plugin = bench.prepare(&guest::toolbox("(call $ok (local.get 2) (local.get 3))"), toolbox()).unwrap();
    let input = json!({"text": "\u{fc}\n", "n": [1, null]});
    assert_eq!(plugin.call_tool("do", &input, bench.tool_scope()).await, Ok(Ok(input)));
    let named = guest::toolbox(
        "(i32.store8 (i32.const 4112) (i32.const 34)) (i32.store8 (i32.const 4115) (i32.const 34))
         (memory.copy (i32.const 4113) (local.get 0) (local.get 1)) (call $ok (i32.const 4112) (i32.const 4))",
    );
    assert_eq!(called(Limits::default(), &named).await, Ok(Ok(json!("do"))));
}

#[tokio::test]
async fn each_call_has_its_own_instance() {
    let bench = Bench::new(Limits::default());
    let counts = "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
         (i32.store8 (i32.const 4112) (i32.add (i32.const 48) (global.get $calls)))
         (call $ok (i32.const 4112) (i32.const 1))";
    let component =
        Guest::default().tools(&[("do", ANYTHING)]).call(counts).with("(global $calls (mut i32) (i32.const 0))");
    let plugin = bench.prepare(&component.build(), toolbox()).unwrap();
    for _ in 0..3 {
        assert_eq!(bench.call_tool(&plugin, "do").await, Ok(Ok(json!(1))));
    }
}

#[tokio::test]
async fn the_error_text_of_a_tool_is_passed_on_and_truncated() {
    let fails = |case: u8, bytes: u32| {
        let call = format!("(call $fault (i32.const {case}) (i32.const 8192) (i32.const {bytes}))");
        Guest::default().tools(&[("do", ANYTHING)]).call(&call).with("(data (i32.const 8192) \"why\")").build()
    };
    for (case, fault) in
        [(0, ToolFault::UnknownTool as fn(String) -> ToolFault), (1, ToolFault::InvalidInput), (2, ToolFault::Failed)]
    {
        assert_eq!(called(Limits::default(), &fails(case, 3)).await, Ok(Err(fault("why".to_owned()))));
    }
    let Ok(Err(ToolFault::Failed(text))) = called(Limits::default(), &fails(2, 9000)).await else { panic!() };
    assert_eq!(text.len(), 8192);
}

#[tokio::test]
async fn a_tool_that_was_not_listed_is_unknown_and_the_component_is_not_asked() {
    let bench = Bench::new(Limits::default());
    let plugin = bench.prepare(&guest::toolbox("unreachable"), toolbox()).unwrap();
    assert_eq!(bench.call_tool(&plugin, "Do").await, Ok(Err(ToolFault::UnknownTool("Do".to_owned()))));
}

#[tokio::test]
async fn a_trap_or_an_answer_that_is_no_json_fails_the_call_and_not_the_next() {
    let bench = Bench::new(Limits::default());
    // The input's length chooses: "{}" is answered, anything longer traps, or is cut in the middle.
    let call = "(if (i32.gt_u (local.get 3) (i32.const 9)) (then unreachable))
         (if (i32.gt_u (local.get 3) (i32.const 2)) (then (return (call $ok (local.get 2) (i32.const 3)))))
         (call $ok (local.get 2) (local.get 3))";
    let plugin = bench.prepare(&guest::toolbox(call), toolbox()).unwrap();
    let call = async |input: Value| plugin.call_tool("do", &input, bench.tool_scope()).await;
    let why = "wasm `unreachable` instruction executed".to_owned();
    assert_eq!(call(json!({"long": "enough"})).await, Err(CallError::Trap { call: "call-tool", why }));
    let error = call(json!({"a": 1})).await.unwrap_err().to_string();
    assert!(error.starts_with("the component's answer to `call-tool` is not valid: its output is not JSON"), "{error}");
    assert_eq!(call(json!({})).await, Ok(Ok(json!({}))));
}

#[tokio::test]
async fn a_call_reads_memory_and_has_no_job() {
    let bench = Bench::new(Limits::default());
    fs::create_dir_all(bench.dir.path().join("member/memory")).unwrap();
    let text = "(i32.const 4096) (i32.const 0)";
    for (interface, call, outcome) in [
        ("memory", "(call $memory.list (i32.const 0) (i32.const 8192))".to_owned(), NO_ERROR),
        ("memory", format!("(call $memory.store (i32.const 0) {text} {text} (i32.const 8192))"), NO_JOB),
        ("job-tools", format!("(call $job-tools.update-summary {text} (i32.const 8192))"), NO_JOB),
        ("status", "(call $status.current (i32.const 8192))".to_owned(), NO_JOB),
    ] {
        let component =
            Guest::importing(&[interface]).tools(&[("do", ANYTHING)]).call(&format!("{call} {ERROR}")).build();
        let granted = json!({"memory": {"write": true}, "job-tools": {}, "status": {}});
        let plugin = bench.prepare(&component, asking(granted)).unwrap();
        assert_eq!(bench.call_tool(&plugin, "do").await, Ok(Ok(json!(outcome))), "{call}");
    }
}

#[tokio::test]
async fn what_was_not_granted_answers_not_granted_in_a_tool_call() {
    let mut bench = Bench::new(Limits::default());
    let deny = vec!["memory".parse().unwrap(), "files".parse().unwrap()];
    let members: Pattern = "*".parse().unwrap();
    bench.policy.rules = vec![Rule { members, deny, ..Rule::default() }];
    let text = "(i32.const 4096) (i32.const 0)";
    for (interface, call) in [
        ("memory", "(call $memory.list (i32.const 0) (i32.const 8192))".to_owned()),
        ("files", format!("(call $files.glob {text} (i32.const 1) (i32.const 8192))")),
        // Nobody opened it.
        ("web", format!("(call $web.fetch {text} (i32.const 8192))")),
    ] {
        let component =
            Guest::importing(&[interface]).tools(&[("do", ANYTHING)]).call(&format!("{call} {ERROR}")).build();
        let plugin = bench.prepare(&component, asking(json!({"memory": {}, "files": {}, "web": {}}))).unwrap();
        assert_eq!(bench.call_tool(&plugin, "do").await, Ok(Ok(json!(NOT_GRANTED))), "{interface}");
    }
}

#[tokio::test]
async fn a_hybrid_plans_and_offers_tools_and_a_toolbox_plans_nothing() {
    let bench = Bench::new(Limits::default());
    let refuses = "(i32.store8 (i32.const 4096) (i32.const 1)) (i32.const 4096)";
    let both =
        Guest::default().activate(refuses).tools(&[("do", ANYTHING)]).call("(call $ok (local.get 2) (local.get 3))");
    let plugin = bench.prepare(&both.build(), hybrid()).unwrap();
    assert_eq!(bench.activate(&plugin).await.unwrap().outcome, Err(Refusal::InvalidConfig(String::new())));
    assert_eq!(bench.call_tool(&plugin, "do").await, Ok(Ok(json!({}))));

    let plugin = bench.prepare(&guest::toolbox("unreachable"), toolbox()).unwrap();
    let error = bench.activate(&plugin).await.unwrap_err().to_string();
    assert!(error.contains("exports no `dispatch`"), "{error}");
    let plugin = bench.prepare(&guest::refusing("fine"), worker()).unwrap();
    let error = bench.call_tool(&plugin, "do").await.unwrap_err().to_string();
    assert!(error.contains("exports no `toolbox`"), "{error}");
}

#[test]
fn a_component_exports_all_that_its_world_has() {
    let tools = guest::toolbox("unreachable");
    let plans = guest::refusing("fine");
    for (component, world, missing) in [
        (&plans, "toolbox-plugin", "toolbox"),
        (&plans, "worker-toolbox", "toolbox"),
        (&tools, "worker-toolbox", "dispatch"),
        (&tools, "worker", "dispatch"),
    ] {
        let spec = json!({"file": "guest.wasm", "world": world});
        let error = Bench::new(Limits::default()).prepare(component, spec).err().unwrap().to_string();
        assert!(error.contains(world) && error.contains(&format!("does not export `{missing}`")), "{error}");
    }
}

/// Memory that is reused for the next instance has the component's initial contents.
#[tokio::test]
async fn nothing_of_a_call_is_left_in_the_next_however_much_it_changed() {
    let fails_unless_new_and_changes_all = "
        (local $at i32)
        (if (i32.ne (i32.load8_u (i32.const 60000)) (i32.const 97)) (then unreachable))
        (i32.store8 (i32.const 60000) (i32.const 98))
        (if (i32.eqz (ref.is_null (table.get $t (i32.const 1)))) (then unreachable))
        (table.set $t (i32.const 1) (ref.func $mark))
        (if (i32.ne (memory.grow (i32.const 40)) (i32.const 40)) (then unreachable))
        (local.set $at (i32.const 131072))
        (loop $more
          (if (i32.eqz (i64.eqz (i64.load (local.get $at)))) (then unreachable))
          (i64.store (local.get $at) (i64.const -1))
          (local.set $at (i32.add (local.get $at) (i32.const 8)))
          (br_if $more (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
        (call $ok (local.get 2) (local.get 3))";
    let component = Guest::default()
        .tools(&[("do", ANYTHING)])
        .call(fails_unless_new_and_changes_all)
        .pages(40)
        .with("(data (i32.const 60000) \"a\") (table $t 2 funcref) (func $mark) (elem declare func $mark)");
    let bench = Bench::new(Limits::default());
    let plugin = bench.prepare(&component.build(), toolbox()).unwrap();
    for _ in 0..20 {
        assert_eq!(bench.call_tool(&plugin, "do").await, Ok(Ok(json!({}))));
    }
}

/// A call that sleeps for ever, of a component with so many memories.
fn sleeping(memories: usize) -> Vec<u8> {
    Guest::importing(&["io/poll", "clocks/monotonic-clock"])
        .tools(&[("do", ANYTHING)])
        .call("(call $poll.pollable.block (call $monotonic-clock.subscribe-duration (i64.const -1))) unreachable")
        .with(&"(memory 1)".repeat(memories - 1))
        .build()
}

#[tokio::test]
async fn a_member_s_tool_calls_leave_room_for_another_s() {
    let limits = Limits { live_tool_calls: 8, call_tool_wait_seconds: 1, ..Limits::default() };
    let bench = Bench::new(limits);
    let echoes = guest::toolbox("(call $ok (local.get 2) (local.get 3))");
    let (one, other) = (bench.prepare(&sleeping(1), toolbox()).unwrap(), bench.prepare(&echoes, toolbox()).unwrap());
    // Seven run; the eighth waits in vain, and the last permit is for the other component.
    let mut calls: FuturesUnordered<_> = (0..8).map(|_| bench.call_tool(&one, "do")).collect();
    assert_eq!(calls.next().await, Some(Err(CallError::Busy(1))));
    assert_eq!(bench.call_tool(&other, "do").await, Ok(Ok(json!({}))));
    assert_eq!(calls.len(), 7);
}

/// What all of them need is there, and none is turned away for what another one has taken.
#[tokio::test]
async fn calls_of_a_component_with_many_memories_wait_for_those_and_nobody_waits_with_them() {
    let bench = Bench::new(Limits { call_tool_wait_seconds: 1, ..Limits::default() });
    let echoes = guest::toolbox("(call $ok (local.get 2) (local.get 3))");
    let (wide, other) = (bench.prepare(&sleeping(16), toolbox()).unwrap(), bench.prepare(&echoes, toolbox()).unwrap());
    // Fifteen beyond the first; one member has 128 of those at most.
    let mut calls: FuturesUnordered<_> = (0..9).map(|_| bench.call_tool(&wide, "do")).collect();
    assert_eq!(calls.next().await, Some(Err(CallError::Busy(1))));
    assert_eq!(bench.call_tool(&other, "do").await, Ok(Ok(json!({}))));
    assert_eq!(calls.len(), 8);
}
