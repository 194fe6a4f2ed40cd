//! Which projects are worked on.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    sync::Arc,
    time::Duration,
};

use guild_contract::{
    Delegation, Limits, OperationError,
    hall::{CommissionFilter, CommissionStatus},
};
use guild_fs::clock::SystemClock;
use guild_hall::{Hall, HallOptions, NewProject, Permit, Requester, add_project, list_projects, remove_project};

use crate::support::{Scripted, World, commission, git, ids, until, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_project_that_the_operator_does_not_permit_is_listed_and_never_touched() {
    let world = World::new(Scripted::writing());
    let options = HallOptions {
        home: world.home(),
        has_passed_socket: false,
        permits: Vec::new(),
        delegation: Delegation::default(),
        git: None,
        limits: Arc::default(),
        clock: Arc::new(SystemClock),
    };
    let hall = Hall::open(options).unwrap();
    hall.begin_work(world.workers.clone()).await.unwrap();
    let listed = hall.projects.list().unwrap();
    assert!(listed[0].problem.as_ref().unwrap().contains("guild project add"), "{listed:?}");
    let error = hall.commissions.create(commission("x"), &Requester::User).await.unwrap_err();
    assert!(error.to_string().contains("guild.toml has no [[project]]"), "{error}");
    assert_eq!(git(&world.project("demo"), &["branch", "--list", "claude/*"]), "");
    assert!(!world.integration("demo").exists());
    // Once it is permitted, it is worked on.
    hall.permit(vec![Permit { path: world.project("demo"), ..Permit::default() }]);
    hall.commissions.create(commission("x"), &Requester::User).await.unwrap();
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
        let path = world.root().join(path);
        add_project(&world.home(), NewProject { name: Some(name.to_owned()), path, branch: None }, &Limits::default())
            .await
    };
    for (path, expected) in [
        ("other/none", "is not a git repository"),
        ("other/missing", "No such file or directory"),
        ("other/empty", "no commit"),
        ("other/bare", "bare"),
        ("other/claude", "claude"),
    ] {
        let error = add("new", path).await.unwrap_err();
        assert!(error.to_string().contains(expected) && matches!(error, OperationError::Invalid(_)), "{path}: {error}");
    }
    world.add("second");
    fs::remove_file(world.home().join("config.yaml")).unwrap();
    for name in ["", "..", "a/b", "-x", &"x".repeat(65)] {
        assert!(add(name, "code/demo").await.unwrap_err().to_string().contains("a project's name is"), "{name}");
    }
    // A hall that runs is no obstacle, and sees what changed.
    let added = add("second", "code/second").await.unwrap();
    assert!(!added.known && !added.dirty, "{added:?}");
    let text = fs::read_to_string(world.home().join("config.yaml")).unwrap();
    let path = world.project("second").display().to_string();
    assert_eq!(text, format!("projects:\n  - name: second\n    path: {path}\n    defaultBranch: main\n"));
    assert_eq!(hall.projects.list().unwrap()[0].name, "second");
    assert!(add("again", "code/second").await.unwrap_err().to_string().contains("registered as project 'second'"));
    write(&world.project("second"), "new.txt", "new");
    let added = add("second", "code/second").await.unwrap();
    assert!(added.known && added.dirty, "{added:?}");
    assert!(list_projects(&world.home(), &[]).unwrap()[0].problem.is_some());
    remove_project(&world.home(), "second").unwrap();
    assert!(hall.projects.list().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_in_which_work_is_under_way_is_not_removed() {
    let world = World::new(Scripted::writing());
    world.workers.hold(true);
    let hall = world.hall().await;
    let id = hall.commissions.create(commission("x"), &Requester::User).await.unwrap().commission_id;
    hall.commissions.dispatch(id.as_str(), &Requester::User).await.unwrap();
    let error = remove_project(&world.home(), "demo").unwrap_err();
    assert!(matches!(error, OperationError::Conflict(_)) && error.to_string().contains(id.as_str()), "{error}");
    world.workers.hold(false);
    until(&hall, &id, CommissionStatus::Completed).await;
    remove_project(&world.home(), "demo").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_has_one_owner() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    let error = world.open().err().unwrap().to_string();
    assert!(error.contains("another host"), "{error}");
    drop(hall);
    // A hall of the original holds no lock, but listens.
    fs::write(world.home().join("guild-hall.sock.pid"), std::process::id().to_string()).unwrap();
    let listener = UnixListener::bind(world.home().join("guild-hall.sock")).unwrap();
    let error = world.open().err().unwrap().to_string();
    let expected = format!("another hall, process {}, listens on guild-hall.sock", std::process::id());
    assert!(error.starts_with(&expected), "{error}");
    drop(listener);
    world.open().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pid_file_that_names_a_foreign_process_keeps_no_hall_from_starting() {
    let world = World::new(Scripted::writing());
    drop(world.hall().await);
    for pid in ["1", "0", "-1", "not a number", &std::process::id().to_string()] {
        fs::write(world.home().join("guild-hall.sock.pid"), pid).unwrap();
        world.open().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_no_host_is_not_named_as_the_one_to_end() {
    let world = World::new(Scripted::writing());
    let hall = world.hall().await;
    // Neither the first process of the system, nor one that has ended and was not reaped, nor none.
    let mut zombie = std::process::Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", zombie.id());
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    for pid in ["1", "4194305", &zombie.id().to_string()] {
        for file in ["guild-hall.sock.pid", "guild-hall.pid"] {
            fs::write(world.home().join(file), pid).unwrap();
        }
        let error = world.open().err().unwrap().to_string();
        assert!(error.starts_with("another host serves the hall in"), "{error}");
    }
    drop(hall);
    let _socket = UnixListener::bind(world.home().join("guild-hall.sock")).unwrap();
    let error = world.open().err().unwrap().to_string();
    assert!(error.starts_with("another hall listens on guild-hall.sock"), "{error}");
    zombie.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_others_can_write_is_refused_with_what_to_do() {
    let world = World::new(Scripted::writing());
    drop(world.hall().await);
    let (home, settings) = (world.home(), world.home().join("config.yaml"));
    if !settings.exists() {
        fs::write(&settings, "projects: []\n").unwrap();
    }
    for (path, bad, good) in [(&home, 0o702, 0o700), (&settings, 0o666, 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(bad)).unwrap();
        let error = world.open().err().unwrap().to_string();
        assert!(error.contains(&format!("`chmod go-w {}`", path.canonicalize().unwrap().display())), "{error}");
        fs::set_permissions(path, fs::Permissions::from_mode(good)).unwrap();
        world.open().unwrap();
    }
    // Many systems give each user a group, whose members may write what the user makes.
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o664)).unwrap();
    world.open().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_removes_unfinished_files_that_a_crash_left() {
    let world = World::new(Scripted::writing());
    drop(world.hall().await);
    let left = world.home().join("state/new/commission-Dalton-20260101-000000.tool");
    fs::write(&left, "half").unwrap();
    world.open().unwrap();
    assert!(!left.exists());
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
    let new = hall.commissions.create(commission("new"), &Requester::User).await.unwrap().commission_id.to_string();
    hall.commissions
        .list(&CommissionFilter { project_name: Some("demo".to_owned()), ..CommissionFilter::default() })
        .await
        .unwrap();
    let listed = ids(&hall).await;
    assert_eq!(listed, [&new, "commission-Dalton-20260101-000000", "commission-Dalton-20250101-000000"]);
    hall.commissions.redispatch("commission-Dalton-20260101-000000").await.unwrap();
    let id = "commission-Dalton-20260101-000000".parse().unwrap();
    until(&hall, &id, CommissionStatus::Completed).await;
}

/// A `git` that stops for ever in the project `slow`, and says so in `hangs`.
pub(crate) fn hanging_git(world: &World) -> std::path::PathBuf {
    let path = world.root().join("bin/git");
    let text = format!(
        "#!/bin/sh\ncase \"$PWD\" in */slow) touch {}; exec sleep 600;; esac\nexec git \"$@\"\n",
        world.root().join("hangs").display()
    );
    write(&world.root(), "bin/git", &text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_whose_git_hangs_keeps_nobody_from_the_others() {
    let mut world = World::new(Scripted::writing());
    world.add("slow");
    let id = "commission-Dalton-20260401-120000";
    let record =
        "---\ntitle: \"Commission: T\"\ndate: 2026-04-01\nstatus: completed\ntags: [commission]\nworker: Dalton\n---\n";
    write(&world.project("demo"), &format!(".lore/work/commissions/{id}.md"), record);
    git(&world.project("demo"), &["add", "--all"]);
    git(&world.project("demo"), &["commit", "--quiet", "--message=Record"]);
    world.git = Some(hanging_git(&world));
    let hall = world.hall().await;
    let listed = tokio::time::timeout(Duration::from_secs(30), ids(&hall)).await.unwrap();
    assert_eq!(listed, [id]);
    // The user moves on, and `claude/main` follows.
    write(&world.project("demo"), "src/new.rs", "new\n");
    git(&world.project("demo"), &["add", "--all"]);
    git(&world.project("demo"), &["commit", "--quiet", "--message=Moved on"]);
    let tip = git(&world.project("demo"), &["rev-parse", "main"]);
    let syncing = {
        let hall = hall.clone();
        tokio::spawn(async move { hall.projects.sync(None).await })
    };
    let followed = async {
        while git(&world.project("demo"), &["rev-parse", "claude/main"]) != tip {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), followed).await.unwrap();
    syncing.abort();
}
