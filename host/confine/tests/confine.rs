//! Tasks in real children.
//!
//! This program is its own child, so it has no test harness: it runs the tests one after another.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::{
    hint::black_box,
    os::fd::OwnedFd,
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use guild_confine::{Bounds, Ended, Task, Worker, run, serve_if_asked, set_room};
use rustix::process::{Signal, kill_current_process_group, setpgid};
use tokio::{
    signal::unix::{SignalKind, signal},
    time,
};

static ECHO: Task = Task { name: "echo", run: |request| request.to_vec() };
static LOOP: Task = Task {
    name: "loop",
    run: |_| {
        loop {
            black_box(());
        }
    },
};
static GROW: Task = Task {
    name: "grow",
    run: |request| {
        let bytes = u64::from_le_bytes(request.try_into().unwrap());
        let grown = vec![1_u8; usize::try_from(bytes).unwrap()];
        black_box(&grown).len().to_string().into_bytes()
    },
};
static FALL: Task = Task {
    name: "fall",
    run: |_| {
        fn fall(depth: u64) -> u64 {
            let kept = black_box([depth; 1024]);
            if depth == u64::MAX { 0 } else { fall(depth + 1) + kept.first().unwrap() }
        }
        fall(0).to_le_bytes().to_vec()
    },
};
/// Returns the names of its environment variables.
static ENVIRONMENT: Task =
    Task { name: "environment", run: |_| std::env::vars().map(|(name, _)| name).collect::<String>().into_bytes() };
/// Writes a file.
static WRITE: Task = Task {
    name: "write",
    run: |request| {
        let path = std::str::from_utf8(request).unwrap();
        format!("{:?}", std::fs::write(path, "x")).into_bytes()
    },
};
/// Returns the names in the directories that it received.
static LIST: Task = Task {
    name: "list",
    run: |_| {
        let listed = guild_confine::directories().iter().flat_map(|directory| {
            let entries = rustix::fs::Dir::read_from(directory).unwrap().map(|entry| entry.unwrap());
            let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        });
        listed.filter(|name| !name.starts_with('.')).collect::<Vec<_>>().join(" ").into_bytes()
    },
};
static TASKS: [&Task; 7] = [&ECHO, &LOOP, &GROW, &FALL, &ENVIRONMENT, &WRITE, &LIST];

const MIB: u64 = 1 << 20;
const BOUNDS: Bounds = Bounds { seconds: 10, memory_bytes: 64 * MIB };

fn main() -> ExitCode {
    if let Some(code) = serve_if_asked(&TASKS) {
        return code;
    }
    // The runner asks for a list of the tests.
    if std::env::args().any(|argument| argument == "--list") {
        if !std::env::args().any(|argument| argument == "--ignored") {
            println!("tasks_are_answered_bounded_and_ended: test");
        }
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    set_room(2 * BOUNDS.memory_bytes);
    runtime.block_on(async {
        a_child_waits_until_there_is_room_for_it().await;
        answers_are_whole_and_one_child_gives_many().await;
        one_that_takes_too_long_is_ended_and_the_next_request_has_another().await;
        memory_is_bounded().await;
        a_stack_that_overflows_ends_nobody_else().await;
        a_child_reaches_no_environment_and_writes_no_file().await;
        nobody_works_for_a_caller_that_is_gone().await;
        a_child_finds_the_directories_that_it_was_handed().await;
        a_signal_for_the_hosts_process_group_reaches_no_child().await;
    });
    println!("test result: ok. 9 passed; 0 failed");
    ExitCode::SUCCESS
}

async fn answers_are_whole_and_one_child_gives_many() {
    let mut worker = Worker::new(&ECHO, BOUNDS);
    for length in [0, 1, 70_000, 8 << 20] {
        let request = vec![7; length];
        assert_eq!(worker.ask(request.clone()).await, Ok(request));
    }
    assert_eq!(children().len(), 1);
    drop(worker);
    none_is_left().await;
}

async fn one_that_takes_too_long_is_ended_and_the_next_request_has_another() {
    let began = Instant::now();
    let mut worker = Worker::new(&LOOP, Bounds { seconds: 1, ..BOUNDS });
    assert_eq!(worker.ask(vec![]).await, Err(Ended::TooLong));
    assert_eq!(worker.ask(vec![]).await, Err(Ended::TooLong));
    assert!(began.elapsed() < Duration::from_secs(8));
    none_is_left().await;
}

async fn memory_is_bounded() {
    let mut worker = Worker::new(&GROW, BOUNDS);
    let grow = |bytes: u64| bytes.to_le_bytes().to_vec();
    assert_eq!(worker.ask(grow(32 * MIB)).await, Ok((32 * MIB).to_string().into_bytes()));
    assert_eq!(worker.ask(grow(80 * MIB)).await, Err(Ended::TooMuchMemory));
    assert_eq!(worker.ask(grow(MIB)).await, Ok(MIB.to_string().into_bytes()));
}

async fn a_stack_that_overflows_ends_nobody_else() {
    assert!(matches!(run(&FALL, BOUNDS, vec![]).await, Err(Ended::Failed(_))));
}

async fn a_child_reaches_no_environment_and_writes_no_file() {
    assert_eq!(run(&ENVIRONMENT, BOUNDS, vec![]).await, Ok(vec![]));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let request = file.to_str().unwrap().to_owned().into_bytes();
    assert!(matches!(run(&WRITE, BOUNDS, request).await, Err(Ended::Failed(_))));
    assert_eq!(std::fs::read(&file).unwrap_or_default(), b"");
}

/// There is room for two children.
async fn a_child_waits_until_there_is_room_for_it() {
    let [first, second] = [(), ()].map(|()| tokio::spawn(run(&LOOP, BOUNDS, vec![])));
    while children().len() < 2 {
        tokio::task::yield_now().await;
    }
    let mut third = pin!(run(&ECHO, BOUNDS, vec![7]));
    assert!(time::timeout(Duration::from_millis(300), third.as_mut()).await.is_err());
    assert_eq!(children().len(), 2);
    first.abort();
    assert_eq!(third.await, Ok(vec![7]));
    // A child with a larger limit than the total is not excluded.
    second.abort();
    none_is_left().await;
    let large = Bounds { memory_bytes: 1024 * MIB, ..BOUNDS };
    assert_eq!(run(&ECHO, large, vec![7]).await, Ok(vec![7]));
}

async fn a_signal_for_the_hosts_process_group_reaches_no_child() {
    // A host reads `guild.toml` again at SIGHUP. The runner is in no group of this process.
    let mut hangup = signal(SignalKind::hangup()).unwrap();
    setpgid(None, None).unwrap();
    let mut worker = Worker::new(&ECHO, BOUNDS);
    assert_eq!(worker.ask(vec![1]).await, Ok(vec![1]));
    kill_current_process_group(Signal::HUP).unwrap();
    hangup.recv().await;
    assert_eq!(worker.ask(vec![2]).await, Ok(vec![2]));
}

async fn nobody_works_for_a_caller_that_is_gone() {
    let asked = tokio::spawn(run(&LOOP, BOUNDS, vec![]));
    while children().is_empty() {
        tokio::task::yield_now().await;
    }
    asked.abort();
    none_is_left().await;
}

/// The processes whose parent is this process.
fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.flat_map(|task| of(task.unwrap()).split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

async fn none_is_left() {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !children().is_empty() {
        assert!(Instant::now() < deadline, "a child is left");
        tokio::task::yield_now().await;
    }
}

async fn a_child_finds_the_directories_that_it_was_handed() {
    let place = tempfile::tempdir().unwrap();
    let handed = |directory: &str, names: &[&str]| {
        let directory = place.path().join(directory);
        std::fs::create_dir(&directory).unwrap();
        names.iter().for_each(|name| std::fs::write(directory.join(name), "x").unwrap());
        Arc::new(OwnedFd::from(std::fs::File::open(directory).unwrap()))
    };
    let directories = vec![handed("one", &["a", "b"]), handed("two", &["c"])];
    let mut worker = Worker::new(&LIST, BOUNDS).with_directories(directories.clone());
    for _ in 0..2 {
        assert_eq!(worker.ask(Vec::new()).await.unwrap(), b"a b c");
    }
    let too_many = vec![directories.first().unwrap().clone(); 254];
    assert!(matches!(
        Worker::new(&LIST, BOUNDS).with_directories(too_many).ask(Vec::new()).await,
        Err(Ended::Failed(_))
    ));
    assert_eq!(run(&LIST, BOUNDS, Vec::new()).await.unwrap(), b"");
}
