//! Squash merges.

use std::{fs, sync::Arc};

use guild_git::{Checkout, DocumentQuota, Git, GitError, GitOptions, Merge, Repository};

use crate::support::{Project, branch, files, merged, options, user_git, write};

#[tokio::test]
async fn a_merge_is_one_commit_with_one_parent_and_shows_in_the_worktree() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[(".lore/one.md", "1\n")]).await;
    write(&project.attempt_dir("x"), "src/two.rs", "2\n");
    integration.repository().commit_all(&attempt, &project.attempt_dir("x"), "More").await.unwrap();
    let before = project.git(&["rev-parse", "claude/main"]);
    let commit = merged(integration.merge_squash(&attempt, "Add one and two\n\nBecause.\n").await.unwrap());
    assert_eq!(project.git(&["rev-parse", "claude/main"]), commit);
    assert_eq!(project.git(&["show", "--no-patch", "--format=%P", &commit]), before);
    let tip = project.git(&["rev-parse", "claude/commission/x"]);
    let message = project.git(&["show", "--no-patch", "--format=%B", &commit]);
    assert_eq!(message, format!("Add one and two\n\nBecause.\n\nSquashed-From: {tip}"));
    assert!(files(&project.integration_dir()).contains(&".lore/one.md".to_owned()));
    assert_eq!(project.loose(), "");
    assert_eq!(project.git(&["status", "--porcelain"]), "");
    assert_eq!(project.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
}

#[tokio::test]
async fn what_is_loose_on_the_integration_worktree_stays() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[("src/code.rs", "one\ntwo\nthree\nfour\n")]).await;
    write(&project.integration_dir(), ".lore/loose.md", "loose\n");
    write(&project.integration_dir(), "src/code.rs", "zero\none\ntwo\nthree\n");
    integration.merge_squash(&attempt, "Work").await.unwrap();
    assert_eq!(project.log(), ["Work", "Save changes of the integration worktree", "Begin"]);
    assert_eq!(project.show("claude/main", ".lore/loose.md"), "loose");
    let code = fs::read_to_string(project.integration_dir().join("src/code.rs")).unwrap();
    assert_eq!(code, "zero\none\ntwo\nthree\nfour\n");
    assert_eq!(project.loose(), "");
}

#[tokio::test]
async fn a_branch_without_changes_has_nothing_to_merge() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[]).await;
    assert_eq!(integration.merge_squash(&attempt, "Work").await.unwrap(), Merge::NothingToMerge);
    // Nor has one whose changes are there already.
    let one = project.attempt(&integration, "one", &[(".lore/new.md", "new\n")]).await;
    integration.merge_squash(&one, "One").await.unwrap();
    let two = project.attempt(&integration, "two", &[]).await;
    user_git(&project.attempt_dir("two"), &["reset", "--quiet", "--hard", "main"]);
    write(&project.attempt_dir("two"), ".lore/new.md", "new\n");
    integration.repository().commit_all(&two, &project.attempt_dir("two"), "Another").await.unwrap().unwrap();
    assert_eq!(integration.merge_squash(&two, "Two").await.unwrap(), Merge::NothingToMerge);
    assert_eq!(project.log(), ["One", "Begin"]);
    let refused = integration.merge_squash(&branch("nowhere"), "Work").await.unwrap_err();
    assert!(matches!(refused, GitError::NoBranch { .. }), "{refused}");
}

#[tokio::test]
async fn a_conflict_in_code_merges_nothing_and_names_the_files() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let one = project.attempt(&integration, "one", &[("src/code.rs", "ONE\n"), (".lore/plan.md", "ONE\n")]).await;
    let two = [("src/code.rs", "TWO\n"), ("README.md", "TWO\n"), (".lore/plan.md", "TWO\n"), ("new", "x\n")];
    let two = project.attempt(&integration, "two", &two).await;
    integration.merge_squash(&one, "One").await.unwrap();
    let before = (project.git(&["for-each-ref"]), files(&project.integration_dir()));
    let conflicts = integration.merge_squash(&two, "Two").await.unwrap();
    assert_eq!(conflicts, Merge::Conflicts { files: vec!["src/code.rs".to_owned()] });
    assert_eq!(before, (project.git(&["for-each-ref"]), files(&project.integration_dir())));
    assert_eq!(project.loose(), "");
    assert_eq!(fs::read_to_string(project.integration_dir().join("src/code.rs")).unwrap(), "ONE\n");
}

#[tokio::test]
async fn conflicts_in_lore_alone_take_the_attempts_side() {
    let project = Project::new();
    for odd in [".lore/odd \"name\"\n\t.md", ".lore/-x", ".lore/gone.md", ".lore/edited.md"] {
        write(&project.path(), odd, "base\n");
    }
    project.commit("Odd");
    let integration = project.integration().await.unwrap();
    let odd = ".lore/odd \"name\"\n\t.md";
    let one =
        [(odd, "1\n"), (".lore/-x", "1\n"), (".lore/added.md", "1\n"), (".lore/gone.md", "1\n"), ("README.md", "1\n")];
    let one = project.attempt(&integration, "one", &one).await;
    fs::remove_file(project.attempt_dir("one").join(".lore/edited.md")).unwrap();
    integration.repository().commit_all(&one, &project.attempt_dir("one"), "Work").await.unwrap().unwrap();
    let two = [
        (odd, "2\n"),
        (".lore/-x", "2\n"),
        (".lore/added.md", "2\n"),
        (".lore/edited.md", "2\n"),
        ("src/new.rs", "2\n"),
    ];
    let two = project.attempt(&integration, "two", &two).await;
    fs::remove_file(project.attempt_dir("two").join(".lore/gone.md")).unwrap();
    integration.repository().commit_all(&two, &project.attempt_dir("two"), "Work").await.unwrap().unwrap();

    merged(integration.merge_squash(&one, "One").await.unwrap());
    merged(integration.merge_squash(&two, "Two").await.unwrap());
    for (file, text) in [
        (odd, "2\n"),
        (".lore/-x", "2\n"),
        (".lore/added.md", "2\n"),
        (".lore/edited.md", "2\n"),
        ("README.md", "1\n"),
        ("src/new.rs", "2\n"),
    ] {
        assert_eq!(fs::read_to_string(project.integration_dir().join(file)).unwrap(), text, "{file}");
    }
    assert!(!project.integration_dir().join(".lore/gone.md").exists());
    assert_eq!(project.loose(), "");
}

#[tokio::test]
async fn a_note_added_to_a_directory_that_the_attempt_moved_is_not_lost() {
    let project = Project::new();
    for name in ["a", "b", "c"] {
        write(&project.path(), &format!(".lore/old/{name}.md"), &format!("{name}\n").repeat(20));
    }
    project.commit("Notes");
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[]).await;
    fs::rename(project.attempt_dir("x").join(".lore/old"), project.attempt_dir("x").join(".lore/new")).unwrap();
    integration.repository().commit_all(&attempt, &project.attempt_dir("x"), "Move").await.unwrap().unwrap();
    write(&project.integration_dir(), ".lore/old/late.md", "late\n");
    merged(integration.merge_squash(&attempt, "Move").await.unwrap());
    assert_eq!(project.show("claude/main", ".lore/old/late.md"), "late");
    assert!(project.integration_dir().join(".lore/new/a.md").exists());
}

#[tokio::test]
async fn a_directory_in_place_of_a_file_takes_the_attempts_side() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[(".lore/topic/part.md", "part\n")]).await;
    write(&project.integration_dir(), ".lore/topic", "a file\n");
    merged(integration.merge_squash(&attempt, "Topic").await.unwrap());
    assert_eq!(
        project.git(&["ls-tree", "-r", "--name-only", "claude/main", ".lore"]),
        ".lore/notes.md\n.lore/plan.md\n.lore/topic/part.md"
    );
    assert_eq!(project.loose(), "");
}

#[tokio::test]
async fn a_branch_that_was_merged_answers_with_the_commit_of_then() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let one = project.attempt(&integration, "one", &[("src/code.rs", "ONE\n")]).await;
    let two = project.attempt(&integration, "two", &[("new", "x\n")]).await;
    let commit = merged(integration.merge_squash(&one, "One").await.unwrap());
    integration.merge_squash(&two, "Two").await.unwrap();
    // Merged anew, it would conflict with this.
    write(&project.integration_dir(), "src/code.rs", "edited\n");
    assert_eq!(merged(integration.merge_squash(&one, "One").await.unwrap()), commit);
    assert_eq!(project.show("claude/main", "src/code.rs"), "edited");
    // More work on it is another merge.
    write(&project.attempt_dir("one"), ".lore/more.md", "more\n");
    integration.repository().commit_all(&one, &project.attempt_dir("one"), "More").await.unwrap();
    assert!(matches!(integration.merge_squash(&one, "More").await.unwrap(), Merge::Conflicts { .. }));
}

#[tokio::test]
async fn a_message_cannot_claim_that_another_branch_was_merged() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let one = project.attempt(&integration, "one", &[(".lore/one.md", "1\n")]).await;
    let two = project.attempt(&integration, "two", &[(".lore/two.md", "2\n")]).await;
    let tip = project.git(&["rev-parse", "claude/commission/two"]);
    integration.merge_squash(&one, &format!("One\n\nSquashed-From: {tip}")).await.unwrap();
    let commit = merged(integration.merge_squash(&two, "Two").await.unwrap());
    assert_eq!(project.git(&["show", "--no-patch", "--format=%s", &commit]), "Two");
}

#[tokio::test]
async fn merges_at_once_lose_nothing() {
    let project = Project::new();
    let integration = Arc::new(project.integration().await.unwrap());
    let mut attempts = Vec::new();
    for name in ["a", "b", "c", "d"] {
        attempts.push(project.attempt(&integration, name, &[(&format!(".lore/{name}.md"), name)]).await);
    }
    let merges = attempts.into_iter().map(|attempt| {
        let integration = Arc::clone(&integration);
        tokio::spawn(async move { integration.merge_squash(&attempt, attempt.as_str()).await })
    });
    for merge in merges.collect::<Vec<_>>() {
        merged(merge.await.unwrap().unwrap());
    }
    assert_eq!(project.git(&["rev-list", "--count", "claude/main"]), "5");
    for name in ["a", "b", "c", "d"] {
        assert!(project.integration_dir().join(format!(".lore/{name}.md")).exists());
    }
    assert_eq!(project.loose(), "");
}

/// Two processes have no lock in common but git's.
#[tokio::test]
async fn merges_of_two_hosts_at_once_lose_nothing() {
    let project = Project::new();
    let first = project.integration().await.unwrap();
    let second = project.integration().await.unwrap();
    let one = project.attempt(&first, "one", &[(".lore/one.md", "1\n")]).await;
    let two = project.attempt(&first, "two", &[(".lore/two.md", "2\n")]).await;
    let at_once = tokio::join!(first.merge_squash(&one, "One"), second.merge_squash(&two, "Two"));
    // Each was merged or says why not; then it can be again.
    for (merge, attempt) in [(at_once.0, &one), (at_once.1, &two)] {
        if !matches!(merge, Ok(Merge::Merged { .. })) {
            merged(first.merge_squash(attempt, "Again").await.unwrap());
        }
    }
    first.commit_loose().await.unwrap();
    assert_eq!(project.show("claude/main", ".lore/one.md"), "1");
    assert_eq!(project.show("claude/main", ".lore/two.md"), "2");
    assert_eq!(project.loose(), "");
    let squashed = project.git(&["log", "--format=%H", "--grep=^Squashed-From: ", "claude/main"]);
    assert_eq!(squashed.lines().count(), 2);
}

#[tokio::test]
async fn a_tree_that_cannot_be_a_project_is_not_merged() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[]).await;
    // The user commits on the attempt's branch what the host would not.
    let dir = project.attempt_dir("x");
    fs::remove_dir_all(dir.join(".lore")).unwrap();
    std::os::unix::fs::symlink("/etc", dir.join(".lore")).unwrap();
    user_git(&dir, &["add", "--all"]);
    user_git(&dir, &["commit", "--quiet", "-m", "Link"]);
    let refused = integration.merge_squash(&attempt, "Work").await.unwrap_err();
    assert!(matches!(refused, GitError::LoreNotADirectory { .. }), "{refused}");
    assert_eq!(project.log(), ["Begin"]);
}

#[tokio::test]
async fn an_attempt_whose_documents_exceed_the_quota_is_not_merged() {
    let project = Project::new();
    // The project has two documents.
    let quota = |files, bytes| GitOptions { documents: DocumentQuota { files, bytes }, ..options() };
    for (files, bytes, limit) in [
        (3, 1000, Some("the fixed limit project_documents =")),
        (4, 30, Some("limits.project_documents_bytes =")),
        (4, 1000, None),
    ] {
        let git = Git::find(quota(files, bytes)).await.unwrap();
        let repository = Repository::open(&git, &project.path(), None).await.unwrap();
        let integration = repository.integration(&project.integration_dir()).await.unwrap();
        let name = format!("quota-{files}-{bytes}");
        let written = [
            (".lore/a.md", "a document\n"),
            (".lore/b.md", "another\n"),
            (".lore/work/commissions/record.md", "a record, which does not count\n"),
        ];
        let branch = project.attempt(&integration, &name, &written).await;
        let merge = integration.merge_squash(&branch, "Work").await;
        match limit {
            Some(limit) => assert!(merge.unwrap_err().to_string().contains(limit)),
            None => drop(merged(merge.unwrap())),
        }
    }
    // One that is beyond it already can remove documents, and change code.
    let git = Git::find(quota(1, 1)).await.unwrap();
    let repository = Repository::open(&git, &project.path(), None).await.unwrap();
    let integration = repository.integration(&project.integration_dir()).await.unwrap();
    let branch = branch("fewer");
    let dir = project.attempt_dir("fewer");
    integration.start_attempt(&branch, &dir, Checkout::Full).await.unwrap();
    fs::remove_file(dir.join(".lore/a.md")).unwrap();
    write(&dir, "src/new.rs", "new\n");
    repository.commit_all(&branch, &dir, "Work").await.unwrap();
    merged(integration.merge_squash(&branch, "Work").await.unwrap());
}
