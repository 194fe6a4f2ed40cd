//! Defines what a model does in a session, as a test file has it, and reads it for a host.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What the model of one session does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionScript {
    /// A part of the prompt or the system prompt of the session that the script is for. Without it, the script is for
    /// the session at its position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The model's turns. The session ends with the first turn without calls, or with the last.
    #[serde(default)]
    pub turns: Vec<Turn>,
}

/// One answer of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Turn {
    /// Its text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The tools that it calls, one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ScriptedCall>,
    /// The reason that the session fails in this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<String>,
    /// The cost of the turn in US dollars; by default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// A call that a model makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScriptedCall {
    /// The tool, by the name under which the session has it.
    pub tool: String,
    /// Its input; by default an empty object.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub input: Map<String, Value>,
    /// The answer that the model gets. With an answer or an error, the tool itself is not called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// The error that the model gets, in place of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The part of a test file that a host reads.
#[derive(Deserialize)]
struct TestFile {
    #[serde(default)]
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    sessions: Vec<SessionScript>,
}

/// Reads the sessions of a case of a test file: of the first case with sessions, or of the one of that name.
///
/// # Errors
///
/// Returns a sentence that names the file, and the line if the file is not valid.
pub fn read(file: &Path, case: Option<&str>) -> Result<Vec<SessionScript>, String> {
    let shown = file.display();
    let text = fs::read_to_string(file).map_err(|e| format!("cannot read the script {shown}: {e}"))?;
    let TestFile { cases } = toml::from_str(&text).map_err(|e| format!("the script {shown} is not valid: {e}"))?;
    let mut cases = cases.into_iter();
    let found = match case {
        Some(name) => cases.find(|case| case.name == name),
        None => cases.find(|case| !case.sessions.is_empty()),
    };
    found.map(|case| case.sessions).ok_or_else(|| match case {
        Some(name) => format!("the script {shown} has no case {name:?}"),
        None => format!("the script {shown} has no case with sessions; write [[cases.sessions]]"),
    })
}
