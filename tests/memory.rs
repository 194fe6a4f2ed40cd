//! What a member remembers from job to job.

use std::fs;

use serde_json::{Value, json};

use crate::support::host::{Client, Home};

fn system_prompt(member: &std::path::Path, id: &str) -> String {
    let plan = fs::read(member.join("jobs").join(id).join("plan.json")).unwrap();
    let plan: Value = serde_json::from_slice(&plan).unwrap();
    plan["session"]["systemPrompt"].as_str().unwrap().to_owned()
}

fn research(client: &Client, task: &str) -> String {
    let id = client.start(task);
    assert_eq!(client.ended(&id)["status"], "completed");
    id
}

/// The worker-dispatch specification's memory test.
#[test]
fn the_second_job_sees_what_the_first_one_stored() {
    let home = Home::new();
    let docs =
        home.write("docs/comets.md", "# Comets\n\nA comet's tail points away from the sun, whatever its course.\n");
    let member = home.researcher("researcher");
    let host = home.serve(&member, &["--sources", docs.parent().unwrap().to_str().unwrap()]);
    let client = host.client();

    let first = research(&client, "Where does a comet's tail point?");
    let memories: Vec<_> = fs::read_dir(member.join("memory"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "md"))
        .collect();
    assert_eq!(memories.len(), 1, "{memories:?}");
    let key = memories[0].file_stem().unwrap().to_str().unwrap();
    let content = fs::read_to_string(&memories[0]).unwrap();
    assert!(!system_prompt(&member, &first).contains(key));

    let second = research(&client, "Whither points the tail of a comet?");
    let prompt = system_prompt(&member, &second);
    assert!(prompt.contains(key) && prompt.contains(&first), "the memory, and the job that it came from:\n{prompt}");
    for line in content.lines().filter(|line| !line.trim().is_empty()) {
        assert!(prompt.contains(line), "{line:?} is not in the prompt:\n{prompt}");
    }
}

#[test]
fn memory_outlives_the_host_and_is_a_plain_file_that_people_can_write() {
    let home = Home::new();
    let docs = home.write("docs/a.md", "# Kites\n\nKites were flown in China first.\n");
    let member = home.researcher("researcher");
    home.write("members/researcher/memory/by-hand.md", "The archive in the cellar is out of date.");
    let host = home.serve(&member, &["--sources", docs.parent().unwrap().to_str().unwrap()]);
    let id = research(&host.client(), "Where were kites flown first?");
    assert!(system_prompt(&member, &id).contains("The archive in the cellar is out of date."));
}

#[test]
fn memories_are_compacted_when_they_pass_the_threshold() {
    let home = Home::new();
    let docs =
        home.write("docs/tides.md", "# Tides\n\nTides follow the moon and the sun. Spring tides come at new moon.\n");
    let member = home.researcher("researcher");
    for n in 0..40 {
        let fact = format!("Harbour {n} has a tidal range of {n} metres, as its own tables say.\n").repeat(8);
        home.write(&format!("members/researcher/memory/harbour-{n}.md"), fact);
    }
    let host = home.serve(&member, &["--sources", docs.parent().unwrap().to_str().unwrap()]);
    research(&host.client(), "When do spring tides come?");
    let compacted = crate::support::host::wait_for("compaction", || {
        let left = fs::read_dir(member.join("memory"))
            .unwrap()
            .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("harbour-"));
        (left.count() == 0).then(|| fs::read_to_string(member.join("memory/compacted.md")).unwrap())
    });
    assert!(compacted.chars().count() <= 4000 && compacted.contains("tidal range"), "{compacted}");
    // The next job gets what was condensed.
    let next = host.client().start("When do spring tides come?");
    assert!(system_prompt(&member, &next).contains("tidal range"));
    assert_eq!(json!("completed"), host.client().ended(&next)["status"]);
}
