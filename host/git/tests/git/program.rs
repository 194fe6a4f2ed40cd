//! The program: which one, and its bounds.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use guild_git::{Git, GitError, GitOptions, OLDEST, Repository, Version};

use crate::support::{LIMIT, Project, git, options, script, write};

async fn found(program: PathBuf, limit: Duration) -> Result<Git, GitError> {
    Git::find(GitOptions { program: Some(program), limit, ..options() }).await
}

/// A fake that says which version it is and does this for all else.
async fn fake(dir: &Path, limit: Duration, body: &str) -> Git {
    let program = dir.join("fake");
    script(
        &program,
        &format!("for word; do [ \"$word\" = version ] && echo 'git version 2.47.0' && exit\ndone\n{body}"),
    );
    found(program, limit).await.unwrap()
}

#[tokio::test]
async fn the_version_is_known_and_old_ones_are_refused() {
    let git = git().await;
    assert!(git.version() >= OLDEST && git.program().is_absolute());
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("fake");
    let says = async |said: &str| {
        script(&program, &format!("echo '{said}'"));
        found(program.clone(), LIMIT).await
    };
    for (said, version) in [
        ("git version 2.38.0", (2, 38, 0)),
        ("git version 2.39.5 (Apple Git-154)", (2, 39, 5)),
        ("git version 2.51.0.rc1", (2, 51, 0)),
        ("git version 3.1", (3, 1, 0)),
    ] {
        let (major, minor, patch) = version;
        assert_eq!(says(said).await.unwrap().version(), Version { major, minor, patch });
    }
    let refused = says("git version 2.37.10").await.unwrap_err();
    assert!(matches!(refused, GitError::TooOld { .. }), "{refused}");
    assert!(refused.to_string().ends_with("is git 2.37.10; install git 2.38.0 or newer"), "{refused}");
    assert!(matches!(says("hello").await, Err(GitError::NotGit { .. })));
    assert!(matches!(found(dir.path().join("missing"), LIMIT).await, Err(GitError::Start { .. })));
}

/// Runs a test of this program once more, ignored otherwise, with another environment.
fn again(test: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored"]).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_missing_git_is_said() {
    again("program::without_git", &[("PATH", "/nowhere")]);
}

#[tokio::test]
#[ignore = "needs an environment of its own"]
async fn without_git() {
    let refused = Git::find(options()).await.unwrap_err();
    assert!(matches!(refused, GitError::NotInstalled), "{refused}");
}

#[test]
fn the_environment_of_the_host_reaches_no_run() {
    let other = Project::new();
    let dir = other.path().join(".git").display().to_string();
    let before = other.git(&["for-each-ref"]);
    let hostile = other.hostile_program().display().to_string();
    again(
        "program::with_a_hostile_environment",
        &[
            ("GIT_DIR", &dir),
            ("GIT_WORK_TREE", "/"),
            ("GIT_INDEX_FILE", &format!("{dir}/index")),
            ("GIT_OBJECT_DIRECTORY", "/nowhere"),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
            ("GIT_CONFIG_VALUE_0", &hostile),
            ("GIT_EXTERNAL_DIFF", &hostile),
            ("GIT_PAGER", &hostile),
            ("GIT_NAMESPACE", "x"),
            ("GIT_TRACE", &other.canary().display().to_string()),
            ("HOME", &dir),
        ],
    );
    assert_eq!(other.git(&["for-each-ref"]), before);
    assert!(!other.canary().exists());
}

#[tokio::test]
#[ignore = "needs an environment of its own"]
async fn with_a_hostile_environment() {
    let place = tempfile::tempdir().unwrap();
    let script_file = place.path().join("fake");
    let said = place.path().join("environment");
    script(&script_file, &format!("env > '{}'\nexec git \"$@\"", said.display()));
    let git = found(script_file, LIMIT).await.unwrap();
    let refused = Repository::open(&git, place.path(), None).await.unwrap_err();
    assert!(matches!(refused, GitError::NotARepository { .. }), "{refused}");
    let environment = fs::read_to_string(said).unwrap();
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CONFIG_COUNT", "GIT_PAGER", "GIT_TRACE", "HOME=/t"]
    {
        assert!(!environment.contains(name), "{environment}");
    }
    // Git as the user runs it would now work on the other repository.
    for name in ["GIT_DIR", "GIT_INDEX_FILE"] {
        assert!(std::env::var_os(name).is_some());
    }
}

fn is_running(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !matches!(state.rsplit(") ").next().and_then(|rest| rest.chars().next()), None | Some('Z'))
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_ended_with_all_that_it_started() {
    for ignores in ["", "trap '' TERM\n"] {
        let project = Project::new();
        let pids = project.root().join("pids");
        let hang =
            format!("{ignores}sleep 600 &\necho $$ $! > '{0}.new'; mv '{0}.new' '{0}'\nwait; wait", pids.display());
        let git = fake(&project.root(), Duration::from_secs(1), &hang).await;
        let refused = Repository::open(&git, &project.path(), None).await.unwrap_err();
        assert!(matches!(&refused, GitError::TimedOut { command, .. } if command == "rev-parse"), "{refused}");
        for pid in fs::read_to_string(pids).unwrap().split_whitespace() {
            until("still running", || !is_running(pid)).await;
        }
    }
}

#[tokio::test]
async fn a_run_whose_caller_is_gone_is_ended() {
    let project = Project::new();
    let pids = project.root().join("pids");
    let hang = format!("sleep 600 &\necho $$ $! > '{0}.new'; mv '{0}.new' '{0}'\nwait", pids.display());
    let git = fake(&project.root(), LIMIT, &hang).await;
    let path = project.path();
    let asked = tokio::spawn(async move { Repository::open(&git, &path, None).await.map(drop) });
    until("not started", || pids.exists()).await;
    asked.abort();
    for pid in fs::read_to_string(pids).unwrap().split_whitespace() {
        until("still running", || !is_running(pid)).await;
    }
}

#[tokio::test]
async fn output_is_bounded() {
    let project = Project::new();
    let git = fake(&project.root(), LIMIT, "exec yes").await;
    let refused = Repository::open(&git, &project.path(), None).await.unwrap_err();
    assert!(matches!(refused, GitError::TooMuchOutput { .. }), "{refused}");
    // What it says of itself is cut, and on one line.
    let noise =
        "i=0; while [ $i -lt 20000 ]; do printf 'fatal: \\033[2J line %s\\n' $i; i=$((i + 1)); done >&2; exit 128";
    let git = fake(&project.root(), LIMIT, noise).await;
    let refused = Repository::open(&git, &project.path(), None).await.unwrap_err().to_string();
    assert!(refused.len() < 5000 && refused.contains("line 1;") && !refused.contains(char::is_control), "{refused}");
}

#[tokio::test]
async fn a_run_that_says_nothing_of_why_it_failed_is_still_an_error() {
    let project = Project::new();
    for (body, said) in [("exit 3", "exit code 3"), ("kill -KILL $$", "a signal ended it")] {
        let git = fake(&project.root(), LIMIT, body).await;
        let refused = Repository::open(&git, &project.path(), None).await.unwrap_err().to_string();
        assert!(refused.ends_with(said), "{refused}");
    }
}

#[tokio::test]
async fn a_repository_of_another_user_is_refused_with_what_to_do_here() {
    let project = Project::new();
    let body = "echo \"fatal: detected dubious ownership in repository; git config --global --add safe.directory\" >&2; exit 128";
    let git = fake(&project.root(), LIMIT, body).await;
    let refused = Repository::open(&git, &project.path(), None).await.unwrap_err();
    assert!(matches!(refused, GitError::OtherOwner { .. }), "{refused}");
    assert!(!refused.to_string().contains("--global"), "{refused}");
}

#[tokio::test]
async fn a_run_has_no_more_memory_than_its_limit_and_names_it() {
    let project = Project::new();
    let bounded = |program: Option<PathBuf>| GitOptions { program, memory_bytes: 64 << 20, ..options() };
    // An honest repository needs some MiB.
    let git = Git::find(bounded(None)).await.unwrap();
    Repository::open(&git, &project.path(), None).await.unwrap();
    // A message is read as a whole.
    write(&project.path(), "message", &"a line of a message\n".repeat(4 << 20));
    drop(fake(&project.root(), LIMIT, "exec git commit-tree HEAD^{tree} -F message").await);
    let git = Git::find(bounded(Some(project.root().join("fake")))).await.unwrap();
    let refused = Repository::open(&git, &project.path(), None).await.unwrap_err();
    assert!(matches!(refused, GitError::TooMuchMemory { .. }), "{refused}");
    assert!(refused.to_string().contains("limits.git_memory_bytes"), "{refused}");
}
