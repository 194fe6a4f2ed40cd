//! Branches and worktrees of attempts.

use std::{fs, os::unix::fs::symlink};

use guild_git::{AttemptBranch, Checkout, GitError};

use crate::support::{Project, branch, files, user_git, write};

#[tokio::test]
async fn a_full_attempt_has_all_files_and_begins_with_what_was_loose() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    write(&project.integration_dir(), ".lore/loose.md", "loose\n");
    let dir = project.attempt_dir("x");
    integration.start_attempt(&branch("x"), &dir, Checkout::Full).await.unwrap();
    assert_eq!(files(&dir), [".lore/loose.md", ".lore/notes.md", ".lore/plan.md", "README.md", "src/code.rs"]);
    assert!(integration.repository().branch_exists(&branch("x")).await.unwrap());
    assert_eq!(project.git(&["rev-parse", "claude/commission/x"]), project.git(&["rev-parse", "claude/main"]));
    assert_eq!(project.loose(), "");
}

#[tokio::test]
async fn a_sparse_attempt_has_lore_and_no_other_file() {
    let project = Project::new();
    let config = fs::read(project.path().join(".git/config")).unwrap();
    let integration = project.integration().await.unwrap();
    let dir = project.attempt_dir("x");
    integration.start_attempt(&branch("x"), &dir, Checkout::Sparse).await.unwrap();
    assert_eq!(files(&dir), [".lore/notes.md", ".lore/plan.md"]);
    assert_eq!(user_git(&dir, &["status", "--porcelain"]), "");

    write(&dir, ".lore/new.md", "new\n");
    write(&dir, "src/added.rs", "outside\n");
    write(&dir, "README.md", "outside\n");
    let commit = integration.repository().commit_all(&branch("x"), &dir, "Work").await.unwrap().unwrap();
    let changed = project.git(&["show", "--name-status", "--format=", commit.as_str()]);
    assert_eq!(changed, "A\t.lore/new.md\nM\tREADME.md\nA\tsrc/added.rs");
    assert_eq!(project.show("claude/commission/x", "src/code.rs"), "one\ntwo\nthree");
    // The user's configuration is not touched by it.
    assert_eq!(fs::read(project.path().join(".git/config")).unwrap(), config);
}

#[tokio::test]
async fn a_sparse_attempt_of_a_project_without_lore_is_empty() {
    let project = Project::empty();
    write(&project.path(), "README.md", "readme\n");
    project.commit("Begin");
    let integration = project.integration().await.unwrap();
    let dir = project.attempt_dir("x");
    integration.start_attempt(&branch("x"), &dir, Checkout::Sparse).await.unwrap();
    assert_eq!(files(&dir), [""; 0]);
    assert_eq!(integration.repository().commit_all(&branch("x"), &dir, "Work").await.unwrap(), None);
    write(&dir, ".lore/new.md", "new\n");
    integration.repository().commit_all(&branch("x"), &dir, "Work").await.unwrap().unwrap();
    assert_eq!(project.git(&["ls-tree", "-r", "--name-only", "claude/commission/x"]), ".lore/new.md\nREADME.md");
}

#[tokio::test]
async fn a_commit_has_all_changes_or_there_is_none() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let (dir, repository) = (project.attempt_dir("x"), integration.repository());
    integration.start_attempt(&branch("x"), &dir, Checkout::Full).await.unwrap();
    assert_eq!(repository.commit_all(&branch("x"), &dir, "Nothing").await.unwrap(), None);
    write(&dir, "new/file", "new\n");
    write(&dir, "README.md", "changed\n");
    fs::remove_file(dir.join("src/code.rs")).unwrap();
    let commit = repository.commit_all(&branch("x"), &dir, "--message\n\nbody\n").await.unwrap().unwrap();
    let changed = project.git(&["show", "--name-status", "--format=%B", commit.as_str()]);
    assert_eq!(changed, "--message\n\nbody\n\n\nM\tREADME.md\nA\tnew/file\nD\tsrc/code.rs");
    assert_eq!(project.git(&["rev-parse", "claude/commission/x"]), commit.to_string());
    assert_eq!(repository.commit_all(&branch("x"), &dir, "Nothing").await.unwrap(), None);
    // What was changed back is no change.
    write(&dir, "README.md", "other\n");
    user_git(&dir, &["add", "--all"]);
    write(&dir, "README.md", "changed\n");
    assert_eq!(repository.commit_all(&branch("x"), &dir, "Nothing").await.unwrap(), None);
    assert_eq!(project.log(), ["Begin"]);
}

#[tokio::test]
async fn ignored_files_are_left_out_except_in_lore() {
    let project = Project::new();
    write(&project.path(), ".gitignore", "*.secret\n.lore/\n");
    project.commit("Ignore");
    let integration = project.integration().await.unwrap();
    for checkout in [Checkout::Full, Checkout::Sparse] {
        let name = format!("{checkout:?}");
        let (dir, branch) = (project.attempt_dir(&name), branch(&name));
        integration.start_attempt(&branch, &dir, checkout).await.unwrap();
        write(&dir, "top.secret", "x");
        assert_eq!(integration.repository().commit_all(&branch, &dir, "Nothing").await.unwrap(), None);
        write(&dir, ".lore/work/result.md", "result\n");
        write(&dir, ".lore/top.secret", "result\n");
        let commit = integration.repository().commit_all(&branch, &dir, "Work").await.unwrap().unwrap();
        let added = project.git(&["show", "--name-only", "--format=", commit.as_str()]);
        assert_eq!(added, ".lore/top.secret\n.lore/work/result.md");
    }
}

#[tokio::test]
async fn a_worktree_on_another_branch_is_not_committed() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let (dir, repository) = (project.attempt_dir("x"), integration.repository());
    project.attempt(&integration, "x", &[]).await;
    write(&dir, "new", "x");
    let refused = repository.commit_all(&branch("y"), &dir, "Work").await.unwrap_err();
    assert!(matches!(refused, GitError::OtherBranch { .. }), "{refused}");
    user_git(&dir, &["checkout", "--quiet", "--detach"]);
    let refused = repository.commit_all(&branch("x"), &dir, "Work").await.unwrap_err();
    assert!(matches!(refused, GitError::OtherBranch { .. }), "{refused}");
    let refused = repository.commit_all(&branch("x"), &project.path(), "Work").await.unwrap_err();
    assert!(matches!(refused, GitError::NotAWorktree { .. }), "{refused}");
}

#[tokio::test]
async fn an_attempt_that_was_started_keeps_what_is_in_it() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let (branch, dir) = (branch("x"), project.attempt_dir("x"));
    integration.start_attempt(&branch, &dir, Checkout::Full).await.unwrap();
    write(&dir, ".lore/work.md", "under way\n");
    // Its branch begins where it began, whatever happened since.
    write(&project.integration_dir(), ".lore/later.md", "later\n");
    integration.start_attempt(&branch, &dir, Checkout::Full).await.unwrap();
    assert!(dir.join(".lore/work.md").exists() && !dir.join(".lore/later.md").exists());
    let refused = integration.start_attempt(&branch, &project.attempt_dir("y"), Checkout::Full).await.unwrap_err();
    assert!(matches!(&refused, GitError::CheckedOutElsewhere { at, .. } if *at == dir), "{refused}");
    let other = AttemptBranch::new("claude/meeting/y").unwrap();
    let refused = integration.start_attempt(&other, &dir, Checkout::Full).await.unwrap_err();
    assert!(matches!(refused, GitError::OtherBranch { .. }), "{refused}");
    assert!(dir.join(".lore/work.md").exists());
}

#[tokio::test]
async fn a_worktree_is_removed_and_its_branch_stays() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let repository = integration.repository();
    let attempt = project.attempt(&integration, "x", &[(".lore/new.md", "new\n")]).await;
    write(&project.attempt_dir("x"), "loose", "x");
    repository.remove_worktree(&project.attempt_dir("x")).await.unwrap();
    assert!(fs::read_dir(project.attempt_dir("x").parent().unwrap()).unwrap().next().is_none());
    assert!(repository.branch_exists(&attempt).await.unwrap());
    assert_eq!(project.git(&["worktree", "list"]).lines().count(), 2);
    // Again, and where somebody removed the directory.
    repository.remove_worktree(&project.attempt_dir("x")).await.unwrap();
    integration.start_attempt(&attempt, &project.attempt_dir("x"), Checkout::Full).await.unwrap();
    assert!(project.attempt_dir("x").join(".lore/new.md").exists());
    fs::remove_dir_all(project.attempt_dir("x")).unwrap();
    repository.remove_worktree(&project.attempt_dir("x")).await.unwrap();
    assert_eq!(project.git(&["worktree", "list"]).lines().count(), 2);
}

#[tokio::test]
async fn what_is_no_attempts_worktree_is_not_removed() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let repository = integration.repository();
    let own = project.root().join("own");
    project.git(&["worktree", "add", "--quiet", own.to_str().unwrap(), "-b", "mine"]);
    let plain = project.root().join("plain");
    write(&plain, "mine", "x");
    for dir in [project.path(), own, plain, project.integration_dir()] {
        let refused = repository.remove_worktree(&dir).await.unwrap_err();
        assert!(matches!(refused, GitError::NotAWorktree { .. }), "{}: {refused}", dir.display());
        assert!(!files(&dir).is_empty());
    }
    assert!(matches!(repository.remove_worktree("relative".as_ref()).await, Err(GitError::File { .. })));
}

#[tokio::test]
async fn symbolic_links_are_checked_out_as_files_and_stay_links() {
    let project = Project::new();
    symlink("/etc", project.path().join("etc")).unwrap();
    symlink("../README.md", project.path().join(".lore/link.md")).unwrap();
    project.commit("Links");
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[(".lore/new.md", "new\n")]).await;
    let dir = project.attempt_dir("x");
    for (link, target) in [("etc", "/etc"), (".lore/link.md", "../README.md")] {
        for dir in [&dir, &project.integration_dir()] {
            assert!(dir.join(link).symlink_metadata().unwrap().is_file());
            assert_eq!(fs::read_to_string(dir.join(link)).unwrap(), target);
        }
    }
    assert_eq!(integration.repository().links(&dir).await.unwrap(), [".lore/link.md", "etc"]);
    integration.merge_squash(&attempt, "Work").await.unwrap();
    assert!(project.git(&["ls-tree", "claude/main", "etc"]).starts_with("120000 "));
    assert_eq!(project.loose(), "");
}

#[tokio::test]
async fn attempts_start_beside_each_other() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let start = async |name: &str| {
        integration.start_attempt(&branch(name), &project.attempt_dir(name), Checkout::Sparse).await.unwrap();
        files(&project.attempt_dir(name)).len()
    };
    assert_eq!(tokio::join!(start("a"), start("b"), start("c"), start("d")), (2, 2, 2, 2));
}

#[test]
fn a_branch_of_an_attempt_has_a_plain_name_below_claude() {
    for name in
        ["claude/commission/commission-Researcher-20260401-120000", "claude/commission/x-2", "claude/meeting/a.b_c"]
    {
        assert_eq!(AttemptBranch::new(name).unwrap().as_str(), name);
    }
    let long = format!("claude/{}", "x".repeat(200));
    for name in [
        "",
        "main",
        "claude",
        "claude/",
        "claude/main",
        "claude/main/x",
        "-x",
        "--upload-pack=touch x",
        "claude/-x",
        "claude/x/",
        "claude//x",
        "claude/../main",
        "claude/a..b",
        "claude/.x",
        "claude/x.",
        "claude/x.lock",
        "claude/x y",
        "claude/x~1",
        "claude/x^",
        "claude/x:y",
        "claude/x\n",
        "claude/ä",
        "refs/heads/claude/x",
        "claude/x@{1}",
        &long,
    ] {
        let refused = AttemptBranch::new(name).unwrap_err();
        assert!(matches!(refused, GitError::InvalidBranch { .. }), "{name}");
    }
}
