//! The researcher: it answers a research question with a cited report (REQ-WD-40, REQ-WD-41).
//!
//! It only checks and plans, and imports no interface of the host: who it is stands in its member's `posture.md`, and
//! the host runs the session. So its component serves any member that researches: copy the member's directory and
//! change the name and the posture.

mod config;

use guild_plugin_sdk::{
    Activation, Plan, Refusal, Worker, commission, export_worker, meeting_plan, prompt, session_plan, smaller,
};

use crate::config::Config;

/// The built-in tools that a researcher works with, where they are granted (REQ-WD-31).
const TOOLS: [&str; 5] = ["Read", "Grep", "Glob", "WebSearch", "WebFetch"];

struct Researcher;

impl Worker for Researcher {
    fn activate(activation: Activation) -> Result<Plan, Refusal> {
        if let Some(plan) = meeting_plan(&activation, &TOOLS) {
            return Ok(plan);
        }
        let request = commission(&activation)?;
        let config = Config::of(request)?;
        let task = config.task(&request.task);
        let system_prompt = prompt::system_prompt(&activation, &task);
        let mut plan = session_plan(&activation, &task, system_prompt, &TOOLS);
        plan.bounds = smaller(config.bounds, activation.bounds);
        plan.model = config.model;
        Ok(Plan::Session(plan))
    }
}

export_worker!(Researcher);

#[cfg(test)]
mod tests {
    use guild_plugin_sdk::{
        Bounds, Context, Request, SessionPlan,
        types::{Commission, Meeting},
    };

    use super::*;

    const CEILING: Bounds = Bounds { max_turns: Some(200), max_budget_usd: Some(0.4), deadline_seconds: Some(3600) };

    fn activation(config: &str) -> Activation {
        let request = Request { description: "d".into(), task: "What is X?".into(), config: config.into() };
        Activation {
            context: Context::Commission(Commission { job: "job".into(), request, attempt: None }),
            project: None,
            posture: "You research.".into(),
            scopes: Vec::new(),
            memories: Vec::new(),
            granted_tools: vec!["Read".into(), "Grep".into(), "Other".into()],
            toolbox_tools: Vec::new(),
            bounds: CEILING,
        }
    }

    fn plan(config: &str) -> SessionPlan {
        match Researcher::activate(activation(config)).unwrap() {
            Plan::Session(plan) => plan,
            Plan::OwnRun(_) => panic!("the researcher's sessions are run by the host"),
        }
    }

    #[test]
    fn the_prompt_is_the_task_and_the_tools_are_those_that_were_granted() {
        let plan = plan("{}");
        assert_eq!(plan.prompt, "What is X?");
        assert_eq!(plan.tools, ["Read", "Grep"]);
        assert!(plan.system_prompt.contains("You research.") && plan.system_prompt.contains("What is X?"));
        assert_eq!(plan.model, None);
    }

    #[test]
    fn focus_and_model_reach_the_session() {
        let plan = plan(r#"{"focus": "its cost", "model": "m"}"#);
        assert_eq!(plan.prompt, "What is X?\n\nFocus on: its cost");
        assert!(plan.system_prompt.contains("Focus on: its cost"));
        assert_eq!(plan.model.as_deref(), Some("m"));
    }

    #[test]
    fn a_caller_lowers_the_bounds_and_never_raises_them_above_the_ceiling() {
        assert_eq!(plan("{}").bounds, CEILING);
        let lower = r#"{"maxTurns": 10, "maxBudgetUsd": 0.1, "deadlineSeconds": 60}"#;
        let lowered = Bounds { max_turns: Some(10), max_budget_usd: Some(0.1), deadline_seconds: Some(60) };
        assert_eq!(plan(lower).bounds, lowered);
        assert_eq!(plan(r#"{"maxTurns": 1000, "maxBudgetUsd": 9, "deadlineSeconds": 99999}"#).bounds, CEILING);
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_known_ones() {
        let refusal = Researcher::activate(activation(r#"{"turns": 3}"#)).unwrap_err();
        let Refusal::InvalidConfig(text) = refusal else { panic!("not a config error: {refusal:?}") };
        assert!(text.contains("\"turns\""), "{text}");
        assert!(text.contains("maxTurns, maxBudgetUsd, deadlineSeconds, model, focus"), "{text}");
    }

    #[test]
    fn in_a_meeting_it_talks_about_the_agenda() {
        let mut activation = activation("{}");
        activation.context =
            Context::Meeting(Meeting { id: "m".into(), agenda: "Tides".into(), artifacts: Vec::new() });
        let Ok(Plan::Session(plan)) = Researcher::activate(activation) else { panic!("no session") };
        assert!(plan.system_prompt.contains("You research.") && plan.system_prompt.contains("meeting: Tides"));
        assert!(!plan.system_prompt.contains("submit_result"), "{}", plan.system_prompt);
        assert_eq!(plan.tools, ["Read", "Grep"]);
    }
}
