//! What a host that ended in the middle of something leaves to the next one.

use guild_hall::Requester;
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use guild_contract::hall::{CommissionId, CommissionStatus};
use tokio::runtime::Runtime;

use crate::support::{Scripted, World, commission, git, timeline, until};

/// A `git` that stops for ever at its `nth` run since the file was made, and says so in `stopped`.
fn stopping_git(dir: &Path, nth: usize) -> std::path::PathBuf {
    let real = which_git();
    let path = dir.join("git");
    let text = format!(
        "#!/bin/sh\nprintf x >> {0}/runs\nif [ \"$(wc -c < {0}/runs)\" -ge {nth} ]; then touch {0}/stopped; exec sleep 600; fi\nexec {real} \"$@\"\n",
        dir.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn which_git() -> String {
    let path = std::env::var("PATH").unwrap();
    let found = path.split(':').map(|dir| format!("{dir}/git")).find(|file| Path::new(file).exists());
    found.unwrap()
}

/// Dispatches a commission on a host that ends at its `nth` run of git, then has the next host go on. `None`: that many
/// runs are not needed.
fn crash_at(nth: usize) -> Option<()> {
    let mut world = World::new(Scripted::writing());
    let shim = tempfile::tempdir().unwrap();
    let first = Runtime::new().unwrap();
    // The project is opened before: its making is the git crate's to test.
    let id: CommissionId = first.block_on(async {
        let hall = world.hall().await;
        hall.commissions.create(commission("crash"), &Requester::User).await.unwrap().commission_id
    });
    first.shutdown_timeout(Duration::from_secs(10));
    world.git = Some(stopping_git(shim.path(), nth));
    let first = Runtime::new().unwrap();
    let stopped = first.block_on(async {
        let stopped = async {
            while !shim.path().join("stopped").exists() {
                tokio::task::yield_now().await;
            }
        };
        let whole = async {
            let hall = world.hall().await;
            hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
            until(&hall, &id, CommissionStatus::Completed).await;
        };
        tokio::select! {
            () = stopped => true,
            () = whole => false,
        }
    });
    // All tasks of the host end where they are.
    first.shutdown_timeout(Duration::from_secs(10));
    if !stopped {
        return None;
    }
    world.git = None;
    let second = Runtime::new().unwrap();
    second.block_on(async {
        let hall = world.hall().await;
        let asked = timeline(&hall, &id).await.iter().any(|line| line.starts_with("status_dispatched"));
        if !asked {
            // The host ended before the dispatch was stored, or before it began.
            let _ = hall.commissions.dispatch(id.as_str(), &Requester::User).await;
        }
        until(&hall, &id, CommissionStatus::Completed).await;
        let lines = timeline(&hall, &id).await;
        assert_eq!(
            lines,
            [
                "created: Commission created",
                "status_dispatched: Dispatched to worker",
                "status_in_progress: Execution started",
                "status_completed: Execution completed",
            ],
            "after run {nth}"
        );
        let log = git(&world.project("demo"), &["log", "--format=%s", "claude/main"]);
        let merges = log.lines().filter(|line| *line == format!("Commission: {id}")).count();
        assert_eq!(merges, 1, "after run {nth}: {log}");
        let report = git(&world.project("demo"), &["show", &format!("claude/main:.lore/reports/{id}.md")]);
        assert_eq!(report, "found", "after run {nth}");
        assert!(!world.home().join("worktrees/demo").join(id.as_str()).exists(), "after run {nth}");
        assert_eq!(git(&world.integration("demo"), &["status", "--porcelain"]), "", "after run {nth}");
        assert_eq!(world.workers.begun(), std::slice::from_ref(&id), "after run {nth}");
    });
    Some(())
}

#[test]
fn a_commission_goes_on_after_a_crash_at_each_run_of_git() {
    let mut nth = 1;
    while crash_at(nth).is_some() {
        nth += 1;
    }
    assert!(nth > 10, "only {nth} runs");
}

#[test]
fn an_attempt_under_way_goes_on_with_the_next_host() {
    let world = World::new(Scripted::writing());
    world.workers.hold(true);
    let first = Runtime::new().unwrap();
    let (running, waiting) = first.block_on(async {
        let hall = world.hall().await;
        let mut made = Vec::new();
        for nth in 0..5 {
            let id =
                hall.commissions.create(commission(&format!("{nth}")), &Requester::User).await.unwrap().commission_id;
            hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
            made.push(id);
        }
        for id in &made[..3] {
            until(&hall, id, CommissionStatus::InProgress).await;
        }
        (made[..3].to_vec(), made[3..].to_vec())
    });
    first.shutdown_timeout(Duration::from_secs(10));
    world.workers.hold(false);
    let second = Runtime::new().unwrap();
    second.block_on(async {
        let hall = world.hall().await;
        for id in running.iter().chain(&waiting) {
            until(&hall, id, CommissionStatus::Completed).await;
        }
        assert_eq!(world.workers.begun().len(), 5);
    });
}

#[test]
fn a_cancel_that_was_stored_holds_after_a_crash() {
    let world = World::new(Scripted::writing());
    world.workers.hold(true);
    let first = Runtime::new().unwrap();
    let id = first.block_on(async {
        let hall = world.hall().await;
        let id = hall.commissions.create(commission("x"), &Requester::User).await.unwrap().commission_id;
        hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
        until(&hall, &id, CommissionStatus::InProgress).await;
        id
    });
    first.shutdown_timeout(Duration::from_secs(10));
    // As if the host had ended right after it stored the cancel.
    let state = world.home().join(format!("state/commissions/{id}.json"));
    let text =
        fs::read_to_string(&state).unwrap().replace("\"begun\": true", "\"begun\": true, \"cancel\": \"Enough\"");
    fs::write(&state, text).unwrap();
    let second = Runtime::new().unwrap();
    second.block_on(async {
        let hall = world.hall().await;
        until(&hall, &id, CommissionStatus::Cancelled).await;
        assert_eq!(timeline(&hall, &id).await.last().unwrap(), "status_cancelled: Enough");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_left_of_a_removal_is_gone_after_the_next_start() {
    let world = World::new(Scripted::writing());
    let removed = world.home().join("worktrees/demo/.removed-commission-a");
    let kept = world.home().join("worktrees/demo/commission-b");
    for dir in [&removed, &kept, &world.home().join("projects/.removed-demo")] {
        fs::create_dir_all(dir.join("src")).unwrap();
    }
    fs::create_dir_all(world.home().join("state/new")).unwrap();
    fs::write(world.home().join("state/new/commission-a.tool"), "half").unwrap();
    let _hall = world.hall().await;
    assert!(!removed.exists() && kept.exists() && !world.home().join("projects/.removed-demo").exists());
    assert!(!world.home().join("state/new/commission-a.tool").exists());
}
