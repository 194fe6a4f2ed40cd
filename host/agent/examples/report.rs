//! Runs the built-in runtime over directories, without a host: prints what its tools are told, then the report.
//!
//! `cargo run -p guild-agent --release --example report -- "question" DIR...`

use std::{error::Error, process::ExitCode, sync::Arc, time::Instant};

use async_trait::async_trait;
use guild_agent::{DOCUMENT_TASK, Extractive, FILES_TASK, ReadRoots};
use guild_contract::Bounds;
use guild_session::{
    files::Files,
    meter::Meter,
    session::{AgentRuntime, NoTools, Session, Wanted},
    tools::{ToolCall, ToolDefinition, ToolError, Tools},
    transcript::NoJournal,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// The internal tools, printed.
struct Printed;

#[async_trait]
impl Tools for Printed {
    fn definitions(&self) -> Vec<Arc<ToolDefinition>> {
        let names = ["update_summary", "record_decision", "log_question", "store_memory", "submit_result"];
        let tool = |name: &str| ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: String::new(),
            input_schema: json!({"type": "object"}),
            output_schema: None,
            read_only: false,
        };
        names.into_iter().map(|name| Arc::new(tool(name))).collect()
    }

    #[allow(clippy::print_stderr, reason = "it is a program for a terminal")]
    async fn call(&self, call: ToolCall) -> Result<Value, ToolError> {
        if call.name != "submit_result" {
            eprintln!("{}: {:#}", call.name, call.input);
        }
        Ok(Value::Null)
    }
}

#[allow(clippy::print_stderr, reason = "it is a program for a terminal")]
fn main() -> ExitCode {
    if let Some(code) = guild_confine::serve_if_asked(&[&DOCUMENT_TASK, &FILES_TASK]) {
        return code;
    }
    match report() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program for a terminal")]
async fn report() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let question = arguments.next().ok_or("usage: report QUESTION DIR...")?;
    let files: Arc<dyn Files> = Arc::new(ReadRoots::open(arguments)?);
    let runtime = Extractive::new();
    runtime.check(&Wanted { files: Some(&*files), ..Wanted::default() })?;
    let mut report = String::new();
    // The second time, the index is there.
    for round in ["cold", "warm"] {
        let session = Session {
            number: 1,
            system_prompt: String::new(),
            prompt: question.clone(),
            converses: false,
            conversation_chars: 0,
            model: None,
            tools: if round == "cold" { Arc::new(Printed) } else { Arc::new(NoTools) },
            files: Some(files.clone()),
            meter: Meter::new(Bounds::default()),
            cancel: CancellationToken::new(),
            texts: None,
            journal: Arc::new(NoJournal),
            history: Vec::new(),
        };
        let started = Instant::now();
        let end = runtime.run(session).await;
        eprintln!("{round}: {:?} in {:?}", end.ending, started.elapsed());
        report = end.text;
    }
    println!("{report}");
    Ok(())
}
