//! One commission, from its making to its end.

use std::{fs, sync::atomic::Ordering};

use guild_contract::{
    Decision, OperationError,
    hall::{CommissionChanges, CommissionStatus, DispatchStatus, NewCommission, Overrides},
};
use guild_git::Checkout;
use guild_hall::{NotBegun, Outcome, Requester, Worker, Workers as _, commission::record, with_token};

use crate::support::{
    Scripted, World, changing, commission, done, ended, git, received, status, timeline, until, write,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_commission_ends_as_one_commit_on_the_integration_branch() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    world.workers.decisions.lock().unwrap().push(Decision {
        question: "Which?".to_owned(),
        decision: "This".to_owned(),
        reasoning: "It is shorter".to_owned(),
    });
    let mut events = hall.events();
    let id = hall.commissions.create(commission("Add \"x\""), &Requester::User).await.unwrap().commission_id;
    assert_eq!(status(&hall, &id).await, CommissionStatus::Pending);
    assert_eq!(
        hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap().status,
        DispatchStatus::Accepted
    );
    until(&hall, &id, CommissionStatus::Completed).await;

    assert_eq!(
        received(&mut events),
        [
            "commission_status dispatched Dispatched to worker",
            "commission_status in_progress Execution started",
            "commission_status completed Execution completed",
        ]
    );
    let log = git(&world.project("demo"), &["log", "--format=%s", "claude/main"]);
    assert_eq!(
        log.lines().collect::<Vec<_>>(),
        [&format!("Commission: {id}"), "Save changes of the integration worktree", "Begin"]
    );
    let changed = git(&world.project("demo"), &["show", "--name-only", "--format=", "claude/main"]);
    assert_eq!(
        changed.lines().collect::<Vec<_>>(),
        [format!(".lore/reports/{id}.md"), format!(".lore/work/commissions/{id}.md")]
    );
    // What people read in the integration worktree is what was merged.
    let text = fs::read_to_string(world.integration("demo").join(format!(".lore/work/commissions/{id}.md"))).unwrap();
    assert_eq!(
        text,
        git(&world.project("demo"), &["show", &format!("claude/main:.lore/work/commissions/{id}.md")]) + "\n"
    );
    let read = record::read(&text);
    assert_eq!(read.status, Some(CommissionStatus::Completed));
    assert_eq!(read.record.title, "Commission: Add \"x\"");
    assert_eq!(read.record.body, "All done.\n\n## Decisions\n\n**Which?**\nThis\n*Reasoning: It is shorter*\n");
    let detail = hall.commissions.read(id.as_str(), Some("demo")).await.unwrap();
    assert_eq!((detail.raw_content, detail.timeline), (text, read.record.activity_timeline));
    // Nothing of the attempt is left but its branch, and nothing of the user's was touched.
    assert!(!world.home().join("worktrees/demo").join(id.as_str()).exists());
    assert_eq!(git(&world.project("demo"), &["status", "--porcelain"]), "");
    assert_eq!(git(&world.project("demo"), &["branch", "--show-current"]), "main");
    assert_eq!(git(&world.integration("demo"), &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_worker_is_found_by_its_key_and_a_name_that_several_have_is_refused() {
    let world = World::new(Scripted::writing());
    let own = world.workers.all().remove(0);
    // Another member says that it is the same worker.
    let copy =
        |key: &str, package: &str| Worker { key: key.parse().unwrap(), package: package.to_owned(), ..own.clone() };
    *world.workers.others.lock().unwrap() = vec![copy("copy", "researcher"), copy("third", "guild-third")];
    let hall = world.hall().await;
    let made = async |worker: &str| {
        let made = hall
            .commissions
            .create(NewCommission { worker_name: worker.to_owned(), ..commission("x") }, &Requester::User)
            .await?
            .commission_id;
        let state = fs::read(world.home().join(format!("state/commissions/{made}.json"))).unwrap();
        let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
        Ok::<_, OperationError>(state["workerName"].as_str().unwrap().to_owned())
    };
    for (name, key) in [("researcher", "researcher"), ("guild-researcher", "researcher"), ("guild-third", "third")] {
        assert_eq!(made(name).await.unwrap(), key, "{name}");
    }
    let why = made("Dalton").await.unwrap_err();
    assert!(matches!(why, OperationError::Conflict(_)), "{why}");
    assert!(why.to_string().contains("name one by its key, copy or third or researcher"), "{why}");
    assert!(made("Nobody").await.unwrap_err().to_string().contains("not found"));
}

#[tokio::test]
async fn a_title_that_git_cannot_have_in_a_message_is_refused_and_a_log_has_an_end() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let why = hall.commissions.create(commission("a\0b"), &Requester::User).await.unwrap_err().to_string();
    assert!(why.contains("without control characters"), "{why}");

    let id = hall.commissions.create(commission("noted"), &Requester::User).await.unwrap().commission_id;
    let note = "x".repeat(1024 * 1024);
    hall.commissions.note(id.as_str(), &note, &Requester::User).await.unwrap();
    let why = hall.commissions.note(id.as_str(), &note, &Requester::User).await.unwrap_err().to_string();
    assert!(why.contains("more than 2097152"), "{why}");
    // What the hall has to note has room, and all of it is read again.
    hall.commissions.cancel(id.as_str(), None, &Requester::User).await.unwrap();
    ended(hall).await;
    assert_eq!(status(&*world.hall().await, &id).await, CommissionStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_much_longer_once_it_is_escaped_is_read_again_after_a_restart() {
    let world = World::new(Scripted::new(|_| done(&"\u{1}".repeat(8 * 1024 * 1024))));
    let hall = world.hall().await;
    let id = hall.commissions.create(commission("long"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::Completed).await;
    let before = hall.commissions.read(id.as_str(), None).await.unwrap().commission;
    ended(hall).await;
    let after = world.hall().await.commissions.read(id.as_str(), None).await.unwrap().commission;
    assert_eq!((after.status, &after.job), (CommissionStatus::Completed, &before.job));
    assert!(after.job.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_without_a_result_fails_and_keeps_what_it_wrote_on_its_branch() {
    let world = World::new(Scripted::new(|attempt| {
        write(&attempt.worktree, ".lore/half.md", "half\n");
        Outcome::Failed { error: String::new(), text: "I found half.".to_owned() }
    }));
    let hall = world.hall().await;
    let id = hall.commissions.create(commission("half"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::Failed).await;
    let happened = timeline(&hall, &id).await;
    let last = ["last_text: I found half.", "status_failed: Session completed without submitting result"];
    assert!(happened.ends_with(&last.map(str::to_owned)), "{happened:?}");
    let project = world.project("demo");
    assert_eq!(git(&project, &["show", &format!("claude/commission/{id}:.lore/half.md")]), "half");
    assert_eq!(git(&project, &["ls-tree", "-r", "--name-only", "claude/main", ".lore/half.md"]), "");

    // Taken up again, it is another branch, which begins without what was left there.
    world.workers.does(|attempt| {
        assert!(!attempt.worktree.join(".lore/half.md").exists());
        write(&attempt.worktree, ".lore/whole.md", "whole\n");
        done("Whole.")
    });
    assert!(matches!(hall.commissions.dispatch(id.as_str(), &Requester::User).await, Err(OperationError::Conflict(_))));
    assert_eq!(hall.commissions.redispatch(id.as_str()).await.unwrap().status, DispatchStatus::Accepted);
    until(&hall, &id, CommissionStatus::Completed).await;
    assert_eq!(git(&project, &["show", "claude/main:.lore/whole.md"]), "whole");
    assert_eq!(git(&project, &["show", &format!("claude/commission/{id}-2:.lore/whole.md")]), "whole");
    let events: Vec<String> =
        timeline(&hall, &id).await.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(
        events,
        [
            "created",
            "status_dispatched",
            "status_in_progress",
            "last_text",
            "status_failed",
            "status_pending",
            "status_dispatched",
            "status_in_progress",
            "status_completed",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_in_code_fails_and_merges_nothing_while_one_in_lore_takes_the_attempts_side() {
    let world = World::new(Scripted::writing());
    *world.workers.checkout.lock().unwrap() = Checkout::Full;
    let hall = world.hall().await;
    let integration = world.integration("demo");
    world.workers.does({
        let integration = integration.clone();
        move |attempt| {
            write(&attempt.worktree, "src/code.rs", "one\nTHEIRS\nthree\n");
            write(&integration, "src/code.rs", "one\nOURS\nthree\n");
            done("Done.")
        }
    });
    let id = hall.commissions.create(commission("code"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::Failed).await;
    let last = timeline(&hall, &id).await.pop().unwrap();
    assert!(last.starts_with("status_failed: Squash-merge conflict on non-.lore/ files: src/code.rs;"), "{last}");
    assert_eq!(fs::read_to_string(integration.join("src/code.rs")).unwrap(), "one\nOURS\nthree\n");
    // On its branch the record does not say that it was completed.
    let text =
        git(&world.project("demo"), &["show", &format!("claude/commission/{id}:.lore/work/commissions/{id}.md")]);
    assert_eq!(record::read(&text).status, Some(CommissionStatus::Failed));

    world.workers.does(move |attempt| {
        write(&attempt.worktree, ".lore/specs/plan.md", "theirs\n");
        write(&integration, ".lore/specs/plan.md", "ours\n");
        done("Done.")
    });
    let id = hall.commissions.create(commission("lore"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::Completed).await;
    assert_eq!(git(&world.project("demo"), &["show", "claude/main:.lore/specs/plan.md"]), "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_waits_for_the_session_and_keeps_the_branch() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    world.workers.hold(true);
    let id = hall.commissions.create(commission("long"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::InProgress).await;
    let dir = world.home().join("worktrees/demo").join(id.as_str());
    write(&dir, ".lore/so-far.md", "so far\n");
    hall.commissions.cancel(id.as_str(), Some("Not needed"), &Requester::User).await.unwrap();
    assert_eq!(timeline(&hall, &id).await.last().unwrap(), "status_cancelled: Not needed");
    assert!(!dir.exists());
    let project = world.project("demo");
    assert_eq!(git(&project, &["show", &format!("claude/commission/{id}:.lore/so-far.md")]), "so far");
    let again = hall.commissions.cancel(id.as_str(), None, &Requester::User).await.unwrap_err();
    assert_eq!(again.to_string(), format!("Cannot cancel commission \"{id}\": current state is \"cancelled\""));

    let idle = hall.commissions.create(commission("idle"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.cancel(idle.as_str(), None, &Requester::User).await.unwrap();
    assert_eq!(timeline(&hall, &idle).await.last().unwrap(), "status_cancelled: Commission cancelled by user");
    hall.commissions.abandon(idle.as_str(), "Nobody wants it", &Requester::User).await.unwrap();
    assert_eq!(status(&hall, &idle).await, CommissionStatus::Abandoned);
    assert!(matches!(hall.commissions.redispatch(idle.as_str()).await, Err(OperationError::Conflict(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_not_begun_can_be_changed_and_what_runs_cannot() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    world.workers.hold(true);
    let id = hall.commissions.create(commission("first"), &Requester::User).await.unwrap().commission_id;
    let changes = CommissionChanges { prompt: Some("Do it well".to_owned()), ..CommissionChanges::default() };
    hall.commissions.update(changing(id.as_str(), changes.clone())).await.unwrap();
    hall.commissions.note(id.as_str(), "mind $' and \\ and \"q\"\n---\n", &Requester::User).await.unwrap();
    let detail = hall.commissions.read(id.as_str(), None).await.unwrap();
    assert_eq!(detail.commission.prompt, "Do it well");
    assert_eq!(record::read(&detail.raw_content).record.activity_timeline, detail.timeline);
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::InProgress).await;
    // A note to a running one stands in its own worktree, and is merged with it.
    hall.commissions.note(id.as_str(), "hurry", &Requester::User).await.unwrap();
    let refused = hall.commissions.update(changing(id.as_str(), changes)).await.unwrap_err().to_string();
    assert!(refused.contains("Cancel it, update it, and re-dispatch it"), "{refused}");
    assert!(
        hall.commissions
            .abandon(id.as_str(), "no", &Requester::User)
            .await
            .unwrap_err()
            .to_string()
            .contains("Cancel it first.")
    );
    world.workers.hold(false);
    until(&hall, &id, CommissionStatus::Completed).await;
    let text = git(&world.project("demo"), &["show", &format!("claude/main:.lore/work/commissions/{id}.md")]);
    assert!(text.contains("reason: \"hurry\""), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_refuses_fails_the_commission_and_a_busy_host_is_waited_for() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    world.workers.refusals.lock().unwrap().push(NotBegun::Refused("the toolbox mail is missing".to_owned()));
    let id = hall.commissions.create(commission("refused"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::Failed).await;
    assert_eq!(timeline(&hall, &id).await.last().unwrap(), "status_failed: the toolbox mail is missing");
    world.workers.refusals.lock().unwrap().push(NotBegun::Busy("full".to_owned()));
    hall.commissions.redispatch(id.as_str()).await.unwrap();
    until(&hall, &id, CommissionStatus::Completed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_and_nothing_is_made() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let with = |change: fn(&mut NewCommission)| {
        let mut new = commission("x");
        change(&mut new);
        new
    };
    for (new, expected) in [
        (with(|new| new.title = " ".to_owned()), "Missing required field: title"),
        (with(|new| new.prompt.clear()), "Missing required field: prompt"),
        (with(|new| new.project_name = "other".to_owned()), "Project not found: other"),
        (
            with(|new| new.worker_name = "Nobody".to_owned()),
            "Worker \"Nobody\" not found in discovered packages; there are Dalton",
        ),
        (with(|new| new.resource_overrides.max_turns = Some(0)), "resourceOverrides: maxTurns must be at least 1"),
        (with(|new| new.resource_overrides.max_budget_usd = Some(f64::NAN)), "resourceOverrides: maxBudgetUsd must be"),
        (with(|new| new.dependencies = vec!["x".to_owned(); 257]), "dependencies has 257 items"),
    ] {
        let error = hall.commissions.create(new, &Requester::User).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(crate::support::ids(&hall).await.is_empty());
    for id in ["commission-x", "../../etc/passwd", ""] {
        assert!(
            matches!(hall.commissions.dispatch(id, &Requester::User).await, Err(OperationError::NotFound(_))),
            "{id}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_not_committed_are_named_in_the_timeline() {
    let world = World::new(Scripted::new(|attempt| {
        write(&attempt.worktree, "build/out.txt", "built\n");
        for n in 0..30 {
            write(&attempt.worktree, &format!("{n:02}.log"), "log\n");
        }
        done("Built.\n")
    }));
    *world.workers.checkout.lock().unwrap() = Checkout::Full;
    write(&world.project("demo"), ".gitignore", "build/\n*.log\n");
    git(&world.project("demo"), &["add", "--all"]);
    git(&world.project("demo"), &["commit", "--quiet", "--message=Rules"]);
    let hall = world.hall().await;
    let id = hall.commissions.create(commission("Build"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::Completed).await;
    let lines = timeline(&hall, &id).await;
    let named: Vec<_> = lines.iter().filter(|line| line.starts_with("not_committed: ")).collect();
    assert!(
        matches!(*named, [line] if line.contains("build/, ") | line.contains("00.log") && line.ends_with("and 11 more")),
        "{lines:#?}"
    );
    let record = git(&world.project("demo"), &["show", &format!("claude/main:.lore/work/commissions/{id}.md")]);
    assert!(record.contains("not_committed"), "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_has_no_directory_is_refused_with_what_to_do() {
    let world = World::new(Scripted::writing());
    write(&world.project("demo"), "elsewhere/a.md", "x\n");
    fs::create_dir(world.project("demo").join(".lore/work")).unwrap();
    std::os::unix::fs::symlink("../../elsewhere", world.project("demo").join(".lore/work/commissions")).unwrap();
    git(&world.project("demo"), &["add", "--all"]);
    git(&world.project("demo"), &["commit", "--quiet", "--message=Link"]);
    let hall = world.hall().await;
    let refused = hall.commissions.create(commission("Link"), &Requester::User).await.unwrap_err();
    assert!(
        matches!(&refused, OperationError::Conflict(why) if why.contains(".lore/work/commissions and its parents have \
            to be directories")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_stores_too_much_leaves_room_for_other_callers() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let large = || NewCommission { prompt: "x".repeat(1 << 20), ..commission("large") };
    let refused = loop {
        if let Err(why) = with_token(Some("ci".to_owned()), hall.commissions.create(large(), &Requester::User)).await {
            break why.to_string();
        }
    };
    assert!(refused.contains("that count for the token ci") && refused.contains("delete"), "{refused}");
    assert!(with_token(Some("ann".to_owned()), hall.commissions.create(large(), &Requester::User)).await.is_ok());
    assert!(hall.commissions.create(large(), &Requester::User).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn overrides_above_what_the_operator_allows_are_cut_and_a_model_that_cannot_run_is_refused() {
    let world = World::new(Scripted::writing());
    world.workers.most_turns.store(50, Ordering::Relaxed);
    let hall = world.hall().await;
    let turns = |turns: u32| Overrides { max_turns: Some(turns), ..Overrides::default() };
    let cut = "maxTurns 900 is cut to 50";
    let made = hall
        .commissions
        .create(NewCommission { resource_overrides: turns(900), ..commission("long") }, &Requester::User)
        .await
        .unwrap();
    let id = made.commission_id;
    assert_eq!(made.cut, [cut]);
    assert_eq!(timeline(&hall, &id).await, ["created: Commission created".to_owned(), format!("overrides_cut: {cut}")]);
    let read = async || hall.commissions.read(id.as_str(), None).await.unwrap().commission.resource_overrides.max_turns;
    assert_eq!(read().await, Some(50));
    let changes = |overrides: Overrides| CommissionChanges {
        resource_overrides: Some(overrides),
        ..CommissionChanges::default()
    };
    assert_eq!(
        hall.commissions.update(changing(id.as_str(), changes(turns(20)))).await.unwrap().cut,
        Vec::<String>::new()
    );
    assert_eq!(hall.commissions.update(changing(id.as_str(), changes(turns(900)))).await.unwrap().cut, [cut]);

    // The operator allows less by the time it begins.
    world.workers.most_turns.store(10, Ordering::Relaxed);
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::Completed).await;
    let happened = timeline(&hall, &id).await;
    assert!(happened.contains(&"overrides_cut: maxTurns 50 is cut to 10".to_owned()), "{happened:?}");

    let absent = Overrides { model: Some("absent".to_owned()), ..Overrides::default() };
    let refused = hall
        .commissions
        .create(NewCommission { resource_overrides: absent.clone(), ..commission("x") }, &Requester::User)
        .await
        .unwrap_err();
    let why = "resourceOverrides.model: \"absent\" cannot run here";
    assert_eq!(refused, OperationError::Invalid(why.to_owned()));
    let other = hall.commissions.create(commission("y"), &Requester::User).await.unwrap().commission_id;
    assert_eq!(hall.commissions.update(changing(other.as_str(), changes(absent))).await.unwrap_err().to_string(), why);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeline_says_that_a_job_is_held_back() {
    let world = World::new(Scripted::writing());
    *world.workers.held_back.lock().unwrap() = Some("its job is held back; `guild resume` lets it on".to_owned());
    let hall = world.hall().await;
    let id = hall.commissions.create(commission("x"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(&hall, &id, CommissionStatus::Completed).await;
    let happened = timeline(&hall, &id).await;
    let said = "held_back: its job is held back; `guild resume` lets it on";
    assert_eq!(happened.iter().filter(|entry| *entry == said).count(), 1, "{happened:?}");
}
