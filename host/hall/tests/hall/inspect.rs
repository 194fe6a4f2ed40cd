//! Looking at a project with git.

use guild_contract::OperationError;
use guild_hall::git::{BranchOptions, DiffOptions, LogOptions, ShowOptions};
use serde_json::json;

use crate::support::{Scripted, World, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_project_is_looked_at_and_what_fails_names_no_path_of_the_host() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let log = hall.projects.git_log("demo", &LogOptions::default()).await.unwrap();
    assert_eq!(json!(log)[0]["subject"], "Begin");
    let shown = ShowOptions { rev: "HEAD".to_owned(), ..ShowOptions::default() };
    let shown = json!(hall.projects.git_show("demo", &shown).await.unwrap());
    assert_eq!((&shown["subject"], &shown["total_files"]), (&json!("Begin"), &json!(2)));
    assert_eq!(hall.projects.git_branch("demo", BranchOptions::default()).await.unwrap().len(), 2);
    write(&world.integration("demo"), "src/code.rs", "loose\n");
    let status = json!(hall.projects.git_status("demo").await.unwrap());
    assert_eq!(status, json!({"staged": [], "unstaged": ["src/code.rs"], "untracked": []}));
    assert!(hall.projects.git_diff("demo", &DiffOptions::default()).await.unwrap().contains("+loose"));

    for options in [
        DiffOptions { rev: Some("--no-index".to_owned()), ..DiffOptions::default() },
        DiffOptions { file: Some("a\nb".to_owned()), ..DiffOptions::default() },
    ] {
        let refused = hall.projects.git_diff("demo", &options).await.unwrap_err();
        assert!(matches!(refused, OperationError::Invalid(_)), "{refused}");
        assert!(!refused.to_string().contains(&world.root().display().to_string()), "{refused}");
    }
    assert!(matches!(hall.projects.git_status("none").await, Err(OperationError::NotFound(_))));
}
