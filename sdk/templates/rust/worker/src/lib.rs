//! A worker that answers questions from the files that it may read.

use guild_plugin_sdk::{
    Activation, Plan, Refusal, Worker, commission, config::Config, export_worker, prompt,
    session_plan, smaller,
};

struct Answerer;

impl Worker for Answerer {
    fn activate(activation: Activation) -> Result<Plan, Refusal> {
        let request = commission(&activation)?;
        let mut config = Config::of(request)?;
        let bounds = config.bounds()?;
        let focus = config.text("focus")?;
        config.finish()?;

        let task = match focus {
            Some(focus) => format!("{}\n\nConcentrate on: {focus}", request.task),
            None => request.task.clone(),
        };
        let system_prompt = prompt::system_prompt(&activation, &request.task);
        let mut plan = session_plan(&activation, &task, system_prompt, &["Read", "Grep", "Glob"]);
        plan.bounds = smaller(bounds, activation.bounds);
        Ok(Plan::Session(plan))
    }
}

export_worker!(Answerer);
