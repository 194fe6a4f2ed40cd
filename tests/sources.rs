//! A command's options for read roots, the runtime and `guild.toml` hold for its jobs, also where another process serves
//! the member; otherwise the command ends with an error that names the process and says what to do.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    host::{Home, Host, wait_for},
    output::stderr,
};

/// A home with a researcher, and two directories of documents.
fn home() -> Home {
    let home = Home::new();
    home.researcher("researcher");
    home.write("book/ownership.md", "# Ownership\n\nOwnership is how Rust keeps memory safe without a collector.\n");
    home.write("other/moths.md", "# Moths\n\nThe luna moth lives for a week.\n");
    home
}

fn real(home: &Home, path: &str) -> String {
    home.path(path).canonicalize().unwrap().to_str().unwrap().to_owned()
}

fn run(home: &Home, more: &[&str]) -> Output {
    home.run(&[&["run", "members/researcher", "How long does a luna moth live?"], more].concat())
}

fn jobs(host: &Host) -> usize {
    host.client().call("worker/list", json!({})).unwrap()["jobs"].as_array().unwrap().len()
}

/// A refusal names the process, both sets of directories, and each way out.
fn names(text: &str, pid: u32, parts: &[&str]) {
    let pid = format!("process {pid} serves researcher at http://127.0.0.1:");
    let kill =
        text.contains("`kill ") && text.contains("omit the option") && text.contains("copy the member's directory");
    assert!(text.contains(&pid) && kill && parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn a_run_next_to_a_host_with_other_read_roots_is_refused_and_makes_no_job() {
    let home = home();
    let host = home.serve(&home.path("members/researcher"), &["--sources", home.path("book").to_str().unwrap()]);
    let refused = run(&home, &["--sources", "other"]);
    assert_eq!(refused.status.code(), Some(1));
    let expected = format!("it reads {}, not {}", real(&home, "book"), real(&home, "other"));
    names(&stderr(&refused), host.pid(), &[&expected]);
    // More than it reads is not what it reads, either.
    let more = run(&home, &["--sources", "book", "--sources", "other"]);
    assert_eq!((more.status.code(), jobs(&host)), (Some(1), 0), "{}", stderr(&more));

    // The same directory, by whatever path; and without the option, what the host reads.
    symlink(home.path("book"), home.path("link")).unwrap();
    for options in [&["--sources", "link"][..], &[]] {
        let output = run(&home, options);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    assert_eq!(jobs(&host), 2);
    // What cannot be read is said before a host is looked for.
    let nowhere = run(&home, &["--sources", "nowhere"]);
    assert!(stderr(&nowhere).contains("cannot read the directory nowhere"), "{}", stderr(&nowhere));

    host.stop();
    let own = run(&home, &["--sources", "other"]);
    assert!(String::from_utf8_lossy(&own.stdout).contains("luna moth"), "{}", stderr(&own));
}

#[test]
fn what_a_host_reads_is_recorded_for_its_own_user_alone_and_removed_when_it_ends() {
    let home = home();
    let member = home.path("members/researcher");
    let host = home.serve(&member, &["--sources", home.path("book").to_str().unwrap()]);
    let note = member.join(".host");
    let text = fs::read_to_string(&note).unwrap();
    assert!(text.contains(&real(&home, "book")), "{text}");
    assert_eq!(fs::metadata(&note).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(member.join(".owner")).unwrap().contains("book"));

    // A command that cannot read the note does not assume that the roots match.
    fs::write(&note, "{").unwrap();
    let refused = stderr(&run(&home, &["--sources", "book"]));
    names(&refused, host.pid(), &["cannot be read"]);
    // The note of a process that is gone is ignored.
    let mut gone: Value = serde_json::from_str(&text).unwrap();
    gone["started"] = json!(1);
    fs::write(&note, gone.to_string()).unwrap();
    names(&stderr(&run(&home, &["--sources", "book"])), host.pid(), &["does not publish its settings"]);
    host.stop();
    assert!(!note.exists());
}

#[test]
fn another_guild_toml_than_the_host_s_is_refused_and_a_changed_one_is_said() {
    let home = home();
    let config = |name: &str, text: &str| home.write(name, format!("{text}\n[[roots]]\npath = \"book\"\n"));
    let (ours, theirs) = (config("ours.toml", "strict_imports = true"), config("theirs.toml", ""));
    let host = home.serve(&home.path("members/researcher"), &["--config", theirs.to_str().unwrap()]);
    let with = |file: &Path| run(&home, &["--config", file.to_str().unwrap()]);
    let refused = with(&ours);
    assert_eq!(refused.status.code(), Some(1));
    names(&stderr(&refused), host.pid(), &["theirs.toml, not ", "ours.toml"]);
    assert_eq!((with(&theirs).status.code(), jobs(&host)), (Some(0), 1));

    config("theirs.toml", "require_token = false");
    let changed = with(&theirs);
    assert_eq!(changed.status.code(), Some(0), "{}", stderr(&changed));
    assert!(stderr(&changed).contains("theirs.toml before that was changed"), "{}", stderr(&changed));
    // One that the environment names is not asked for, and is spoken of.
    let mut command = home.guild();
    command.current_dir(home.path(".")).env("GUILD_CONFIG", &ours).args([
        "run",
        "members/researcher",
        "What is ownership?",
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success() && stderr(&output).contains("theirs.toml, not "), "{}", stderr(&output));
}

/// A client of `guild mcp`, without a session: each of its requests says what it is.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn start(home: &Home, options: &[&str]) -> Self {
        let mut command = home.guild();
        command.current_dir(home.path(".")).args(["mcp", "--members", "members"]).args(options);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    fn ask(&mut self) -> Value {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}});
        writeln!(self.stdin.as_ref().unwrap(), "{request}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}, {}", self.end().1))
    }

    /// The end, once stdin is closed: the exit code, and what was said.
    fn end(&mut self) -> (Option<i32>, String) {
        self.stdin = None;
        let status = wait_for("guild mcp to end", || self.child.try_wait().unwrap());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), said)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn two_clients_with_other_read_roots_do_not_read_each_other_s_project() {
    let home = home();
    let mut first = Client::start(&home, &["--sources", "book"]);
    assert!(first.ask()["result"]["tools"].is_array());
    let owner: Value = serde_json::from_slice(&fs::read(home.path("members/researcher/.owner")).unwrap()).unwrap();
    let pid = owner["pid"].as_u64().unwrap().try_into().unwrap();
    for (options, expected) in [
        (&["--sources", "other"][..], format!("it reads {}, not {}", real(&home, "book"), real(&home, "other"))),
        (&["--member", "researcher", "--sources", "other"], format!("not {}", real(&home, "other"))),
        (&["--agent", "claude"], "its sessions run on extractive, not on claude".to_owned()),
        (&["--config", home.write("guild.toml", "").to_str().unwrap()], "it has read no guild.toml, not ".to_owned()),
    ] {
        let (code, said) = Client::start(&home, options).end();
        assert_eq!(code, Some(1), "{said}");
        names(&said, pid, &[&expected]);
    }
    for options in
        [&["--sources", "./book", "--agent", "extractive"][..], &["--member", "researcher", "--sources", "book"], &[]]
    {
        let mut same = Client::start(&home, options);
        assert!(same.ask()["result"]["tools"].is_array(), "{options:?}");
        assert_eq!(same.end().0, Some(0));
    }
}

/// A host of all members, on that port.
fn serve_at(home: &Home, port: u16, sources: &str) -> Host {
    let mut command: Command = home.guild();
    let port_text = port.to_string();
    command.current_dir(home.path(".")).args([
        "serve",
        "--members",
        "members",
        "--sources",
        sources,
        "--port",
        &port_text,
    ]);
    let mut host = Host::start(command, port, "");
    assert!(host.is_ready(), "{}", host.output());
    host
}

#[test]
fn a_client_is_carried_to_no_host_that_took_over_with_other_read_roots() {
    let home = home();
    let port = crate::support::host::free_port();
    let host = serve_at(&home, port, "book");
    let mut client = Client::start(&home, &["--sources", "book"]);
    assert!(client.ask()["result"]["tools"].is_array());
    host.stop();
    // At the same address: only its note distinguishes it from the host before.
    let other = serve_at(&home, port, "other");
    let refused = client.ask();
    let text = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}"));
    names(text, other.pid(), &[&format!("it reads {}, not {}", real(&home, "other"), real(&home, "book"))]);
    other.stop();
    // Nobody serves them: it does so itself, with its own.
    assert!(client.ask()["result"]["tools"].is_array());
    assert!(fs::read_to_string(home.path("members/researcher/.host")).unwrap().contains(&real(&home, "book")));
    assert_eq!(client.end().0, Some(0));
}

#[test]
fn a_read_root_in_which_there_is_nothing_to_read_is_said_at_the_start() {
    let home = home();
    fs::create_dir(home.path("empty")).unwrap();
    home.write("pictures/a.bin", b"\0\x01\x02");
    home.write("hidden/.secret.md", "# Secret\n");
    let roots = ["--sources", "empty", "--sources", "pictures", "--sources", "hidden", "--sources", "book"];
    let refused_for = |said: &str| {
        assert!(
            said.contains(&format!("\"empty\" ({}) has no file that sessions can see", real(&home, "empty"))),
            "{said}"
        );
        assert!(
            said.contains("\"hidden\"") && said.contains("has no document; not read: binary (1): `pictures/a.bin`"),
            "{said}"
        );
        assert!(!said.contains("\"book\""), "{said}");
    };
    refused_for(&stderr(&run(&home, &roots)));
    let mut client = Client::start(&home, &roots);
    client.ask();
    refused_for(&client.end().1);
    let absolute: Vec<String> = roots
        .iter()
        .map(|root| match *root {
            "--sources" => "--sources".to_owned(),
            root => real(&home, root),
        })
        .collect();
    let host = home.serve_roster(&absolute.iter().map(String::as_str).collect::<Vec<_>>());
    for root in ["empty", "pictures", "hidden"] {
        host.prints(&format!("the read root {root:?}"));
    }
    refused_for(&host.output());
}
