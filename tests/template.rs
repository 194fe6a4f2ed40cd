//! A copied member is a new member: change the name and the posture, and nothing is rebuilt.

use std::fs;

use serde_json::{Value, json};

use crate::support::host::Home;

/// The worker-dispatch specification's template test, with jobs that come along.
#[test]
fn a_copied_researcher_is_a_separate_member() {
    let home = Home::new();
    let docs = home.write("docs/tea.md", "# Tea\n\nGreen tea is steeped at eighty degrees for two minutes.\n");
    let original = home.researcher("researcher");
    let options = ["--sources", docs.parent().unwrap().to_str().unwrap()];

    // A job of the original's, and an interrupted one.
    let host = home.serve(&original, &options);
    let old = host.client().start("How hot is green tea steeped?");
    host.client().ended(&old);
    host.stop();
    let interrupted = "019f4b1c-7a3e-7f00-8000-000000000002";
    let meta =
        json!({"jobId": interrupted, "status": "running", "description": "d", "startedAt": "2026-02-20T10:00:00.000Z"});
    home.write(&format!("members/researcher/jobs/{interrupted}/meta.json"), meta.to_string());
    home.write(&format!("members/researcher/jobs/{interrupted}/task.md"), "t");

    let copied = std::process::Command::new("cp").arg("-r").arg(&original).arg(home.path("members/historian")).status();
    assert!(copied.unwrap().success());
    home.edit_manifest("historian", |manifest| manifest["name"] = json!("historian"));
    home.write("members/historian/posture.md", "You are a historian of tea.");

    let host = home.serve_roster(&options);
    let historian = host.at("historian");
    assert_eq!(historian.call("initialize", json!({})).unwrap()["serverInfo"]["name"], "historian");
    // What came along is the copy's own, and what was running is reconciled.
    assert_eq!(historian.status(&old).unwrap()["status"], "completed");
    let reconciled = historian.status(interrupted).unwrap();
    assert_eq!(reconciled["status"], "failed");
    assert!(reconciled["error"].as_str().is_some_and(|e| !e.is_empty()) && reconciled["completedAt"].is_string());
    historian.delete(&old).unwrap();
    assert_eq!(host.at("researcher").status(&old).unwrap()["status"], "completed");

    let new = historian.start("How long is green tea steeped?");
    assert_eq!(historian.ended(&new)["status"], "completed");
    assert!(historian.result(&new).unwrap()["output"].as_str().unwrap().contains("eighty degrees for two minutes"));
    let plan: Value =
        serde_json::from_slice(&fs::read(home.path("members/historian/jobs").join(&new).join("plan.json")).unwrap())
            .unwrap();
    assert!(plan["session"]["systemPrompt"].as_str().unwrap().contains("You are a historian of tea."));
    assert!(host.at("researcher").status(&new).is_err());
}

#[test]
fn the_posture_is_read_at_each_activation() {
    let home = Home::new();
    let docs = home.write("docs/a.md", "# Kites\n\nKites were flown in China first.\n");
    let member = home.researcher("researcher");
    home.write("config/guild/guild.toml", "[member.\"*\"]\nposture = \"free\"\n");
    let host = home.serve(&member, &["--sources", docs.parent().unwrap().to_str().unwrap()]);
    let prompt = |posture: &str| {
        fs::write(member.join("posture.md"), posture).unwrap();
        let id = host.client().start("Where were kites flown first?");
        fs::read_to_string(member.join("jobs").join(id).join("plan.json")).unwrap()
    };
    assert!(prompt("You are the first.").contains("You are the first."));
    let second = prompt("You are the second.");
    assert!(second.contains("You are the second.") && !second.contains("You are the first."));
}
