//! The host's home, and projects, that were moved: worktrees and their repository name each other by absolute paths.

use std::{fs, path::Path, process::Command};

use guild_git::{Checkout, GitError, Repository};

use crate::support::{Project, branch, git, merged, user_git, write};

/// Moves a directory, also where the target's parent is not there.
fn mv(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::rename(from, to).unwrap();
}

/// What was under way before a move is committed, merged and tidied up where everything is now.
async fn goes_on(project: &Path, hall: &Path) {
    let repository = Repository::open(&git().await, project, None).await.unwrap();
    let integration = repository.integration(&hall.join("projects/project")).await.unwrap();
    let (branch, dir) = (branch("a"), hall.join("worktrees/project/a"));
    integration.start_attempt(&branch, &dir, Checkout::Full).await.unwrap();
    assert_eq!(fs::read_to_string(dir.join("found.md")).unwrap(), "found\n");
    integration.repository().commit_all(&branch, &dir, "Work").await.unwrap();
    merged(integration.merge_squash(&branch, "Merge").await.unwrap());
    assert!(hall.join("projects/project/found.md").exists());
    repository.remove_worktree(&dir).await.unwrap();
    assert!(!dir.exists());
    let listed = user_git(project, &["worktree", "list", "--porcelain"]);
    let places: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("worktree ")).collect();
    assert_eq!(places, [project.to_str().unwrap(), hall.join("projects/project").to_str().unwrap()]);
    assert_eq!(user_git(&hall.join("projects/project"), &["status", "--porcelain"]), "");
    assert_eq!(user_git(project, &["worktree", "prune", "--verbose", "--dry-run", "--expire=now"]), "");
}

/// A project with an attempt that has written a file.
async fn begun() -> Project {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    integration.start_attempt(&branch("a"), &project.attempt_dir("a"), Checkout::Full).await.unwrap();
    write(&project.attempt_dir("a"), "found.md", "found\n");
    project
}

#[tokio::test]
async fn work_goes_on_where_the_hosts_directory_was_moved() {
    let project = begun().await;
    let hall = project.root().join("srv/other");
    mv(&project.root().join("hall"), &hall);
    goes_on(&project.path(), &hall).await;
}

#[tokio::test]
async fn work_goes_on_where_the_project_was_moved() {
    let project = begun().await;
    let path = project.root().join("elsewhere/book");
    mv(&project.path(), &path);
    goes_on(&path, &project.root().join("hall")).await;
}

#[tokio::test]
async fn work_goes_on_where_both_were_moved() {
    let project = begun().await;
    let (path, hall) = (project.root().join("elsewhere/book"), project.root().join("srv/other"));
    mv(&project.path(), &path);
    mv(&project.root().join("hall"), &hall);
    goes_on(&path, &hall).await;
}

#[tokio::test]
async fn a_copy_of_the_hosts_directory_is_refused_while_the_original_is_there() {
    let project = begun().await;
    let (original, copy) = (project.root().join("hall"), project.root().join("copy"));
    let repository = project.open().await.unwrap();
    // One of hard links has the same files.
    assert!(Command::new("cp").arg("-al").args([&original, &copy]).status().unwrap().success());
    let refused = repository.integration(&copy.join("projects/project")).await.unwrap_err();
    assert!(matches!(&refused, GitError::CopiedWorktree { .. }), "{refused}");
    fs::remove_dir_all(&copy).unwrap();
    assert!(Command::new("cp").arg("-r").args([&original, &copy]).status().unwrap().success());
    let refused = repository.integration(&copy.join("projects/project")).await.unwrap_err();
    assert!(matches!(&refused, GitError::CopiedWorktree { .. }), "{refused}");
    assert!(refused.to_string().contains(original.join("projects/project").to_str().unwrap()), "{refused}");
    project.integration().await.unwrap();
    // As it says.
    fs::remove_dir_all(&original).unwrap();
    goes_on(&project.path(), &copy).await;
}

#[tokio::test]
async fn the_worktree_of_another_repository_is_not_taken_over() {
    let (project, other) = (begun().await, begun().await);
    fs::remove_dir_all(project.integration_dir()).unwrap();
    mv(&other.integration_dir(), &project.integration_dir());
    let refused = project.integration().await.unwrap_err();
    assert!(matches!(&refused, GitError::NotAWorktree { .. }), "{refused}");
    // Nor one that a repository of the same name has forgotten.
    fs::remove_dir_all(project.path().join(".git/worktrees")).unwrap();
    let refused = project.integration().await.unwrap_err();
    // As it says.
    let aside = project.root().join("aside");
    assert!(refused.to_string().contains("move what is there to another place"), "{refused}");
    mv(&project.integration_dir(), &aside);
    project.integration().await.unwrap();
}
