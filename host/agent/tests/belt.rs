//! The belt: what a session can call, and nothing else.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::{Arc, Mutex};

use common::{Job, roots, write};
use guild_agent::{Belt, Journal};
use guild_jobs::tools::{ToolError, Tools};
use serde_json::{Value, json};
use tempfile::TempDir;

#[derive(Default)]
struct Kept(Mutex<Vec<Value>>);

impl Journal for Kept {
    fn entry(&self, value: &Value) {
        self.0.lock().unwrap().push(value.clone());
    }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn sources() -> TempDir {
    let dir = TempDir::new().unwrap();
    write(dir.path(), "docs/a.md", "alpha\nBeta\nalpha again\n");
    write(dir.path(), "docs/b.md", "alpha\n");
    write(dir.path(), "docs/a[1]/c.md", "alpha\n");
    dir
}

fn belt(dir: &TempDir, granted: &[&str], asked: &[&str]) -> Belt {
    let job: Arc<dyn Tools> = Arc::new(Job::default());
    Belt::new([job]).with_read_only(Some(&roots(&dir.path().join("docs"))), &names(granted), &names(asked))
}

#[tokio::test]
async fn a_session_has_exactly_what_was_granted_and_asked_for() {
    let dir = sources();
    let every = ["Read", "Grep", "Glob", "WebSearch", "WebFetch", "Write", "Edit", "Bash"];
    let internal =
        ["update_summary", "record_decision", "log_question", "store_memory", "submit_result", "write_artifact"];
    for (granted, asked, read_only) in [
        (&every[..], &every[..], &["Read", "Grep", "Glob"][..]),
        (&["Read", "Grep"], &["Grep", "Glob"], &["Grep"]),
        (&["Read"], &[], &[]),
        (&[], &["Read"], &[]),
    ] {
        let belt = belt(&dir, granted, asked);
        let offered: Vec<String> = belt.definitions().into_iter().map(|tool| tool.name).collect();
        assert_eq!(offered, [&internal[..], read_only].concat());
        for name in every.iter().filter(|name| !read_only.contains(name)) {
            let error = belt.call(name, json!({"file_path": "docs/a.md"})).await.unwrap_err();
            assert!(matches!(error, ToolError::InvalidInput(text) if text.contains("there is no tool")), "{name}");
        }
    }
}

#[tokio::test]
async fn without_read_roots_there_is_nothing_to_read_with() {
    let belt = Belt::new([]).with_read_only(None, &names(&["Read"]), &names(&["Read"]));
    assert_eq!(belt.definitions(), []);
}

#[tokio::test]
async fn the_read_only_tools_answer_as_agents_know_them() {
    let dir = sources();
    let all = ["Read", "Grep", "Glob"];
    let belt = belt(&dir, &all, &all);
    let call = async |name: &str, input: Value| belt.call(name, input).await.unwrap().as_str().unwrap().to_owned();
    assert_eq!(call("Read", json!({"file_path": "docs/a.md", "offset": 2, "limit": 1})).await, "     2\tBeta\n");
    assert_eq!(call("Grep", json!({"pattern": "alpha"})).await, "docs/a.md\ndocs/a[1]/c.md\ndocs/b.md");
    assert_eq!(
        call("Grep", json!({"pattern": "alpha", "output_mode": "count", "glob": "?.md", "path": "docs/a.md"})).await,
        "docs/a.md:2"
    );
    let content = json!({"pattern": "beta", "-i": true, "output_mode": "content"});
    assert_eq!(call("Grep", content).await, "docs/a.md:2:Beta");
    assert_eq!(call("Grep", json!({"pattern": "beta"})).await, "No lines match.");
    assert_eq!(call("Grep", json!({"pattern": "alpha", "path": "docs/a[1]"})).await, "docs/a[1]/c.md");
    assert_eq!(
        call("Grep", json!({"pattern": "alpha", "head_limit": 1})).await,
        "docs/a.md\n(cut after 1: narrow the search)"
    );
    assert_eq!(call("Glob", json!({"pattern": "*.md", "path": "docs/a[1]/"})).await, "docs/a[1]/c.md");
    assert_eq!(call("Glob", json!({"pattern": "*.rs"})).await, "No files match.");
}

#[tokio::test]
async fn a_bad_input_is_answered_with_the_field_that_is_bad() {
    let dir = sources();
    let all = ["Read", "Grep", "Glob"];
    let belt = belt(&dir, &all, &all);
    for (tool, input, field) in [
        ("Read", json!({}), "file_path"),
        ("Read", json!({"file_path": "docs/a.md", "offset": 0}), "offset"),
        ("Read", json!({"file_path": "docs/a.md", "limit": "ten"}), "limit"),
        ("Read", json!("docs/a.md"), "object"),
        ("Grep", json!({"pattern": "x", "output_mode": "lines"}), "output_mode"),
        ("Glob", json!({"pattern": "*", "paths": "docs"}), "paths"),
    ] {
        let error = belt.call(tool, input.clone()).await.unwrap_err();
        assert!(matches!(&error, ToolError::InvalidInput(text) if text.contains(field)), "{tool} {input}: {error}");
    }
}

#[tokio::test]
async fn every_call_and_result_is_journalled_within_bounds() {
    let dir = sources();
    let journal = Arc::new(Kept::default());
    let all = ["Read"];
    let belt = belt(&dir, &all, &all).with_journal(journal.clone());
    belt.call("submit_result", json!({"output": "long ".repeat(100_000)})).await.unwrap();
    belt.call("Read", json!({"file_path": "docs/none"})).await.unwrap_err();
    belt.call("Bash", json!({"command": "true"})).await.unwrap_err();
    let entries = journal.0.lock().unwrap().clone();
    let seen: Vec<(&str, u64)> =
        entries.iter().map(|entry| (entry["type"].as_str().unwrap(), entry["call"].as_u64().unwrap())).collect();
    assert_eq!(seen, [("call", 0), ("result", 0), ("call", 1), ("result", 1), ("call", 2), ("result", 2)]);
    assert!(entries.iter().all(|entry| entry.to_string().len() < 8192));
    assert!(entries[3]["error"].as_str().unwrap().contains("there is no file"));
    assert_eq!(entries[4]["tool"], "Bash");
}
