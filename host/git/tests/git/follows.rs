//! `claude/main` follows the default branch.

use std::fs;

use guild_git::{
    CommitId, Followed, Git, GitError, GitOptions, Integration, Merge, Origin, Proposed, PullState, Upstream,
};

use crate::support::{Project, git, merged, options, script, write};

async fn origin(integration: &Integration) -> Origin {
    integration.repository().origin().await.unwrap().unwrap()
}

/// An attempt that wrote this, merged.
async fn work(project: &Project, integration: &Integration, name: &str, written: &[(&str, &str)]) {
    let branch = project.attempt(integration, name, written).await;
    merged(integration.merge_squash(&branch, name).await.unwrap());
}

/// Pushes `claude/main`, as for a pull request, which is in this state.
async fn propose(integration: &Integration, state: PullState) -> Proposed {
    let origin = origin(integration).await;
    let seen = origin.fetch().await.unwrap();
    let tip = integration.tip().await.unwrap();
    origin.push(&tip, seen.integration.as_ref()).await.unwrap();
    Proposed { tip, state }
}

async fn follow(integration: &Integration, proposed: Option<&Proposed>) -> Result<Followed, GitError> {
    let Upstream { default, integration: pushed } = origin(integration).await.fetch().await?;
    integration.follow(&default, proposed, pushed.as_ref(), || true).await
}

/// What `origin` has of `main`.
fn upstream(project: &Project) -> String {
    crate::support::user_git(&project.origin(), &["rev-parse", "main"])
}

#[tokio::test]
async fn a_merged_pull_request_resets_the_branch_and_the_worktree_follows() {
    // Also where nobody remembers a pull request, and where the default branch has moved on since.
    for (remembered, moved) in [(true, false), (false, false), (true, true), (false, true)] {
        let project = Project::with_origin();
        let integration = project.integration().await.unwrap();
        work(&project, &integration, "a", &[("src/code.rs", "one\nTWO\nthree\n"), (".lore/new.md", "new\n")]).await;
        work(&project, &integration, "b", &[("src/more.rs", "more\n")]).await;
        let proposed = propose(&integration, PullState::Unknown).await;
        project.squash_elsewhere();
        if moved {
            project.write_elsewhere("README.md", "moved\n");
        }
        let main = project.git(&["rev-parse", "main"]);
        let before = upstream(&project);
        let proposed = remembered.then_some(&proposed);
        assert_eq!(follow(&integration, proposed).await.unwrap(), Followed::Reset, "{remembered} {moved}");
        assert_eq!(project.git(&["rev-parse", "claude/main"]), upstream(&project));
        assert_eq!(fs::read_to_string(project.integration_dir().join("src/more.rs")).unwrap(), "more\n");
        assert_eq!(project.loose(), "");
        // Neither default branch was written.
        assert_eq!((upstream(&project), project.git(&["rev-parse", "main"])), (before, main));
        assert_eq!(follow(&integration, None).await.unwrap(), Followed::Current);
    }
}

#[tokio::test]
async fn a_pull_request_that_the_user_changed_while_merging_resets_the_branch_where_gh_says_that_it_is_merged() {
    for (state, expected) in [
        (PullState::Merged, Followed::Reset),
        (PullState::Unknown, Followed::Conflicts { files: vec!["src/code.rs".to_owned()] }),
    ] {
        let project = Project::with_origin();
        let integration = project.integration().await.unwrap();
        work(&project, &integration, "a", &[("src/code.rs", "one\nTWO\nthree\n")]).await;
        let proposed = propose(&integration, state).await;
        project.write_elsewhere("src/code.rs", "one\nTwo, as the user likes it\nthree\n");
        assert_eq!(follow(&integration, Some(&proposed)).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn commits_since_the_pull_request_are_rebased_with_their_messages_and_authors() {
    let project = Project::with_origin();
    let integration = project.integration().await.unwrap();
    work(&project, &integration, "a", &[("src/code.rs", "one\nTWO\nthree\n")]).await;
    // The same place twice: that the first is merged does not make the second a conflict.
    work(&project, &integration, "b", &[("src/code.rs", "one\nZWEI\nthree\n")]).await;
    let proposed = propose(&integration, PullState::Unknown).await;
    work(&project, &integration, "newer", &[("src/code.rs", "one\nZWEI\nthree\nfour\n")]).await;
    write(&project.integration_dir(), ".lore/mine.md", "mine\n");
    crate::support::user_git(&project.integration_dir(), &["add", "--all"]);
    crate::support::user_git(&project.integration_dir(), &["commit", "--quiet", "--message=Mine\n\nWith a body"]);
    write(&project.integration_dir(), ".lore/loose.md", "loose\n");
    project.squash_elsewhere();
    project.write_elsewhere("README.md", "moved\n");
    assert_eq!(follow(&integration, Some(&proposed)).await.unwrap(), Followed::Rebased { commits: 3 });
    assert_eq!(
        project.log(),
        ["Save changes of the integration worktree", "Mine", "newer", "Elsewhere", "Squashed", "Begin"]
    );
    let mine = project.git(&["show", "--no-patch", "--format=%an %ae %cn %b", "claude/main~1"]);
    assert_eq!(mine, "User user@localhost Guild Hall With a body");
    assert_eq!(project.show("claude/main", "src/code.rs"), "one\nZWEI\nthree\nfour");
    assert_eq!(project.show("claude/main", "README.md"), "moved");
    assert_eq!(project.loose(), "");
    assert_eq!(fs::read_to_string(project.integration_dir().join("README.md")).unwrap(), "moved\n");
    // The pull request is over. It would not be applied again.
    assert_eq!(follow(&integration, Some(&proposed)).await.unwrap(), Followed::Ahead);
}

#[tokio::test]
async fn a_branch_without_work_of_its_own_goes_where_the_default_branch_went() {
    let project = Project::with_origin();
    let integration = project.integration().await.unwrap();
    assert_eq!(follow(&integration, None).await.unwrap(), Followed::Current);
    project.write_elsewhere("README.md", "moved\n");
    assert_eq!(follow(&integration, None).await.unwrap(), Followed::Forwarded);
    assert_eq!(project.git(&["rev-parse", "claude/main"]), upstream(&project));
    assert_eq!(fs::read_to_string(project.integration_dir().join("README.md")).unwrap(), "moved\n");
    work(&project, &integration, "a", &[("src/more.rs", "more\n")]).await;
    assert_eq!(follow(&integration, None).await.unwrap(), Followed::Ahead);
    // A merge that keeps the branch's commits.
    let proposed = propose(&integration, PullState::Unknown).await;
    project.elsewhere(&[&["merge", "--quiet", "--no-ff", "--message=Merged", "origin/claude/main"]]);
    let followed = follow(&integration, Some(&proposed)).await.unwrap();
    assert!(followed == Followed::Reset && followed.is_over(&proposed), "{followed:?}");
    assert_eq!(project.git(&["rev-parse", "claude/main"]), upstream(&project));
}

#[tokio::test]
async fn where_both_moved_on_the_default_branch_is_merged_and_nothing_is_lost() {
    let project = Project::with_origin();
    let integration = project.integration().await.unwrap();
    work(&project, &integration, "a", &[("src/code.rs", "one\ntwo\nthree\nfour\n"), (".lore/plan.md", "ours\n")]).await;
    let before = project.git(&["rev-parse", "claude/main"]);
    project.write_elsewhere("src/code.rs", "zero\none\ntwo\nthree\n");
    project.write_elsewhere(".lore/notes.md", "theirs\n");
    assert_eq!(follow(&integration, None).await.unwrap(), Followed::Merged);
    let parents = project.git(&["show", "--no-patch", "--format=%P", "claude/main"]);
    assert_eq!(parents, format!("{before} {}", upstream(&project)));
    assert_eq!(project.show("claude/main", "src/code.rs"), "zero\none\ntwo\nthree\nfour");
    assert_eq!(project.show("claude/main", ".lore/plan.md"), "ours");
    assert_eq!(project.show("claude/main", ".lore/notes.md"), "theirs");
    assert_eq!(project.loose(), "");
    assert_eq!(follow(&integration, None).await.unwrap(), Followed::Ahead);
    // It is pushed without replacing anything, and its merge is seen as such.
    let proposed = propose(&integration, PullState::Unknown).await;
    project.squash_elsewhere();
    assert_eq!(follow(&integration, Some(&proposed)).await.unwrap(), Followed::Reset);
}

#[tokio::test]
async fn a_conflict_names_the_files_and_leaves_all_as_it_was() {
    for rebases in [false, true] {
        let project = Project::with_origin();
        let integration = project.integration().await.unwrap();
        let mut proposed = None;
        if rebases {
            work(&project, &integration, "a", &[("src/more.rs", "more\n")]).await;
            proposed = Some(propose(&integration, PullState::Unknown).await);
            project.squash_elsewhere();
        }
        work(&project, &integration, "b", &[("src/code.rs", "ours\n"), (".lore/plan.md", "ours\n")]).await;
        project.write_elsewhere("src/code.rs", "theirs\n");
        project.write_elsewhere(".lore/plan.md", "theirs\n");
        let refs = || project.git(&["for-each-ref", "refs/heads", "refs/remotes"]);
        let before = refs();
        let followed = follow(&integration, proposed.as_ref()).await.unwrap();
        let files = vec![".lore/plan.md".to_owned(), "src/code.rs".to_owned()];
        assert_eq!(followed, Followed::Conflicts { files }, "{rebases}");
        assert_eq!(refs(), before);
        assert_eq!(project.loose(), "");
        assert_eq!(fs::read_to_string(project.integration_dir().join("src/code.rs")).unwrap(), "ours\n");
    }
}

#[tokio::test]
async fn an_open_pull_request_waits_for_the_user_and_one_that_was_closed_does_not() {
    let project = Project::with_origin();
    let integration = project.integration().await.unwrap();
    work(&project, &integration, "a", &[("src/more.rs", "more\n")]).await;
    let open = propose(&integration, PullState::Open).await;
    // Its tip is the branch's, and the default branch has moved on without it.
    project.write_elsewhere("README.md", "moved\n");
    let before = project.git(&["rev-parse", "claude/main"]);
    let followed = follow(&integration, Some(&open)).await.unwrap();
    assert!(followed == Followed::Open && !followed.is_over(&open), "{followed:?}");
    assert_eq!(project.git(&["rev-parse", "claude/main"]), before);
    let closed = Proposed { state: PullState::Closed, ..open };
    let followed = follow(&integration, Some(&closed)).await.unwrap();
    assert!(followed == Followed::Merged && followed.is_over(&closed), "{followed:?}");
    assert_eq!(project.show("claude/main", "src/more.rs"), "more");
    assert_eq!(project.show("claude/main", "README.md"), "moved");
}

#[tokio::test]
async fn nothing_happens_where_the_caller_does_not_want_it_any_more() {
    let project = Project::with_origin();
    let integration = project.integration().await.unwrap();
    project.write_elsewhere("README.md", "moved\n");
    let default = origin(&integration).await.fetch().await.unwrap().default;
    let before = project.git(&["rev-parse", "claude/main"]);
    let followed = integration.follow(&default, None, None, || false).await.unwrap();
    assert_eq!((followed, project.git(&["rev-parse", "claude/main"])), (Followed::Refused, before));
}

#[tokio::test]
async fn what_a_project_must_not_have_does_not_come_from_the_default_branch() {
    let project = Project::with_origin();
    let integration = project.integration().await.unwrap();
    project.write_elsewhere(".gitmodules", "[submodule \"x\"]\n");
    let before = project.git(&["rev-parse", "claude/main"]);
    let refused = follow(&integration, None).await.unwrap_err();
    assert!(matches!(refused, GitError::Submodules { .. }), "{refused}");
    assert_eq!(project.git(&["rev-parse", "claude/main"]), before);
}

#[tokio::test]
async fn a_loose_file_is_committed_before_and_kept() {
    let project = Project::with_origin();
    let integration = project.integration().await.unwrap();
    write(&project.integration_dir(), ".lore/loose.md", "loose\n");
    project.write_elsewhere("README.md", "moved\n");
    assert_eq!(follow(&integration, None).await.unwrap(), Followed::Merged);
    assert_eq!(project.show("claude/main", ".lore/loose.md"), "loose");
    assert_eq!(project.show("claude/main", "README.md"), "moved");
}

#[tokio::test]
async fn attempts_merge_after_a_sync_as_before() {
    let project = Project::with_origin();
    let integration = project.integration().await.unwrap();
    work(&project, &integration, "a", &[("src/code.rs", "one\nTWO\nthree\n")]).await;
    let proposed = propose(&integration, PullState::Merged).await;
    project.squash_elsewhere();
    follow(&integration, Some(&proposed)).await.unwrap();
    let next = project.attempt(&integration, "next", &[("src/code.rs", "one\nTWO\nTHREE\n")]).await;
    assert!(matches!(integration.merge_squash(&next, "next").await.unwrap(), Merge::Merged { .. }));
    assert_eq!(project.log(), ["next", "Squashed", "Begin"]);
}

/// What writes. Between two of these, all moments are alike.
const WRITES: &str = "add|commit-tree|fetch|push|read-tree|update-index|update-ref|write-tree";

#[tokio::test]
async fn a_host_that_ends_after_any_write_of_a_sync_is_healed_by_the_next_one() {
    for last in 1_u32.. {
        let project = Project::with_origin();
        let integration = project.integration().await.unwrap();
        work(&project, &integration, "a", &[("src/code.rs", "one\nTWO\nthree\n")]).await;
        let proposed = propose(&integration, PullState::Unknown).await;
        work(&project, &integration, "newer", &[(".lore/plan.md", "one\ntwo\nthree\nfour\n")]).await;
        project.squash_elsewhere();
        write(&project.integration_dir(), ".lore/loose.md", "loose\n");
        drop(integration);

        let (program, count) = (project.root().join("git"), project.root().join("count"));
        fs::write(&count, "0").unwrap();
        let body = format!(
            "case \" $* \" in *' {WRITES} '*) n=$(($(cat '{0}') + 1)); echo $n > '{0}' ;; esac\n\
             [ \"$n\" = {last} ] && {{ git \"$@\"; exit 99; }}\n\
             exec git \"$@\"",
            count.display()
        );
        script(&program, &body.replace('|', " '*|*' "));
        let until_then = Git::find(GitOptions { program: Some(program), ..options() }).await.unwrap();
        let sync = async |git: &Git| {
            let repository = guild_git::Repository::open(git, &project.path(), None).await?;
            let integration = repository.integration(&project.integration_dir()).await?;
            follow(&integration, Some(&proposed)).await
        };
        // Most failures are an error; a worktree that shows the branch late is none.
        let _ = sync(&until_then).await;
        let writes: u32 = fs::read_to_string(&count).unwrap().trim().parse().unwrap();
        let healed = sync(&git().await).await;
        let at = format!("after write {last}: {healed:?} {:?}", project.log());
        assert!(healed.is_ok(), "{at}");
        let messages = project.log();
        assert_eq!(messages, ["Save changes of the integration worktree", "newer", "Squashed", "Begin"], "{at}");
        assert_eq!(project.show("claude/main", ".lore/loose.md"), "loose", "{at}");
        assert_eq!(project.show("claude/main", ".lore/plan.md"), "one\ntwo\nthree\nfour", "{at}");
        assert_eq!(project.show("claude/main", "src/code.rs"), "one\nTWO\nthree", "{at}");
        assert_eq!(project.loose(), "", "{at}");
        assert_eq!(project.git(&["status", "--porcelain"]), "", "{at}");
        // What is at `origin` can be replaced.
        let integration = project.integration().await.unwrap();
        let seen = origin(&integration).await.fetch().await.unwrap().integration;
        let tip: CommitId = integration.tip().await.unwrap();
        origin(&integration).await.push(&tip, seen.as_ref()).await.unwrap();
        if writes < last {
            assert!(writes > 8, "only {writes} writes");
            return;
        }
    }
}
