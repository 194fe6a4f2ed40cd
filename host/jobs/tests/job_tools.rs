//! The internal tools, as sessions call them.

mod common;

use std::collections::BTreeSet;

use common::{Member, start, status};
use guild_contract::{Grants, JobStatus};
use guild_jobs::JobTools;
use guild_session::tools::{ToolCall, ToolError, Tools};
use serde_json::{Value, json};

fn call(name: &str, input: Value) -> ToolCall {
    ToolCall { id: format!("1.1.{name}"), name: name.to_owned(), input }
}

#[tokio::test]
async fn a_session_s_calls_reach_the_job_and_the_memory() {
    let member = Member::new();
    let (store, memory) = (member.store(), member.memory());
    let job = start(&store, "d");
    let tools = JobTools::new(job.clone(), memory.clone());
    for (name, input) in [
        ("update_summary", json!({"summary": "half-way"})),
        ("record_decision", json!({"question": "q", "decision": "d", "reasoning": "r"})),
        ("log_question", json!({"question": "why?"})),
        ("store_memory", json!({"key": "k", "content": "c"})),
        ("write_artifact", json!({"path": "t/a.csv", "contents": "1,2"})),
        ("submit_result", json!({"output": "the result"})),
    ] {
        assert!(tools.call(call(name, input)).await.unwrap().is_string(), "{name}");
    }
    job.complete(None).unwrap();
    let view = status(&store, job.id());
    assert_eq!((view.status, view.summary.as_deref()), (JobStatus::Completed, Some("half-way")));
    assert_eq!((view.questions.unwrap().len(), view.decisions.unwrap().len()), (1, 1));
    let result = store.result(job.id().as_str()).unwrap();
    assert_eq!((result.output.as_str(), result.artifacts.unwrap()), ("the result", vec!["artifacts/t/a.csv".into()]));
    assert_eq!(member.read("memory/k.md"), "c");
    assert_eq!(memory.injection()[0].origin.as_ref(), Some(job.id()));
}

#[tokio::test]
async fn what_a_schema_does_not_allow_is_refused_by_name() {
    let member = Member::new();
    let tools = JobTools::new(start(&member.store(), "d"), member.memory());
    let definitions = tools.definitions();
    let names: BTreeSet<_> = definitions.iter().map(|tool| tool.name.as_str()).collect();
    let all = ["log_question", "record_decision", "store_memory", "submit_result", "update_summary", "write_artifact"];
    assert_eq!(names, BTreeSet::from(all));
    let error = async |name: &str, input: Value| match tools.call(call(name, input)).await {
        Err(ToolError::InvalidInput(text)) => text,
        other => panic!("{name}: {other:?}"),
    };
    for tool in &definitions {
        let required = tool.input_schema["required"].as_array().unwrap();
        let whole: serde_json::Map<String, Value> =
            required.iter().map(|field| (field.as_str().unwrap().to_owned(), json!("x"))).collect();
        for field in whole.keys() {
            let mut input = whole.clone();
            input.remove(field);
            assert!(error(&tool.name, input.clone().into()).await.contains(field.as_str()));
            input.insert(field.clone(), json!(1));
            assert!(error(&tool.name, input.into()).await.contains("it must be a text"));
        }
        let mut input = whole.clone();
        input.insert("extra".into(), json!(1));
        assert!(error(&tool.name, input.into()).await.contains("unknown field `extra`"));
        assert_eq!(tool.input_schema["additionalProperties"], false);
    }
    assert!(error("Bash", json!({})).await.contains("Bash"));
    assert!(error("log_question", json!("q")).await.contains("log_question"));
}

#[tokio::test]
async fn after_the_end_every_tool_answers_that_the_job_has_ended() {
    let member = Member::new();
    let store = member.store();
    let job = start(&store, "d");
    let tools = JobTools::new(job.clone(), member.memory());
    store.cancel(job.id().as_str()).unwrap();
    for (name, input) in [
        ("update_summary", json!({"summary": "s"})),
        ("record_decision", json!({"question": "q", "decision": "d", "reasoning": "r"})),
        ("log_question", json!({"question": "why?"})),
        ("store_memory", json!({"key": "k", "content": "c"})),
        ("write_artifact", json!({"path": "a", "contents": "1"})),
        ("submit_result", json!({"output": "o"})),
    ] {
        assert_eq!(tools.call(call(name, input)).await, Err(ToolError::JobEnded), "{name}");
    }
    assert!(!member.dir.exists("memory/k.md"));
}

/// What a model is told, word by word.
#[tokio::test]
async fn a_schema_is_its_type_and_nothing_besides() {
    let member = Member::new();
    let tools = JobTools::new(start(&member.store(), "d"), member.memory());
    let definitions = tools.definitions();
    let tool = definitions.iter().find(|tool| tool.name == "store_memory").unwrap();
    assert_eq!(tool.title.as_deref(), Some("Store memory"));
    assert_eq!(tool.description, "Remember something that will help later jobs. An existing key is overwritten.");
    assert_eq!(
        tool.input_schema,
        json!({
            "type": "object", "required": ["key", "content"], "additionalProperties": false,
            "properties": {
                "key": {"type": "string", "description": "1 to 64 letters, digits, '-' or '_'."},
                "content": {
                    "type": "string",
                    "description": "What to remember: facts and where they come from, not instructions.",
                },
            },
        })
    );
}

#[tokio::test]
async fn a_tool_that_is_not_granted_does_not_exist() {
    let member = Member::new();
    let grants = Grants { artifacts: true, ..Grants::default() };
    let tools = JobTools::new(start(&member.store(), "d"), member.memory()).granted(&grants);
    assert!(tools.definitions().iter().all(|tool| tool.name != "store_memory"));
    assert!(tools.definitions().iter().any(|tool| tool.name == "write_artifact"));
    let refused = tools.call(call("store_memory", json!({"key": "k", "content": "c"}))).await.unwrap_err();
    assert!(matches!(&refused, ToolError::InvalidInput(why) if why.contains("store_memory")), "{refused}");
}
