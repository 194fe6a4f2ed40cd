//! Makes a case of a job that ran, from its `activation.json`, `plan.json`, `result.md` and transcript.

use std::{collections::BTreeMap, io};

use cap_std::fs::Dir;
use guild_contract::{
    Grants, JobId, Usage,
    capability::{FILES, Kind, SEARCH, WEB, grants::Verdict},
    manifest::{FILE_TOOLS, SESSION_TOOLS, Scope},
};
use guild_jobs::{Accepted, GivenActivation};
use guild_scripted::{ScriptedCall, SessionScript, Turn};
use guild_session::{
    activation::{Activation, Plan},
    meter::Ending,
    tools::ToolDefinition,
    transcript::{Entry, Line, SUCCESS, account},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    expect::without_nulls,
    recording::{RecordedCall, RecordedSession, transcript},
    scenario::{Given, Note, ToolboxTool},
};

/// Bytes that are read of a job's file.
const FILE_BYTES: u64 = 256 * 1024 * 1024;

/// The placeholder for the files of the job's read roots.
const PLACEHOLDER: &str = "placeholder.md";
/// Its root, if the job was granted no root by name.
const ROOT: &str = "sources";

/// A job that ran.
pub struct RecordedJob {
    /// The job.
    pub id: JobId,
    /// The time at which it was made.
    pub at: jiff::Timestamp,
    /// The scenario of its dispatch. The files under the read roots are not recorded: a placeholder is there for them.
    pub given: Given,
    /// The turns of the model, with the answers of built-in tools and toolboxes.
    pub scripts: Vec<SessionScript>,
    /// The plan of its component.
    pub plan: Plan,
    /// Its sessions.
    pub sessions: Vec<RecordedSession>,
    /// The calls of tools in all sessions.
    pub calls: Vec<RecordedCall>,
    /// Its result, if it completed.
    pub result: Option<String>,
    /// The usage of its sessions.
    pub usage: Usage,
}

/// A test file, as it is written.
#[derive(Serialize)]
struct TestFile<'a> {
    cases: [Case<'a>; 1],
}

#[derive(Serialize)]
struct Case<'a> {
    name: String,
    given: &'a Given,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sessions: &'a [SessionScript],
    expect: Value,
}

impl RecordedJob {
    /// Reads the directory of a job that was dispatched to a member.
    ///
    /// # Errors
    ///
    /// Returns a sentence when the job does not have what is needed.
    pub fn read(job: &Dir) -> Result<Self, String> {
        let GivenActivation { at, activation }: GivenActivation<Activation> = parsed(job, "activation.json")?.ok_or(
            "the job has no activation.json: only jobs of a newer host can be recorded; dispatch its task again",
        )?;
        if activation.attempt.is_some() || activation.meeting.is_some() || activation.project.is_some() {
            return Err(
                "the job belongs to a project, and a test has none: only dispatched jobs can be recorded".to_owned()
            );
        }
        let Accepted { plan, grants, .. } = parsed(job, "plan.json")?.ok_or("the job has no plan.json")?;
        let lines = lines(job)?;
        let (sessions, calls) = transcript(&lines);
        let at = at.parse().map_err(|e| format!("activation.json: `at`: {e}"))?;
        let Activation { job: id, request, posture, memories, granted_tools, toolbox_tools, bounds, .. } = activation;
        let reads_files = granted_tools.iter().any(|tool| FILE_TOOLS.contains(&tool.as_str()));
        let placeholder = reads_files.then(|| (format!("{}/{PLACEHOLDER}", root(&grants)), String::new()));
        let given = Given {
            task: Some(request.task),
            description: Some(request.description),
            config: request.config.as_object().cloned().unwrap_or_default(),
            time: Some(at),
            posture: Some(posture).filter(|posture| !posture.is_empty()),
            bounds: Some(bounds),
            deny: denied(&grants),
            files: placeholder.into_iter().collect(),
            toolbox: toolbox_tools.iter().map(|tool| toolbox(tool)).collect(),
            memory: memories
                .into_iter()
                .filter(|note| note.scope == Scope::Worker)
                .map(|note| Note { key: note.key, text: note.content, modified: note.modified.parse().ok() })
                .collect(),
            ..Given::default()
        };
        let scripts = scripts(&lines, &calls, &given.toolbox);
        let usage = account(&lines).usage;
        Ok(Self { id, at, given, scripts, plan, sessions, calls, result: text(job, "result.md")?, usage })
    }

    /// The text of a test file that has the job as its case.
    ///
    /// # Errors
    ///
    /// Returns a sentence when TOML cannot have the job.
    pub fn test_file(&self) -> Result<String, String> {
        let mut expect = json!({"plan": self.plan, "result": self.result});
        if let (false, Some(expect)) = (self.sessions.is_empty(), expect.as_object_mut()) {
            let prompts = self.sessions.iter().map(|session| json!({"prompt": session.prompt}));
            expect.insert("sessions".to_owned(), prompts.collect());
            let tools = self.calls.iter().map(|call| json!({"tool": call.tool}));
            expect.insert("calls".to_owned(), tools.collect());
        }
        let name = format!("job {}", self.id);
        let file = TestFile { cases: [Case { name, given: &self.given, sessions: &self.scripts, expect }] };
        let file = serde_json::to_value(file).map_err(|e| e.to_string())?;
        // TOML has no null.
        let written = toml::to_string_pretty(&without_nulls(file));
        let written = written.map_err(|e| format!("TOML cannot have the job: {e}"))?;
        let mut head = format!("# Recorded from a job of {}.\n", self.at);
        if let Some(placeholder) = self.given.files.keys().next() {
            head.push_str(&format!(
                "# {placeholder} stands for the read roots of the job, whose files are not recorded.\n"
            ));
        }
        Ok(format!("{head}\n{written}"))
    }
}

/// A root that the job was granted by its name.
fn root(grants: &Grants) -> &str {
    let named = grants.roots.iter().flat_map(|roots| &roots.all_of).flatten();
    named.map(String::as_str).find(|name| !name.contains('*')).unwrap_or(ROOT)
}

/// The capabilities that the job was denied, by the names of `deny`.
fn denied(grants: &Grants) -> Vec<String> {
    let denied = grants.verdicts().filter(|(_, verdict)| **verdict != Verdict::Granted).map(|(name, _)| match name {
        "WebFetch" => WEB.name,
        "WebSearch" => SEARCH.name,
        name if FILE_TOOLS.contains(&name) => FILES.name,
        name => Kind::named(name).map_or(name, |kind| kind.name),
    });
    let mut names: Vec<String> = denied.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// A tool of a toolbox. What it answers stands at its calls.
fn toolbox(tool: &ToolDefinition) -> ToolboxTool {
    ToolboxTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: without_nulls(tool.input_schema.clone()).as_object().cloned().unwrap_or_default(),
        ..ToolboxTool::default()
    }
}

/// The turns of the model in each session, in the order in which the sessions began.
fn scripts(lines: &[Line], calls: &[RecordedCall], toolbox: &[ToolboxTool]) -> Vec<SessionScript> {
    let mut scripts = BTreeMap::<u32, SessionScript>::new();
    let mut calls = calls.iter();
    for line in lines {
        let Some(script) = line.entry.session().map(|session| scripts.entry(session).or_default()) else { continue };
        match &line.entry {
            Entry::Turn { text, usage, .. } => {
                let cost_usd = usage.cost_usd.filter(|usd| *usd > 0.0);
                script.turns.push(Turn { text: text.clone(), cost_usd, ..Turn::default() });
            }
            Entry::Call { .. } => {
                let Some(call) = calls.next() else { continue };
                // The component, and the job, answer their own tools.
                let is_outside =
                    SESSION_TOOLS.contains(&&*call.tool) || toolbox.iter().any(|tool| tool.name == call.tool);
                let call = ScriptedCall {
                    tool: call.tool.clone(),
                    input: call.input.as_object().cloned().unwrap_or_default(),
                    answer: call.answer.clone().filter(|_| is_outside),
                    error: call.error.clone().filter(|_| is_outside),
                };
                script.turns.last_mut().into_iter().for_each(|turn| turn.calls.push(call.clone()));
            }
            Entry::End { ending, .. } => end(script, ending),
            _ => {}
        }
    }
    scripts.into_values().collect()
}

/// Ends a script as its session ended. A turn without calls ends a scripted session, so one before the last is joined
/// with the turn after it.
fn end(script: &mut SessionScript, ending: &str) {
    let turns = std::mem::take(&mut script.turns);
    let last = turns.len().saturating_sub(1);
    let mut text = String::new();
    for (position, mut turn) in turns.into_iter().enumerate() {
        if !text.is_empty() {
            turn.text = format!("{}\n\n{}", std::mem::take(&mut text), turn.text).trim_end().to_owned();
        }
        match turn.calls.is_empty() && position < last {
            true => text = turn.text,
            false => script.turns.push(turn),
        }
    }
    // A bound is reached again by itself.
    let bounds = [Ending::MaxTurns, Ending::MaxBudget, Ending::Deadline, Ending::Interrupted].map(|it| it.kind());
    if ending != SUCCESS && !bounds.iter().any(|kind| ending.contains(kind)) {
        script.turns.push(Turn { fail: Some(ending.to_owned()), ..Turn::default() });
    }
}

/// A file of the job; `None` if there is none.
fn text(job: &Dir, file: &str) -> Result<Option<String>, String> {
    match job.metadata(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > FILE_BYTES => return Err(format!("{file} is larger than {FILE_BYTES} bytes")),
        _ => {}
    }
    job.read_to_string(file).map(Some).map_err(|e| format!("{file} cannot be read: {e}"))
}

fn parsed<T: DeserializeOwned>(job: &Dir, file: &str) -> Result<Option<T>, String> {
    let parse = |text: String| serde_json::from_str(&text).map_err(|e| format!("{file} cannot be read: {e}"));
    text(job, file)?.map(parse).transpose()
}

/// The lines of the transcript, but one that a crash cut off.
fn lines(job: &Dir) -> Result<Vec<Line>, String> {
    let text = text(job, "transcript.jsonl")?.unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).map_err(|e| format!("transcript.jsonl cannot be read: {e}"))).collect()
}
