//! What waits for what, and begins when.

use std::fs;

use guild_hall::{
    commission::{CommissionId, Status},
    hall::Dispatched,
};

use crate::support::{Scripted, World, commission, received, status, until, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_commission_waits_for_another_and_for_artifacts_that_come_and_go() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let first = hall.create(commission("first")).await.unwrap();
    let mut new = commission("second");
    new.dependencies = vec![first.to_string(), "specs/plan.md".to_owned(), format!(".lore/reports/{first}.md")];
    let second = hall.create(new).await.unwrap();
    let mut events = hall.events();
    let queued = hall.dispatch(second.as_str()).await.unwrap();
    let reason = format!("Dependencies not yet satisfied: {first}, .lore/reports/{first}.md");
    assert_eq!(queued, Dispatched::Queued { reason: reason.clone() });
    assert_eq!(status(&hall, &second).await, Status::Blocked);
    assert_eq!(
        received(&mut events),
        ["commission_status blocked Dependencies not satisfied".to_owned(), format!("commission_queued {reason}")]
    );
    hall.dispatch(first.as_str()).await.unwrap();
    // Its dispatch was asked for, so it begins by itself.
    until(&hall, &second, Status::Completed).await;

    // One that was never dispatched waits, whatever comes.
    let mut new = commission("third");
    new.dependencies = vec!["later.md".to_owned()];
    let third = hall.create(new).await.unwrap();
    hall.check_dependencies(Some("demo")).await.unwrap();
    assert_eq!(status(&hall, &third).await, Status::Blocked);
    write(&world.integration("demo"), ".lore/later.md", "now\n");
    hall.check_dependencies(None).await.unwrap();
    assert_eq!(status(&hall, &third).await, Status::Pending);
    fs::remove_file(world.integration("demo").join(".lore/later.md")).unwrap();
    hall.check_dependencies(None).await.unwrap();
    assert_eq!(status(&hall, &third).await, Status::Blocked);
    assert_eq!(world.workers.begun(), [first.clone(), second.clone()]);

    let graph = hall.graph("demo").unwrap();
    assert_eq!(graph.nodes.len(), 3);
    assert_eq!(graph.edges.iter().map(|edge| (&edge.from, &edge.to)).collect::<Vec<_>>(), [(&first, &second)]);
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
            new.project = project.to_owned();
            made.push(hall.create(new).await.unwrap());
        }
    }
    // Asked for from the last to the first.
    for id in made.iter().rev() {
        hall.dispatch(id.as_str()).await.unwrap();
    }
    assert_eq!(hall.running(), 10);
    let by_project = |project: &str| {
        let (hall, project) = (hall.clone(), project.to_owned());
        async move {
            let filter = guild_hall::hall::Filter { project: Some(project), ..Default::default() };
            hall.list(&filter).await.unwrap().iter().filter(|view| view.status.is_active()).count()
        }
    };
    for project in ["demo", "two", "three", "four"] {
        assert!(by_project(project).await <= 3, "{project}");
    }
    let queued = hall.dispatch(hall_pending(&hall, &made).await.as_str()).await.unwrap();
    let Dispatched::Queued { reason } = queued else { panic!("{queued:?}") };
    assert!(reason.contains("concurrent limit reached (3/3)") || reason.contains("(10/10)"), "{reason}");
    world.workers.hold(false);
    for id in &made {
        until(&hall, id, Status::Completed).await;
    }
    assert_eq!(hall.running(), 0);
}

async fn hall_pending(hall: &guild_hall::Hall, made: &[CommissionId]) -> CommissionId {
    for id in made {
        if status(hall, id).await == Status::Pending {
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
        made.push(hall.create(commission(&format!("{nth}"))).await.unwrap());
    }
    for id in &made {
        hall.dispatch(id.as_str()).await.unwrap();
    }
    assert_eq!(hall.running(), 3);
    let config = world.home().join("config.yaml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}    commissionCap: 1\n")).unwrap();
    hall.check_dependencies(None).await.unwrap();
    assert_eq!(hall.running(), 3);
    // Another size: within one tick of the file system's clock, a file of the same size has not visibly changed.
    fs::write(&config, format!("{text}    commissionCap: 10\n")).unwrap();
    hall.check_dependencies(None).await.unwrap();
    assert_eq!(hall.running(), 4);
    world.workers.hold(false);
    for id in &made {
        until(&hall, id, Status::Completed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commissions_of_one_second_have_two_names() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let makings = (0..8).map(|nth| {
        let hall = hall.clone();
        tokio::spawn(async move { hall.create(commission(&format!("{nth}"))).await.unwrap() })
    });
    let mut names = Vec::new();
    for making in makings.collect::<Vec<_>>() {
        names.push(making.await.unwrap());
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 8);
}
