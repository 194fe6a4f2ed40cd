//! The documents of projects, as callers reach them. `host/server/tests/server/hall.rs` has what they are answered.

use std::{fs, os::unix::fs::symlink, sync::Arc, time::Duration};

use guild_contract::{
    Limits, OperationError,
    hall::{CommissionFilter, CommissionStatus},
};

use crate::support::{Scripted, World, git, until, write};

const PROJECT: &str = "demo";

#[tokio::test]
async fn a_symbolic_link_of_the_project_is_not_written() {
    let world = World::new(Scripted::writing());
    symlink("../src/code.rs", world.project(PROJECT).join(".lore/link.md")).unwrap();
    git(&world.project(PROJECT), &["add", "--all"]);
    git(&world.project(PROJECT), &["commit", "--quiet", "--message=Link"]);
    let hall = world.hall().await;
    // It is a file there, and would be a link in the user's working tree.
    let refused = hall.documents.write(PROJECT, "link.md", "/etc/passwd".to_owned()).await.unwrap_err();
    assert!(refused.to_string().contains("it is a symbolic link of the project"), "{refused}");
    assert_eq!(hall.documents.read(PROJECT, "link.md").await.unwrap().raw_content.as_deref(), Some("../src/code.rs"));
    let tree = git(&world.project(PROJECT), &["ls-tree", "claude/main", ".lore/link.md"]);
    assert!(tree.starts_with("120000 "), "{tree}");
}

#[tokio::test]
async fn the_record_of_an_attempt_is_read_by_the_path_of_the_old_layout_too() {
    let world = World::new(Scripted::writing());
    let (project, name) = (world.project(PROJECT), "commission-Dalton-20250101-000000");
    let record = "---\ntitle: Old\nstatus: failed\nworker: Dalton\nprompt: Tides\n---\n";
    write(&project, &format!(".lore/commissions/{name}.md"), record);
    git(&project, &["add", "--all"]);
    git(&project, &["commit", "--quiet", "--message=Old"]);
    let hall = world.hall().await;
    let status = async |path: &str| hall.documents.read(PROJECT, path).await.unwrap().meta.status;
    let old = format!("commissions/{name}.md");
    hall.commissions
        .list(&CommissionFilter { project_name: Some(PROJECT.to_owned()), ..CommissionFilter::default() })
        .await
        .unwrap();
    assert_eq!(status(&old).await, "failed");
    world.workers.hold(true);
    hall.commissions.redispatch(name).await.unwrap();
    // The record is written once the state is stored.
    let written = async {
        while status(&old).await != "in_progress" {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.unwrap();
    assert_eq!(status(&format!("work/{old}")).await, "in_progress");
    world.workers.hold(false);
    until(&hall, &name.parse().unwrap(), CommissionStatus::Completed).await;
    assert_eq!(status(&format!("work/{old}")).await, "completed");
}

#[tokio::test]
async fn a_project_of_config_yaml_alone_leads_nowhere() {
    let world = World::new(Scripted::writing());
    write(&world.root(), "secret/.lore/a.md", "secret\n");
    let config = world.home().join("config.yaml");
    let listed = fs::read_to_string(&config).unwrap();
    let path = world.project(PROJECT);
    fs::write(&config, format!("{listed}  - name: ../../secret\n    path: {}\n", path.display())).unwrap();
    let hall = world.hall().await;
    for refused in [
        hall.documents.list("../../secret").await.map(drop),
        hall.documents.read("../../secret", "a.md").await.map(drop),
        hall.documents.write("../../secret", "a.md", "x".to_owned()).await,
        hall.documents.loose("../../secret").await.map(drop),
        hall.documents.commit("../../secret", "x").await.map(drop),
    ] {
        assert!(matches!(&refused, Err(OperationError::Conflict(_))), "{refused:?}");
    }
    assert_eq!(fs::read_to_string(world.root().join("secret/.lore/a.md")).unwrap(), "secret\n");
}

#[tokio::test]
async fn what_is_too_long_is_neither_written_nor_read() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let long = "x".repeat((4 << 20) + 1);
    let refused = hall.documents.write(PROJECT, "long.md", long.clone()).await.unwrap_err();
    assert!(matches!(&refused, OperationError::Invalid(why) if why.contains("more than 4194304")), "{refused}");
    write(&world.integration(PROJECT), ".lore/long.md", &long);
    let refused = hall.documents.read(PROJECT, "long.md").await.unwrap_err();
    assert!(matches!(refused, OperationError::Conflict(_)), "{refused}");
    // A list does without it.
    let listed = hall.documents.list(PROJECT).await.unwrap();
    assert_eq!(
        listed.artifacts.iter().map(|artifact| artifact.relative_path.as_str()).collect::<Vec<_>>(),
        ["specs/plan.md"]
    );
    let refused = hall.documents.commit(PROJECT, &"x".repeat(100_000)).await.unwrap_err();
    assert!(matches!(&refused, OperationError::Invalid(why) if why.contains("message")), "{refused}");
}

#[tokio::test]
async fn a_list_of_too_many_artifacts_is_cut_and_says_so() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    assert!(!hall.documents.list(PROJECT).await.unwrap().truncated);
    let many = world.integration(PROJECT).join(".lore/many");
    fs::create_dir(&many).unwrap();
    for n in 0..20_000 {
        fs::File::create(many.join(format!("{n}.md"))).unwrap();
    }
    let listed = hall.documents.list(PROJECT).await.unwrap();
    assert!(listed.truncated && listed.artifacts.len() > 19_000, "{}", listed.artifacts.len());
}

#[tokio::test]
async fn documents_beyond_the_quota_of_the_project_are_refused() {
    let mut world = World::new(Scripted::writing());
    world.limits = Arc::new(Limits { project_documents: 2, project_documents_bytes: 100, ..Limits::default() });
    let hall = world.hall().await;
    hall.documents.write(PROJECT, "a.md", "a\n".to_owned()).await.unwrap();
    let refused = hall.documents.write(PROJECT, "b.md", "b\n".to_owned()).await.unwrap_err();
    assert!(
        matches!(&refused, OperationError::Conflict(why) if why.contains("the fixed limit project_documents = 2")),
        "{refused}"
    );
    let refused = hall.documents.write(PROJECT, "a.md", "a".repeat(100)).await.unwrap_err();
    assert!(refused.to_string().contains("limits.project_documents_bytes = 100"), "{refused}");
    hall.documents.write(PROJECT, "a.md", "another\n".to_owned()).await.unwrap();
    let refused = hall.documents.write(PROJECT, ".gitignore", "a\n".repeat(9000)).await.unwrap_err();
    assert!(matches!(&refused, OperationError::Invalid(why) if why.contains("git is given at most")), "{refused}");
}
