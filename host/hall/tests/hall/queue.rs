//! What waits for what, and begins when.

use std::fs;

use guild_contract::{
    OperationError,
    hall::{
        CommissionChanges, CommissionDispatched, CommissionFilter, CommissionId, CommissionStatus, DispatchStatus,
        NewCommission,
    },
};
use guild_hall::Requester;

use crate::support::{Scripted, World, changing, commission, ids, received, status, until, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_commission_waits_for_another_and_for_artifacts_that_come_and_go() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let first = hall.commissions.create(commission("first"), &Requester::User).await.unwrap().commission_id;
    let mut new = commission("second");
    new.dependencies = vec![first.to_string(), "specs/plan.md".to_owned(), format!(".lore/reports/{first}.md")];
    let mut events = hall.events();
    let second = hall.commissions.create(new, &Requester::User).await.unwrap().commission_id;
    assert_eq!(status(&hall, &second).await, CommissionStatus::Blocked);
    let queued = hall.commissions.dispatch(second.as_str(), &Requester::User).await.unwrap();
    let reason = format!(
        "Dependencies not yet satisfied: {first} (it is pending, and it was not dispatched), \
         .lore/reports/{first}.md (there is no such document in .lore/ of claude/main)"
    );
    assert_eq!((queued.status, queued.reason.as_ref()), (DispatchStatus::Queued, Some(&reason)));
    assert_eq!(status(&hall, &second).await, CommissionStatus::Blocked);
    assert_eq!(
        received(&mut events),
        ["commission_status blocked Dependencies not satisfied".to_owned(), format!("commission_queued {reason}")]
    );
    hall.commissions.dispatch(first.as_str(), &Requester::User).await.unwrap();
    // Its dispatch was asked for, so it begins by itself.
    until(&hall, &second, CommissionStatus::Completed).await;

    // One that was never dispatched waits, whatever comes.
    let mut new = commission("third");
    new.dependencies = vec!["later.md".to_owned()];
    let third = hall.commissions.create(new, &Requester::User).await.unwrap().commission_id;
    hall.commissions.check_dependencies(Some("demo")).await.unwrap();
    assert_eq!(status(&hall, &third).await, CommissionStatus::Blocked);
    write(&world.integration("demo"), ".lore/later.md", "now\n");
    hall.commissions.check_dependencies(None).await.unwrap();
    assert_eq!(status(&hall, &third).await, CommissionStatus::Pending);
    fs::remove_file(world.integration("demo").join(".lore/later.md")).unwrap();
    hall.commissions.check_dependencies(None).await.unwrap();
    assert_eq!(status(&hall, &third).await, CommissionStatus::Blocked);
    assert_eq!(world.workers.begun(), [first.clone(), second.clone()]);

    let graph = hall.commissions.graph("demo").unwrap();
    assert_eq!(graph.nodes.len(), 3);
    assert_eq!(graph.edges.iter().map(|edge| (&edge.from, &edge.to)).collect::<Vec<_>>(), [(&first, &second)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn states_tell_what_begins_by_itself_from_what_is_blocked_and_by_what() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let after = |title: &str, dependencies: &[&str]| NewCommission {
        dependencies: dependencies.iter().map(|&on| on.to_owned()).collect(),
        ..commission(title)
    };
    let first = hall.commissions.create(commission("first"), &Requester::User).await.unwrap();
    assert_eq!((first.status, first.blocked_by.len()), (CommissionStatus::Pending, 0));
    let first = first.commission_id;
    let second =
        hall.commissions.create(after("second", &[first.as_str(), "specs/plna.md"]), &Requester::User).await.unwrap();
    let blockers: Vec<_> = second.blocked_by.iter().map(ToString::to_string).collect();
    assert_eq!(second.status, CommissionStatus::Blocked);
    assert_eq!(
        blockers,
        [
            format!("{first} (it is pending, and it was not dispatched)"),
            "specs/plna.md (there is no such document in .lore/ of claude/main; did you mean specs/plan.md?)"
                .to_owned(),
        ]
    );
    let second = second.commission_id;
    let shown = async |id: &CommissionId| hall.commissions.read(id.as_str(), None).await.unwrap().commission;
    assert_eq!((shown(&first).await.queued, shown(&second).await.queued), (false, false));

    world.workers.hold(true);
    let cap = world.home().join("config.yaml");
    let text = fs::read_to_string(&cap).unwrap();
    fs::write(&cap, format!("{text}    commissionCap: 0\n")).unwrap();
    hall.commissions.dispatch(first.as_str(), &Requester::User).await.unwrap();
    assert!(matches!(
        hall.commissions.dispatch(second.as_str(), &Requester::User).await.unwrap(),
        CommissionDispatched { status: DispatchStatus::Queued, .. }
    ));
    let listed = hall.commissions.list(&CommissionFilter::default()).await.unwrap();
    let states: Vec<_> =
        listed.commissions.iter().map(|view| (view.status, view.queued, view.blocked_by.len())).collect();
    assert_eq!(states, [(CommissionStatus::Pending, true, 0), (CommissionStatus::Blocked, true, 2)]);
    let brief = hall.brief(Some("demo")).await.unwrap();
    assert!(brief.contains(&format!("{first} of demo is pending and queued")), "{brief}");
    assert!(brief.contains("is blocked and queued") && brief.contains(&format!("blocked by {first} (")), "{brief}");
    assert_eq!(shown(&second).await.blocked_by[0].why, "it is pending");

    // What failed does not come by itself.
    hall.commissions.cancel(first.as_str(), None, &Requester::User).await.unwrap();
    assert_eq!(shown(&second).await.blocked_by[0].why, "it is cancelled; dispatch it again, or abandon it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_that_can_never_be_there_is_refused_and_names_the_nearest() {
    let world = World::new(Scripted::writing());
    world.add("other");
    let hall = world.hall().await;
    let first = hall.commissions.create(commission("first"), &Requester::User).await.unwrap().commission_id;
    let elsewhere = NewCommission { project_name: "other".to_owned(), ..commission("elsewhere") };
    let elsewhere = hall.commissions.create(elsewhere, &Requester::User).await.unwrap().commission_id;
    // Some seconds earlier or later.
    let mut unknown = first.to_string();
    let last = unknown.pop().and_then(|last| last.to_digit(10)).unwrap();
    unknown.push_str(&((last + 5) % 10).to_string());
    for (dependency, why) in [
        (unknown.clone(), format!("there is no commission {unknown} in project \"demo\"; did you mean {first}?")),
        (format!(".lore/work/commissions/{unknown}.md"), format!("did you mean {first}?")),
        (elsewhere.to_string(), "belongs to project \"other\"".to_owned()),
        ("specs/../../src/code.rs".to_owned(), "leads out of .lore/".to_owned()),
    ] {
        let new = NewCommission { dependencies: vec![dependency.clone()], ..commission("second") };
        let refused = hall.commissions.create(new, &Requester::User).await.unwrap_err();
        assert!(matches!(&refused, OperationError::Invalid(said) if said.contains(&why)), "{refused}");
        let changes = CommissionChanges { dependencies: Some(vec![dependency]), ..CommissionChanges::default() };
        let refused = hall.commissions.update(changing(first.as_str(), changes)).await.unwrap_err();
        assert!(matches!(&refused, OperationError::Invalid(said) if said.contains(&why)), "{refused}");
    }
    assert_eq!(ids(&hall).await.len(), 2);
    let changes = |on: &CommissionId| CommissionChanges {
        dependencies: Some(vec![on.to_string()]),
        ..CommissionChanges::default()
    };
    let new = NewCommission { dependencies: vec![first.to_string()], ..commission("second") };
    let second = hall.commissions.create(new, &Requester::User).await.unwrap().commission_id;
    for on in [&first, &second] {
        let refused = hall.commissions.update(changing(first.as_str(), changes(on))).await.unwrap_err();
        assert!(refused.to_string().contains("would wait for itself"), "{refused}");
    }
    let said = hall.commissions.update(changing(second.as_str(), changes(&first))).await.unwrap();
    assert_eq!(said.blocked_by.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caps_hold_and_those_that_wait_begin_in_the_order_of_their_making() {
    let world = World::new(Scripted::writing());
    for name in ["two", "three", "four"] {
        world.add(name);
    }
    let hall = world.hall().await;
    world.workers.hold(true);
    let mut made: Vec<CommissionId> = Vec::new();
    for round in 0..5 {
        for project in ["demo", "two", "three", "four"] {
            let mut new = commission(&format!("{project} {round}"));
            new.project_name = project.to_owned();
            made.push(hall.commissions.create(new, &Requester::User).await.unwrap().commission_id);
        }
    }
    // Asked for from the last to the first.
    for id in made.iter().rev() {
        hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    }
    assert_eq!(hall.commissions.running(), 10);
    let by_project = |project: &str| {
        let (hall, project) = (hall.clone(), project.to_owned());
        async move {
            let filter = CommissionFilter { project_name: Some(project), ..Default::default() };
            hall.commissions
                .list(&filter)
                .await
                .unwrap()
                .commissions
                .iter()
                .filter(|view| view.status.is_active())
                .count()
        }
    };
    for project in ["demo", "two", "three", "four"] {
        assert!(by_project(project).await <= 3, "{project}");
    }
    let queued = hall.commissions.dispatch(hall_pending(&hall, &made).await.as_str(), &Requester::User).await.unwrap();
    let Some(reason) = queued.reason.clone() else { panic!("{queued:?}") };
    assert!(reason.contains("concurrent limit reached (3/3)") || reason.contains("(10/10)"), "{reason}");
    world.workers.hold(false);
    for id in &made {
        until(&hall, id, CommissionStatus::Completed).await;
    }
    assert_eq!(hall.commissions.running(), 0);
}

async fn hall_pending(hall: &guild_hall::Hall, made: &[CommissionId]) -> CommissionId {
    for id in made {
        if status(hall, id).await == CommissionStatus::Pending {
            return id.clone();
        }
    }
    panic!("none is pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_cap_ends_nothing_and_a_higher_one_lets_others_begin() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    world.workers.hold(true);
    let mut made = Vec::new();
    for nth in 0..4 {
        made.push(
            hall.commissions.create(commission(&format!("{nth}")), &Requester::User).await.unwrap().commission_id,
        );
    }
    for id in &made {
        hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    }
    assert_eq!(hall.commissions.running(), 3);
    let config = world.home().join("config.yaml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}    commissionCap: 1\n")).unwrap();
    hall.commissions.check_dependencies(None).await.unwrap();
    assert_eq!(hall.commissions.running(), 3);
    // Another size: within one tick of the file system's clock, a file of the same size has not visibly changed.
    fs::write(&config, format!("{text}    commissionCap: 10\n")).unwrap();
    hall.commissions.check_dependencies(None).await.unwrap();
    assert_eq!(hall.commissions.running(), 4);
    world.workers.hold(false);
    for id in &made {
        until(&hall, id, CommissionStatus::Completed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commissions_of_one_second_have_two_names() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let makings = (0..8).map(|nth| {
        let hall = hall.clone();
        tokio::spawn(async move {
            hall.commissions.create(commission(&format!("{nth}")), &Requester::User).await.unwrap().commission_id
        })
    });
    let mut names = Vec::new();
    for making in makings.collect::<Vec<_>>() {
        names.push(making.await.unwrap());
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 8);
}
