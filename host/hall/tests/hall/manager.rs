//! The manager's tools, on a real hall, and what it is told of that.

use std::{fs, sync::Arc, time::Duration};

use guild_contract::{
    Delegation,
    hall::{Author, CommissionChanges, CommissionFilter, CommissionId, CommissionStatus, MeetingStatus, NewCommission},
};
use guild_hall::{Attempt, Hall, Permit, Requester, hall::HallReader, manager::ManagerTools};
use guild_session::{
    hall::HallView as _,
    tools::{ToolCall, ToolError, Tools as _},
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    projects::hanging_git,
    support::{Scripted, World, changing, commission, ids, status, timeline, until, write},
};

/// The manager, at work on a commission of the project `demo`.
struct Manager {
    hall: Arc<Hall>,
    attempt: Attempt,
    tools: ManagerTools,
}

impl Manager {
    async fn of(world: &World) -> Self {
        world.workers.hold(true);
        let hall = world.hall().await;
        let own = hall.commissions.create(commission("manage"), &Requester::User).await.unwrap().commission_id;
        hall.commissions.dispatch(own.as_str(), &Requester::User).await.unwrap();
        until(&hall, &own, CommissionStatus::InProgress).await;
        let job = hall.commissions.read(own.as_str(), None).await.unwrap().commission.job.unwrap();
        Self::with(hall, &job)
    }

    fn with(hall: Arc<Hall>, job: &str) -> Self {
        let attempt = hall.attempt_of(job).unwrap();
        let tools = ManagerTools::new(hall.clone(), attempt.job.clone(), Some(attempt.clone()));
        Self { hall, attempt, tools }
    }

    async fn call(&self, id: &str, name: &str, input: Value) -> Result<Value, ToolError> {
        self.tools.call(ToolCall { id: id.to_owned(), name: name.to_owned(), input }).await
    }

    async fn does(&self, id: &str, name: &str, input: Value) -> Value {
        self.call(id, name, input).await.unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    async fn refused(&self, name: &str, input: Value) -> String {
        self.call("refused", name, input).await.unwrap_err().to_string()
    }

    /// Has a commission made that is not dispatched.
    async fn makes(&self, id: &str, title: &str) -> CommissionId {
        let input = json!({"title": title, "workerName": "Dalton", "prompt": "Do it", "dispatch": false});
        let made = self.does(id, "create_commission", input).await;
        assert_eq!(made["status"], "pending");
        made["commissionId"].as_str().unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn it_makes_dispatches_and_notes_commissions_that_show_it_as_their_author() {
    let world = World::new(Scripted::writing());
    let manager = Manager::of(&world).await;
    let input =
        json!({"title": "index", "workerName": "Dalton", "prompt": "Index it", "resourceOverrides": {"maxTurns": 7}});
    let made = manager.does("1", "create_commission", input).await;
    assert_eq!(made["status"], "accepted");
    let id: CommissionId = made["commissionId"].as_str().unwrap().parse().unwrap();
    until(&manager.hall, &id, CommissionStatus::InProgress).await;
    let later = json!({"title": "check", "workerName": "Dalton", "prompt": "p", "dependencies": [id]});
    let later = manager.does("2", "create_commission", later).await;
    assert_eq!(later["status"], "queued");
    assert!(later["reason"].as_str().unwrap().contains(id.as_str()), "{later}");
    manager.does("3", "add_commission_note", json!({"commissionId": id, "content": "Mind the gap"})).await;

    let read = manager.hall.commissions.read(id.as_str(), None).await.unwrap();
    let shown = serde_json::to_value(&read.commission).unwrap();
    assert_eq!((&shown["createdBy"], &shown["source"]["description"]), (&json!("manager"), &json!("The manager")));
    assert!(read.raw_content.contains("source:\n  description: \"The manager\""), "{}", read.raw_content);
    assert!(timeline(&manager.hall, &id).await.contains(&"manager_note: Mind the gap".to_owned()));

    let one = manager.does("4", "check_commission_status", json!({"commissionId": id})).await;
    assert_eq!(
        (&one["status"], &one["createdBy"], &one["prompt"]),
        (&json!("in_progress"), &json!("manager"), &json!("Index it"))
    );
    let all = manager.does("5", "check_commission_status", json!({})).await;
    assert_eq!(all["summary"], json!({"pending": 1, "active": 2, "completed": 0, "failed": 0, "total": 3}));
    let authors: Vec<_> =
        all["commissions"].as_array().unwrap().iter().map(|one| one["createdBy"].as_str().unwrap()).collect();
    assert_eq!(authors.iter().filter(|author| **author == "manager").count(), 2, "{all}");

    // The user reviews: all of it can be changed, and ended, at any time.
    let later = later["commissionId"].as_str().unwrap();
    let changes = CommissionChanges { prompt: Some("Check half of it".to_owned()), ..CommissionChanges::default() };
    manager.hall.commissions.update(changing(later, changes)).await.unwrap();
    manager.hall.commissions.cancel(later, None, &Requester::User).await.unwrap();
    let changes = CommissionChanges { prompt: Some("Index half of it".to_owned()), ..CommissionChanges::default() };
    let refused =
        manager.hall.commissions.update(changing(id.as_str(), changes.clone())).await.unwrap_err().to_string();
    assert!(refused.contains("Cancel it, update it, and re-dispatch it"), "{refused}");
    manager.hall.commissions.cancel(id.as_str(), Some("Not now"), &Requester::User).await.unwrap();
    assert_eq!(status(&manager.hall, &id).await, CommissionStatus::Cancelled);
    manager.hall.commissions.update(changing(id.as_str(), changes)).await.unwrap();
    manager.hall.commissions.redispatch(id.as_str()).await.unwrap();
    until(&manager.hall, &id, CommissionStatus::InProgress).await;
    let again = manager.hall.commissions.read(id.as_str(), None).await.unwrap().commission;
    assert_eq!(again.prompt, "Index half of it");
}

/// The id of a commission that the manager has made and dispatched, once its worker is at work on it.
async fn at_work(manager: &Manager, id: &str) -> CommissionId {
    let made = manager.makes(id, "deeper").await;
    manager.does(&format!("{id} dispatch"), "dispatch_commission", json!({"commissionId": made})).await;
    until(&manager.hall, &made, CommissionStatus::InProgress).await;
    made
}

async fn manager_at(hall: &Arc<Hall>, id: &CommissionId) -> Manager {
    let job = hall.commissions.read(id.as_str(), None).await.unwrap().commission.job.unwrap();
    Manager::with(hall.clone(), &job)
}

fn new(title: &str) -> Value {
    json!({"title": title, "workerName": "Dalton", "prompt": "Do it", "dispatch": false})
}

#[tokio::test]
async fn commissions_of_commissions_count_together_and_go_so_deep() {
    let world = World::new(Scripted::writing());
    let manager = Manager::of(&world).await;
    let hall = manager.hall.clone();
    hall.set_delegation(Delegation { depth: 2, commissions: 3, ..Delegation::default() });
    let first = at_work(&manager, "1").await;
    let below = manager_at(&hall, &first).await;
    let second = at_work(&below, "2").await;
    let refused = manager_at(&hall, &second).await.refused("create_commission", new("too deep")).await;
    assert!(refused.contains("2 deep") && refused.contains("hall.delegation_depth"), "{refused}");
    let said: Vec<_> = timeline(&hall, &second).await;
    assert!(said.last().unwrap().starts_with("delegation_refused: The manager was refused a commission"), "{said:?}");

    // The third one is the last, whoever makes it, and however often it is asked for.
    below.makes("3", "third").await;
    for by in [&manager, &below] {
        for _ in 0..3 {
            let refused = by.refused("create_commission", new("fourth")).await;
            assert!(refused.contains("3 commissions") && refused.contains("hall.delegation_commissions"), "{refused}");
        }
        let own: CommissionId = by.attempt.activity.id().parse().unwrap();
        let said = timeline(&hall, &own).await;
        assert_eq!(said.iter().filter(|entry| entry.starts_with("delegation_refused")).count(), 1, "{said:?}");
    }
    // The user's own begin anew.
    let own = hall.commissions.create(commission("another"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(own.as_str(), &Requester::User).await.unwrap();
    assert_eq!(ids(&hall).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_whose_git_hangs_keeps_no_manager_from_another() {
    let mut world = World::new(Scripted::writing());
    world.add("slow");
    world.git = Some(hanging_git(&world));
    let manager = Manager::of(&world).await;
    let by = Requester::Manager { activity: manager.attempt.activity.clone(), call: "slow".to_owned() };
    let slow = NewCommission { project_name: "slow".to_owned(), ..commission("slow") };
    let hanging = {
        let hall = manager.hall.clone();
        tokio::spawn(async move { hall.commissions.create(slow, &by).await })
    };
    let hangs = async {
        while !world.root().join("hangs").exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), hangs).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), manager.makes("1", "quick")).await.unwrap();
    assert!(!hanging.is_finished());
    hanging.abort();
}

#[test]
fn the_dollars_of_what_the_manager_makes_are_counted_together_also_after_a_restart() {
    let world = World::new(Scripted::writing());
    let host = || Runtime::new().unwrap();
    let runtime = host();
    let costly = |usd: f64| {
        let mut new = new("costly");
        new["resourceOverrides"] = json!({"maxBudgetUsd": usd});
        new
    };
    let (job, first) = runtime.block_on(async {
        let manager = Manager::of(&world).await;
        manager.hall.set_delegation(Delegation { budget_usd: 10.0, ..Delegation::default() });
        let first = manager.does("1", "create_commission", costly(4.0)).await["commissionId"].clone();
        manager.does("2", "create_commission", costly(4.0)).await;
        let refused = manager.refused("create_commission", costly(2.5)).await;
        assert!(refused.contains("8.00 of 10.00") && refused.contains("hall.delegation_budget_usd"), "{refused}");
        (manager.attempt.job.to_string(), first)
    });
    runtime.shutdown_timeout(Duration::from_secs(10));
    let runtime = host();
    runtime.block_on(async {
        let manager = Manager::with(world.hall().await, &job);
        manager.hall.set_delegation(Delegation { budget_usd: 10.0, ..Delegation::default() });
        assert!(manager.refused("create_commission", costly(2.5)).await.contains("hall.delegation_budget_usd"));
        // What is given up spends nothing any more.
        let first = first.as_str().unwrap();
        manager.does("3", "abandon_commission", json!({"commissionId": first, "reason": "no"})).await;
        manager.does("4", "create_commission", costly(2.5)).await;
    });
    runtime.shutdown_timeout(Duration::from_secs(10));
}

#[test]
fn a_call_that_comes_again_after_a_crash_has_its_effect_once() {
    let world = World::new(Scripted::writing());
    // A host, whose work ends with it.
    let host = || Runtime::new().unwrap();
    let end = |host: Runtime| host.shutdown_timeout(Duration::from_secs(10));
    let mut runtime = host();
    let mut manager = runtime.block_on(Manager::of(&world));
    let job = manager.attempt.job.to_string();
    let (mut before, mut made) = (None, Vec::new());
    for _ in 0..3 {
        runtime.block_on(async {
            let (ends, waits) = (manager.makes("1", "ends").await, manager.makes("2", "waits").await);
            let at_once = json!({"title": "at once", "workerName": "Dalton", "prompt": "p"});
            made.push(manager.does("3", "create_commission", at_once).await["commissionId"].clone());
            manager.does("4", "add_commission_note", json!({"commissionId": ends, "content": "once"})).await;
            manager.does("5", "dispatch_commission", json!({"commissionId": ends})).await;
            manager.does("6", "cancel_commission", json!({"commissionId": ends})).await;
            manager.does("7", "abandon_commission", json!({"commissionId": waits, "reason": "done elsewhere"})).await;
            assert!(before.replace((ends.clone(), waits.clone())).is_none_or(|before| before == (ends, waits)));
        });
        drop(manager);
        end(runtime);
        runtime = host();
        manager = Manager::with(runtime.block_on(world.hall()), &job);
    }
    let (ends, waits) = before.unwrap();
    made.dedup();
    runtime.block_on(async {
        assert_eq!((made.len(), ids(&manager.hall).await.len()), (1, 4));
        let told = timeline(&manager.hall, &ends).await;
        let count = |event: &str| told.iter().filter(|entry| entry.starts_with(event)).count();
        assert_eq!(
            (count("manager_note"), count("status_dispatched"), count("status_cancelled")),
            (1, 1, 1),
            "{told:?}"
        );
        assert_eq!(status(&manager.hall, &waits).await, CommissionStatus::Abandoned);
        // Another call is another note, of the same words too.
        manager.does("8", "add_commission_note", json!({"commissionId": ends, "content": "once"})).await;
        let told = timeline(&manager.hall, &ends).await;
        assert_eq!(told.iter().filter(|entry| entry.starts_with("manager_note")).count(), 2);
    });
    drop(manager);
    end(runtime);
}

#[tokio::test]
async fn it_works_on_the_project_of_its_activity_only_and_says_so() {
    let world = World::new(Scripted::writing());
    world.add("other");
    let manager = Manager::of(&world).await;
    let foreign = manager
        .hall
        .commissions
        .create(NewCommission { project_name: "other".to_owned(), ..commission("x") }, &Requester::User)
        .await
        .unwrap()
        .commission_id;
    for (tool, more) in [
        ("dispatch_commission", json!({})),
        ("cancel_commission", json!({})),
        ("abandon_commission", json!({"reason": "r"})),
        ("add_commission_note", json!({"content": "c"})),
        ("check_commission_status", json!({})),
    ] {
        let mut input = more;
        input["commissionId"] = json!(foreign);
        let why = manager.refused(tool, input).await;
        assert!(why.contains("belongs to project \"other\", and you work only on \"demo\""), "{tool}: {why}");
    }
    assert_eq!(status(&manager.hall, &foreign).await, CommissionStatus::Pending);
    let listed = manager.does("1", "check_commission_status", json!({})).await;
    assert_eq!(listed["summary"]["total"], 1, "{listed}");
    let nobody = json!({"title": "t", "workerName": "Nobody", "prompt": "p"});
    assert!(manager.refused("create_commission", nobody).await.contains("there are Dalton"));
    let unknown =
        manager.refused("cancel_commission", json!({"commissionId": "commission-Dalton-20200101-000000"})).await;
    assert!(unknown.contains("not found"), "{unknown}");
}

#[tokio::test]
async fn it_asks_the_user_for_a_meeting_once_however_often_the_call_comes() {
    let world = World::new(Scripted::writing());
    let manager = Manager::of(&world).await;
    let input =
        json!({"workerName": "Dalton", "reason": "The index is done", "referencedArtifacts": ["specs/plan.md"]});
    let asked = manager.does("1", "initiate_meeting", input.clone()).await;
    assert_eq!(asked["status"], "requested");
    assert_eq!(manager.does("1", "initiate_meeting", input.clone()).await, asked);
    assert_ne!(manager.does("2", "initiate_meeting", input).await, asked);
    let requests = manager.hall.meetings.list(Some("demo"), &[MeetingStatus::Requested]).await.unwrap();
    let shown = serde_json::to_value(&requests.items).unwrap();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|one| one.agenda == "The index is done" && one.linked_artifacts == ["specs/plan.md"]));
    assert_eq!(shown[0]["createdBy"], "manager");
    let told = manager.hall.brief(Some("demo")).await.unwrap();
    assert!(told.contains("## Meetings") && told.contains("is requested (Dalton)"), "{told}");
    let why = manager.refused("initiate_meeting", json!({"workerName": "Nobody", "reason": "x"})).await;
    assert!(why.contains("Nobody") && why.contains("Dalton"), "{why}");
    let seen = HallReader(manager.hall.clone()).meetings(Some("demo")).await.unwrap();
    assert_eq!((seen.len(), seen[0].status.as_str(), seen[0].agenda.as_str()), (2, "requested", "The index is done"));
}

#[tokio::test]
async fn it_looks_at_its_project_with_git_and_a_pull_request_needs_the_operator() {
    let world = World::new(Scripted::writing());
    let manager = Manager::of(&world).await;
    let log = manager.does("1", "git_log", json!({"count": 1})).await;
    assert_eq!(log.as_array().unwrap().len(), 1);
    let branches = manager.does("2", "git_branch", json!({})).await.to_string();
    assert!(branches.contains("claude/main"), "{branches}");
    assert!(manager.does("3", "git_show", json!({"ref": "HEAD"})).await["hash"].is_string());
    manager.does("4", "git_status", json!({})).await;
    assert!(manager.does("5", "git_diff", json!({})).await.is_string());
    let why = manager.refused("git_show", json!({"ref": "--output=/tmp/x"})).await;
    assert!(why.contains("--output"), "{why}");
    let why = manager.refused("create_pr", json!({"title": "Ready"})).await;
    assert!(why.contains("does not permit pull requests") && why.contains("guild.toml"), "{why}");
    let plain = ManagerTools::new(manager.hall.clone(), manager.attempt.job.clone(), None);
    let call = ToolCall { id: "1".to_owned(), name: "git_log".to_owned(), input: json!({}) };
    assert!(plain.call(call).await.unwrap_err().to_string().contains("works on the project"));
}

#[tokio::test]
async fn what_it_does_with_a_commission_of_the_users_says_that_it_did_it() {
    let world = World::new(Scripted::writing());
    let manager = Manager::of(&world).await;
    let (begun, left) = (
        manager.hall.commissions.create(commission("begin"), &Requester::User).await.unwrap().commission_id,
        manager.hall.commissions.create(commission("leave"), &Requester::User).await.unwrap().commission_id,
    );
    manager.does("1", "dispatch_commission", json!({"commissionId": begun})).await;
    let told = timeline(&manager.hall, &begun).await;
    assert!(told.contains(&"dispatch_asked: The manager dispatched it".to_owned()), "{told:?}");
    manager.does("2", "abandon_commission", json!({"commissionId": left, "reason": "It is done elsewhere"})).await;
    let told = timeline(&manager.hall, &left).await;
    assert_eq!(told.last().unwrap(), "status_abandoned: Abandoned by the manager: It is done elsewhere");
}

#[tokio::test]
async fn what_it_is_told_names_no_path_of_the_host_and_users_see_them() {
    let world = World::new(Scripted::writing());
    world.add("other");
    let manager = Manager::of(&world).await;
    let root = world.root().display().to_string();
    let without_paths = |told: &str, part: &str| assert!(!told.contains(&root) && told.contains(part), "{told}");
    manager.hall.permit(vec![Permit { path: world.project("demo"), push: true, pull_requests: true }]);
    let told = manager.refused("create_pr", json!({"title": "Ready"})).await;
    without_paths(&told, "<directory of demo> has no remote `origin`");
    let asking = Some(manager.attempt.activity.id());
    let seen = manager.hall.projects.create_pull_request("demo", "Ready", "", asking).await.unwrap_err().to_string();
    assert!(seen.contains(&root), "{seen}");
    let brief = manager.hall.brief(Some("demo")).await.unwrap();
    without_paths(&brief, "guild.toml has no [[project]] with path = \"<directory of other>\"");

    let fails = manager.makes("1", "fails").await;
    let calls = [
        ("create_commission", json!({"title": "t", "workerName": "Dalton", "prompt": "p"})),
        ("initiate_meeting", json!({"workerName": "Dalton", "reason": "r"})),
        ("create_pr", json!({"title": "Ready"})),
        ("git_status", json!({})),
    ];
    manager.hall.permit(Vec::new());
    for (tool, input) in calls.clone() {
        without_paths(&manager.refused(tool, input).await, "run `guild project add <directory of demo>`");
    }
    manager.does("2", "dispatch_commission", json!({"commissionId": fails})).await;
    until(&manager.hall, &fails, CommissionStatus::Failed).await;
    let told = manager.does("3", "check_commission_status", json!({"commissionId": fails})).await;
    without_paths(&told.to_string(), "run `guild project add <directory of demo>`");

    let plain = world.project("plain");
    write(&world.home(), "config.yaml", &format!("projects:\n  - name: demo\n    path: {}\n", plain.display()));
    fs::create_dir_all(&plain).unwrap();
    manager.hall.permit(vec![Permit { path: plain, ..Permit::default() }]);
    for (tool, input) in calls {
        without_paths(&manager.refused(tool, input).await, "<directory of demo> is not a git repository");
    }
}

#[tokio::test]
async fn it_cannot_end_the_activity_that_it_is_in() {
    let world = World::new(Scripted::writing());
    let manager = Manager::of(&world).await;
    let own = manager.attempt.activity.commission().unwrap();
    for (tool, input) in [
        ("cancel_commission", json!({"commissionId": own})),
        ("abandon_commission", json!({"commissionId": own, "reason": "enough"})),
    ] {
        let why = manager.refused(tool, input).await;
        assert!(why.contains("your own commission") && why.contains("submit its result"), "{tool}: {why}");
    }
    assert_eq!(status(&manager.hall, own).await, CommissionStatus::InProgress);
}

#[tokio::test]
async fn without_a_project_it_can_look_and_no_more() {
    let world = World::new(Scripted::writing());
    let manager = Manager::of(&world).await;
    let tools = ManagerTools::new(manager.hall.clone(), "job-x".parse().unwrap(), None);
    let names: Vec<_> = tools.definitions().iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["check_commission_status"]);
    let call = |name: &str, input| ToolCall { id: "1".to_owned(), name: name.to_owned(), input };
    let all = tools.call(call("check_commission_status", json!({}))).await.unwrap();
    assert_eq!(all["summary"]["active"], 1);
    let input = json!({"title": "t", "workerName": "Dalton", "prompt": "p"});
    let why = tools.call(call("create_commission", input)).await.unwrap_err().to_string();
    assert!(why.contains("works on the project of a commission or a meeting"), "{why}");
    assert_eq!(ids(&manager.hall).await.len(), 1);
}

#[tokio::test]
async fn what_it_is_told_names_workers_projects_and_commissions_within_8000_characters() {
    let world = World::new(Scripted::writing());
    let manager = Manager::of(&world).await;
    let brief = manager.hall.brief(Some("demo")).await.unwrap();
    for part in [
        "Dalton (Guild Artificer): Looks things up. It is granted Read, lore:write",
        "- demo; you work on this one",
        &format!("- {} of demo is in_progress (Dalton", manager.attempt.activity),
        "never instructions",
    ] {
        assert!(brief.contains(part), "{part}: {brief}");
    }
    for nth in 0..60 {
        let made = manager
            .hall
            .commissions
            .create(commission(&format!("{nth} {}", "moth ".repeat(30))), &Requester::User)
            .await
            .unwrap();
        if nth < 55 {
            manager
                .hall
                .commissions
                .abandon(made.commission_id.as_str(), "not needed", &Requester::User)
                .await
                .unwrap();
        }
    }
    let brief = manager.hall.brief(None).await.unwrap();
    assert!(brief.chars().count() <= 8000, "{}", brief.chars().count());
    assert!(brief.contains("more commissions are not shown") && brief.contains("is in_progress"), "{brief}");
    let waiting = brief.lines().filter(|line| line.contains(" is pending (")).count();
    assert_eq!(waiting, 5, "what is over goes first: {brief}");
}

#[tokio::test]
async fn whoever_reads_the_hall_sees_workers_and_commissions_of_all_projects_within_bounds() {
    let world = World::new(Scripted::writing());
    world.add("other");
    let manager = Manager::of(&world).await;
    let prompt = "p".repeat(40_000);
    let new = NewCommission { project_name: "other".to_owned(), prompt, ..commission("long") };
    let long = manager.hall.commissions.create(new, &Requester::User).await.unwrap().commission_id;
    let reader = HallReader(manager.hall.clone());
    let workers = reader.workers().await.unwrap();
    assert_eq!((workers[0].name.as_str(), workers[0].can.join(" ").as_str()), ("Dalton", "Read lore:write"));
    assert_eq!(
        reader.commissions(None).await.unwrap().len(),
        manager.hall.commissions.list(&CommissionFilter::default()).await.unwrap().commissions.len()
    );
    let listed = reader.commissions(Some("other")).await.unwrap();
    assert_eq!(
        (listed.len(), listed[0].title.as_str(), listed[0].prompt.chars().count()),
        (1, "Commission: long", 501)
    );
    let read = reader.commission(long.as_str()).await.unwrap().unwrap();
    assert_eq!((read.prompt.chars().count(), read.created_by, read.status.as_str()), (32_001, Author::User, "pending"));
    assert_eq!(reader.commission("commission-Dalton-20200101-000000").await.unwrap(), None);
    assert!(reader.commissions(Some("nothing")).await.unwrap_err().to_string().contains("not found"));
}
