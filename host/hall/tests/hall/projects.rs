//! Which projects are worked on.

use std::{fs, sync::Arc};

use guild_hall::{
    Hall, HallError, HallOptions, Permit,
    hall::{Filter, NewProject},
};
use guild_jobs::SystemClock;

use crate::support::{Scripted, World, commission, git, ids, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_project_that_the_operator_does_not_permit_is_listed_and_never_touched() {
    let world = World::new(Scripted::writing());
    let options = HallOptions { home: world.home(), permits: Vec::new(), git: None, clock: Arc::new(SystemClock) };
    let hall = Hall::open(options).unwrap();
    hall.begin_work(world.workers.clone()).await.unwrap();
    let listed = hall.projects().unwrap();
    assert!(listed[0].problem.as_ref().unwrap().contains("guild project add"), "{listed:?}");
    let error = hall.create(commission("x")).await.unwrap_err();
    assert!(error.to_string().contains("guild.toml has no [[project]]"), "{error}");
    assert_eq!(git(&world.project("demo"), &["branch", "--list", "claude/*"]), "");
    assert!(!world.integration("demo").exists());
    // Once it is permitted, it is worked on.
    hall.permit(vec![Permit { path: world.project("demo"), ..Permit::default() }]);
    hall.create(commission("x")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_directory_that_cannot_be_a_project_has_its_answer() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let make = |name: &str| {
        let path = world.root().join("other").join(name);
        fs::create_dir_all(&path).unwrap();
        git(&path, &["init", "--quiet", "--initial-branch=main"]);
        path
    };
    make("empty");
    let claude = make("claude");
    git(&claude, &["commit", "--quiet", "--allow-empty", "--message=x"]);
    git(&claude, &["branch", "claude"]);
    git(&make("bare"), &["config", "core.bare", "true"]);
    fs::create_dir_all(world.root().join("other/none")).unwrap();
    let add = async |name: &str, path: &str| {
        let path = world.root().join(path).display().to_string();
        hall.add_project(NewProject { name: name.to_owned(), path, branch: None }).await
    };
    for (path, expected) in [
        ("other/none", "is not a git repository"),
        ("other/missing", "No such file or directory"),
        ("other/empty", "no commit"),
        ("other/bare", "bare"),
        ("other/claude", "claude"),
    ] {
        let error = add("new", path).await.unwrap_err();
        assert!(error.to_string().contains(expected) && matches!(error, HallError::Invalid(_)), "{path}: {error}");
    }
    for name in ["", "..", "a/b", "-x", &"x".repeat(65)] {
        assert!(add(name, "code/demo").await.unwrap_err().to_string().contains("a project's name is"), "{name}");
    }
    assert!(add("again", "code/demo").await.unwrap_err().to_string().contains("registered as project 'demo'"));
    world.add("second");
    fs::remove_file(world.home().join("config.yaml")).unwrap();
    add("second", "code/second").await.unwrap();
    let text = fs::read_to_string(world.home().join("config.yaml")).unwrap();
    let path = world.project("second").display().to_string();
    assert_eq!(text, format!("projects:\n  - name: second\n    path: {path}\n    defaultBranch: main\n"));
    hall.remove_project("second").await.unwrap();
    assert!(hall.projects().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_has_one_owner() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let error = world.open().err().unwrap().to_string();
    assert!(error.contains("another host"), "{error}");
    drop(hall);
    // A hall of the original holds no lock, but names its process.
    fs::write(world.home().join("guild-hall.sock.pid"), "1").unwrap();
    assert!(world.open().err().unwrap().to_string().contains("process 1 serves the hall"));
    fs::write(world.home().join("guild-hall.sock.pid"), "4194305").unwrap();
    world.open().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_another_hand_are_listed_and_can_be_gone_on_with() {
    let world = World::new(Scripted::writing());
    let project = world.project("demo");
    let old = |status: &str| {
        format!(
            "---\ntitle: \"Commission: Old\"\nstatus: {status}\nworker: Dalton\nprompt: \"p\"\ndependencies: []\nactivity_timeline: []\ncurrent_progress: \"\"\n---\n"
        )
    };
    write(&project, ".lore/work/commissions/commission-Dalton-20260101-000000.md", &old("failed"));
    write(&project, ".lore/commissions/commission-Dalton-20250101-000000.md", &old("completed"));
    git(&project, &["add", "--all"]);
    git(&project, &["commit", "--quiet", "--message=Old"]);
    let hall = world.hall().await;
    let new = hall.create(commission("new")).await.unwrap().to_string();
    hall.list(&Filter { project: Some("demo".to_owned()), ..Filter::default() }).await.unwrap();
    let listed = ids(&hall).await;
    assert_eq!(listed, [&new, "commission-Dalton-20260101-000000", "commission-Dalton-20250101-000000"]);
    hall.redispatch("commission-Dalton-20260101-000000").await.unwrap();
    let id = "commission-Dalton-20260101-000000".parse().unwrap();
    crate::support::until(&hall, &id, guild_hall::commission::Status::Completed).await;
}
