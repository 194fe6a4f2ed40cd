//! The surveyor: it lists the files that it was granted, counts them by kind, and says what changed since it last looked.
//!
//! It carries its jobs out itself, without a model, and asks an agent session for a description only where `config` says
//! `"describe": true`. Each import of the world `autonomous-worker` but `web` is used once, so it serves as a template.

mod survey;

use guild_plugin_sdk::{
    Activation, AutonomousWorker, Bounds, Decision, HostError, Plan, Refusal, Request, Scope, Session, Worker, agent,
    commission, config::Config, explain, export_autonomous_worker, files, job_tools, log, memory, outcome,
    session_options, smaller, status,
};

use crate::survey::Survey;

/// More files than this are not listed.
const MAX_FILES: u32 = 5000;
/// Where the surveyor remembers what it saw.
const MEMORY: &str = "last-survey";
/// What a description may cost, where the job's own bounds allow it.
const DESCRIPTION: Bounds = Bounds { max_turns: Some(20), max_budget_usd: Some(0.10), deadline_seconds: Some(300) };

/// A dispatch's `config`. Every key is optional.
struct Options {
    /// `glob`: which files.
    glob: String,
    /// `describe`: whether an agent session describes them.
    describe: bool,
    /// `maxTurns`, `maxBudgetUsd`, `deadlineSeconds`.
    bounds: Bounds,
}

impl Options {
    fn of(request: &Request) -> Result<Self, Refusal> {
        let mut config = Config::of(request)?;
        let options = Self {
            glob: config.text("glob")?.unwrap_or_else(|| "**/*".to_owned()),
            describe: config.flag("describe")?.unwrap_or(false),
            bounds: config.bounds()?,
        };
        config.finish()?;
        Ok(options)
    }
}

struct Surveyor;

impl Worker for Surveyor {
    fn activate(activation: Activation) -> Result<Plan, Refusal> {
        let options = Options::of(commission(&activation)?)?;
        match files::glob(&options.glob, 1) {
            Err(HostError::InvalidInput(text)) => Err(Refusal::InvalidConfig(format!("config.glob: {text}"))),
            Err(error) => Err(Refusal::Unsupported(format!("there is nothing to survey: {}", explain(error)))),
            Ok(_) => Ok(Plan::OwnRun(smaller(options.bounds, activation.bounds))),
        }
    }
}

impl AutonomousWorker for Surveyor {
    async fn run(activation: Activation) -> Result<String, String> {
        let refused = |(Refusal::InvalidConfig(text) | Refusal::Unsupported(text))| text;
        let request = commission(&activation).map_err(refused)?;
        let options = Options::of(request).map_err(refused)?;
        job_tools::update_summary(&format!("Listing the files that match {}", options.glob)).map_err(explain)?;
        let paths = files::glob(&options.glob, MAX_FILES).map_err(explain)?;
        log::write(log::Level::Info, &format!("{} matches {} files", options.glob, paths.len()));
        let survey = Survey::of(paths);
        note_what_a_person_should_know(&survey, &options.glob).map_err(explain)?;
        job_tools::write_artifact("files.csv", survey.csv().as_bytes()).map_err(explain)?;

        let last = memory::load(Scope::Worker, MEMORY).map_err(explain)?;
        memory::store(Scope::Worker, MEMORY, &survey.note(&options.glob)).map_err(explain)?;
        let job = status::current().map_err(explain)?;
        let report = survey.report(&job.description, &options.glob, last.as_deref());
        if !options.describe {
            return Ok(report);
        }

        // What was found is handed over before a session is asked: whatever becomes of that, the job has its result.
        job_tools::submit_result(&report).map_err(explain)?;
        job_tools::update_summary(&format!("Listed {} files; asking for a description", survey.len()))
            .map_err(explain)?;
        match describe(&activation, request, &survey).await {
            Ok(text) => Ok(format!("{report}\n## Description\n\n{}\n", text.trim())),
            Err(error) => {
                log::write(log::Level::Warn, &format!("no description: {error}"));
                Ok(String::new())
            }
        }
    }
}

fn note_what_a_person_should_know(survey: &Survey, glob: &str) -> Result<(), HostError> {
    if survey.len() == 0 {
        job_tools::log_question(&format!("No file matches {glob}. Are the right directories granted?"))?;
    }
    if survey.len() >= MAX_FILES as usize {
        job_tools::record_decision(&Decision {
            question: format!("{glob} matches more files than one table should have. Which to list?"),
            decision: format!("The {MAX_FILES} that changed last."),
            reasoning: "What changed last is most likely of interest; a narrower glob lists the rest.".to_owned(),
        })?;
    }
    Ok(())
}

/// Asks an agent session what the files are. It reads, and nothing else: it has none of this job's tools.
async fn describe(activation: &Activation, request: &Request, survey: &Survey) -> Result<String, String> {
    let prompt =
        format!("{}\n\nDescribe in a few sentences what these files are:\n\n{}", request.task, survey.sample());
    let options = agent::Options {
        bounds: smaller(DESCRIPTION, activation.bounds),
        ..session_options(activation, &prompt, &["Read", "Grep", "Glob"])
    };
    let session = Session::start(&options).map_err(explain)?;
    outcome(session.finish(async |call| Err(format!("there is no tool {}", call.name))).await)
}

export_autonomous_worker!(Surveyor);
