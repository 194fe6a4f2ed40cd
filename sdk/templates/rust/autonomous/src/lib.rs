//! A worker that asks each file one question, with a session for each, side by side.

use futures_util::future::join_all;
use guild_plugin_sdk::{
    Activation, AutonomousWorker, Bounds, Plan, Refusal, Session, Worker, commission,
    config::Config, explain, export_autonomous_worker, files, outcome, session_options, smaller,
};

struct Asker;

/// What a dispatch asks for.
struct Settings {
    task: String,
    files: String,
    most: u32,
    bounds: Bounds,
}

fn settings(activation: &Activation) -> Result<Settings, Refusal> {
    let request = commission(activation)?;
    let mut config = Config::of(request)?;
    let bounds = smaller(config.bounds()?, activation.bounds);
    let files = config
        .text("files")?
        .unwrap_or_else(|| "**/*.md".to_owned());
    let most = config.count_to("most", 20)?.unwrap_or(5);
    config.finish()?;
    Ok(Settings {
        task: request.task.clone(),
        files,
        most,
        bounds,
    })
}

/// The section of the report on one file. A session that fails is a sentence in it, not the end of the job.
async fn section(activation: &Activation, task: &str, path: &str) -> String {
    let options = session_options(
        activation,
        &format!("{task}\nSource: `{path}`"),
        &["Read", "Grep", "Glob"],
    );
    let answer = match Session::start(&options) {
        Ok(session) => outcome(
            session
                .finish(async |_| Err("there is no such tool".to_owned()))
                .await,
        ),
        Err(error) => Err(explain(error)),
    };
    format!(
        "# {path}\n\n{}",
        answer.unwrap_or_else(|why| format!("No answer: {why}"))
    )
}

impl Worker for Asker {
    fn activate(activation: Activation) -> Result<Plan, Refusal> {
        Ok(Plan::OwnRun(settings(&activation)?.bounds))
    }
}

impl AutonomousWorker for Asker {
    async fn run(activation: Activation) -> Result<String, String> {
        let refused = |(Refusal::InvalidConfig(text) | Refusal::Unsupported(text))| text;
        let settings = settings(&activation).map_err(refused)?;
        let paths = files::glob(&settings.files, settings.most).map_err(explain)?;
        if paths.is_empty() {
            return Err(format!("no file matches {}", settings.files));
        }
        let sections = join_all(
            paths
                .iter()
                .map(|path| section(&activation, &settings.task, path)),
        )
        .await;
        Ok(sections.join("\n\n"))
    }
}

export_autonomous_worker!(Asker);
