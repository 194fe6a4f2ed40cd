//! Schemas that came with a member, and values made for them: what takes a validator time and memory.

use std::{
    io::Write,
    net::TcpStream,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::harness::{Case, Hostile, children, task};
use crate::support::{
    guest::Guest,
    host::wait_for,
    mcp::{BOTH, Endpoint, request},
};

/// The time within which a host with idle workers answers. It takes a millisecond; the rest is for a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(2);
/// A schema that takes all that it may.
const ANY: &str = r#"{"type": "object"}"#;
/// A pattern of thousands of states, each of which a text of `a` is in at each place.
const SLOW: &str = r#"{"type": "object", "properties": {"a": {"pattern": "(?:a.{0,900}a.{0,900}a.{0,900})z"}}}"#;

fn call(case: &Case, arguments: Value) -> String {
    let client = Endpoint::new(&case.host, "/members/hostile/mcp");
    let answer = client.post(&request("tools/call", json!({"name": "t", "arguments": arguments})));
    let answer = answer.message();
    let text = &answer["result"]["content"][0]["text"];
    text.as_str().map_or_else(|| answer.to_string(), str::to_owned)
}

/// A member whose tool `t` answers with this JSON.
fn answering(input: &str, output: &'static str, answer: &str) -> Hostile {
    let text = answer.replace('"', "\\22");
    let guest = Guest::default()
        .activate("unreachable")
        .output(output)
        .tools(&[("t", input)])
        .pages(16)
        .with(&format!("(data (i32.const 262144) \"{text}\")"))
        .call(&format!("(call $text (i32.const 0) (i32.const 262144) (i32.const {}))", answer.len()));
    Hostile::hybrid(guest.build())
}

/// Calls the tool so many times at once, and sees that the host answers others all the while.
fn at_once(case: &Case, callers: usize, arguments: &Value) -> Vec<String> {
    let began = Barrier::new(callers + 1);
    thread::scope(|scope| {
        let calls: Vec<_> = (0..callers)
            .map(|_| {
                scope.spawn(|| {
                    began.wait();
                    call(case, arguments.clone())
                })
            })
            .collect();
        began.wait();
        while !calls.iter().all(thread::ScopedJoinHandle::is_finished) {
            let asked = Instant::now();
            assert!(
                case.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").contains("200 OK")
            );
            assert!(asked.elapsed() < AT_ONCE, "the host answered after {:?}", asked.elapsed());
            // Two at a time, and two that are just being ended.
            assert!(children(&case.host).len() <= 4, "a member has two checks at a time");
        }
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

#[test]
fn patterns_that_take_a_minute_delay_nobody_and_are_given_up() {
    let answer = format!("{{\"a\":\"{}\"}}", "a".repeat(120_000));
    answering(ANY, SLOW, &answer).limit("schema_seconds = 1").attacks(|case| {
        let errors = at_once(case, 8, &json!({}));
        let given_up = "the tool t did not answer what its output schema says: checking it takes longer than \
                        the fixed limit schema_seconds = 1";
        assert!(errors.iter().any(|errors| errors == given_up), "{errors:?}");
        let busy = "the inputs and answers of other calls of hostile are being checked; try again";
        assert!(errors.iter().all(|errors| errors == given_up || errors.contains(busy)), "{errors:?}");
    });
}

/// A schema that is applied twice to what is below, for each level; and a value of so many levels.
fn doubling(levels: usize) -> (&'static str, Value) {
    let schema = r##"{"type": "object", "$defs": {"x": {"allOf": [{"items": {"$ref": "#/$defs/x"}}, {"items": {"$ref": "#/$defs/x"}}],
        "type": "array"}}, "properties": {"a": {"$ref": "#/$defs/x"}}}"##;
    let value = (0..levels).fold(json!(1), |value, _| json!([value]));
    (schema, json!({"a": value}))
}

#[test]
fn a_schema_that_doubles_with_each_level_of_a_value_is_given_up() {
    let (schema, value) = doubling(40);
    answering(schema, ANY, "{}").limit("schema_seconds = 1").attacks(|case| {
        let error = call(case, value.clone());
        assert!(error.starts_with("the input is not what t takes: checking it takes "), "{error}");
        assert!(error.contains("the fixed limit schema_"), "{error}");
    });
}

#[test]
fn a_schema_of_thousands_of_parts_for_a_value_of_thousands_is_reported_as_a_few_problems() {
    let schema =
        json!({"type": "object", "properties": {"a": {"items": {"allOf": vec![json!({"type": "string"}); 8000]}}}});
    answering(&schema.to_string(), ANY, "{}").attacks(|case| {
        let error = call(case, json!({"a": vec![1; 2000]}));
        assert!(error.starts_with("the input is not what t takes: "), "{error}");
        assert!(error.len() < 4096, "{}", error.len());
    });
}

#[test]
fn a_schema_of_thousands_of_parts_takes_no_more_memory_than_the_limit() {
    let schema =
        json!({"type": "object", "properties": {"a": {"items": {"allOf": vec![json!({"type": "string"}); 8000]}}}});
    let hostile = answering(&schema.to_string(), ANY, "{}");
    hostile.limit("schema_memory_bytes = 33554432").attacks(|case| {
        let error = call(case, json!({"a": vec![1; 2000]}));
        let why =
            "the input is not what t takes: checking it takes more memory than the fixed limit schema_memory_bytes = \
             33554432";
        assert_eq!(error, why);
    });
}

#[test]
fn a_configuration_that_its_schema_doubles_with_is_given_up() {
    let (schema, value) = doubling(40);
    let schema: Value = serde_json::from_str(schema).unwrap();
    Hostile::worker(Guest::default().activate("unreachable").build())
        .limit("schema_seconds = 1")
        .config_schema(schema)
        .attacks(|case| {
            let mut dispatch = task(1);
            dispatch["config"] = value.clone();
            let refused = case.client().dispatch(dispatch).unwrap_err();
            assert_eq!(refused.code, -32602);
            assert!(
                refused.message.starts_with("`config` is not what hostile takes: checking it takes "),
                "{refused:?}"
            );
        });
}

/// A member with this schema of its jobs' configuration is not served, for this reason.
fn is_no_schema(schema: Value, why: &str) {
    let hostile = Hostile::worker(Guest::default().activate("unreachable").build()).config_schema(schema);
    hostile.attacks(|case| {
        let refused = case.client().dispatch(task(1)).unwrap_err();
        assert!(refused.message.contains("is no JSON Schema: ") && refused.message.contains(why), "{refused:?}");
    });
}

#[test]
fn a_schema_that_nests_to_the_end_of_a_stack_is_refused() {
    let nested = |level: usize| {
        (0..100).fold(json!({"$ref": format!("#/$defs/{}", level + 1)}), |inner, _| json!({"not": inner}))
    };
    let mut defs: serde_json::Map<_, _> = (0..60).map(|level| (level.to_string(), nested(level))).collect();
    defs.insert("60".to_owned(), json!(true));
    is_no_schema(json!({"$defs": defs, "$ref": "#/$defs/0"}), "it nests deeper than 128 levels");
}

#[test]
fn a_reference_that_resolves_elsewhere_than_it_says_is_refused() {
    let twice = vec![json!({"$ref": "#/%24defs/a"}); 2];
    let hidden = json!({"$defs": {"a": {"items": {"allOf": twice}}}, "%24defs": {"a": true}, "$ref": "#/%24defs/a"});
    is_no_schema(hidden, "has a `%`, which is not supported");
}

#[test]
fn patterns_that_take_long_to_compile_delay_nobody() {
    let slow = |n: usize| (n.to_string(), json!({"pattern": format!("(?i:[^\\x00-\\x{{10FFFE}}]){n}")}));
    let slow: serde_json::Map<_, _> = (0..4000).map(slow).collect();
    let schema = json!({"properties": slow});
    let hostile = Hostile::worker(Guest::default().activate("unreachable").build()).config_schema(schema);
    hostile.limit("schema_seconds = 1").attacks(|case| {
        let refused = case.client().dispatch(task(1)).unwrap_err();
        assert!(
            refused.message.contains("checking it takes longer than the fixed limit schema_seconds = 1"),
            "{refused:?}"
        );
    });
}

#[test]
fn a_check_ends_with_its_caller() {
    let (schema, value) = doubling(40);
    let hostile = answering(schema, ANY, "{}");
    hostile.limit("schema_seconds = 60").limit("schema_memory_bytes = 4294967296").attacks(|case| {
        let body = request("tools/call", json!({"name": "t", "arguments": value})).to_string();
        let mut call = TcpStream::connect(("127.0.0.1", case.host.port)).unwrap();
        write!(
            call,
            "POST /members/hostile/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: {BOTH}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        wait_for("the check", || (!children(&case.host).is_empty()).then_some(()));
        drop(call);
        wait_for("the check to end", || children(&case.host).is_empty().then_some(()));
    });
}
