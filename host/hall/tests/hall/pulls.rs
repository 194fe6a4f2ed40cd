//! Pull requests of `claude/main`, and what it does once the user merged.

use std::{fs, sync::Arc, time::Duration};

use guild_contract::{
    OperationError,
    hall::{CommissionId, CommissionStatus, SyncAction},
};
use guild_hall::{Hall, Requester, manager::ManagerTools};
use guild_session::tools::{ToolCall, Tools as _};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::{Scripted, World, commission, git, until, write};

const URL: &str = "https://github.com/ann/demo/pull/1";

/// A `gh` that knows the pull request that was made, as the host would: in files of the directory `hub`. `merged` there
/// says that it is merged.
const GH: &str = r#"hub="$(dirname "$0")/../hub"; mkdir -p "$hub"; echo "$*" >> "$hub/asked"
case "$2" in
create) if [ -e "$hub/open" ]; then echo 'already exists' >&2; exit 1; fi; touch "$hub/open"; echo https://github.com/ann/demo/pull/1 ;;
list) echo '[{"url":"https://github.com/ann/demo/pull/1","isCrossRepository":false}]' ;;
view) if [ -e "$hub/merged" ]; then echo '{"state":"MERGED"}'; else echo '{"state":"OPEN"}'; fi ;;
esac"#;

/// A world whose project has an `origin`.
fn world() -> World {
    let mut world = World::new(Scripted::writing());
    world.add_origin(GH);
    world
}

/// A commission that is completed, so that `claude/main` has something.
async fn work(hall: &Arc<Hall>, title: &str) -> CommissionId {
    let id = hall.commissions.create(commission(title), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(hall, &id, CommissionStatus::Completed).await;
    id
}

fn note(world: &World) -> Option<Value> {
    let text = fs::read_to_string(world.home().join("state/pr-pending/demo.json")).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

fn at_origin(world: &World) -> String {
    git(&world.origin(), &["for-each-ref", "--format=%(refname)"])
}

/// The action and the reason of a sync of `demo`.
async fn sync(hall: &Arc<Hall>) -> (String, String) {
    let results = hall.projects.sync(Some("demo")).await.unwrap();
    assert_eq!((results.len(), results[0].project.as_str()), (1, "demo"));
    assert_eq!(results[0].error.is_some(), results[0].action == SyncAction::Error);
    (serde_json::to_value(results[0].action).unwrap().as_str().unwrap().to_owned(), results[0].reason.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_is_made_only_where_guild_toml_permits_it() {
    let world = world();
    let hall = world.hall().await;
    work(&hall, "x").await;
    for (push, pull_requests, missing) in [
        (false, false, "needs `push = true` and `pull_requests = true`"),
        (true, false, "needs `pull_requests = true`"),
        (false, true, "needs `push = true`;"),
    ] {
        let hall = hall.clone();
        hall.permit(vec![guild_hall::Permit { path: world.project("demo"), push, pull_requests }]);
        let refused = hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap_err();
        assert!(matches!(&refused, OperationError::Conflict(why) if why.contains(missing)), "{refused}");
    }
    assert_eq!(at_origin(&world), "refs/heads/main");
    assert!(!world.root().join("hub").exists());
    assert!(matches!(
        hall.projects.create_pull_request("none", "Title", "", None).await,
        Err(OperationError::NotFound(_))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_pushes_claude_main_alone_and_is_noted() {
    let world = world();
    let hall = world.permitting(true, true).await;
    let main = git(&world.origin(), &["rev-parse", "main"]);
    let nothing = hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap_err();
    assert!(nothing.to_string().contains("nothing to propose"), "{nothing}");
    work(&hall, "x").await;
    let made = hall.projects.create_pull_request("demo", "--web", "-x\ny", None).await.unwrap();
    assert_eq!((made.url.as_str(), made.existed), (URL, false));
    assert_eq!(at_origin(&world), "refs/heads/claude/main\nrefs/heads/main");
    assert_eq!(git(&world.origin(), &["rev-parse", "main"]), main);
    assert_eq!(git(&world.origin(), &["rev-parse", "claude/main"]), made.claude_main_tip);
    let asked = fs::read_to_string(world.root().join("hub/asked")).unwrap();
    assert_eq!(asked, "pr create --base=main --head=claude/main --title=--web --body=-x\ny\n");
    let note = note(&world).unwrap();
    assert_eq!((&note["claudeMainTip"], &note["prUrl"]), (&json!(made.claude_main_tip), &json!(URL)));
    assert!(note["createdAt"].as_str().unwrap().ends_with('Z'), "{note}");
    // Once more, with more work: it is the same one.
    work(&hall, "y").await;
    let again = hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap();
    assert_eq!((again.url.as_str(), again.existed), (URL, true));
    assert_eq!(git(&world.origin(), &["rev-parse", "claude/main"]), again.claude_main_tip);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_work_under_way_refuses_a_pull_request_and_the_one_that_asks_does_not() {
    let world = world();
    let hall = world.permitting(true, true).await;
    work(&hall, "x").await;
    world.workers.hold(true);
    let asking = hall.commissions.create(commission("asking"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(asking.as_str(), &Requester::User).await.unwrap();
    until(&hall, &asking, CommissionStatus::InProgress).await;
    // What waits is not under way.
    hall.commissions.create(commission("waits"), &Requester::User).await.unwrap();
    let refused = hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap_err();
    assert!(matches!(&refused, OperationError::Conflict(why) if why.contains(asking.as_str())), "{refused}");
    assert_eq!(at_origin(&world), "refs/heads/main");
    hall.projects.create_pull_request("demo", "Title", "", Some(asking.as_str())).await.unwrap();
    // A sync would take the ground from under it.
    let (action, reason) = sync(&hall).await;
    assert_eq!((action.as_str(), reason.as_str()), ("skip", format!("active activities: {asking}").as_str()));
    world.workers.hold(false);
    until(&hall, &asking, CommissionStatus::Completed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_managers_own_work_is_no_other_work_and_the_pull_request_is_its_tools() {
    let world = world();
    let hall = world.permitting(true, true).await;
    work(&hall, "x").await;
    world.workers.hold(true);
    let mut under_way = Vec::new();
    for title in ["manage", "other"] {
        let id = hall.commissions.create(commission(title), &Requester::User).await.unwrap().commission_id;
        hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
        until(&hall, &id, CommissionStatus::InProgress).await;
        under_way.push(id);
    }
    let [own, other] = under_way.try_into().unwrap();
    let job = hall.commissions.read(own.as_str(), None).await.unwrap().commission.job.unwrap();
    let tools = ManagerTools::new(hall.clone(), job.parse().unwrap(), hall.attempt_of(&job));
    let create = || ToolCall { id: "1".to_owned(), name: "create_pr".to_owned(), input: json!({"title": "Ready"}) };
    let refused = tools.call(create()).await.unwrap_err().to_string();
    // The one id can begin with the other.
    assert!(refused.ends_with(&format!(": {other}")), "{refused}");
    hall.commissions.cancel(other.as_str(), None, &Requester::User).await.unwrap();
    let made = tools.call(create()).await.unwrap();
    assert_eq!(made["url"], URL, "{made}");
    assert_eq!(at_origin(&world), "refs/heads/claude/main\nrefs/heads/main");
}

#[tokio::test(flavor = "multi_thread")]
async fn titles_and_bodies_are_bounded_and_a_title_is_one_line() {
    let world = world();
    let hall = world.permitting(true, true).await;
    for (title, body, why) in [
        (" ", String::new(), "Missing required field: title"),
        ("two\nlines", String::new(), "title is one line"),
        (&"x".repeat(257), String::new(), "title is one line"),
        ("Title", "x".repeat(65_537), "body has at most"),
        ("Title", "\0".to_owned(), "body has at most"),
    ] {
        let refused = hall.projects.create_pull_request("demo", title, &body, None).await.unwrap_err();
        assert!(matches!(&refused, OperationError::Invalid(said) if said.contains(why)), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_gh_or_origin_say_is_told_and_the_next_try_goes_on() {
    let mut world = World::new(Scripted::writing());
    let hall = world.permitting(true, true).await;
    work(&hall, "x").await;
    let refused = hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap_err();
    assert!(matches!(&refused, OperationError::Conflict(why) if why.contains("git remote add origin")), "{refused}");
    drop(hall);
    world.add_origin("echo 'To get started, run: gh auth login' >&2; exit 4");
    let hall = world.permitting(true, true).await;
    let refused = hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap_err();
    assert!(matches!(&refused, OperationError::Conflict(why) if why.contains("run: gh auth login")), "{refused}");
    assert!(note(&world).is_none());
    write(&world.root(), "bin/gh", &format!("#!/bin/sh\n{GH}\n"));
    assert_eq!(hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap().url, URL);
    // As if the host had ended before it noted what gh had made.
    fs::remove_file(world.home().join("state/pr-pending/demo.json")).unwrap();
    let found = hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap();
    assert_eq!((found.url.as_str(), found.existed), (URL, true));
    assert!(note(&world).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_follows_each_merge_of_the_user_and_the_next_pull_request_begins_there() {
    let world = world();
    let hall = world.permitting(true, true).await;
    assert_eq!(sync(&hall).await.0, "noop");
    // Merged, and nothing since: reset.
    work(&hall, "a").await;
    assert_eq!(sync(&hall).await.0, "noop");
    hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap();
    world.write_at_origin("README.md", "moved\n");
    let (action, reason) = sync(&hall).await;
    assert!(action == "skip" && reason.contains(URL), "{reason}");
    world.squash_at_origin();
    assert_eq!(sync(&hall).await.0, "reset");
    assert_eq!(
        git(&world.project("demo"), &["rev-parse", "claude/main"]),
        git(&world.origin(), &["rev-parse", "main"])
    );
    assert!(note(&world).is_none());
    // Merged, and worked on since: rebased.
    let (main, open) = (git(&world.project("demo"), &["rev-parse", "main"]), world.root().join("hub/open"));
    fs::remove_file(&open).unwrap();
    work(&hall, "b").await;
    hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap();
    let newer = work(&hall, "c").await;
    world.squash_at_origin();
    write(&world.root(), "hub/merged", "");
    assert_eq!(sync(&hall).await.0, "rebase");
    assert!(note(&world).is_none());
    let log = git(&world.project("demo"), &["log", "--format=%s", "claude/main"]);
    assert!(log.starts_with(&format!("Commission: {newer}\n")) && log.contains("\nSquashed\n"), "{log}");
    assert_eq!(git(&world.integration("demo"), &["status", "--porcelain"]), "");
    // Both moved on: merged.
    world.write_at_origin("README.md", "moved again\n");
    assert_eq!(sync(&hall).await.0, "merge");
    assert_eq!(git(&world.project("demo"), &["show", "claude/main:README.md"]), "moved again");
    fs::remove_file(&open).unwrap();
    hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap();
    world.squash_at_origin();
    assert_eq!(sync(&hall).await.0, "reset");
    // The default branch alone moved on.
    world.write_at_origin("README.md", "once more\n");
    assert_eq!(sync(&hall).await.0, "rebase");
    assert_eq!(git(&world.project("demo"), &["rev-parse", "main"]), main);
    // And workers go on from there.
    work(&hall, "d").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_names_the_files_and_says_what_to_do() {
    let world = world();
    let hall = world.permitting(true, true).await;
    work(&hall, "a").await;
    write(&world.integration("demo"), "src/code.rs", "ours\n");
    world.write_at_origin("src/code.rs", "theirs\n");
    let (action, reason) = sync(&hall).await;
    assert!(action == "error" && reason.contains("src/code.rs") && reason.contains("git -C "), "{reason}");
    assert_eq!(fs::read_to_string(world.integration("demo").join("src/code.rs")).unwrap(), "ours\n");
    // As it says.
    let command = reason.split_once("sync again: git ").unwrap().1;
    let args: Vec<&str> = command.split(' ').collect();
    let merge = std::process::Command::new("git").args(&args).output().unwrap();
    assert!(!merge.status.success());
    write(&world.integration("demo"), "src/code.rs", "both\n");
    git(&world.integration("demo"), &["add", "--all"]);
    git(&world.integration("demo"), &["commit", "--quiet", "--message=Resolved"]);
    assert_eq!(sync(&hall).await.0, "noop");
    assert_eq!(git(&world.project("demo"), &["show", "claude/main:src/code.rs"]), "both");
}

#[tokio::test(flavor = "multi_thread")]
async fn origin_is_not_reached_where_pushing_is_not_permitted() {
    let world = world();
    let hall = world.permitting(false, false).await;
    work(&hall, "a").await;
    world.write_at_origin("README.md", "moved\n");
    let (action, reason) = sync(&hall).await;
    assert_eq!((action.as_str(), reason.as_str()), ("noop", "claude/main is ahead of main"));
    // What the user merges here is followed.
    let project = world.project("demo");
    git(&project, &["merge", "--quiet", "--squash", "claude/main"]);
    git(&project, &["commit", "--quiet", "--message=Squashed"]);
    assert_eq!(sync(&hall).await.0, "reset");
    assert_eq!(git(&project, &["rev-parse", "claude/main"]), git(&project, &["rev-parse", "main"]));
    // A project that is not permitted at all is left out, one that is not there is said to be missing.
    hall.permit(Vec::new());
    let results = hall.projects.sync(None).await.unwrap();
    assert_eq!((results.len(), results[0].action), (1, SyncAction::Skip));
    assert!(matches!(hall.projects.sync(Some("none")).await, Err(OperationError::NotFound(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_cannot_be_reached_changes_nothing_and_is_told() {
    let world = world();
    let hall = world.permitting(true, true).await;
    work(&hall, "a").await;
    let before = git(&world.project("demo"), &["rev-parse", "claude/main"]);
    fs::rename(world.origin(), world.root().join("away")).unwrap();
    let (action, reason) = sync(&hall).await;
    assert!(action == "error" && reason.contains("origin.git"), "{reason}");
    assert_eq!(git(&world.project("demo"), &["rev-parse", "claude/main"]), before);
}

/// A program that stops for ever at its `nth` run, and says so in `stopped`; else it does this.
fn stopping(world: &World, nth: usize, then: &str) -> String {
    let dir = world.root().display().to_string();
    format!(
        "#!/bin/sh\nprintf x >> {dir}/runs\nif [ \"$(wc -c < {dir}/runs)\" -ge {nth} ]; then touch {dir}/stopped; exec sleep 600; fi\n{then}\n"
    )
}

/// Has a host that ends at its `nth` run of git or gh make a pull request, and the next one make it again. `false`:
/// there are not so many runs.
fn crash_at(nth: usize) -> bool {
    let world = world();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async { work(&world.permitting(true, true).await, "x").await });
    runtime.shutdown_timeout(Duration::from_secs(10));
    write(&world.root(), "bin/git", &stopping(&world, nth, "exec git \"$@\""));
    write(&world.root(), "bin/gh", &stopping(&world, nth, GH));
    let runtime = Runtime::new().unwrap();
    let stopped = runtime.block_on(async {
        let hall = world.permitting(true, true).await;
        let stopped = async {
            while !world.root().join("stopped").exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = stopped => true,
            made = hall.projects.create_pull_request("demo", "Title", "", None) => { made.unwrap(); false }
        }
    });
    // All tasks of the host end where they are.
    runtime.shutdown_timeout(Duration::from_secs(10));
    write(&world.root(), "bin/git", "#!/bin/sh\nexec git \"$@\"\n");
    write(&world.root(), "bin/gh", &format!("#!/bin/sh\n{GH}\n"));
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let hall = world.permitting(true, true).await;
        let made = hall.projects.create_pull_request("demo", "Title", "", None).await.unwrap();
        assert_eq!(made.url, URL, "after run {nth}");
        let asked = fs::read_to_string(world.root().join("hub/asked")).unwrap();
        assert!(world.root().join("hub/open").exists(), "after run {nth}: {asked}");
        assert_eq!(note(&world).unwrap()["claudeMainTip"], json!(made.claude_main_tip), "after run {nth}");
        world.squash_at_origin();
        assert_eq!(sync(&hall).await.0, "reset", "after run {nth}");
    });
    stopped
}

#[test]
fn a_pull_request_is_made_once_after_a_crash_at_each_run_of_git_and_gh() {
    let mut nth = 1;
    while crash_at(nth) {
        nth += 1;
    }
    assert!(nth > 10, "only {nth} runs");
}
