//! What can be a project, and how it is said of what cannot.

use std::{fs, os::unix::fs::symlink, process::Command};

use guild_git::{Checkout, GitError, Repository};

use crate::support::{Project, branch, git, user_git, write};

#[tokio::test]
async fn a_project_is_examined_and_not_written() {
    let project = Project::new();
    let before = (project.git(&["status", "--porcelain"]), fs::read(project.path().join(".git/config")).unwrap());
    let repository = project.open().await.unwrap();
    assert_eq!(repository.path(), project.path());
    assert_eq!(repository.default_branch(), "main");
    assert!(!repository.branch_exists(&branch("x")).await.unwrap());
    assert_eq!(
        before,
        (project.git(&["status", "--porcelain"]), fs::read(project.path().join(".git/config")).unwrap())
    );
}

#[tokio::test]
async fn a_directory_without_a_repository_is_refused() {
    let git = git().await;
    let place = tempfile::tempdir().unwrap();
    let refused = Repository::open(&git, place.path(), None).await.unwrap_err();
    assert!(matches!(refused, GitError::NotARepository { .. }), "{refused}");
    assert!(refused.to_string().contains("git init"), "{refused}");
    fs::create_dir(place.path().join(".git")).unwrap();
    let refused = Repository::open(&git, place.path(), None).await.unwrap_err();
    assert!(matches!(refused, GitError::NotARepository { .. }), "{refused}");
    let refused = Repository::open(&git, &place.path().join("missing"), None).await.unwrap_err();
    assert!(matches!(refused, GitError::File { .. }), "{refused}");
}

#[tokio::test]
async fn a_directory_inside_of_a_repository_is_refused_and_its_top_named() {
    let project = Project::new();
    let refused = Repository::open(&git().await, &project.path().join("src"), None).await.unwrap_err();
    assert!(matches!(&refused, GitError::NotTheTop { top, .. } if *top == project.path()), "{refused}");
}

#[tokio::test]
async fn a_bare_repository_is_refused() {
    let git = git().await;
    let project = Project::new();
    let bare = project.root().join("bare");
    project.git(&["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]);
    let refused = Repository::open(&git, &bare, None).await.unwrap_err();
    assert!(matches!(refused, GitError::Bare { .. }), "{refused}");
    project.git(&["config", "core.bare", "true"]);
    let refused = project.open().await.unwrap_err();
    assert!(matches!(refused, GitError::Bare { .. }), "{refused}");
}

#[tokio::test]
async fn a_linked_worktree_is_refused() {
    let project = Project::new();
    let linked = project.root().join("linked");
    project.git(&["worktree", "add", "--quiet", linked.to_str().unwrap(), "-b", "other"]);
    let refused = Repository::open(&git().await, &linked, None).await.unwrap_err();
    assert!(matches!(refused, GitError::LinkedWorktree { .. }), "{refused}");
}

#[tokio::test]
async fn a_repository_without_a_commit_is_refused() {
    let refused = Project::empty().open().await.unwrap_err();
    assert!(matches!(refused, GitError::NoCommit { .. }), "{refused}");
}

#[tokio::test]
async fn a_branch_in_the_way_of_the_hosts_is_refused_with_commands_that_help() {
    let project = Project::new();
    let blocking = ["claude", "claude/commission", "claude/meeting", "claude/main/x"];
    for (name, command) in blocking.into_iter().flat_map(|name| [(name, "rename"), (name, "delete")]) {
        project.git(&["branch", name]);
        let refused = project.open().await.unwrap_err();
        assert!(matches!(&refused, GitError::ClaudeBranch { branch, .. } if branch == name), "{refused}");
        let text = refused.to_string();
        let rest = text.split_once(&format!("{command} it: ")).unwrap().1;
        let helps = rest.split(", or").next().unwrap();
        assert!(Command::new("sh").args(["-c", helps]).status().unwrap().success(), "{helps}");
        project.open().await.unwrap();
    }
    // Those of the host are in nobody's way.
    let integration = project.integration().await.unwrap();
    project.attempt(&integration, "a", &[("found.md", "found\n")]).await;
    project.git(&["branch", "claude/meeting/b"]);
    project.git(&["branch", "claude/commissions"]);
    project.open().await.unwrap();
}

#[tokio::test]
async fn an_attempt_names_the_branch_that_came_in_its_way_later() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    project.git(&["branch", "claude/commission"]);
    let started = integration.start_attempt(&branch("a"), &project.attempt_dir("a"), Checkout::Full).await;
    let refused = started.unwrap_err();
    assert!(matches!(&refused, GitError::ClaudeBranch { .. }), "{refused}");
    project.git(&["branch", "-D", "claude/commission"]);
    project.attempt(&integration, "a", &[("found.md", "found\n")]).await;
}

#[tokio::test]
async fn the_default_branch_is_found_or_named() {
    let project = Project::new();
    let git = git().await;
    let default = async |named| {
        let opened = Repository::open(&git, &project.path(), named).await;
        opened.map(|repository| repository.default_branch().to_owned())
    };
    project.git(&["checkout", "--quiet", "-b", "topic"]);
    assert_eq!(default(None).await.unwrap(), "main");
    assert_eq!(default(Some("topic")).await.unwrap(), "topic");
    let refused = default(Some("nowhere")).await.unwrap_err();
    assert!(matches!(&refused, GitError::NoBranch { branch, .. } if branch == "nowhere"), "{refused}");
    project.git(&["branch", "trunk"]);
    project.git(&["update-ref", "refs/remotes/origin/trunk", "HEAD"]);
    project.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk"]);
    assert_eq!(default(None).await.unwrap(), "trunk");
    project.git(&["branch", "-D", "trunk"]);
    project.git(&["branch", "-m", "main", "master"]);
    assert_eq!(default(None).await.unwrap(), "master");
    project.git(&["branch", "-D", "master"]);
    assert_eq!(default(None).await.unwrap(), "topic");
    project.git(&["checkout", "--quiet", "--detach"]);
    assert!(matches!(default(None).await, Err(GitError::NoDefaultBranch { .. })));
}

#[tokio::test]
async fn submodules_are_refused() {
    let project = Project::new();
    project.git(&[
        "update-index",
        "--add",
        "--cacheinfo",
        &format!("160000,{},lib", project.git(&["rev-parse", "HEAD"])),
    ]);
    project.git(&["commit", "--quiet", "-m", "Link"]);
    project.git(&["config", "diff.ignoreSubmodules", "all"]);
    let refused = project.open().await.unwrap_err();
    assert!(matches!(&refused, GitError::Submodules { file, .. } if file == "lib"), "{refused}");

    let project = Project::new();
    write(&project.path(), ".gitmodules", "");
    project.commit("Modules");
    let refused = project.open().await.unwrap_err();
    assert!(matches!(&refused, GitError::Submodules { file, .. } if file == ".gitmodules"), "{refused}");
}

#[tokio::test]
async fn lfs_is_refused_wherever_it_is_named() {
    for file in [".gitattributes", "assets/deep/.gitattributes"] {
        let project = Project::new();
        write(&project.path(), file, "# no filter=lfs yet\n*.txt text\n");
        project.commit("Attributes");
        project.open().await.unwrap();
        write(&project.path(), file, "*.txt text\n*.bin filter=lfs diff=lfs merge=lfs -text\n");
        project.commit("Large files");
        let refused = project.open().await.unwrap_err();
        assert!(matches!(&refused, GitError::Lfs { file: named, .. } if named == file), "{refused}");
    }
}

#[tokio::test]
async fn a_lore_that_is_no_directory_is_refused() {
    for name in [".lore", ".LORE"] {
        let project = Project::new();
        project.git(&["rm", "-r", "--quiet", ".lore"]);
        symlink("/etc", project.path().join(name)).unwrap();
        project.commit("Link");
        let refused = project.open().await.unwrap_err();
        assert!(matches!(&refused, GitError::LoreNotADirectory { file, .. } if file == name), "{refused}");
    }
}

#[tokio::test]
async fn a_dirty_working_tree_is_only_reported() {
    let project = Project::new();
    symlink("README.md", project.path().join("link")).unwrap();
    project.commit("Link");
    let repository = project.open().await.unwrap();
    assert!(!repository.is_dirty().await.unwrap());
    write(&project.path(), "new", "x");
    assert!(repository.is_dirty().await.unwrap());
    project.open().await.unwrap();
    fs::remove_file(project.path().join("new")).unwrap();
    write(&project.path(), "README.md", "changed\n");
    assert!(repository.is_dirty().await.unwrap());
}

#[tokio::test]
async fn a_sparse_working_tree_is_no_dirty_one_and_keeps_to_itself() {
    let project = Project::new();
    project.git(&["sparse-checkout", "set", "src"]);
    let repository = project.open().await.unwrap();
    assert!(!repository.is_dirty().await.unwrap());
    repository.integration(&project.integration_dir()).await.unwrap();
    assert!(project.integration_dir().join(".lore/notes.md").exists());
    assert_eq!(project.loose(), "");
    assert!(!project.path().join(".lore").exists());
    assert_eq!(user_git(&project.path(), &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_repository_of_sha256_is_one_like_others() {
    let project = Project::empty();
    fs::remove_dir_all(project.path().join(".git")).unwrap();
    project.git(&["init", "--quiet", "--initial-branch=main", "--object-format=sha256"]);
    write(&project.path(), ".lore/a.md", "a\n");
    project.commit("Begin");
    let integration = project.integration().await.unwrap();
    let one = project.attempt(&integration, "one", &[(".lore/a.md", "one\n")]).await;
    let two = project.attempt(&integration, "two", &[(".lore/a.md", "two\n")]).await;
    integration.merge_squash(&one, "One").await.unwrap();
    integration.merge_squash(&two, "Two").await.unwrap();
    assert_eq!(project.show("claude/main", ".lore/a.md"), "two");
}
