//! Repositories that try to have the host run their programs, or lead it elsewhere. A canary says whether one did.

use std::{fs, os::unix::fs::symlink, process::Command, time::Duration};

use guild_git::{Checkout, GitError, Integration, RULES_BYTES, RULES_LINES, Repository};
use tokio::time::timeout;

use crate::support::{Project, branch, files, git, merged, script, user_git, write};

/// All that the host does with a project.
async fn everything(project: &Project, integration: &Integration) -> Result<(), GitError> {
    let repository = integration.repository();
    repository.is_dirty().await?;
    write(&project.integration_dir(), ".lore/plan.md", "zero\none\ntwo\nthree\n");
    write(&project.integration_dir(), "README.md", "changed\n");
    for (name, checkout) in [("full", Checkout::Full), ("sparse", Checkout::Sparse)] {
        let (branch, dir) = (branch(name), project.attempt_dir(name));
        integration.start_attempt(&branch, &dir, checkout).await?;
        write(&dir, ".lore/plan.md", &format!("zero\none\ntwo\n{name}\n"));
        write(&dir, &format!(".lore/{name}.md"), "new\n");
        repository.commit_all(&branch, &dir, "Work").await?;
    }
    for name in ["full", "sparse"] {
        merged(integration.merge_squash(&branch(name), name).await?);
        repository.remove_worktree(&project.attempt_dir(name)).await?;
    }
    Ok(())
}

/// A project whose attributes name a driver for all files.
fn with_attributes() -> Project {
    let project = Project::new();
    write(&project.path(), ".gitattributes", "* filter=evil diff=evil merge=evil\n");
    project.commit("Attributes");
    project
}

#[tokio::test]
async fn hooks_and_programs_of_the_configuration_do_not_run() {
    let project = with_attributes();
    let hostile = project.hostile_program();
    for hook in [
        "applypatch-msg",
        "post-checkout",
        "post-commit",
        "post-index-change",
        "post-merge",
        "post-rewrite",
        "pre-auto-gc",
        "pre-commit",
        "commit-msg",
        "prepare-commit-msg",
        "pre-merge-commit",
        "reference-transaction",
        "fsmonitor-watchman",
    ] {
        fs::copy(&hostile, project.path().join(".git/hooks").join(hook)).unwrap();
    }
    let program = hostile.to_str().unwrap();
    for (key, value) in [
        ("core.fsmonitor", program),
        ("core.hooksPath", project.path().join(".git/hooks").to_str().unwrap()),
        ("core.pager", program),
        ("core.editor", program),
        ("sequence.editor", program),
        ("core.askPass", program),
        ("core.sshCommand", program),
        ("core.gitProxy", program),
        ("core.alternateRefsCommand", program),
        ("credential.helper", &format!("!{program}")),
        ("diff.external", program),
        ("diff.evil.command", program),
        ("diff.evil.textconv", program),
        ("diff.evil.cachetextconv", "true"),
        ("commit.gpgSign", "true"),
        ("tag.gpgSign", "true"),
        ("log.showSignature", "true"),
        ("gpg.program", program),
        ("gpg.ssh.program", program),
        ("interactive.diffFilter", program),
        ("uploadpack.packObjectsHook", program),
        ("trailer.x.command", program),
        ("alias.status", &format!("!{program}")),
        ("alias.merge-tree", &format!("!{program}")),
        ("pager.status", program),
        ("gc.auto", "1"),
        ("maintenance.auto", "true"),
        ("submodule.recurse", "true"),
        ("core.splitIndex", "true"),
        ("core.safecrlf", "true"),
        ("index.sparse", "true"),
        ("status.showUntrackedFiles", "no"),
        ("merge.directoryRenames", "true"),
        ("core.symlinks", "true"),
        ("diff.ignoreSubmodules", "all"),
    ] {
        project.git(&["config", key, value]);
    }
    // The alternate is another repository's.
    let other = Project::new();
    fs::create_dir_all(project.path().join(".git/objects/info")).unwrap();
    let alternate = format!("{}\n", other.path().join(".git/objects").display());
    fs::write(project.path().join(".git/objects/info/alternates"), alternate).unwrap();
    // The stand of things before: git itself, without care, runs some.
    let _ = std::process::Command::new("git").arg("status").current_dir(project.path()).output().unwrap();
    assert!(project.canary().exists());
    fs::remove_file(project.canary()).unwrap();

    let integration = project.integration().await.unwrap();
    everything(&project, &integration).await.unwrap();
    assert!(!project.canary().exists());
    assert_eq!(
        fs::read_to_string(project.integration_dir().join(".lore/plan.md")).unwrap(),
        "zero\none\ntwo\nsparse\n"
    );
}

#[tokio::test]
async fn drivers_and_inclusions_are_refused_by_name_at_each_operation() {
    let value = |project: &Project| {
        // A program, and a file of settings.
        let program = project.root().join("evil");
        script(&program, &format!("[core]\n\tfsmonitor = {}", project.hostile_program().display()));
        program.display().to_string()
    };
    for (key, named) in [
        ("filter.evil.clean", "filter.evil.clean"),
        ("filter.evil.smudge", "filter.evil.smudge"),
        ("filter.evil.process", "filter.evil.process"),
        ("Filter.Evil.With.Dots.Clean", "filter.Evil.With.Dots.clean"),
        ("merge.evil.driver", "merge.evil.driver"),
        ("hook.evil.command", "hook.evil.command"),
        ("include.path", "include.path"),
        ("includeIf.gitdir:/.path", "includeif.gitdir:/.path"),
        ("extensions.partialClone", "extensions.partialclone"),
        ("remote.evil.promisor", "remote.evil.promisor"),
        ("remote.evil.partialclonefilter", "remote.evil.partialclonefilter"),
    ] {
        let project = with_attributes();
        let integration = project.integration().await.unwrap();
        project.git(&["config", key, &value(&project)]);
        let refused = project.open().await.unwrap_err();
        assert!(matches!(&refused, GitError::RefusedSetting { key, .. } if key == named), "{key}: {refused}");
        assert!(refused.to_string().contains(named), "{refused}");
        // And where it was set since.
        let refused = everything(&project, &integration).await.unwrap_err();
        assert!(matches!(&refused, GitError::RefusedSetting { .. }), "{key}: {refused}");
        write(&project.integration_dir(), "README.md", "changed\n");
        let refused = integration.commit_loose().await.unwrap_err();
        assert!(matches!(&refused, GitError::RefusedSetting { .. }), "{key}: {refused}");
        let refused = integration.merge_squash(&branch("x"), "x").await.unwrap_err();
        assert!(matches!(&refused, GitError::RefusedSetting { .. }), "{key}: {refused}");
        assert!(!project.canary().exists(), "{key}");
    }
}

#[tokio::test]
async fn an_attempt_under_way_is_not_committed_through_a_filter() {
    let project = with_attributes();
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[]).await;
    let dir = project.attempt_dir("x");
    write(&dir, "README.md", "changed\n");
    project.git(&["config", "extensions.worktreeConfig", "true"]);
    user_git(&dir, &["config", "--worktree", "filter.evil.clean", project.hostile_program().to_str().unwrap()]);
    let refused = integration.repository().commit_all(&attempt, &dir, "Work").await.unwrap_err();
    assert!(matches!(&refused, GitError::RefusedSetting { .. }), "{refused}");
    assert!(!project.canary().exists());
}

#[tokio::test]
async fn settings_of_the_users_worktree_that_git_would_copy_do_not_run() {
    let project = with_attributes();
    project.git(&["config", "extensions.worktreeConfig", "true"]);
    let repository = project.open().await.unwrap();
    user_git(
        &project.path(),
        &["config", "--worktree", "filter.evil.smudge", project.hostile_program().to_str().unwrap()],
    );
    let refused = repository.integration(&project.integration_dir()).await.unwrap_err();
    assert!(matches!(&refused, GitError::RefusedSetting { .. }), "{refused}");
    assert!(!project.canary().exists());
}

#[tokio::test]
async fn a_working_tree_elsewhere_is_refused() {
    let project = Project::new();
    project.git(&["config", "core.worktree", "/etc"]);
    let refused = project.open().await.unwrap_err();
    assert!(matches!(&refused, GitError::RefusedSetting { key, .. } if key == "core.worktree"), "{refused}");
}

#[tokio::test]
async fn a_lack_of_objects_fetches_nothing() {
    let project = Project::new();
    let other = Project::new();
    let blob = project.git(&["rev-parse", "HEAD:README.md"]);
    let repository = project.open().await.unwrap();
    let program = project.hostile_program();
    for (key, value) in [
        ("remote.origin.url", other.path().to_str().unwrap()),
        ("remote.origin.uploadpack", program.to_str().unwrap()),
        ("protocol.file.allow", "always"),
        ("protocol.ext.allow", "always"),
        // Set so that no key of it is refused, were there such a way.
        ("core.repositoryformatversion", "1"),
    ] {
        project.git(&["config", key, value]);
    }
    fs::remove_file(project.path().join(".git/objects").join(blob.split_at(2).0).join(blob.split_at(2).1)).unwrap();
    let failed = repository.integration(&project.integration_dir()).await.unwrap_err();
    assert!(matches!(&failed, GitError::Failed { .. }), "{failed}");
    assert!(!project.canary().exists());
}

#[tokio::test]
async fn files_of_a_bare_repository_in_the_tree_are_no_repository() {
    let project = Project::new();
    let bare = project.path();
    write(&bare, "HEAD", "ref: refs/heads/main\n");
    write(&bare, "objects/x", "");
    write(&bare, "refs/x", "");
    let config =
        format!("[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = {}\n", project.hostile_program().display());
    write(&bare, "config", &config);
    project.commit("A repository in the tree");
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[]).await;
    for dir in [project.attempt_dir("x"), project.integration_dir()] {
        assert!(dir.join("HEAD").exists());
        fs::remove_file(dir.join(".git")).unwrap();
    }
    let refused = integration.repository().commit_all(&attempt, &project.attempt_dir("x"), "Work").await.unwrap_err();
    assert!(matches!(&refused, GitError::NotAWorktree { .. }), "{refused}");
    let refused = integration.commit_loose().await.unwrap_err();
    assert!(matches!(&refused, GitError::NotAWorktree { .. }), "{refused}");
    assert!(!project.canary().exists());
}

#[tokio::test]
async fn names_that_look_like_options_are_names() {
    let project = Project::new();
    for file in ["-x", "--help", ".lore/--exec=touch canary", ":(top)x", ".lore/a\nb"] {
        write(&project.path(), file, "x\n");
    }
    project.git(&["--literal-pathspecs", "add", "--", "."]);
    project.git(&["commit", "--quiet", "-m", "Names"]);
    let odd = project.root().join("--upload-pack=touch canary");
    fs::rename(project.path(), &odd).unwrap();
    let git = git().await;
    for named in ["--help", "-x", "main^{/Begin}", "main~0", "*", "main:README.md", "@{-1}", ""] {
        let refused = Repository::open(&git, &odd, Some(named)).await.unwrap_err();
        assert!(matches!(&refused, GitError::NoBranch { .. }), "{named}: {refused}");
    }
    let repository = Repository::open(&git, &odd, None).await.unwrap();
    let integration = repository.integration(&project.root().join("-i")).await.unwrap();
    let dir = project.root().join("--force");
    integration.start_attempt(&branch("x"), &dir, Checkout::Full).await.unwrap();
    write(&dir, ".lore/-rf", "x\n");
    write(&dir, "--all", "x\n");
    repository.commit_all(&branch("x"), &dir, "--amend").await.unwrap().unwrap();
    merged(integration.merge_squash(&branch("x"), "-F/etc/passwd").await.unwrap());
    assert_eq!(user_git(&odd, &["show", "claude/main:.lore/-rf"]), "x");
    repository.remove_worktree(&dir).await.unwrap();
    assert!(!dir.exists() && files(&odd).contains(&"-x".to_owned()));
}

#[tokio::test]
async fn a_lore_that_becomes_a_link_is_refused_wherever_it_comes_from() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let attempt = project.attempt(&integration, "x", &[]).await;
    let outside = project.root().join("outside");
    fs::create_dir(&outside).unwrap();
    // In an attempt.
    let dir = project.attempt_dir("x");
    fs::remove_dir_all(dir.join(".lore")).unwrap();
    symlink(&outside, dir.join(".lore")).unwrap();
    for _ in 0..2 {
        let refused = integration.repository().commit_all(&attempt, &dir, "Work").await.unwrap_err();
        assert!(matches!(&refused, GitError::LoreNotADirectory { .. }), "{refused}");
    }
    // By the user, on the branch that attempts begin from.
    fs::remove_dir_all(project.integration_dir().join(".lore")).unwrap();
    symlink(&outside, project.integration_dir().join(".lore")).unwrap();
    user_git(&project.integration_dir(), &["add", "--all"]);
    user_git(&project.integration_dir(), &["commit", "--quiet", "-m", "Link"]);
    let refused =
        integration.start_attempt(&branch("y"), &project.attempt_dir("y"), Checkout::Sparse).await.unwrap_err();
    assert!(matches!(&refused, GitError::LoreNotADirectory { .. }), "{refused}");
    assert!(fs::read_dir(outside).unwrap().next().is_none());
}

#[tokio::test]
async fn a_hostile_place_for_worktrees_is_left_alone() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let (outside, dir) = (project.root().join("outside"), project.attempt_dir("x"));
    write(&outside, "mine", "x");
    fs::create_dir_all(dir.parent().unwrap()).unwrap();
    symlink(&outside, &dir).unwrap();
    let refused = integration.start_attempt(&branch("x"), &dir, Checkout::Full).await.unwrap_err();
    assert!(matches!(&refused, GitError::NotAWorktree { .. }), "{refused}");
    assert!(integration.repository().remove_worktree(&dir).await.is_err());
    assert_eq!(files(&outside), ["mine"]);
}

#[tokio::test]
async fn a_repository_in_a_worktree_is_not_looked_into() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let nested = project.integration_dir().join("nested");
    write(&nested, "file", "x\n");
    write(&nested, ".gitattributes", "* filter=evil\n");
    user_git(&nested, &["init", "--quiet"]);
    user_git(&nested, &["add", "."]);
    user_git(&nested, &["commit", "--quiet", "-m", "Nested"]);
    let hostile = project.hostile_program();
    for key in ["core.fsmonitor", "filter.evil.clean", "filter.evil.process"] {
        user_git(&nested, &["config", key, hostile.to_str().unwrap()]);
    }
    script(&nested.join(".git/hooks/post-index-change"), &format!("exec {}", hostile.display()));
    write(&nested, "file", "y\n");
    for _ in 0..2 {
        let refused = integration.commit_loose().await.unwrap_err();
        assert!(matches!(&refused, GitError::NestedRepository { .. }), "{refused}");
    }
    assert!(!project.canary().exists());
}

#[tokio::test]
async fn a_large_file_of_patterns_is_refused_wherever_it_comes_from() {
    let (many, large) = ("*.a\n".repeat(RULES_LINES + 1), "x".repeat(RULES_BYTES + 1));
    let most = "*.a\n".repeat(RULES_LINES);
    for name in [".gitignore", "src/.gitignore", ".gitattributes"] {
        for (text, is_refused) in [(&many, true), (&large, true), (&most, false)] {
            let project = Project::new();
            write(&project.path(), name, text);
            project.commit("Rules");
            match project.open().await {
                Ok(_) => assert!(!is_refused, "{name}"),
                Err(e) => assert!(is_refused && e.to_string().contains(name), "{e}"),
            }
        }
    }
    // What an attempt brings, is not committed.
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let (branch, dir) = (branch("large"), project.attempt_dir("large"));
    integration.start_attempt(&branch, &dir, Checkout::Full).await.unwrap();
    write(&dir, "docs/.gitignore", &many);
    let refused = integration.repository().commit_all(&branch, &dir, "Work").await.unwrap_err().to_string();
    assert!(refused.contains("docs/.gitignore has 5001 lines"), "{refused}");
    // The repository's own.
    fs::remove_file(dir.join("docs/.gitignore")).unwrap();
    write(&project.path(), ".git/info/exclude", &large);
    let refused = integration.repository().commit_all(&branch, &dir, "Work").await.unwrap_err().to_string();
    assert!(refused.contains("info/exclude has"), "{refused}");
}

#[tokio::test]
async fn many_files_of_patterns_are_bounded_together() {
    let few = "*.a\n".repeat(RULES_LINES / 5);
    let project = Project::new();
    // A large project may have more than an attempt brings.
    for n in 0..31 {
        write(&project.path(), &format!("old/{n}/.gitignore"), &few);
    }
    project.commit("Rules");
    let integration = project.integration().await.unwrap();
    let (branch, dir) = (branch("many"), project.attempt_dir("many"));
    integration.start_attempt(&branch, &dir, Checkout::Full).await.unwrap();
    for n in 0..6 {
        write(&dir, &format!("new/{n}/.gitignore"), &few);
    }
    let refused = integration.repository().commit_all(&branch, &dir, "Work").await.unwrap_err().to_string();
    let why = "and 5 more ignore and attribute files have 24000 bytes and 6000 lines together";
    assert!(refused.contains(why), "{refused}");
    fs::remove_file(dir.join("new/5/.gitignore")).unwrap();
    integration.repository().commit_all(&branch, &dir, "Work").await.unwrap().unwrap();
    merged(integration.merge_squash(&branch, "Work").await.unwrap());
}

#[tokio::test]
async fn the_files_of_patterns_of_a_project_are_bounded_together() {
    let most = "*.a\n".repeat(RULES_LINES);
    let project = Project::new();
    for n in 0..16 {
        write(&project.path(), &format!("{n}/.gitignore"), &most);
    }
    project.commit("Rules");
    // An attempt brings no more where there are as many as a project may have.
    let integration = project.integration().await.unwrap();
    let (branch, dir) = (branch("more"), project.attempt_dir("more"));
    integration.start_attempt(&branch, &dir, Checkout::Full).await.unwrap();
    write(&dir, "more/.gitignore", "*.a");
    let refused = integration.repository().commit_all(&branch, &dir, "Work").await.unwrap_err().to_string();
    assert!(refused.contains("80001 lines together"), "{refused}");
    write(&project.path(), "more/.gitignore", "*.a");
    project.commit("More");
    let refused = project.open().await.unwrap_err().to_string();
    assert!(
        refused.contains("16 more ignore and attribute files have") && refused.contains("80001 lines"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_file_of_patterns_that_only_git_finds_is_refused() {
    for key in ["core.excludesFile", "core.attributesFile"] {
        for (value, is_refused) in [
            ("~", true),
            ("~root/rules", true),
            ("%(prefix)/rules", true),
            (":(optional)rules", true),
            ("~/rules", false),
            ("rules", false),
        ] {
            let project = Project::new();
            project.git(&["config", key, value]);
            match project.open().await {
                Ok(_) => assert!(!is_refused, "{value}"),
                Err(e) => {
                    assert!(is_refused && matches!(e, GitError::RefusedSetting { .. }), "{value}: {e}");
                    assert!(e.to_string().contains(&key.to_lowercase()), "{e}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_files_of_patterns_of_the_repository_are_checked_before_git_lists_files() {
    let project = Project::new();
    let integration = project.integration().await.unwrap();
    let dir = project.attempt_dir("x");
    integration.start_attempt(&branch("x"), &dir, Checkout::Full).await.unwrap();
    write(&project.path(), ".git/info/exclude", &"*.a\n".repeat(RULES_LINES + 1));
    let repository = integration.repository();
    for refused in [
        repository.ignored(&dir, &["a.log"]).await.unwrap_err(),
        repository.left_out(&dir).await.unwrap_err(),
        repository.is_dirty().await.unwrap_err(),
        integration.status_view().await.unwrap_err(),
    ] {
        assert!(refused.to_string().contains("info/exclude has 5001 lines"), "{refused}");
        assert_eq!(refused.kind(), "the host's log says why");
    }
}

#[tokio::test]
async fn a_pipe_in_place_of_a_file_of_patterns_is_refused_and_blocks_nothing() {
    for (key, place) in [
        (Some("core.excludesFile"), "pipe"),
        (Some("core.attributesFile"), "pipe"),
        (None, ".git/info/exclude"),
        (None, ".git/info/attributes"),
    ] {
        let project = Project::new();
        let _ = fs::remove_file(project.path().join(place));
        assert!(Command::new("mkfifo").arg(project.path().join(place)).status().unwrap().success());
        if let Some(key) = key {
            project.git(&["config", key, place]);
        }
        let refused = timeout(Duration::from_secs(10), project.open()).await.unwrap().unwrap_err();
        assert!(refused.to_string().contains("is no regular file"), "{refused}");
    }
}

#[tokio::test]
async fn a_file_that_a_commit_would_leave_out_is_named_with_its_rule() {
    let project = Project::new();
    write(&project.path(), ".gitignore", "*.log\nbuild/\n!kept.log\n");
    write(&project.path(), "tracked.log", "tracked\n");
    project.git(&["add", "--force", "tracked.log"]);
    project.commit("Rules");
    let integration = project.integration().await.unwrap();
    let (branch, dir) = (branch("rules"), project.attempt_dir("rules"));
    integration.start_attempt(&branch, &dir, Checkout::Full).await.unwrap();
    let repository = integration.repository();
    let asked = ["a.log", "build/out.txt", "kept.log", "tracked.log", "src/new.rs"];
    let ignored = repository.ignored(&dir, &asked).await.unwrap();
    let named: Vec<_> = ignored.iter().map(|rule| [&*rule.path, &*rule.source, &*rule.line, &*rule.pattern]).collect();
    assert_eq!(named, [["a.log", ".gitignore", "1", "*.log"], ["build/out.txt", ".gitignore", "2", "build/"]]);
    for file in asked.iter().chain(&[".lore/a.log"]) {
        write(&dir, file, "written\n");
    }
    repository.commit_all(&branch, &dir, "Work").await.unwrap();
    assert_eq!(repository.left_out(&dir).await.unwrap(), ["a.log", "build/"]);
    assert_eq!(project.show(branch.as_str(), ".lore/a.log"), "written");
}
