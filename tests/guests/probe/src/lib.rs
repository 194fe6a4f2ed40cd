//! A component that tries what its task names, line by line, and reports what came of each.

mod disk;

use std::{fs, io::Write, thread, time::Duration};

use futures_util::future::join;
use guild_plugin_sdk::{
    Activation, AutonomousWorker, Bounds, Decision, Plan, Refusal, Scope, Session, ToolDefinition, Worker,
    agent::{self, Event, Finish},
    block_on, commission, explain, export_autonomous_worker, files, job_tools, memory, status, web,
};

struct Probe;

impl Worker for Probe {
    fn activate(activation: Activation) -> Result<Plan, Refusal> {
        let request = commission(&activation)?;
        println!("activated for {}", request.description);
        if request.task == "now" {
            // What an activation finds: no job, memory to read, nothing to write.
            return Err(Refusal::Unsupported(block_on(attempts(
                "ls /\nls /job\nls /memory\nsummary x\nremember k x\nstatus\nask x",
            ))));
        }
        Ok(Plan::OwnRun(activation.bounds))
    }
}

impl AutonomousWorker for Probe {
    async fn run(activation: Activation) -> Result<String, String> {
        let request = commission(&activation).map_err(|_| "no commission".to_owned())?;
        Ok(attempts(&request.task).await)
    }
}

/// One line of report for each line of the task.
async fn attempts(task: &str) -> String {
    let mut report = String::new();
    for line in task.lines() {
        let (kind, text) = match attempt(line).await {
            Ok(text) => ("ok", text),
            Err(text) => ("error", text),
        };
        report.push_str(&format!("{line}: {kind} {}\n", text.replace('\n', " ")));
    }
    report
}

async fn attempt(line: &str) -> Result<String, String> {
    let io = |e: std::io::Error| e.kind().to_string();
    let mut words = line.splitn(3, ' ');
    let verb = words.next().unwrap_or_default();
    let (a, b) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match verb {
        "ls" => {
            let mut names = Vec::new();
            for entry in fs::read_dir(a).map_err(io)? {
                names.push(entry.map_err(io)?.file_name().to_string_lossy().into_owned());
            }
            names.sort();
            Ok(names.join(" "))
        }
        "read" => fs::read_to_string(a).map_err(io),
        "write" => fs::write(a, b).map(|()| String::new()).map_err(io),
        "append" => {
            let mut file = fs::OpenOptions::new().append(true).open(a).map_err(io)?;
            file.write_all(b.as_bytes()).map(|()| String::new()).map_err(io)
        }
        "truncate" => fs::OpenOptions::new().write(true).truncate(true).open(a).map(|_| String::new()).map_err(io),
        "remove" => fs::remove_file(a).map(|()| String::new()).map_err(io),
        "rename" => fs::rename(a, b).map(|()| String::new()).map_err(io),
        "link" => fs::hard_link(a, b).map(|()| String::new()).map_err(io),
        "mkdir" => fs::create_dir(a).map(|()| String::new()).map_err(io),
        "env" => Ok(std::env::vars().map(|(name, _)| name).collect::<Vec<_>>().join(" ")),
        "args" => Ok(std::env::args().collect::<Vec<_>>().join(" ")),
        "stdin" => std::io::read_to_string(std::io::stdin()).map_err(io),
        "sleep" => {
            thread::sleep(Duration::from_secs(3600));
            Ok(String::new())
        }
        "scribble" => {
            for n in 0_u64.. {
                fs::write("/job/artifacts/n.txt", n.to_string()).map_err(io)?;
            }
            Ok(String::new())
        }
        "flood" => {
            for n in 0..200_000 {
                println!("line {n} of a flood");
            }
            Ok(String::new())
        }
        "stderr" => {
            eprintln!("{a} {b}");
            Ok(String::new())
        }
        "summary" => job_tools::update_summary(a).map(|()| String::new()).map_err(explain),
        "decide" => {
            let decision = Decision { question: a.into(), decision: b.into(), reasoning: "r".into() };
            job_tools::record_decision(&decision).map(|()| String::new()).map_err(explain)
        }
        "question" => job_tools::log_question(line).map(|()| String::new()).map_err(explain),
        "artifact" => job_tools::write_artifact(a, b.as_bytes()).map(|()| String::new()).map_err(explain),
        "submit" => job_tools::submit_result(a).map(|()| String::new()).map_err(explain),
        "status" => status::current().map(|s| format!("{} {}", s.description, s.questions.len())).map_err(explain),
        "remember" => memory::store(Scope::Worker, a, b).map(|()| String::new()).map_err(explain),
        "forget" => memory::delete(Scope::Worker, a).map(|there| there.to_string()).map_err(explain),
        "search" => web::search(a, 3).map(|hits| hits.len().to_string()).map_err(explain),
        "recall" => memory::load(Scope::Worker, a).map(Option::unwrap_or_default).map_err(explain),
        "teach" => memory::store(Scope::Global, a, b).map(|()| String::new()).map_err(explain),
        "project" => memory::store(Scope::Project, a, b).map(|()| String::new()).map_err(explain),
        "global" => memory::load(Scope::Global, a).map(Option::unwrap_or_default).map_err(explain),
        "file" => files::read(a, 1, 10).map_err(explain),
        "fetch" => web::fetch(a).map_err(explain),
        "ask" => Ok(described(&ask(line, started(line)?).await)),
        "pair" => pair(line).await,
        "hoard" => hoard(a.parse().map_err(|_| "how many?")?),
        _ => disk::attempt(verb, a, b).unwrap_or_else(|| Err("what is that?".to_owned())),
    }
}

/// A session with a tool of the component's own.
fn started(question: &str) -> Result<Session, String> {
    let tool = ToolDefinition {
        name: "oracle".into(),
        title: None,
        description: "Knows the answer.".into(),
        input_schema: r#"{"type":"object"}"#.into(),
        output_schema: None,
        read_only: true,
    };
    Session::start(&agent::Options {
        prompt: question.split_once(' ').map_or(question, |(_, question)| question).to_owned(),
        system_prompt: String::new(),
        tools: ["Read", "Grep", "Glob"].map(String::from).to_vec(),
        job_tools: false,
        own_tools: vec![tool],
        model: None,
        bounds: Bounds { max_turns: Some(50), max_budget_usd: None, deadline_seconds: None },
    })
    .map_err(explain)
}

/// Follows a session. Its tool answers with what it was asked, and fails where it was asked to.
async fn ask(line: &str, session: Session) -> Finish {
    let answer = async |call: &agent::ToolCall| match call.input.contains("fail") {
        true => Err("the oracle is silent".to_owned()),
        false => Ok(format!("42, for {} of {line:?}", call.input).into()),
    };
    session.finish(answer).await
}

/// Two sessions at once, of which the first is interrupted when it says something, or has called its tool.
async fn pair(line: &str) -> Result<String, String> {
    let (first, second) = (started(line)?, started(line)?);
    let interrupted = async {
        let end = match first.next().await {
            Some(Event::Finished(end)) => end,
            _ => {
                first.interrupt();
                first.finish(async |_| Err("too late".to_owned())).await
            }
        };
        described(&end)
    };
    let (first, second) = join(interrupted, ask(line, second)).await;
    Ok(format!("{first} | {}", described(&second)))
}

/// Sessions with prompts of a MiB each, all held at once: how many there are, and why there is not one more.
fn hoard(most: usize) -> Result<String, String> {
    let question = "x".repeat(1 << 20);
    let mut sessions = Vec::new();
    while sessions.len() < most {
        match started(&question) {
            Ok(session) => sessions.push(session),
            Err(why) => return Ok(format!("{}: {why}", sessions.len())),
        }
    }
    Ok(most.to_string())
}

fn described(end: &Finish) -> String {
    format!("{:?} after {} turns: {}", end.ending, end.usage.turns, end.text)
}

export_autonomous_worker!(Probe);
