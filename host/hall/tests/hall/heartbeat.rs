//! Standing orders: a tick has the manager carry them out, and sessions add to them.

use std::sync::atomic::Ordering;

use guild_contract::{
    Grants, OperationError,
    capability::{base_toolbox::BaseToolbox, grants::Verdict},
    hall::{CommissionStatus, DispatchStatus, HeartbeatStatus},
};
use guild_hall::{Requester, Worker, manager::ManagerTools};
use guild_session::tools::{ToolCall, Tools as _};
use serde_json::json;

use crate::{
    meetings::{attempt, heard, names, tools as tools_of, with_dalton},
    support::{Scripted, World, commission, git, status, until},
};

const PROJECT: &str = "demo";
const ORDERS: &str = "## Standing Orders\n- Review what Dalton did\n## Context Notes\n- Freeze until May\n";

async fn heartbeat(hall: &guild_hall::Hall) -> HeartbeatStatus {
    hall.commissions.heartbeat(PROJECT).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_commissions_the_manager_with_the_standing_orders_once_at_a_time() {
    let world = World::new(Scripted::writing());
    world.workers.hold(true);
    let hall = world.hall().await;
    let refused = async || match hall.commissions.tick(PROJECT).await.unwrap_err() {
        OperationError::Conflict(why) => why,
        other => panic!("{other}"),
    };
    assert!(refused().await.contains("no standing orders: write them into .lore/heartbeat.md"));
    hall.documents
        .write(PROJECT, "heartbeat.md", "## Standing Orders\n\n## Recent Activity\n- x\n".to_owned())
        .await
        .unwrap();
    assert!(refused().await.contains("no standing orders"));
    hall.documents.write(PROJECT, "heartbeat.md", ORDERS.to_owned()).await.unwrap();
    assert!(refused().await.contains("this hall has none in service"));
    world.workers.manages.store(true, Ordering::Relaxed);

    let (one, other) = tokio::join!(hall.commissions.tick(PROJECT), hall.commissions.tick(PROJECT));
    let (ticked, refused_twice) = match (one, other) {
        (Ok(ticked), Err(why)) | (Err(why), Ok(ticked)) => (ticked, why.to_string()),
        other => panic!("{other:?}"),
    };
    assert!(ticked.triggered && ticked.status == DispatchStatus::Accepted, "{ticked:?}");
    let id = ticked.commission_id;
    assert!(
        refused_twice.contains("the last tick is not over") && refused_twice.contains(id.as_str()),
        "{refused_twice}"
    );
    until(&hall, &id, CommissionStatus::InProgress).await;
    let made = hall.commissions.read(id.as_str(), None).await.unwrap().commission;
    assert_eq!(
        (made.title.as_str(), made.source.unwrap().description.as_str()),
        ("Commission: Heartbeat", "Heartbeat")
    );
    assert!(
        made.prompt.ends_with(ORDERS) && made.prompt.contains("Create no commission for them alone"),
        "{}",
        made.prompt
    );

    // What the manager makes of it is counted.
    let attempt = hall.attempt_of(&made.job.unwrap()).unwrap();
    let tools = ManagerTools::new(hall.clone(), attempt.job.clone(), Some(attempt));
    let input = json!({"title": "Review", "workerName": "Dalton", "prompt": "Review it", "dispatch": false});
    tools.call(ToolCall { id: "1".to_owned(), name: "create_commission".to_owned(), input }).await.unwrap();
    let now = heartbeat(&hall).await;
    assert_eq!((now.standing_order_count, now.has_content, now.commissions_created_last_tick), (1, true, 1));
    assert!(now.last_tick.unwrap() > 1_700_000_000_000 && now.interval_minutes.is_none(), "{now:?}");

    // It is a commission as any other, and the next tick makes another.
    hall.commissions.cancel(id.as_str(), None, &Requester::User).await.unwrap();
    assert_eq!(status(&hall, &id).await, CommissionStatus::Cancelled);
    let next = hall.commissions.tick(PROJECT).await.unwrap();
    assert_ne!(next.commission_id, id);
    assert_eq!(heartbeat(&hall).await.commissions_created_last_tick, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_dispatches_the_commission_that_the_last_tick_could_not() {
    let world = World::new(Scripted::writing());
    world.workers.manages.store(true, Ordering::Relaxed);
    let hall = world.hall().await;
    hall.documents.write(PROJECT, "heartbeat.md", ORDERS.to_owned()).await.unwrap();
    // As a host that ended before the dispatch leaves it.
    let new = commission("Heartbeat");
    let left = hall.commissions.create(new, &Requester::StandingOrders).await.unwrap().commission_id;
    let ticked = hall.commissions.tick(PROJECT).await.unwrap();
    assert_eq!(ticked.commission_id, left);
    until(&hall, &left, CommissionStatus::Completed).await;
    let prompt = hall.commissions.read(left.as_str(), None).await.unwrap().commission.prompt;
    assert!(prompt.ends_with(ORDERS), "{prompt}");
    assert_ne!(hall.commissions.tick(PROJECT).await.unwrap().commission_id, left);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_names_a_heartbeat_file_that_is_too_long() {
    let world = World::new(Scripted::writing());
    world.workers.manages.store(true, Ordering::Relaxed);
    let hall = world.hall().await;
    let tick = async |more: usize| {
        let text = format!("{ORDERS}{}", "x".repeat(64 * 1024 + more - ORDERS.len()));
        hall.documents.write(PROJECT, "heartbeat.md", text).await.unwrap();
        hall.commissions.tick(PROJECT).await.map_err(|e| e.to_string())
    };
    let refused = tick(1).await.unwrap_err();
    assert!(refused.contains(".lore/heartbeat.md has 65537 bytes, more than the 65536"), "{refused}");
    tick(0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_looks_at_its_project_and_adds_to_its_heartbeat_where_that_is_granted() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let (id, turn) = hall.meetings.open(with_dalton("Which tides?")).await.unwrap();
    heard(turn).await;
    let attempt = attempt(&hall, id.as_str()).await;
    let (base, requested) =
        (BaseToolbox::of(["lore:write", "memory:project:write"]), [("hall:read".to_owned(), Verdict::Granted)].into());
    let tools = tools_of(&world, &hall, &attempt, Grants { base, requested, ..Grants::default() }).await;
    let call = async |name: &str, input| {
        let call = ToolCall { id: format!("{name} {input}"), name: name.to_owned(), input };
        tools.call(call).await.map_err(|e| e.to_string())
    };
    assert_eq!(call("project_briefing", json!({})).await.unwrap(), "Meetings: 1 open.");
    let workers = call("list_guild_capabilities", json!({})).await.unwrap();
    assert_eq!(workers, "Dalton (Guild Artificer) - Looks things up");
    let twin = Worker { key: "twin".parse().unwrap(), ..hall.all_workers().remove(0) };
    world.workers.others.lock().unwrap().push(twin);
    let workers = call("list_guild_capabilities", json!({})).await.unwrap();
    let lines = "twin (Guild Artificer) - Looks things up\nresearcher (Guild Artificer) - Looks things up";
    assert_eq!(workers, lines, "a name that two workers have is nobody's");
    let add = async |prompt: &str, section: &str| {
        call("add_heartbeat_entry", json!({"prompt": prompt, "section": section})).await
    };
    add("Review\neach  chapter", "Standing Orders").await.unwrap();
    // The same again is one entry.
    add("Review each chapter", "Standing Orders").await.unwrap();
    add("Freeze", "Context Notes").await.unwrap();
    assert_eq!(heartbeat(&hall).await.standing_order_count, 1);
    let file = git(&world.project(PROJECT), &["show", "claude/main:.lore/heartbeat.md"]);
    assert!(
        file.contains("## Standing Orders\n- Review each chapter\n") && file.contains("## Context Notes\n- Freeze\n"),
        "{file}"
    );
    let log = git(&world.project(PROJECT), &["log", "-2", "--format=%s", "claude/main"]);
    assert_eq!(log, format!("Add a heartbeat entry of {id}\nAdd a heartbeat entry of {id}"));
    for (prompt, section) in [(" ", "Watch Items"), ("x", "Recent Activity"), (&"x".repeat(2001), "Watch Items")] {
        assert!(add(prompt, section).await.is_err(), "{section}");
    }
    hall.documents.write(PROJECT, "heartbeat.md", "x".repeat(64 * 1024)).await.unwrap();
    let full = add("Review", "Standing Orders").await.unwrap_err();
    assert!(full.contains(".lore/heartbeat.md has 655"), "{full}");
    let path = world.integration(PROJECT).join(".lore/heartbeat.md");
    std::fs::write(&path, b"## Watch Items\n\xff\n").unwrap();
    let refused = add("Review", "Standing Orders").await.unwrap_err();
    assert!(refused.contains(".lore/heartbeat.md is not UTF-8"), "{refused}");
    let without = names(&tools_of(&world, &hall, &attempt, Grants::default()).await);
    for name in ["project_briefing", "list_guild_capabilities", "add_heartbeat_entry"] {
        assert!(!without.contains(&name.to_owned()), "{without:?}");
    }
    // Without the rule for a project's notes, which the manager is told as well, no entry is added.
    let base = BaseToolbox::of(["lore:write"]);
    let without = names(&tools_of(&world, &hall, &attempt, Grants { base, ..Grants::default() }).await);
    assert!(without.contains(&"write_artifact".to_owned()) && !without.contains(&"add_heartbeat_entry".to_owned()));
}
