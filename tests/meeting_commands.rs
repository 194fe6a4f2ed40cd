//! `guild meet` and `guild meeting` against a real host, with a real worker and a local provider that streams.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use guild_fakes::{Gate, OpenAi, Provider, Received, Reply};
use rustix::pty::{self, OpenptFlags};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    commissions::Hall,
    support::{
        host::wait_for,
        output::{json_of, stderr, stdout},
    },
};

/// The command, with what is on its stdin.
fn begin(hall: &Hall, home: &str, arguments: &[&str], input: &str) -> Child {
    let mut command: Command = hall.home.guild();
    command.current_dir(hall.home.path(".")).args(arguments).args(["--home", home]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Dropped at the end of this function, and so at its end.
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child
}

fn run(hall: &Hall, arguments: &[&str], input: &str) -> Output {
    begin(hall, "hall", arguments, input).wait_with_output().unwrap()
}

fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", stdout(output), stderr(output));
    stdout(output)
}

/// The id of the one meeting with that status.
fn only(hall: &Hall, status: &str) -> String {
    let listed = json_of(&run(hall, &["meeting", "list", "--status", status, "--json"], ""));
    let meetings = listed["meetings"].as_array().unwrap();
    assert_eq!(meetings.len(), 1, "{listed}");
    meetings[0]["meetingId"].as_str().unwrap().to_owned()
}

/// What the user said last, of a request to a model.
fn last(request: &Received) -> String {
    let messages = request.body["messages"].as_array().unwrap();
    let of_user = messages.iter().rfind(|message| message["role"] == "user").unwrap();
    of_user["content"].as_str().unwrap_or_default().to_owned()
}

/// A provider whose model answers to "Slowly" with this text, as the gate lets it.
fn slow(runtime: &Runtime, gate: &Gate, text: &'static str) -> Provider {
    let gate = gate.clone();
    runtime.block_on(OpenAi::start(move |request: &Received| match last(request).as_str() {
        "Slowly" => Reply::text(text).slowly(&gate),
        _ => Reply::text("Hello."),
    }))
}

#[test]
fn each_line_of_a_pipe_is_said_and_the_meeting_goes_on_until_it_is_closed() {
    let hall = Hall::new(&["demo"]);
    hall.home.researcher("researcher");
    let _host = hall.serve();
    let agenda = "How long does the luna moth live?";
    let met = run(&hall, &["meet", "researcher", "--project", "demo", agenda], "\nWhat is a luna moth?\n");
    let said = succeeds(&met);
    assert!(said.contains("The luna moth lives for a week."), "{said}");
    let id = only(&hall, "open");
    assert!(stderr(&met).contains(&format!("`guild meeting resume {id}` continues it")), "{}", stderr(&met));

    let short = id.strip_prefix("audience-").unwrap();
    let shown = succeeds(&run(&hall, &["meeting", "show", short], ""));
    assert!(shown.contains(&format!("meeting    {id}\n")) && shown.contains("status     open\n"), "{shown}");
    assert!(shown.contains(&format!("\nAgenda\n  {agenda}\n")), "{shown}");
    assert!(shown.contains("\nYou\n  What is a luna moth?\n"), "{shown}");
    let listed = succeeds(&run(&hall, &["meeting", "list", "--project", "demo"], ""));
    assert!(listed.starts_with(&format!("{id}\topen\tdemo\t")), "{listed}");

    let resumed = run(&hall, &["meeting", "resume", short, "--json"], "Go on\n");
    let events: Vec<Value> = succeeds(&resumed).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ends = events.iter().filter(|event| event["type"] == "turn_end").count();
    assert_eq!(ends, 2, "the last turn, and the one that was begun: {events:?}");

    let closed = run(&hall, &["meeting", "close", short], "");
    assert!(succeeds(&closed).contains("These notes were not written by a model"), "{}", stdout(&closed));
    assert!(succeeds(&run(&hall, &["meeting", "show", short], "")).contains("\nNotes\n\nThese notes were"));
    for (arguments, expected) in [
        (&["meeting", "resume", short][..], "is closed; `guild meeting show"),
        (&["meeting", "show", "nothing"], "there is no meeting nothing; `guild meeting list`"),
        (&["meet", "nobody", "--project", "demo", "Why?"], "nobody"),
        (&["meet", "researcher", "--project", "demo"], "there is no agenda"),
    ] {
        let refused = run(&hall, arguments, "");
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&refused).contains(expected), "{}", stderr(&refused));
    }
}

#[test]
fn the_overrides_of_a_meeting_hold_for_each_turn_and_what_is_cut_is_said() {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(OpenAi::start(|request: &Received| match last(request).as_str() {
        "Look" => Reply::call("list_artifacts", json!({})),
        _ => Reply::text("Hello."),
    }));
    let hall = Hall::with_researcher(&provider);
    hall.configure("[limits]\nsession_turns = 2");
    let _host = hall.serve();
    let meet = ["meet", "researcher", "--project", "demo"];
    let refused = run(&hall, &[&meet[..], &["--model", "gpt-9", "Moths"]].concat(), "");
    assert!(!refused.status.success() && stderr(&refused).contains("It can run another, fake"), "{}", stderr(&refused));

    let met = run(&hall, &[&meet[..], &["--model", "another", "--max-turns", "1", "Moths"]].concat(), "Look\n");
    assert!(stderr(&met).contains("turns") && !stderr(&met).contains("is cut"), "{}", stderr(&met));
    let (first, turn) = (&provider.requests()[0], provider.requests().len());
    assert_eq!((&first.body["model"], turn), (&json!("another"), 2), "a turn each");
    let met = run(&hall, &[&meet[..], &["--max-turns", "9", "Moths"]].concat(), "");
    let cut = "maxTurns 9 is cut to 2, limits.session_turns in guild.toml";
    assert!(stderr(&met).contains(cut), "{}", stderr(&met));
}

#[test]
fn a_meeting_that_a_worker_asks_for_is_put_off_accepted_or_declined() {
    let runtime = Runtime::new().unwrap();
    let answer = |request: &Received| match last(request).as_str() {
        "Follow" if request.turn() < 2 => Reply::call("propose_followup", json!({"reason": "The harbour"})),
        "Follow" => Reply::text("Asked for."),
        "Only boats" => Reply::text("Boats it is."),
        _ => Reply::text("Hello."),
    };
    let provider = runtime.block_on(OpenAi::start(answer));
    let hall = Hall::with_researcher(&provider);
    let _host = hall.serve();
    let met = run(&hall, &["meet", "researcher", "--project", "demo", "Moths"], "Follow\n");
    let said = succeeds(&met);
    assert!(said.contains("  propose_followup {\"reason\":\"The harbour\"}\n  = "), "{said}");
    assert!(said.ends_with("\n\nAsked for.\n"), "{said}");

    let id = only(&hall, "requested");
    let of = |command: &str, more: &[&str]| run(&hall, &[&["meeting", command, &id], more].concat(), "");
    assert_eq!(succeeds(&of("defer", &["2099-12-01"])), format!("{id} is put off until 2099-12-01\n"));
    assert_eq!(of("defer", &["soon"]).status.code(), Some(1));
    let listed = succeeds(&run(&hall, &["meeting", "list", "--status", "requested"], ""));
    assert!(listed.contains("\t2099-12-01\t"), "{listed}");
    let early = of("resume", &[]);
    assert!(stderr(&early).contains(&format!("`guild meeting accept {id}` opens it")), "{}", stderr(&early));
    succeeds(&of("accept", &["Only boats"]));
    let shown = succeeds(&of("show", &[]));
    assert!(shown.contains("status     open\n") && shown.contains("Only boats"), "{shown}");

    succeeds(&run(&hall, &["meeting", "resume", &id], "Follow\n"));
    let other = only(&hall, "requested");
    let declined = run(&hall, &["meeting", "decline", &other], "");
    assert_eq!(succeeds(&declined), format!("{other} is declined\n"));
}

#[test]
fn ctrl_c_ends_the_turn_and_what_was_said_is_there_when_the_meeting_goes_on() {
    let runtime = Runtime::new().unwrap();
    let gate = Gate::closed();
    let answer = {
        let gate = gate.clone();
        move |request: &Received| match last(request).as_str() {
            "Slowly" => Reply::text("one two three four five six seven eight nine ten").slowly(&gate),
            "Go on" => Reply::text("And so it goes."),
            _ => Reply::text("Hello."),
        }
    };
    let provider = runtime.block_on(OpenAi::start(answer));
    let hall = Hall::with_researcher(&provider);
    let _host = hall.serve();
    let mut talk = begin(&hall, "hall", &["meet", "researcher", "--project", "demo", "Moths"], "Slowly\nNever said\n");
    gate.pass(3);
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("one") {
        let mut piece = [0; 64];
        let count = talk.stdout.as_mut().unwrap().read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend(&piece[..count]);
    }
    assert!(Command::new("kill").args(["-INT", &talk.id().to_string()]).status().unwrap().success());
    let ended = talk.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("interrupted\n"), "{}", stderr(&ended));
    gate.open();

    let id = only(&hall, "open");
    let resumed = succeeds(&run(&hall, &["meeting", "resume", &id], "Go on\n"));
    assert!(resumed.starts_with("\nYou\n  Slowly\n"), "{resumed}");
    assert!(resumed.ends_with("And so it goes.\n"), "{resumed}");
    let said = provider.requests().iter().filter(|request| last(request) == "Never said").count();
    assert_eq!(said, 0, "the lines after it are not said");
}

/// A terminal, as a person has one.
struct Terminal {
    master: File,
    seen: Arc<Mutex<String>>,
}

impl Terminal {
    /// Runs a command in a new one.
    fn run(hall: &Hall, arguments: &[&str]) -> (Self, Child) {
        let master = pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        pty::grantpt(&master).unwrap();
        pty::unlockpt(&master).unwrap();
        let name = pty::ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options().read(true).write(true).open(name).unwrap();
        let mut command: Command = hall.home.guild();
        command.current_dir(hall.home.path(".")).args(arguments).args(["--home", "hall"]);
        let [stdin, stdout, stderr] = [(); 3].map(|()| slave.try_clone().unwrap());
        let child = command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().unwrap();
        let (master, seen) = (File::from(master), Arc::<Mutex<String>>::default());
        let (mut from, shown) = (master.try_clone().unwrap(), seen.clone());
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..count]));
            }
        });
        (Self { master, seen }, child)
    }

    fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this is shown, and forgets it and what was before.
    fn until(&self, text: &str) {
        wait_for(text, || {
            let mut seen = self.seen.lock().unwrap();
            let end = seen.find(text)? + text.len();
            seen.drain(..end);
            Some(())
        });
    }
}

#[test]
fn in_a_terminal_ctrl_c_ends_the_turn_and_ctrl_d_leaves() {
    let runtime = Runtime::new().unwrap();
    let gate = Gate::closed();
    let answer = {
        let gate = gate.clone();
        move |request: &Received| match last(request).as_str() {
            "Slowly" => Reply::text("one two three four five six seven eight nine ten").slowly(&gate),
            "Go on" => Reply::text("And so it goes."),
            _ => Reply::text("Hello."),
        }
    };
    let provider = runtime.block_on(OpenAi::start(answer));
    let hall = Hall::with_researcher(&provider);
    let _host = hall.serve();
    let (mut terminal, mut talk) = Terminal::run(&hall, &["meet", "researcher", "--project", "demo"]);
    terminal.until("Agenda: ");
    terminal.types("Moths\n");
    terminal.until("Hello.");
    terminal.until("> ");
    terminal.types("Slowly\n");
    gate.pass(3);
    terminal.until("one");
    assert!(Command::new("kill").args(["-INT", &talk.id().to_string()]).status().unwrap().success());
    terminal.until("interrupted");
    terminal.until("> ");
    terminal.types("Go on\n");
    terminal.until("And so it goes.");
    terminal.until("> ");
    terminal.types("\x04");
    terminal.until("the meeting stays open");
    assert!(talk.wait().unwrap().success());
    gate.open();
    only(&hall, "open");
}

/// A socket before that of the hall, which cuts the first stream of a message after some pieces of its text.
struct Cutter {
    home: PathBuf,
    cuts: Arc<AtomicUsize>,
}

impl Cutter {
    fn before(hall: &Hall) -> Self {
        let home = hall.home.path("cutter");
        fs::create_dir_all(&home).unwrap();
        let listener = UnixListener::bind(home.join("guild-hall.sock")).unwrap();
        let (real, cuts) = (hall.home.path("hall/guild-hall.sock"), Arc::<AtomicUsize>::default());
        let counted = cuts.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (real, cuts) = (real.clone(), counted.clone());
                thread::spawn(move || Self::pass(&client.unwrap(), &real, &cuts));
            }
        });
        Self { home, cuts }
    }

    fn pass(mut client: &UnixStream, real: &Path, cuts: &AtomicUsize) {
        let host = UnixStream::connect(real).unwrap();
        let is_message = Arc::<AtomicUsize>::default();
        let (mut from, mut to, noted) = (client.try_clone().unwrap(), host.try_clone().unwrap(), is_message.clone());
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                let is_send = String::from_utf8_lossy(&piece[..count]).contains("/meeting/session/message/send");
                noted.fetch_add(is_send.into(), Ordering::SeqCst);
                to.write_all(&piece[..count]).unwrap();
            }
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
        let (mut host, mut piece, mut pieces) = (host, [0; 4096], 0);
        while let Ok(count @ 1..) = host.read(&mut piece) {
            if client.write_all(&piece[..count]).is_err() {
                return;
            }
            pieces += String::from_utf8_lossy(&piece[..count]).matches("text_delta").count();
            let is_first = is_message.load(Ordering::SeqCst) > 0 && cuts.load(Ordering::SeqCst) == 0;
            if is_first && pieces >= 2 {
                cuts.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn a_stream_that_breaks_is_joined_again_and_no_text_is_shown_twice() {
    let runtime = Runtime::new().unwrap();
    let gate = Gate::closed();
    let text = "one two three four five six seven eight nine ten";
    let provider = slow(&runtime, &gate, text);
    let hall = Hall::with_researcher(&provider);
    let _host = hall.serve();
    succeeds(&run(&hall, &["meet", "researcher", "--project", "demo", "Moths"], ""));
    let id = only(&hall, "open");
    let cutter = Cutter::before(&hall);
    let talk = begin(&hall, cutter.home.to_str().unwrap(), &["meeting", "resume", &id], "Slowly\n");
    gate.pass(5);
    wait_for("the stream to be cut", || (cutter.cuts.load(Ordering::SeqCst) == 1).then_some(()));
    gate.open();
    let said = succeeds(&talk.wait_with_output().unwrap());
    assert!(said.ends_with(&format!("\n{text}\n")), "{said}");
    assert_eq!(said.matches("one").count(), 1, "{said}");
}

#[test]
fn a_message_whose_host_ends_before_it_answers_is_said_to_be_cut_off() {
    let runtime = Runtime::new().unwrap();
    let gate = Gate::closed();
    let provider = slow(&runtime, &gate, "one two three");
    let hall = Hall::with_researcher(&provider);
    let host = hall.serve();
    succeeds(&run(&hall, &["meet", "researcher", "--project", "demo", "Moths"], ""));
    let id = only(&hall, "open");
    let talk = begin(&hall, "hall", &["meeting", "resume", &id], "Slowly\n");
    wait_for("the model to be asked", || (provider.requests().len() == 2).then_some(()));
    host.kill();
    let _host = hall.serve();
    let output = talk.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("the turn was cut off"), "{told}");
    gate.open();
}
