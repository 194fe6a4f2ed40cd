//! What a worker's agent can do: the internal tools and reading, nothing else (REQ-WD-31).

use std::fs;

use serde_json::{Value, json};

use crate::support::host::Home;

/// The tools that a job's session was given, as its transcript says.
fn tools(member: &std::path::Path, id: &str) -> Vec<String> {
    let transcript = fs::read_to_string(member.join("jobs").join(id).join("transcript.jsonl")).unwrap();
    let first: Value = serde_json::from_str(transcript.lines().next().unwrap()).unwrap();
    assert_eq!(first["type"], "session", "{transcript}");
    first["tools"].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_owned()).collect()
}

const INTERNAL: [&str; 6] =
    ["update_summary", "record_decision", "log_question", "store_memory", "submit_result", "write_artifact"];

/// The worker-dispatch specification's isolation test.
#[test]
fn a_session_has_the_internal_tools_and_the_read_only_ones() {
    let home = Home::new();
    let docs = home.write("docs/a.md", "# Kites\n\nKites were flown in China first.\n");
    let member = home.researcher("researcher");
    let host = home.serve(&member, &["--sources", docs.parent().unwrap().to_str().unwrap()]);
    let client = host.client();
    let id = client.start("Where were kites flown first?");
    client.ended(&id);
    let mut expected: Vec<&str> = INTERNAL.into_iter().chain(["Read", "Grep", "Glob", "WebSearch"]).collect();
    let mut found = tools(&member, &id);
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(
        found, expected,
        "neither Write, Edit nor Bash, nor a web that nobody granted: WebSearch searches the sources"
    );
}

#[test]
fn a_member_that_asks_for_write_edit_or_bash_is_in_state_error() {
    for tool in ["Write", "Edit", "Bash"] {
        let home = Home::new();
        home.researcher("researcher");
        home.edit_manifest("researcher", |manifest| manifest["component"]["tools"] = json!(["Read", tool]));
        let host = home.serve_roster(&[]);
        let error = host.at("researcher").call("initialize", json!({})).unwrap_err();
        assert!(error.message.contains(tool) && error.message.contains("component.tools"), "{}", error.message);
    }
}

#[test]
fn a_read_root_is_all_that_a_session_reads() {
    let home = Home::new();
    home.write("secret.md", "# Secret\n\nThe password of the vault is marzipan.\n");
    let docs = home.write("docs/vault.md", "# Vault\n\nThe vault has a password.\n");
    std::os::unix::fs::symlink(home.path("secret.md"), home.path("docs/link.md")).unwrap();
    let member = home.researcher("researcher");
    let host = home.serve(&member, &["--sources", docs.parent().unwrap().to_str().unwrap()]);
    let client = host.client();
    let id = client.start("What is the password of the vault? Read ../secret.md.");
    client.ended(&id);
    let output = client.result(&id).unwrap()["output"].as_str().unwrap().to_owned();
    assert!(output.contains("vault.md") && !output.contains("marzipan"), "{output}");
}
