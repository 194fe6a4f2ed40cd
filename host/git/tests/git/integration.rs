//! The integration worktree.

use std::{fs, path::Path};

use guild_git::{Checkout, GitError};

use crate::support::{NOW, Project, branch, files, user_git, write};

#[tokio::test]
async fn it_is_a_worktree_of_claude_main_which_begins_at_the_default_branch() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    assert_eq!(integration.dir(), project.integration_dir());
    assert_eq!(project.git(&["rev-parse", "claude/main"]), project.git(&["rev-parse", "main"]));
    assert_eq!(user_git(&project.integration_dir(), &["symbolic-ref", "HEAD"]), "refs/heads/claude/main");
    assert_eq!(files(&project.integration_dir()), [".lore/notes.md", ".lore/plan.md", "README.md", "src/code.rs"]);
    assert_eq!(project.loose(), "");
    // Again, it is what it was.
    project.integration().await.unwrap();
    assert_eq!(project.log(), ["Begin"]);
}

#[tokio::test]
async fn what_is_loose_there_is_committed_there_and_nowhere_else() {
    let project = Project::new();
    write(&project.path(), "README.md", "the user's change\n");
    let integration = project.integration().await.unwrap();
    write(&project.integration_dir(), ".lore/new.md", "new\n");
    fs::remove_file(project.integration_dir().join(".lore/notes.md")).unwrap();
    integration.commit_loose().await.unwrap();
    assert_eq!(project.loose(), "");
    assert_eq!(project.log(), ["Save changes of the integration worktree", "Begin"]);
    assert_eq!(project.show("claude/main", ".lore/new.md"), "new");
    let about = project.git(&["show", "--no-patch", "--format=%an %ae %at %cn %ct", "claude/main"]);
    assert_eq!(about, format!("Guild Hall guild-hall@localhost {NOW} Guild Hall {NOW}"));
    assert_eq!(project.git(&["rev-list", "--count", "main"]), "1");
    assert_eq!(project.git(&["status", "--porcelain"]), " M README.md");
    integration.commit_loose().await.unwrap();
    assert_eq!(project.log().len(), 2);
}

#[tokio::test]
async fn a_directory_that_was_removed_is_made_again() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    write(&project.integration_dir(), ".lore/new.md", "new\n");
    integration.commit_loose().await.unwrap();
    fs::remove_dir_all(project.integration_dir()).unwrap();
    integration.commit_loose().await.unwrap();
    assert!(project.integration_dir().join(".lore/new.md").exists());
    // Also where git has not forgotten that it was elsewhere.
    let moved = project.root().join("elsewhere");
    fs::remove_dir_all(project.integration_dir()).unwrap();
    let repository = project.open().await.unwrap();
    repository.integration(&moved).await.unwrap();
    assert!(moved.join(".lore/new.md").exists());
}

#[tokio::test]
async fn a_directory_that_is_something_else_is_left_alone() {
    let project = Project::new();
    write(&project.integration_dir(), "mine.txt", "mine");
    let refused = project.integration().await.unwrap_err();
    assert!(matches!(refused, GitError::NotAWorktree { .. }), "{refused}");
    assert_eq!(files(&project.integration_dir()), ["mine.txt"]);

    // A file, and the worktree of another repository.
    fs::remove_dir_all(project.integration_dir()).unwrap();
    fs::write(project.integration_dir(), "mine").unwrap();
    assert!(matches!(project.integration().await, Err(GitError::NotAWorktree { .. })));
    fs::remove_file(project.integration_dir()).unwrap();
    let other = Project::new();
    other.git(&["worktree", "add", "--quiet", project.integration_dir().to_str().unwrap(), "-b", "claude/main"]);
    assert!(matches!(project.integration().await, Err(GitError::NotAWorktree { .. })));
    // An empty one is not anything yet.
    fs::remove_dir_all(project.integration_dir()).unwrap();
    fs::create_dir(project.integration_dir()).unwrap();
    project.integration().await.unwrap();
}

#[tokio::test]
async fn a_worktree_without_its_link_is_never_taken_for_the_repository_above() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    // The host's home may be in a repository of the user.
    user_git(&project.root(), &["init", "--quiet"]);
    fs::remove_file(project.integration_dir().join(".git")).unwrap();
    write(&project.integration_dir(), "loose.md", "loose\n");
    let refused = integration.commit_loose().await.unwrap_err();
    assert!(matches!(refused, GitError::NotAWorktree { .. }), "{refused}");
    assert!(refused.to_string().contains("worktree repair`"), "{refused}");
    assert_eq!(user_git(&project.root(), &["ls-files"]), "");
    // As it says.
    project.git(&["worktree", "repair"]);
    integration.commit_loose().await.unwrap();
    assert_eq!(project.show("claude/main", "loose.md"), "loose");
}

#[tokio::test]
async fn claude_main_that_is_checked_out_elsewhere_is_refused() {
    let project = Project::new();
    project.git(&["checkout", "--quiet", "-b", "claude/main"]);
    let refused = project.integration().await.unwrap_err();
    assert!(matches!(&refused, GitError::CheckedOutElsewhere { at, .. } if *at == project.path()), "{refused}");
    assert!(!project.integration_dir().exists());
    project.git(&["checkout", "--quiet", "main"]);
    project.integration().await.unwrap();
    user_git(&project.integration_dir(), &["checkout", "--quiet", "--detach"]);
    let refused = project.integration().await.unwrap_err();
    assert!(matches!(refused, GitError::OtherBranch { .. }), "{refused}");
}

#[tokio::test]
async fn a_merge_that_somebody_began_there_is_not_committed() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let dir = project.integration_dir();
    project.git(&["checkout", "--quiet", "-b", "other"]);
    write(&project.path(), "README.md", "other\n");
    project.commit("Other");
    write(&dir, "README.md", "integration\n");
    integration.commit_loose().await.unwrap();
    let merge = std::process::Command::new("git").args(["merge", "other"]).current_dir(&dir).output().unwrap();
    assert!(!merge.status.success());
    let refused = integration.commit_loose().await.unwrap_err();
    assert!(matches!(&refused, GitError::Unmerged { file, .. } if file == "README.md"), "{refused}");
    assert_eq!(project.show("claude/main", "README.md"), "integration");
}

#[tokio::test]
async fn a_repository_in_the_worktree_is_refused_and_not_committed() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    for (nested, ignored) in [("nested", ""), (".lore/nested", ""), (".lore/nested", ".lore/\n")] {
        fs::write(project.path().join(".git/info/exclude"), ignored).unwrap();
        let dir = project.integration_dir().join(nested);
        write(&dir, "file", "x");
        user_git(&dir, &["init", "--quiet"]);
        user_git(&dir, &["add", "."]);
        user_git(&dir, &["commit", "--quiet", "-m", "Nested"]);
        for _ in 0..2 {
            let refused = integration.commit_loose().await.unwrap_err();
            assert!(matches!(refused, GitError::NestedRepository { .. } | GitError::Submodules { .. }), "{refused}");
            assert_eq!(user_git(&project.integration_dir(), &["diff", "--cached", "--name-only"]), "");
        }
        fs::remove_dir_all(dir).unwrap();
        integration.commit_loose().await.unwrap();
    }
    assert_eq!(project.log(), ["Begin"]);
}

#[tokio::test]
async fn a_lock_file_that_a_killed_run_left_is_removed_and_a_new_one_is_waited_for() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let own = user_git(&project.integration_dir(), &["rev-parse", "--path-format=absolute", "--git-dir"]);
    let locks =
        [format!("{own}/index.lock"), project.path().join(".git/refs/heads/claude/main.lock").display().to_string()];
    for lock in &locks {
        let file = fs::File::create(lock).unwrap();
        file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3600)).unwrap();
    }
    write(&project.integration_dir(), ".lore/new.md", "new\n");
    integration.commit_loose().await.unwrap();
    assert_eq!(project.show("claude/main", ".lore/new.md"), "new");

    fs::File::create(&locks[0]).unwrap();
    write(&project.integration_dir(), ".lore/newer.md", "newer\n");
    let release = async {
        tokio::task::yield_now().await;
        fs::remove_file(&locks[0]).unwrap();
    };
    let (done, ()) = tokio::join!(integration.commit_loose(), release);
    done.unwrap();
    assert_eq!(project.show("claude/main", ".lore/newer.md"), "newer");
}

#[tokio::test]
async fn a_users_own_missing_worktree_is_not_forgotten() {
    let project = Project::new();
    let own = project.root().join("unmounted");
    project.git(&["worktree", "add", "--quiet", own.to_str().unwrap(), "-b", "mine"]);
    fs::rename(&own, project.root().join("moved")).unwrap();
    let integration = project.integration().await.unwrap();
    fs::remove_dir_all(project.integration_dir()).unwrap();
    integration.start_attempt(&branch("x"), &project.attempt_dir("x"), Checkout::Full).await.unwrap();
    integration.repository().remove_worktree(&project.attempt_dir("x")).await.unwrap();
    fs::rename(project.root().join("moved"), &own).unwrap();
    assert_eq!(user_git(&own, &["symbolic-ref", "--short", "HEAD"]), "mine");
}

#[tokio::test]
async fn an_edit_is_a_commit_of_its_own() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    write(&project.integration_dir(), "README.md", "loose\n");
    let work = |dir: &Path| (write(dir, ".lore/plan.md", "another plan\n"), "Edit the plan".to_owned());
    integration.edit(work).await.unwrap();
    assert_eq!(project.log(), ["Edit the plan", "Save changes of the integration worktree", "Begin"]);
    assert_eq!(project.git(&["show", "--format=", "--name-only", "claude/main"]), ".lore/plan.md");
    // What changes nothing is no commit.
    integration.edit(|_| ((), "Nothing".to_owned())).await.unwrap();
    assert_eq!((project.log().len(), project.loose()), (3, String::new()));
}

#[tokio::test]
async fn what_is_loose_is_listed_and_committed_with_a_message() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    assert_eq!(integration.loose().await.unwrap(), Vec::<String>::new());
    write(&project.integration_dir(), "src/code.rs", "loose\n");
    // Without a document among it, it stays.
    assert!(!integration.commit_lore("Documents").await.unwrap());
    write(&project.integration_dir(), ".lore/a b.md", "new\n");
    fs::remove_file(project.integration_dir().join(".lore/notes.md")).unwrap();
    let loose = [".lore/a b.md", ".lore/notes.md", "src/code.rs"];
    assert_eq!(integration.loose().await.unwrap(), loose);
    assert_eq!(project.log(), ["Begin"]);
    assert!(integration.commit_lore("Documents\n\nSquashed-From: 0123\n").await.unwrap());
    assert_eq!(integration.loose().await.unwrap(), Vec::<String>::new());
    // It is not taken for a merge.
    assert_eq!(
        project.git(&["show", "--no-patch", "--format=%B", "claude/main"]),
        "Documents\n\n> Squashed-From: 0123"
    );
    assert!(!integration.commit_lore("Again").await.unwrap());
    assert_eq!(project.log().len(), 2);
}
