//! A worker that knows the headings of the files that it may read, and a tool that lists them.

use guild_plugin_sdk::{
    Activation, HostError, Plan, Refusal, Worker, commission,
    config::Config,
    explain, export_toolbox, export_worker, files, prompt, session_plan, smaller,
    toolbox::{Tool, Toolbox},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The files, as a glob; all Markdown if it is left out.
    #[serde(default)]
    files: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Headings {
    headings: Vec<Heading>,
}

#[derive(Serialize, JsonSchema)]
struct Heading {
    /// The file.
    path: String,
    /// The number of the line, from 1.
    line: u32,
    /// The heading, with its `#`.
    text: String,
}

fn headings(input: Input) -> Result<Headings, HostError> {
    let found = files::grep(
        "^#{1,3} ",
        Some(input.files.as_deref().unwrap_or("**/*.md")),
        200,
    )?;
    let headings = found.into_iter().map(|at| Heading {
        path: at.path,
        line: at.line,
        text: at.text,
    });
    Ok(Headings {
        headings: headings.collect(),
    })
}

struct Guide;

impl Worker for Guide {
    fn activate(activation: Activation) -> Result<Plan, Refusal> {
        let request = commission(&activation)?;
        let mut config = Config::of(request)?;
        let bounds = config.bounds()?;
        config.finish()?;

        let found =
            headings(Input { files: None }).map_err(|e| Refusal::Unsupported(explain(e)))?;
        let mut system_prompt = prompt::system_prompt(&activation, &request.task);
        system_prompt.push_str("\n\n# Headings of the files\n");
        for Heading { path, line, text } in found.headings {
            system_prompt.push_str(&format!("\n{path}:{line}: {text}"));
        }
        let mut plan = session_plan(
            &activation,
            &request.task,
            system_prompt,
            &["Read", "Grep", "Glob"],
        );
        plan.bounds = smaller(bounds, activation.bounds);
        Ok(Plan::Session(plan))
    }
}

impl Toolbox for Guide {
    fn tools() -> Vec<Tool> {
        vec![
            Tool::new(
                "headings",
                "Lists the headings of Markdown files, to find where to read.",
                headings,
            )
            .read_only(),
        ]
    }
}

export_worker!(Guide);
export_toolbox!(Guide);
