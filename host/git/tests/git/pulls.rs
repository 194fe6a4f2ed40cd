//! Pushing `claude/main`, and pull requests of it.

use std::fs;

use guild_git::{GitError, Origin, PullState, Repository};

use crate::support::{Project, merged, script, user_git, write};

/// A `gh` that writes its arguments, one a line, and does this.
fn recording(project: &Project, then: &str) -> String {
    format!("for word; do printf '%s\\n' \"$word\"; done >> '{}'\n{then}", project.root().join("asked").display())
}

async fn origin_with(project: &Project, gh: &str) -> Origin {
    let git = project.git_and_gh(gh).await;
    Repository::open(&git, &project.path(), None).await.unwrap().origin().await.unwrap().unwrap()
}

fn asked(project: &Project) -> String {
    fs::read_to_string(project.root().join("asked")).unwrap_or_default()
}

/// The branches of `origin` with their commits.
fn branches(project: &Project) -> String {
    user_git(&project.origin(), &["for-each-ref", "--format=%(refname) %(objectname)"])
}

#[tokio::test]
async fn only_the_branch_is_pushed_whatever_the_configuration_says_besides() {
    let project = Project::with_origin();
    for (key, value) in [
        ("remote.origin.push", "refs/heads/*:refs/heads/*"),
        ("push.followTags", "true"),
        ("push.default", "matching"),
        ("push.gpgSign", "true"),
        ("push.useForceIfIncludes", "true"),
        ("remote.pushDefault", "elsewhere"),
        ("fetch.prune", "true"),
        ("fetch.pruneTags", "true"),
        ("fetch.recurseSubmodules", "true"),
    ] {
        project.git(&["config", key, value]);
    }
    project.git(&["tag", "-a", "-m", "mine", "v1"]);
    project.git(&["branch", "mine"]);
    let integration = project.integration().await.unwrap();
    let branch = project.attempt(&integration, "a", &[("src/more.rs", "more\n")]).await;
    merged(integration.merge_squash(&branch, "a").await.unwrap());
    let local = project.git(&["for-each-ref", "refs/heads", "refs/tags"]);
    let main = branches(&project);
    let origin = integration.repository().origin().await.unwrap().unwrap();
    let seen = origin.fetch().await.unwrap();
    assert_eq!((seen.default.as_str(), seen.integration), (project.git(&["rev-parse", "main"]).as_str(), None));
    let tip = integration.tip().await.unwrap();
    origin.push(&tip, None).await.unwrap();
    assert_eq!(branches(&project), format!("refs/heads/claude/main {tip}\n{main}"));
    assert_eq!(project.git(&["for-each-ref", "refs/heads", "refs/tags"]), local);
    // Again, and there is nothing to do.
    let seen = origin.fetch().await.unwrap();
    origin.push(&tip, seen.integration.as_ref()).await.unwrap();
}

#[tokio::test]
async fn fetching_leaves_the_users_view_of_origin_as_it_was() {
    let project = Project::with_origin();
    let refs = || project.git(&["for-each-ref", "refs/heads", "refs/remotes", "refs/tags"]);
    let before = refs();
    project.elsewhere(&[&["tag", "v1"], &["push", "--quiet", "origin", "v1"]]);
    project.write_elsewhere("README.md", "moved\n");
    let origin = project.open().await.unwrap().origin().await.unwrap().unwrap();
    let fetched = origin.fetch().await.unwrap();
    assert_eq!(fetched.default.as_str(), user_git(&project.origin(), &["rev-parse", "main"]));
    assert_eq!(refs(), before);
    assert!(!project.path().join(".git/FETCH_HEAD").exists());
    // Where it lacks the branch, that is said.
    user_git(&project.origin(), &["branch", "-m", "main", "trunk"]);
    let refused = origin.fetch().await.unwrap_err();
    assert!(matches!(&refused, GitError::NotAtOrigin { branch, .. } if branch == "main"), "{refused}");
}

#[tokio::test]
async fn what_others_pushed_to_the_branch_is_never_replaced() {
    let project = Project::with_origin();
    let integration = project.integration().await.unwrap();
    let work = async |name: &str| {
        let branch = project.attempt(&integration, name, &[(&format!("src/{name}.rs"), "more\n")]).await;
        merged(integration.merge_squash(&branch, name).await.unwrap());
        integration.tip().await.unwrap()
    };
    let origin = integration.repository().origin().await.unwrap().unwrap();
    let first = work("a").await;
    origin.push(&first, None).await.unwrap();
    project.elsewhere(&[
        &["checkout", "--quiet", "-B", "claude/main", "origin/claude/main"],
        &["commit", "--quiet", "--allow-empty", "--message=Review"],
        &["push", "--quiet", "origin", "claude/main"],
    ]);
    let before = branches(&project);
    let seen = origin.fetch().await.unwrap().integration;
    let second = work("b").await;
    let refused = origin.push(&second, seen.as_ref()).await.unwrap_err();
    assert!(matches!(refused, GitError::OthersCommits { .. }), "{refused}");
    // And also not where they did so after it was looked at.
    let refused = origin.push(&second, Some(&first)).await.unwrap_err();
    assert!(matches!(&refused, GitError::Failed { command, .. } if command == "push"), "{refused}");
    assert!(origin.push(&second, None).await.is_err());
    assert_eq!(branches(&project), before);
}

#[tokio::test]
async fn the_branch_as_it_was_before_a_sync_is_replaced() {
    let project = Project::with_origin();
    let integration = project.integration().await.unwrap();
    let origin = integration.repository().origin().await.unwrap().unwrap();
    for name in ["a", "b", "c"] {
        let branch = project.attempt(&integration, name, &[(&format!("src/{name}.rs"), "more\n")]).await;
        merged(integration.merge_squash(&branch, name).await.unwrap());
        let seen = origin.fetch().await.unwrap().integration;
        let tip = integration.tip().await.unwrap();
        origin.push(&tip, seen.as_ref()).await.unwrap();
        assert_eq!(user_git(&project.origin(), &["rev-parse", "claude/main"]), tip.as_str());
        project.squash_elsewhere();
        for _ in 0..2 {
            let seen = origin.fetch().await.unwrap();
            integration.follow(&seen.default, None, seen.integration.as_ref(), || true).await.unwrap();
        }
    }
    assert_eq!(project.log(), ["Squashed", "Squashed", "Squashed", "Begin"]);
}

#[tokio::test]
async fn settings_that_lead_elsewhere_or_run_programs_are_refused_by_name() {
    let project = Project::with_origin();
    let hostile = project.hostile_program().display().to_string();
    let inside = project.path().join("inside.git");
    user_git(&project.path(), &["init", "--quiet", "--bare", "inside.git"]);
    for (key, value) in [
        ("url.https://evil.example/.insteadOf", "/"),
        ("url.https://evil.example/.pushInsteadOf", "/"),
        ("http.proxy", "http://evil.example"),
        ("http.https://github.com.sslVerify", "false"),
        ("fetch.bundleURI", "https://evil.example"),
        ("remote.origin.pushurl", "https://evil.example"),
        ("remote.origin.proxy", "http://evil.example"),
        ("remote.origin.mirror", "true"),
        ("remote.origin.vcs", "evil"),
        ("remote.origin.uploadpack", &hostile),
        ("remote.origin.receivepack", &hostile),
        ("remote.origin.fetch", "+refs/heads/claude/main:refs/heads/main"),
        ("remote.origin.url", inside.to_str().unwrap()),
        ("remote.origin.url", "ext::sh -c touch% x"),
        ("remote.origin.url", "http://example.com/a/b"),
        ("remote.origin.url", "../origin.git"),
    ] {
        let config = project.path().join(".git/config");
        let before = fs::read_to_string(&config).unwrap();
        if key == "remote.origin.url" {
            project.git(&["config", key, value]);
        } else {
            project.git(&["config", "--add", key, value]);
        }
        let refused = project.open().await.unwrap().origin().await.unwrap_err();
        let named = matches!(&refused, GitError::RefusedSetting { key: named, .. } if named.eq_ignore_ascii_case(key));
        assert!(named, "{key}: {refused}");
        fs::write(&config, before).unwrap();
    }
    project.git(&["remote", "remove", "origin"]);
    assert!(project.open().await.unwrap().origin().await.unwrap().is_none());
}

#[tokio::test]
async fn hooks_and_programs_of_the_configuration_do_not_run_for_the_network() {
    let project = Project::with_origin();
    let hostile = project.hostile_program();
    for hook in ["pre-push", "reference-transaction", "post-update"] {
        fs::copy(&hostile, project.path().join(".git/hooks").join(hook)).unwrap();
    }
    let program = hostile.to_str().unwrap();
    for (key, value) in [
        ("core.sshCommand", program),
        ("core.askPass", program),
        ("core.gitProxy", program),
        ("core.alternateRefsCommand", program),
        ("credential.helper", &format!("!{program}")),
        ("credential.https://github.com.helper", &format!("!{program}")),
        ("gpg.program", program),
        ("push.gpgSign", "if-asked"),
        ("uploadpack.packObjectsHook", program),
        ("core.hooksPath", project.path().join(".git/hooks").to_str().unwrap()),
    ] {
        project.git(&["config", key, value]);
    }
    let other = Project::new();
    fs::create_dir_all(project.path().join(".git/objects/info")).unwrap();
    let alternate = format!("{}\n", other.path().join(".git/objects").display());
    fs::write(project.path().join(".git/objects/info/alternates"), alternate).unwrap();
    let integration = project.integration().await.unwrap();
    let branch = project.attempt(&integration, "a", &[("src/more.rs", "more\n")]).await;
    merged(integration.merge_squash(&branch, "a").await.unwrap());
    project.write_elsewhere("README.md", "moved\n");
    // Git itself, without care, runs some.
    let plain = ["push", "origin", "main:mine"];
    let _ = std::process::Command::new("git").args(plain).current_dir(project.path()).output().unwrap();
    assert!(project.canary().exists());
    fs::remove_file(project.canary()).unwrap();

    let origin = integration.repository().origin().await.unwrap().unwrap();
    let seen = origin.fetch().await.unwrap();
    origin.push(&integration.tip().await.unwrap(), seen.integration.as_ref()).await.unwrap();
    integration.follow(&seen.default, None, None, || true).await.unwrap();
    assert!(!project.canary().exists());
}

#[tokio::test]
async fn a_pull_request_is_made_by_gh_whatever_title_and_body_say() {
    let project = Project::with_origin();
    let gh = recording(&project, "echo 'Creating pull request'; echo https://github.com/ann/book/pull/1");
    let origin = origin_with(&project, &gh).await;
    for (title, body) in [("Title", "Body"), ("--web", "--fill\n\n-R evil/book"), ("-x; $(touch y)", "")] {
        let _ = fs::remove_file(project.root().join("asked"));
        let made = origin.create_pull_request(title, body).await.unwrap();
        assert_eq!((made.url.as_str(), made.existed), ("https://github.com/ann/book/pull/1", false));
        let expected = format!("pr\ncreate\n--base=main\n--head=claude/main\n--title={title}\n--body={body}\n");
        assert_eq!(asked(&project), expected);
    }
}

#[tokio::test]
async fn gh_is_told_which_repository_runs_in_none_and_has_an_environment_of_its_own() {
    let project = Project::with_origin();
    project.git(&["config", "remote.origin.url", "git@github.com:ann/book.git"]);
    let said = project.root().join("environment").display().to_string();
    let gh = recording(&project, &format!("env > '{said}'; pwd >> '{said}'; echo https://github.com/ann/book/pull/1"));
    let origin = origin_with(&project, &gh).await;
    origin.create_pull_request("Title", "").await.unwrap();
    assert!(
        asked(&project).starts_with("pr\ncreate\n--repo=github.com/ann/book\n--base=main\n"),
        "{}",
        asked(&project)
    );
    let environment = fs::read_to_string(&said).unwrap();
    assert!(environment.contains("GH_PROMPT_DISABLED=1\n") && environment.ends_with("\n/\n"), "{environment}");
    assert!(!environment.contains("CARGO") && !environment.contains("GH_REPO"), "{environment}");
}

#[tokio::test]
async fn an_open_pull_request_is_found_and_one_of_another_repository_is_not() {
    let project = Project::with_origin();
    let listed = |list: &str| {
        format!("case \"$2\" in create) echo 'a pull request already exists' >&2; exit 1;; list) echo '{list}';; esac")
    };
    let foreign = r#"{"url":"https://github.com/eve/book/pull/9","isCrossRepository":true}"#;
    let own = r#"{"url":"https://github.com/ann/book/pull/2","isCrossRepository":false}"#;
    let origin = origin_with(&project, &listed(&format!("[{foreign},{own}]"))).await;
    let found = origin.create_pull_request("Title", "").await.unwrap();
    assert_eq!((found.url.as_str(), found.existed), ("https://github.com/ann/book/pull/2", true));
    for list in [format!("[{foreign}]"), "[]".to_owned(), "no JSON".to_owned()] {
        let origin = origin_with(&project, &listed(&list)).await;
        let refused = origin.create_pull_request("Title", "").await.unwrap_err().to_string();
        assert_eq!(refused, "gh pr create failed: a pull request already exists", "{list}");
    }
}

#[tokio::test]
async fn what_gh_says_of_a_failure_is_told_on_one_line_and_an_answer_without_an_address_is_none() {
    let project = Project::with_origin();
    let origin = origin_with(&project, "printf 'not logged in\\n\\033[1mrun gh auth login\\n' >&2; exit 4").await;
    let refused = origin.create_pull_request("Title", "").await.unwrap_err().to_string();
    assert_eq!(refused, "gh pr create failed: not logged in; [1mrun gh auth login");
    let origin = origin_with(&project, "echo done").await;
    let refused = origin.create_pull_request("Title", "").await.unwrap_err();
    assert!(matches!(&refused, GitError::GhAnswer { said } if said == "done"), "{refused}");
}

#[tokio::test]
async fn the_state_of_a_pull_request_is_what_gh_says() {
    let project = Project::with_origin();
    for (said, state) in [
        (r#"echo '{"state":"OPEN"}'"#, PullState::Open),
        (r#"echo '{"state":"MERGED"}'"#, PullState::Merged),
        (r#"echo '{"state":"CLOSED"}'"#, PullState::Closed),
        ("echo https://github.com", PullState::Unknown),
        ("exit 1", PullState::Unknown),
    ] {
        let origin = origin_with(&project, &recording(&project, said)).await;
        assert_eq!(origin.pull_request_state("https://github.com/ann/book/pull/1").await, state, "{said}");
        assert_eq!(origin.pull_request_state("--web").await, PullState::Unknown);
    }
    assert!(asked(&project).ends_with("pr\nview\n--json=state\n--\nhttps://github.com/ann/book/pull/1\n"));
    assert!(!asked(&project).contains("--web"));
}

#[tokio::test]
async fn the_hooks_of_origin_decide_what_it_accepts() {
    let project = Project::with_origin();
    write(&project.origin(), "hooks/pre-receive", "");
    script(&project.origin().join("hooks/pre-receive"), "echo 'not on a Friday' >&2; exit 1");
    let integration = project.integration().await.unwrap();
    let origin = integration.repository().origin().await.unwrap().unwrap();
    let refused = origin.push(&integration.tip().await.unwrap(), None).await.unwrap_err().to_string();
    assert!(refused.contains("not on a Friday"), "{refused}");
}
