//! JSON-RPC 2.0 and MCP, on a member that has no jobs.

use guild_contract::Limits;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Server, host, manifest};

/// A server of one member, and the member's directory.
async fn server_of(manifest: &Value, limits: Limits) -> (Server, TempDir) {
    let home = tempfile::Builder::new().prefix("member-").tempdir().unwrap();
    (Server::start(host(home.path(), manifest, limits).await), home)
}

async fn server() -> (Server, TempDir) {
    server_of(&manifest("tester"), Limits::default()).await
}

fn code_and_message(answer: &Value) -> (i64, &str) {
    (answer["error"]["code"].as_i64().unwrap(), answer["error"]["message"].as_str().unwrap())
}

#[tokio::test]
async fn an_id_comes_back_byte_for_byte() {
    let (server, _home) = server().await;
    for id in [
        "1",
        "0",
        "-1",
        "1.0",
        "1e3",
        "1E+3",
        "-0.0",
        "18446744073709551616",
        "123456789012345678901234567890.5",
        "\"\"",
        "\"a b\"",
        "\"\\u00fc\\n\\\"\"",
        "\"ü\"",
        "null",
    ] {
        let reply = server.post("/mcp", &format!(r#"{{"jsonrpc":"2.0","id": {id} ,"method":"ping"}}"#)).await;
        assert_eq!(reply.body, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
}

#[tokio::test]
async fn two_clients_with_the_same_ids_get_their_own_answers() {
    let (server, _home) = server().await;
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let first = one.post("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await.json();
    let second = two.post("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    assert_eq!((&first["result"], &second["result"]), (&json!({}), &json!({"tools": []})));
    let again = one.post("/mcp", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await.json();
    assert_eq!(again, first);
}

#[tokio::test]
async fn malformed_json_is_32700() {
    let (server, _home) = server().await;
    for body in ["", "{", "nonsense", "{\"jsonrpc\":\"2.0\",}", "[1,", "{\"a\":1} {}", "\u{feff}{}", "{'a': 1}"] {
        let answer = server.ask(body).await;
        assert_eq!((answer["error"]["code"].as_i64(), &answer["id"]), (Some(-32700), &Value::Null), "{body}");
    }
    let mut connection = server.connect().await;
    connection
        .send("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n")
        .await;
    connection.send(b"\"\xff\"").await;
    assert_eq!(code_and_message(&connection.reply().await.json()).0, -32700);
}

#[tokio::test]
async fn what_is_no_request_object_is_32600() {
    let (server, _home) = server().await;
    for (body, id) in [
        ("1", json!(null)),
        ("\"ping\"", json!(null)),
        ("null", json!(null)),
        ("{}", json!(null)),
        (r#"{"id": 7, "method": "ping"}"#, json!(7)),
        (r#"{"jsonrpc": "1.0", "id": 7, "method": "ping"}"#, json!(7)),
        (r#"{"jsonrpc": 2.0, "id": 7, "method": "ping"}"#, json!(7)),
        (r#"{"jsonrpc": "2.0", "id": "x"}"#, json!("x")),
        (r#"{"jsonrpc": "2.0", "id": "x", "method": null}"#, json!("x")),
        (r#"{"jsonrpc": "2.0", "id": "x", "method": 1}"#, json!("x")),
        (r#"{"jsonrpc": "2.0", "id": true, "method": "ping"}"#, json!(null)),
        (r#"{"jsonrpc": "2.0", "id": [1], "method": "ping"}"#, json!(null)),
        (r#"{"jsonrpc": "2.0", "id": {}, "method": "ping"}"#, json!(null)),
        (r#"{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}"#, json!(null)),
        (r#"{"jsonrpc": "2.0", "id": 1, "result": {}}"#, json!(1)),
    ] {
        let answer = server.ask(body).await;
        assert_eq!((answer["error"]["code"].as_i64(), &answer["id"]), (Some(-32600), &id), "{body}: {answer}");
    }
}

#[tokio::test]
async fn json_that_nests_too_deep_is_32600_and_no_stack_is_lost() {
    let (server, _home) = server().await;
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{open}{close}}}}}"#)
    };
    assert_eq!(server.ask(&nested(62)).await["result"], json!({}));
    let (code, message) = (-32600, "Invalid request: JSON that nests deeper than 64 levels");
    assert_eq!(code_and_message(&server.ask(&nested(63)).await), (code, message));
    assert_eq!(code_and_message(&server.ask(&nested(100_000)).await), (code, message));
    assert_eq!(code_and_message(&server.ask(&"[".repeat(1_000_000)).await), (code, message));
    assert_eq!(code_and_message(&server.ask(&"{\"a\":".repeat(100_000)).await), (code, message));
    let quoted = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "[".repeat(1000));
    assert_eq!(server.ask(&quoted).await["result"], json!({}));
}

#[tokio::test]
async fn an_unknown_method_is_32601_and_is_named() {
    let (server, _home) = server().await;
    for method in ["nonsense", "worker/nonsense", "", "Ping", "resources/subscribe", "worker/status/"] {
        let answer = server.ask(&json!({"jsonrpc": "2.0", "id": 1, "method": method}).to_string()).await;
        assert_eq!(code_and_message(&answer), (-32601, format!("Method not found: {method}").as_str()));
    }
    let long = server.ask(&json!({"jsonrpc": "2.0", "id": 1, "method": "ü".repeat(10_000)}).to_string()).await;
    assert!(code_and_message(&long).1.len() < 200);
}

#[tokio::test]
async fn a_method_may_be_written_with_escapes() {
    let (server, _home) = server().await;
    let answer = server.ask(r#"{"jsonrpc":"2.0","id":1,"method":"\u0070ing"}"#).await;
    assert_eq!(answer["result"], json!({}));
}

#[tokio::test]
async fn worker_methods_of_a_member_that_is_no_worker_are_32601() {
    let mut manifest = manifest("tester");
    manifest["capabilities"] = json!([]);
    let (server, _home) = server_of(&manifest, Limits::default()).await;
    for method in ["dispatch", "list", "status", "result", "cancel", "delete"] {
        let error = server.call(&format!("worker/{method}"), json!({"jobId": "x"})).await.unwrap_err();
        assert_eq!(error["code"], -32601);
        assert!(error["message"].as_str().unwrap().contains("no capability `worker`"), "{error}");
    }
    server.call("initialize", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_notification_is_202_with_an_empty_body_whatever_it_says() {
    let (server, _home) = server().await;
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","method":"nonsense"}"#,
        r#"{"jsonrpc":"2.0","method":"worker/status","params":{"jobId":1}}"#,
        r#"[{"jsonrpc":"2.0","method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"}]"#,
    ] {
        let reply = server.post("/mcp", body).await;
        assert_eq!((reply.status, reply.body.as_str(), reply.header("content-length")), (202, "", Some("0")), "{body}");
    }
}

#[tokio::test]
async fn a_batch_is_answered_in_its_order_without_its_notifications() {
    let (server, _home) = server().await;
    let answer = server
        .ask(
            r#" [{"jsonrpc":"2.0","id":2,"method":"ping"}, {"jsonrpc":"2.0","method":"ping"}, 1, [],
               {"jsonrpc":"2.0","id":"a","method":"nonsense"}, {"jsonrpc":"2.0","id":2,"method":"tools/list"}]"#,
        )
        .await;
    let answers = answer.as_array().unwrap();
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!(2), json!(null), json!(null), json!("a"), json!(2)]);
    let codes: Vec<_> = answers.iter().map(|answer| answer["error"]["code"].as_i64()).collect();
    assert_eq!(codes, [None, Some(-32600), Some(-32600), Some(-32601), None]);
    assert_eq!(answers[4]["result"], json!({"tools": []}));
}

#[tokio::test]
async fn an_empty_or_oversized_batch_is_one_32600() {
    let (server, _home) = server_of(&manifest("tester"), Limits { batch: 3, ..Limits::default() }).await;
    assert_eq!(code_and_message(&server.ask("[ ]").await), (-32600, "Invalid request: an empty batch"));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(server.ask(&format!("[{ping},{ping},{ping}]")).await.as_array().unwrap().len(), 3);
    let more = server.ask(&format!("[{ping},{ping},{ping},{ping}]")).await;
    assert_eq!(code_and_message(&more), (-32600, "Invalid request: a batch of more than 3 requests"));
}

#[tokio::test]
async fn bad_params_are_32602_with_a_text_that_says_which_and_why() {
    let (server, _home) = server().await;
    let bad = |method: &'static str, params: Value, text: &'static str| (method, params.to_string(), text);
    let twice = |params: &str| ("worker/status", params.to_owned(), "occurs twice");
    for (method, params, text) in [
        bad("worker/dispatch", json!({"task": "t"}), "`description` is missing"),
        bad("worker/dispatch", json!({"description": "d"}), "`task` is missing"),
        bad("worker/dispatch", json!({"description": " ", "task": "t"}), "`description` must not be empty"),
        bad("worker/dispatch", json!({"description": "d", "task": ""}), "`task` must not be empty"),
        bad("worker/dispatch", json!({"description": 1, "task": "t"}), "`description` must be a string, not a number"),
        bad("worker/dispatch", json!({"description": "d", "task": []}), "`task` must be a string, not an array"),
        bad("worker/dispatch", json!({"description": "d", "task": "t", "config": "x"}), "`config` must be an object"),
        bad("worker/dispatch", json!({"description": "d", "task": "t", "config": []}), "`config` must be an object"),
        bad("worker/list", json!({"detail": "full"}), "`detail` must be \"simple\" or \"detailed\", not \"full\""),
        bad("worker/list", json!({"detail": 1}), "`detail` must be a string"),
        bad("worker/list", json!({"filter": {}}), "`filter` must be a string, not an object"),
        bad("worker/status", json!({}), "`jobId` is missing"),
        bad("worker/status", Value::Null, "`jobId` is missing"),
        bad("worker/status", json!({"jobId": 1}), "`jobId` must be a string, not a number"),
        bad("worker/result", json!({"jobId": true}), "`jobId` must be a string, not a boolean"),
        bad("worker/cancel", json!({"job_id": "x"}), "`jobId` is missing"),
        bad("worker/delete", json!(["x"]), "`params` must be an object"),
        bad("worker/delete", json!("x"), "`params` must be an object"),
        bad("initialize", json!({"protocolVersion": 1}), "`protocolVersion` must be a string"),
        bad("ping", json!([1]), "`params` must be an object"),
        bad("tools/call", json!({}), "`name` is missing"),
        bad("tools/call", json!({"name": "rm", "arguments": {}}), "Unknown tool: rm"),
        twice(r#"{"jobId": "a", "jobId": "b"}"#),
        twice(r#"{"jobId": "a", "x": {"y": [{"z": 1, "z": 1}]}}"#),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let answer = server.ask(&body).await;
        let (code, message) = code_and_message(&answer);
        assert!(code == -32602 && message.contains(text), "{body}: {answer}");
    }
}

#[tokio::test]
async fn initialize_answers_the_version_that_was_asked_for_if_it_is_known_else_the_newest() {
    let (server, _home) = server().await;
    for (asked, answered) in [
        (
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}),
            "2025-06-18",
        ),
        (json!({"protocolVersion": "2025-11-25"}), "2025-11-25"),
        (json!({"protocolVersion": "2025-03-26"}), "2025-03-26"),
        (json!({"protocolVersion": "2024-11-05"}), "2024-11-05"),
        (json!({"protocolVersion": "1999-01-01"}), "2025-11-25"),
        (json!({}), "2025-11-25"),
    ] {
        let result = server.call("initialize", asked).await.unwrap();
        let server_info = json!({"name": "tester", "version": "1.2.3"});
        let capabilities = json!({"tools": {}, "resources": {}});
        let expected = json!({"protocolVersion": answered, "capabilities": capabilities, "serverInfo": server_info});
        assert_eq!(result, expected);
    }
}

#[tokio::test]
async fn methods_before_initialize_are_answered_and_tools_are_none() {
    let (server, _home) = server().await;
    assert_eq!(server.call("tools/list", json!({})).await.unwrap(), json!({"tools": []}));
    assert_eq!(server.call("worker/list", json!({})).await.unwrap(), json!({"jobs": []}));
}
