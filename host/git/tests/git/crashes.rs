//! A host that ends at any moment goes on where it was.

use std::fs;

use guild_git::{Checkout, Git, GitError, GitOptions, Repository};

use crate::support::{Project, branch, files, git, merged, options, script, user_git, write};

/// From opening the project to the end of an attempt. It can be repeated.
async fn commission(git: &Git, project: &Project) -> Result<(), GitError> {
    let repository = Repository::open(git, &project.path(), None).await?;
    let integration = repository.integration(&project.integration_dir()).await?;
    let (branch, dir) = (branch("x"), project.attempt_dir("x"));
    let done = project.root().join("done");
    if !done.exists() {
        integration.start_attempt(&branch, &dir, Checkout::Sparse).await?;
        write(&dir, ".lore/result.md", "result\n");
        let plan = fs::read_to_string(dir.join(".lore/plan.md")).unwrap().replace("four\n", "");
        write(&dir, ".lore/plan.md", &format!("{plan}four\n"));
        repository.commit_all(&branch, &dir, "Work").await?;
        merged(integration.merge_squash(&branch, "Squash").await?);
        fs::write(&done, "").unwrap();
    }
    repository.remove_worktree(&dir).await
}

/// What writes. Between two of these, all moments are alike.
const WRITES: &str = "add|commit-tree|read-tree|update-index|update-ref|worktree|write-tree";

#[tokio::test]
async fn a_host_that_ends_after_any_write_goes_on_where_it_was() {
    for last in 1_u32.. {
        let project = Project::new();
        let (program, count) = (project.root().join("git"), project.root().join("count"));
        fs::write(&count, "0").unwrap();
        let body = format!(
            "case \" $* \" in *' worktree list '*) ;; *' '{WRITES}' '*) n=$(($(cat '{0}') + 1)); echo $n > '{0}' ;; esac\n\
             [ \"$n\" = {last} ] && {{ git \"$@\"; exit 99; }}\n\
             exec git \"$@\"",
            count.display()
        );
        script(&program, &body.replace('|', "' '*|*' '"));
        let git_until_then = Git::find(GitOptions { program: Some(program), ..options() }).await.unwrap();
        // Most failures are an error; a merge that shows late is none.
        let _ = commission(&git_until_then, &project).await;
        let writes: u32 = fs::read_to_string(count).unwrap().trim().parse().unwrap();
        // What is written while the host is down.
        let plan = project.integration_dir().join(".lore/plan.md");
        let edited = plan.exists();
        if edited {
            let text = fs::read_to_string(&plan).unwrap();
            fs::write(&plan, format!("zero\n{text}")).unwrap();
            write(&project.integration_dir(), ".lore/loose.md", "loose\n");
        }

        if let Err(e) = commission(&git().await, &project).await {
            panic!("after write {last}: {e}");
        }
        project.integration().await.unwrap();
        let at = format!("after write {last}: {:?}", project.log());
        assert_eq!(project.log().iter().filter(|message| *message == "Squash").count(), 1, "{at}");
        assert_eq!(project.show("claude/main", ".lore/result.md"), "result", "{at}");
        let plan = if edited { "zero\none\ntwo\nthree\nfour" } else { "one\ntwo\nthree\nfour" };
        assert_eq!(project.show("claude/main", ".lore/plan.md"), plan, "{at}");
        assert_eq!(project.loose(), "", "{at}");
        assert_eq!(project.git(&["status", "--porcelain"]), "", "{at}");
        assert_eq!(files(&project.root().join("hall/worktrees")), [""; 0], "{at}");
        assert_eq!(project.git(&["worktree", "list"]).lines().count(), 2, "{at}");
        if writes < last {
            assert!(writes > 15, "only {writes} writes");
            return;
        }
    }
}

#[tokio::test]
async fn worktrees_that_are_half_made_are_made_again() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let (attempt, dir) = (branch("x"), project.attempt_dir("x"));
    project.git(&["branch", attempt.as_str(), "claude/main"]);
    let add = ["worktree", "add", "--quiet", "--no-checkout", dir.to_str().unwrap(), attempt.as_str()];
    let own = project.path().join(".git/worktrees/x");
    let breaks: [&dyn Fn(); 5] = [
        &|| {},
        // In the middle of the checkout.
        &|| write(&dir, ".lore/notes.md", "no"),
        // While git made the worktree.
        &|| fs::write(own.join("locked"), "initializing").unwrap(),
        &|| {
            fs::write(own.join("locked"), "initializing").unwrap();
            fs::remove_dir_all(&dir).unwrap();
        },
        &|| {
            fs::remove_file(dir.join(".git")).unwrap();
        },
    ];
    for half in breaks {
        project.git(&add);
        half();
        integration.start_attempt(&attempt, &dir, Checkout::Sparse).await.unwrap();
        assert_eq!(files(&dir), [".lore/notes.md", ".lore/plan.md"]);
        assert_eq!(fs::read_to_string(dir.join(".lore/notes.md")).unwrap(), "notes\n");
        integration.repository().remove_worktree(&dir).await.unwrap();
        // It can also be given up at that point.
        project.git(&add);
        half();
        integration.repository().remove_worktree(&dir).await.unwrap();
        assert!(!own.exists());
    }
}

/// A merge on the branch whose files are not in the worktree yet.
async fn merged_behind_the_worktree(project: &Project) {
    let integration = project.integration().await.unwrap();
    let attempt =
        [(".lore/plan.md", "one\ntwo\nthree\nfour\n"), (".lore/new.md", "new\n"), ("src/code.rs", "changed\n")];
    let attempt = project.attempt(&integration, "x", &attempt).await;
    fs::remove_file(project.attempt_dir("x").join(".lore/notes.md")).unwrap();
    integration.repository().commit_all(&attempt, &project.attempt_dir("x"), "Work").await.unwrap();
    let tree = project.git(&["rev-parse", "claude/commission/x^{tree}"]);
    let commit = project.git(&["commit-tree", &tree, "-p", "claude/main", "-m", "Squash"]);
    project.git(&["update-ref", "refs/heads/claude/main", &commit]);
}

#[tokio::test]
async fn a_merge_whose_files_are_not_there_yet_is_not_undone() {
    let project = Project::new();
    merged_behind_the_worktree(&project).await;
    project.integration().await.unwrap();
    assert_eq!(project.log(), ["Squash", "Begin"]);
    assert_eq!(project.loose(), "");
    assert_eq!(files(&project.integration_dir()), [".lore/new.md", ".lore/plan.md", "README.md", "src/code.rs"]);
}

#[tokio::test]
async fn a_merge_of_whose_files_some_are_there_is_completed() {
    let project = Project::new();
    merged_behind_the_worktree(&project).await;
    let dir = project.integration_dir();
    write(&dir, ".lore/new.md", "new\n");
    fs::remove_file(dir.join(".lore/notes.md")).unwrap();
    write(&dir, "src/code.rs", "changed\n");
    project.integration().await.unwrap();
    assert_eq!(project.log(), ["Squash", "Begin"]);
    assert_eq!(project.loose(), "");
}

#[tokio::test]
async fn a_merge_whose_base_alone_is_old_is_completed() {
    let project = Project::new();
    merged_behind_the_worktree(&project).await;
    project.integration().await.unwrap();
    let dir = project.integration_dir();
    user_git(&dir, &["update-ref", "refs/worktree/guild-base", "claude/main~1"]);
    write(&dir, ".lore/loose.md", "loose\n");
    project.integration().await.unwrap();
    assert_eq!(project.log(), ["Save changes of the integration worktree", "Squash", "Begin"]);
    assert_eq!(project.git(&["diff", "--name-status", "claude/main~1", "claude/main"]), "A\t.lore/loose.md");
    assert_eq!(project.loose(), "");
}

#[tokio::test]
async fn what_was_loose_when_a_merge_was_cut_short_is_kept() {
    let project = Project::new();
    merged_behind_the_worktree(&project).await;
    let dir = project.integration_dir();
    write(&dir, ".lore/loose.md", "loose\n");
    // The first line here, the last line in the merge.
    write(&dir, ".lore/plan.md", "zero\none\ntwo\nthree\n");
    project.integration().await.unwrap();
    assert_eq!(project.log(), ["Save changes of the integration worktree", "Squash", "Begin"]);
    assert_eq!(project.show("claude/main", ".lore/plan.md"), "zero\none\ntwo\nthree\nfour");
    assert_eq!(project.show("claude/main", ".lore/new.md"), "new");
    assert_eq!(project.loose(), "");
}

#[tokio::test]
async fn code_that_conflicts_with_a_merge_that_was_cut_short_is_the_users_to_decide() {
    let project = Project::new();
    merged_behind_the_worktree(&project).await;
    let dir = project.integration_dir();
    write(&dir, "src/code.rs", "mine\n");
    write(&dir, ".lore/plan.md", "mine\n");
    for _ in 0..2 {
        let refused = project.integration().await.unwrap_err();
        assert!(matches!(&refused, GitError::LooseConflict { files, .. } if *files == ["src/code.rs"]), "{refused}");
        assert_eq!(fs::read_to_string(dir.join("src/code.rs")).unwrap(), "mine\n");
    }
    assert_eq!(project.log(), ["Squash", "Begin"]);
    // In `.lore`, what is newest stays; the other is in the history.
    user_git(&dir, &["checkout", "claude/main", "--", "src/code.rs"]);
    project.integration().await.unwrap();
    assert_eq!(project.show("claude/main", ".lore/plan.md"), "mine");
    assert_eq!(project.show("claude/main~1", ".lore/plan.md"), "one\ntwo\nthree\nfour");
    assert_eq!(project.loose(), "");
}

#[tokio::test]
async fn a_branch_that_was_set_to_something_else_is_followed() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[(".lore/new.md", "new\n")]).await;
    integration.merge_squash(&attempt, "Work").await.unwrap();
    // As after a pull request: the default branch has other commits with the same content, and more.
    project.git(&["checkout", "--quiet", "-b", "next", "main"]);
    write(&project.path(), ".lore/new.md", "new\n");
    write(&project.path(), "more", "more\n");
    project.commit("Pull request");
    project.git(&["update-ref", "refs/heads/claude/main", "next"]);
    write(&project.integration_dir(), ".lore/loose.md", "loose\n");
    integration.commit_loose().await.unwrap();
    assert_eq!(project.log(), ["Save changes of the integration worktree", "Pull request", "Begin"]);
    assert!(project.integration_dir().join("more").exists());
    assert_eq!(project.loose(), "");
}
