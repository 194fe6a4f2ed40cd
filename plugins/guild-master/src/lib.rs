//! The guild master: the manager of a hall (REQ-WKR-24 to REQ-WKR-28).
//!
//! It only plans. Who it is, and when it leaves a decision to the user, stands in its member's `posture.md`; what there is in
//! the hall, and the tools by which it manages, the host gives to its sessions. It imports nothing, so a copy of this component
//! can do no more than any other worker: the tools are the member's that the operator names as the manager.

use guild_plugin_sdk::{
    Activation, Plan, Refusal, Worker, commission, config::Config, export_worker, meeting_plan, prompt, session_plan,
    smaller,
};

/// The built-in tools that it looks at the project with, where they are granted.
const TOOLS: [&str; 3] = ["Read", "Grep", "Glob"];

/// What the prompt says of its tools besides that which every worker is told.
const INSTRUCTIONS: &str = "\
- `create_commission`: work for another worker. Its prompt is all that the worker knows of it: say what is wanted, where to \
look, and what the result is. It is dispatched at once unless you say otherwise.
- `dispatch_commission`, `cancel_commission`, `abandon_commission`: what is there already, of this project.
- `add_commission_note`: what the user should know of a commission, where they look for it.
- `check_commission_status`: where commissions are. Nothing tells you of a change: look before you rely on one. Do not wait for \
work that you dispatched: finish, and say in your result what is under way.
- `create_pr`: what is on `claude/main`, for the user to review and to merge. It is refused while other work is under way.
- `initiate_meeting`: asks the user for a meeting, with you or another worker, where there is something to present or to decide.
- `git_status`, `git_log`, `git_diff`, `git_show`, `git_branch`: a look at the project that changes nothing.
- A tool that is not there was not granted, or is for another kind of work; go on without it.";

struct GuildMaster;

impl Worker for GuildMaster {
    fn activate(activation: Activation) -> Result<Plan, Refusal> {
        if let Some(Plan::Session(mut plan)) = meeting_plan(&activation, &TOOLS) {
            plan.system_prompt = format!("{}\n\n# How you manage\n\n{INSTRUCTIONS}", plan.system_prompt);
            return Ok(Plan::Session(plan));
        }
        let request = commission(&activation)?;
        let mut config = Config::of(request)?;
        let (wanted, model) = (config.bounds()?, config.text("model")?);
        config.finish()?;
        let system_prompt = prompt::system_prompt(&activation, &request.task);
        let system_prompt = format!("{system_prompt}\n\n# How you manage\n\n{INSTRUCTIONS}");
        let mut plan = session_plan(&activation, &request.task, system_prompt, &TOOLS);
        plan.bounds = smaller(wanted, activation.bounds);
        plan.model = model;
        Ok(Plan::Session(plan))
    }
}

export_worker!(GuildMaster);

#[cfg(test)]
mod tests {
    use guild_plugin_sdk::{
        Bounds, Context, Request,
        types::{Commission, Meeting, Project},
    };

    use super::*;

    #[test]
    fn it_plans_one_session_with_its_posture_the_task_and_how_it_manages() {
        let request = Request { description: "d".into(), task: "Plan the index.".into(), config: "{}".into() };
        let activation = Activation {
            context: Context::Commission(Commission { job: "job".into(), request, attempt: None }),
            project: Some(Project { name: "demo".into(), root: "lore".into() }),
            posture: "You coordinate.".into(),
            scopes: Vec::new(),
            memories: Vec::new(),
            granted_tools: vec!["Read".into(), "Glob".into()],
            toolbox_tools: Vec::new(),
            bounds: Bounds { max_turns: Some(50), max_budget_usd: None, deadline_seconds: Some(60) },
        };
        let Plan::Session(plan) = GuildMaster::activate(activation).unwrap() else {
            panic!("the host runs its session")
        };
        for part in ["You coordinate.", "Plan the index.", "# How you manage", "`create_commission`"] {
            assert!(plan.system_prompt.contains(part), "{part}: {}", plan.system_prompt);
        }
        assert_eq!(plan.tools, ["Read", "Glob"]);
        assert_eq!(plan.bounds, Bounds { max_turns: Some(50), max_budget_usd: None, deadline_seconds: Some(60) });
    }

    #[test]
    fn in_a_meeting_it_talks_and_has_the_same_tools() {
        let meeting = Meeting { id: "m".into(), agenda: "What next?".into(), artifacts: Vec::new() };
        let activation = Activation {
            context: Context::Meeting(meeting),
            project: Some(Project { name: "demo".into(), root: "demo".into() }),
            posture: "You coordinate.".into(),
            scopes: Vec::new(),
            memories: Vec::new(),
            granted_tools: vec!["Read".into()],
            toolbox_tools: Vec::new(),
            bounds: Bounds { max_turns: Some(50), max_budget_usd: None, deadline_seconds: Some(60) },
        };
        let Plan::Session(plan) = GuildMaster::activate(activation).unwrap() else {
            panic!("the host runs its session")
        };
        for part in ["You coordinate.", "What next?", "`initiate_meeting`"] {
            assert!(plan.system_prompt.contains(part), "{part}: {}", plan.system_prompt);
        }
        assert!(!plan.system_prompt.contains("`submit_result`"), "{}", plan.system_prompt);
    }
}
