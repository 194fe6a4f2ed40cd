//! Branches of what is over, and which of them go.

use std::{sync::Arc, time::Duration};

use guild_contract::{
    Limits,
    hall::{CommissionId, CommissionStatus},
};
use guild_hall::{Hall, Outcome, Permit, Requester, Tidied, Tidying, tidy};

use crate::support::{Scripted, World, commission, done, git, until, write};

async fn tidied(world: &World, unmerged: bool) -> Vec<Tidied> {
    let permits = [Permit { path: world.project("demo"), ..Permit::default() }];
    let tidying = Tidying { older_than: Duration::ZERO, unmerged, dry_run: false };
    tidy(&world.home(), Some("demo"), &permits, &Limits::default(), tidying).await.unwrap()
}

fn branches(world: &World) -> Vec<String> {
    let format = "--format=%(refname:lstrip=4)";
    let listed = git(&world.project("demo"), &["for-each-ref", format, "refs/heads/claude/commission"]);
    listed.lines().map(str::to_owned).collect()
}

async fn carried_out(hall: &Arc<Hall>, title: &str, status: CommissionStatus) -> CommissionId {
    let id = hall.commissions.create(commission(title), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    until(hall, &id, status).await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_nowhere_else_goes_only_where_that_is_asked_for() {
    let world = World::new(Scripted::new(|attempt| {
        write(&attempt.worktree, &format!(".lore/{}.md", attempt.activity), "found\n");
        match attempt.title.as_str() {
            "fails" => Outcome::Failed { error: "no luck".to_owned(), text: String::new() },
            _ => done("Done."),
        }
    }));
    let hall = world.hall().await;
    let completed = carried_out(&hall, "works", CommissionStatus::Completed).await;
    let failed = carried_out(&hall, "fails", CommissionStatus::Failed).await;
    let given_up = carried_out(&hall, "fails", CommissionStatus::Failed).await;
    hall.commissions.abandon(given_up.as_str(), "not needed", &Requester::User).await.unwrap();
    world.workers.hold(true);
    let runs = hall.commissions.create(commission("runs"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(runs.as_str(), &Requester::User).await.unwrap();
    until(&hall, &runs, CommissionStatus::InProgress).await;

    let found = tidied(&world, false).await;
    let of = |id: &CommissionId| {
        let one = found.iter().find(|one| one.branch == format!("claude/commission/{id}")).unwrap();
        (one.removed, one.reason.clone())
    };
    assert_eq!(of(&completed), (true, "its commission is completed".to_owned()));
    assert_eq!(of(&given_up), (true, "its commission is abandoned".to_owned()));
    assert!(!of(&failed).0 && of(&failed).1.contains("can be dispatched again"), "{:?}", of(&failed));
    assert!(!of(&runs).0 && of(&runs).1.contains("it is checked out in"), "{:?}", of(&runs));
    let mut kept = vec![failed.to_string(), runs.to_string()];
    kept.sort();
    assert_eq!(branches(&world), kept);

    // It can still be dispatched again, on a branch of its own; the one before stays until it is over.
    world.workers.hold(false);
    until(&hall, &runs, CommissionStatus::Completed).await;
    world.workers.hold(true);
    hall.commissions.redispatch(failed.as_str()).await.unwrap();
    until(&hall, &failed, CommissionStatus::InProgress).await;
    tidied(&world, true).await;
    assert_eq!(branches(&world), [failed.to_string(), format!("{failed}-2")]);
    world.workers.hold(false);
    until(&hall, &failed, CommissionStatus::Failed).await;
    assert!(tidied(&world, false).await.iter().all(|one| !one.removed));
    assert!(tidied(&world, true).await.iter().all(|one| one.removed));
    assert_eq!(branches(&world), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_branch_of_an_attempt_that_failed_does_not_go_with_the_one_that_completed() {
    let world = World::new(Scripted::new(|attempt| {
        write(&attempt.worktree, &format!(".lore/{}.md", attempt.number), "found\n");
        match attempt.number {
            1 => Outcome::Failed { error: "no luck".to_owned(), text: String::new() },
            _ => done("Done."),
        }
    }));
    let hall = world.hall().await;
    let id = carried_out(&hall, "works at last", CommissionStatus::Failed).await;
    hall.commissions.redispatch(id.as_str()).await.unwrap();
    until(&hall, &id, CommissionStatus::Completed).await;
    let found = tidied(&world, false).await;
    assert_eq!(branches(&world), [id.to_string()], "{found:?}");
    assert!(found.iter().any(|one| !one.removed && one.reason.contains("earlier attempt")), "{found:?}");
    tidied(&world, true).await;
    assert_eq!(branches(&world), Vec::<String>::new());
}
