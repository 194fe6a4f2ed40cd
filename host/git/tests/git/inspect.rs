//! Looking at a project, read-only.

use std::fs;

use guild_git::{BranchOptions, DiffOptions, GitError, LogOptions, ShowOptions, ShownDiff};

use crate::support::{Project, merged, user_git, write};

fn diff(rev: &str) -> DiffOptions {
    DiffOptions { rev: Some(rev.to_owned()), ..DiffOptions::default() }
}

fn show(rev: &str, diff: ShownDiff) -> ShowOptions {
    ShowOptions { rev: rev.to_owned(), diff, ..ShowOptions::default() }
}

#[tokio::test]
async fn it_shows_commits_differences_branches_and_what_is_loose() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let branch = project.attempt(&integration, "a", &[("src/code.rs", "one\nTWO\nthree\n")]).await;
    merged(integration.merge_squash(&branch, "Work\n\nWith a body").await.unwrap());
    let log = integration.log_view(&LogOptions::default()).await.unwrap();
    assert_eq!(log.iter().map(|one| one.subject.as_str()).collect::<Vec<_>>(), ["Work", "Begin"]);
    assert!(log[0].body.starts_with("With a body") && log[1].body.is_empty(), "{log:?}");
    assert!(log[0].author == "Guild Hall" && log[0].date.starts_with("2027-01-15T08:00:00"), "{log:?}");
    let only = LogOptions { count: Some(1), author: Some("User".to_owned()), ..LogOptions::default() };
    assert_eq!(integration.log_view(&only).await.unwrap()[0].subject, "Begin");
    let since = LogOptions { since: Some("2027-01-01".to_owned()), ..LogOptions::default() };
    assert_eq!(integration.log_view(&since).await.unwrap().len(), 1);

    let text = integration.diff_view(&diff("main..claude/main")).await.unwrap();
    assert!(text.starts_with("diff --git a/src/code.rs b/src/code.rs\n") && text.contains("-two\n+TWO\n"), "{text}");
    assert_eq!(integration.diff_view(&diff("main...")).await.unwrap(), text);
    let stat = DiffOptions { stat: true, ..diff("main") };
    assert!(integration.diff_view(&stat).await.unwrap().contains("src/code.rs | 2 +-"));
    assert_eq!(integration.diff_view(&DiffOptions::default()).await.unwrap(), "(no differences)");

    let shown = integration.show_view(&show("HEAD", ShownDiff::Stat)).await.unwrap();
    let summed = (shown.commit.subject.as_str(), shown.total_files, shown.diff);
    assert_eq!(summed, ("Work", Some(1), None), "{:?}", shown.stat);
    let shown = integration.show_view(&show("claude/main~1", ShownDiff::Full)).await.unwrap();
    assert!(shown.diff.unwrap().contains("+++ b/README.md"));
    let branches = integration.branch_view(BranchOptions::default()).await.unwrap();
    let names: Vec<_> = branches.iter().map(|one| (one.name.as_str(), one.current)).collect();
    assert_eq!(names, [("claude/commission/a", false), ("claude/main", true), ("main", false)]);

    let dir = project.integration_dir();
    write(&dir, "README.md", "loose\n");
    write(&dir, "new.md", "new\n");
    user_git(&dir, &["rm", "--quiet", ".lore/notes.md"]);
    let status = integration.status_view().await.unwrap();
    assert_eq!(status.staged, [".lore/notes.md"]);
    assert_eq!((status.unstaged, status.untracked), (vec!["README.md".to_owned()], vec!["new.md".to_owned()]));
    let staged = DiffOptions { staged: true, ..DiffOptions::default() };
    assert!(integration.diff_view(&staged).await.unwrap().contains("deleted file mode"));
}

#[tokio::test]
async fn what_a_caller_names_is_never_an_option_nor_a_program() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let canary = project.canary();
    let output = format!("--output={}", canary.display());
    for rev in ["--all", &output, "-p", "", "main:README.md", ":/Begin", "none", "HEAD; touch x", "a..b", "HEAD\n-x"] {
        let refused = integration.diff_view(&diff(rev)).await.unwrap_err();
        assert!(matches!(refused, GitError::NoCommitOfThatName { .. }), "{rev}: {refused}");
        let refused = integration.show_view(&show(rev, ShownDiff::Full)).await.unwrap_err();
        assert!(matches!(refused, GitError::NoCommitOfThatName { .. }), "{rev}: {refused}");
    }
    for text in ["--all", "$(touch x)", &output] {
        let options =
            LogOptions { since: Some(text.to_owned()), author: Some(text.to_owned()), ..LogOptions::default() };
        let _ = integration.log_view(&options).await;
        let options = DiffOptions { file: Some(text.to_owned()), ..DiffOptions::default() };
        assert_eq!(integration.diff_view(&options).await.unwrap(), "(no differences)");
    }
    let options = DiffOptions { file: Some("../../../etc/passwd".to_owned()), ..DiffOptions::default() };
    assert!(integration.diff_view(&options).await.is_ok_and(|said| said == "(no differences)"));
    assert!(!canary.exists());
}

#[tokio::test]
async fn programs_of_the_configuration_do_not_run() {
    let project = Project::new();
    write(&project.path(), ".gitattributes", "* diff=evil\n");
    write(&project.path(), "README.md", "changed\n");
    project.commit("Attributes");
    let integration = project.integration().await.unwrap();
    let hostile = project.hostile_program().display().to_string();
    for key in
        ["diff.external", "diff.evil.command", "diff.evil.textconv", "core.fsmonitor", "core.pager", "gpg.program"]
    {
        project.git(&["config", key, &hostile]);
    }
    for key in ["log.showSignature", "diff.evil.cachetextconv"] {
        project.git(&["config", key, "true"]);
    }
    write(&project.integration_dir(), "README.md", "loose\n");
    assert!(integration.diff_view(&diff("HEAD~1")).await.unwrap().contains("+loose"));
    integration.show_view(&show("HEAD", ShownDiff::Full)).await.unwrap();
    integration.log_view(&LogOptions::default()).await.unwrap();
    integration.status_view().await.unwrap();
    assert!(!project.canary().exists());
}

#[tokio::test]
async fn each_file_and_the_whole_are_bounded_and_what_is_left_out_is_named() {
    let project = Project::new();
    write(&project.path(), "Cargo.lock", "lock\n");
    write(&project.path(), "target/made.txt", "made\n");
    write(&project.path(), "large.txt", &"a line of the large file\n".repeat(2000));
    write(&project.path(), "small.txt", "small\n");
    project.commit("Large");
    let integration = project.integration().await.unwrap();
    let shown = integration.show_view(&show("HEAD", ShownDiff::Full)).await.unwrap().diff.unwrap();
    assert!(shown.contains("+small\n") && !shown.contains("+a line"), "{shown}");
    assert!(shown.contains("large.txt (") && shown.contains("[2 generated files left out"), "{shown}");
    assert!(shown.contains("Cargo.lock, target/made.txt]"), "{shown}");
    let all = ShowOptions { include_generated: true, max_file_size: Some(0), ..show("HEAD", ShownDiff::Full) };
    let shown = integration.show_view(&all).await.unwrap().diff.unwrap();
    assert!(shown.contains("+lock\n") && shown.contains("+a line"), "{}", shown.len());
    let one = DiffOptions { file: Some("large.txt".to_owned()), ..diff("HEAD~1..HEAD") };
    assert!(integration.diff_view(&one).await.unwrap().contains("+a line"));
    for nth in 0..30 {
        write(&project.integration_dir(), &format!("many/{nth}.txt"), &"x".repeat(10_000));
    }
    integration.commit_loose().await.unwrap();
    let shown = integration.diff_view(&diff("HEAD~1")).await.unwrap();
    assert!(shown.len() < 110_000 && shown.contains("[too large to show here"), "{}", shown.len());
    fs::remove_dir_all(project.integration_dir()).unwrap();
    assert!(integration.status_view().await.is_err());
}

#[tokio::test]
async fn the_changes_of_an_attempt_under_way_are_those_on_its_branch_and_in_its_worktree() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let branch = project.attempt(&integration, "a", &[("src/code.rs", "one\nTWO\nthree\n")]).await;
    let dir = project.attempt_dir("a");
    write(&dir, "README.md", "loose\n");
    write(&dir, "new.md", "new\n");
    let status = || user_git(&dir, &["status", "--porcelain"]);
    let before = status();
    let patch = integration.changes_so_far(&branch, &dir, None).await.unwrap();
    for change in ["+TWO\n", "+loose\n", "+++ b/new.md\n"] {
        assert!(patch.contains(change), "{change:?} is not in {patch}");
    }
    let one = integration.changes_so_far(&branch, &dir, Some("new.md")).await.unwrap();
    assert!(one.contains("+new\n") && !one.contains("TWO"), "{one}");
    // Nothing was added to the index of the worker, and nothing was committed.
    assert_eq!(status(), before);
    let committed = integration.attempt_changes(&branch, None).await.unwrap();
    assert!(committed.contains("+TWO\n") && !committed.contains("loose"), "{committed}");
}
