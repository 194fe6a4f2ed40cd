//! Makes a test file of a past job, from its `activation.json`, `plan.json` and transcript.

use std::{collections::BTreeMap, io};

use cap_std::fs::Dir;
use guild_contract::{
    Grants,
    capability::{FILES, Kind, SEARCH, WEB, grants::Verdict},
    manifest::{FILE_TOOLS, SESSION_TOOLS, Scope},
};
use guild_jobs::{Accepted, GivenActivation};
use guild_scripted::{ScriptedCall, SessionScript, Turn};
use guild_session::{
    activation::{Activation, Plan},
    meter::Ending,
    tools::ToolDefinition,
    transcript::{Entry, Line, SUCCESS},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{
    expect::without_nulls,
    recording::{RecordedCall, transcript},
    scenario::{Given, Note, ToolboxTool},
};

/// The most bytes of a job's file that are read.
const FILE_BYTES: u64 = 256 * 1024 * 1024;

/// The placeholder for the files of the job's read roots.
const PLACEHOLDER: &str = "sources/placeholder.md";

/// A test file, as it is written.
#[derive(Serialize)]
struct Recorded {
    cases: [Case; 1],
}

#[derive(Serialize)]
struct Case {
    name: String,
    given: Given,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sessions: Vec<SessionScript>,
    expect: Value,
}

/// Makes the text of a test file from the directory of a job that was dispatched to a member.
///
/// The model's calls of Read, Grep, Glob, WebSearch and WebFetch are left out: the job has no copy of the files and pages
/// that they read.
///
/// # Errors
///
/// Returns a sentence when a file of the job is missing or cannot be read.
pub fn record(job: &Dir, name: &str) -> Result<String, String> {
    let GivenActivation { at, activation }: GivenActivation<Activation> = parsed(job, "activation.json")?
        .ok_or("the job has no activation.json: only jobs of a newer host can be recorded; dispatch its task again")?;
    if activation.attempt.is_some() || activation.meeting.is_some() || activation.project.is_some() {
        return Err(
            "the job belongs to a project, and a test has none: only dispatched jobs can be recorded".to_owned()
        );
    }
    let Accepted { plan, grants, .. } = parsed(job, "plan.json")?.ok_or("the job has no plan.json")?;
    let lines = lines(job)?;
    let (sessions, calls) = transcript(&lines);
    let time = at.parse().map_err(|e| format!("activation.json: `at`: {e}"))?;
    let Activation { request, posture, memories, granted_tools, toolbox_tools, bounds, .. } = activation;
    let reads_files = granted_tools.iter().any(|tool| FILE_TOOLS.contains(&tool.as_str()));
    let placeholder = reads_files.then(|| (PLACEHOLDER.to_owned(), String::new()));
    let given = Given {
        task: Some(request.task),
        description: Some(request.description),
        config: request.config.as_object().cloned().unwrap_or_default(),
        time: Some(time),
        posture: Some(posture).filter(|posture| !posture.is_empty()),
        bounds: Some(bounds),
        deny: denied(&grants),
        files: placeholder.into_iter().collect(),
        toolbox: toolbox_tools.iter().map(|tool| toolbox(tool, &calls)).collect(),
        memory: memories
            .into_iter()
            .filter(|note| note.scope == Scope::Worker)
            .map(|note| Note { key: note.key, text: note.content, modified: note.modified.parse().ok() })
            .collect(),
        ..Given::default()
    };
    let scripts = scripts(&lines);
    let mut expect = Map::new();
    expect.insert("plan".to_owned(), expected_plan(&plan));
    if !sessions.is_empty() {
        let prompts = sessions.iter().map(|session| json!({"prompt": session.prompt}));
        expect.insert("sessions".to_owned(), prompts.collect());
        let tools = repeatable(&calls).map(|call| json!({"tool": call.tool}));
        expect.insert("calls".to_owned(), tools.collect());
    }
    if let Some(result) = text(job, "result.md")? {
        expect.insert("result".to_owned(), result.into());
    }
    let cases = [Case { name: name.to_owned(), given, sessions: scripts, expect: without_nulls(expect.into()) }];
    let written = toml::to_string_pretty(&Recorded { cases }).map_err(|e| format!("TOML cannot have the job: {e}"))?;
    let mut head = format!("# Recorded from a job of {at}.\n");
    if reads_files {
        head.push_str(&format!(
            "# {PLACEHOLDER} is a placeholder for the files of the job's read roots, which are not recorded.\n"
        ));
    }
    let left_out = calls.len() - repeatable(&calls).count();
    if left_out > 0 {
        head.push_str(&format!(
            "# {left_out} calls of built-in tools are left out, since the files and pages that they read are not recorded. If\n\
             # the test is about them, add these to `given.files` or `given.pages`, and the calls to their turns.\n"
        ));
    }
    Ok(format!("{head}\n{written}"))
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

/// The whole plan, as an expectation.
fn expected_plan(plan: &Plan) -> Value {
    serde_json::to_value(plan).unwrap_or_default()
}

/// The calls that a script can repeat.
fn repeatable(calls: &[RecordedCall]) -> impl Iterator<Item = &RecordedCall> {
    calls.iter().filter(|call| !is_built_in(&call.tool))
}

fn is_built_in(tool: &str) -> bool {
    SESSION_TOOLS.contains(&tool)
}

/// A tool of a toolbox, with its first answer in the job.
fn toolbox(tool: &ToolDefinition, calls: &[RecordedCall]) -> ToolboxTool {
    let call = calls.iter().find(|call| call.tool == tool.name);
    ToolboxTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: without_nulls(tool.input_schema.clone()).as_object().cloned().unwrap_or_default(),
        answer: call.and_then(|call| call.answer.clone()).map(without_nulls),
        error: call.and_then(|call| call.error.clone()),
    }
}

/// The scripts of the sessions, in the order in which they began.
fn scripts(lines: &[Line]) -> Vec<SessionScript> {
    let mut scripts = BTreeMap::<u32, SessionScript>::new();
    for line in lines {
        let Some(script) = line.entry.session().map(|session| scripts.entry(session).or_default()) else { continue };
        match &line.entry {
            Entry::Turn { text, usage, .. } => {
                let cost_usd = usage.cost_usd.filter(|usd| *usd > 0.0);
                script.turns.push(Turn { text: text.clone(), cost_usd, ..Turn::default() });
            }
            Entry::Call { tool, input, .. } if !is_built_in(tool) => {
                let input = without_nulls(input.clone()).as_object().cloned().unwrap_or_default();
                let call = ScriptedCall { tool: tool.clone(), input };
                script.turns.last_mut().into_iter().for_each(|turn| turn.calls.push(call.clone()));
            }
            Entry::End { ending, .. } => end(script, ending),
            _ => {}
        }
    }
    scripts.into_values().collect()
}

/// Ends a script as its session ended. A turn without calls ends a session, so an earlier turn whose calls were all left
/// out is joined with the next turn.
fn end(script: &mut SessionScript, ending: &str) {
    let turns = std::mem::take(&mut script.turns);
    let mut text = String::new();
    let last = turns.len().saturating_sub(1);
    for (position, mut turn) in turns.into_iter().enumerate() {
        if !text.is_empty() {
            turn.text = if turn.text.is_empty() { text } else { format!("{text}\n\n{}", turn.text) };
            text = String::new();
        }
        match turn.calls.is_empty() && position < last {
            true => text = turn.text,
            false => script.turns.push(turn),
        }
    }
    // A replay reaches a bound again by itself.
    let by_replay = [Ending::MaxTurns, Ending::MaxBudget, Ending::Deadline, Ending::Interrupted].map(|it| it.kind());
    if ending != SUCCESS && !by_replay.iter().any(|kind| ending.contains(kind)) {
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

/// The complete lines of the transcript: a crash can cut off the last one.
fn lines(job: &Dir) -> Result<Vec<Line>, String> {
    let text = text(job, "transcript.jsonl")?.unwrap_or_default();
    let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    complete
        .map(|line| serde_json::from_str(line).map_err(|e| format!("transcript.jsonl cannot be read: {e}")))
        .collect()
}
