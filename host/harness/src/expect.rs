//! Defines the expectations of a case, and compares them with a recording.

use std::{collections::BTreeMap, fmt};

use guild_contract::{Bounds, Decision};
use guild_session::activation::{Plan, SessionPlan};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use crate::recording::{HostCall, Outcome, RecordedCall, RecordedSession, Recording};

/// The expectations of a case. An absent key is not compared; but a refusal or an error that is not expected is a
/// mismatch.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Expect {
    /// The text with which the dispatch is refused.
    pub refusal: Option<Text>,
    /// The text with which the component, its job or its tool fails.
    pub error: Option<Text>,
    /// The plan of the dispatch.
    pub plan: Option<ExpectedPlan>,
    /// The result of the job.
    pub result: Option<Text>,
    /// The answer of the tool.
    pub answer: Option<Answer>,
    /// The sessions, in the order in which they begin.
    pub sessions: Option<Vec<ExpectedSession>>,
    /// The calls of tools in all sessions, in the order in which they are made.
    pub calls: Option<Vec<ExpectedCall>>,
    /// The calls of host functions by the component.
    pub host_calls: Option<Vec<ExpectedHostCall>>,
    /// The last summary of the job.
    pub summary: Option<Text>,
    /// The questions that are logged.
    pub questions: Option<Vec<Text>>,
    /// The decisions that are recorded.
    pub decisions: Option<Vec<Decision>>,
    /// The artifacts, all of them, by their paths.
    pub artifacts: Option<BTreeMap<String, Text>>,
    /// The memories afterwards, all of them, by their keys.
    pub memory: Option<BTreeMap<String, Text>>,
    /// The log of the job.
    pub log: Option<Text>,
}

/// The plan of a dispatch, with one of these keys.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExpectedPlan {
    /// The host runs this session.
    pub session: Option<ExpectedSession>,
    /// The component carries out the job itself, within these bounds.
    pub own_run: Option<Bounds>,
}

/// A session of a plan, or a session that began.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExpectedSession {
    /// The role of the agent.
    pub system_prompt: Option<Text>,
    /// The first message.
    pub prompt: Option<Text>,
    /// The names of its tools: in a plan the built-in tools, in a session that began all tools.
    pub tools: Option<Vec<String>>,
    /// The names of its tools of toolboxes, in a plan.
    pub toolbox_tools: Option<Vec<String>>,
    /// The model.
    pub model: Option<String>,
    /// Its bounds, in a plan.
    pub bounds: Option<Bounds>,
    /// The ending of a session that began: `success`, or the reason.
    pub ending: Option<Text>,
}

/// A call of a tool in a session.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExpectedCall {
    /// The tool.
    pub tool: Option<String>,
    /// Its input.
    pub input: Option<Value>,
    /// Its answer.
    pub answer: Option<Answer>,
    /// Its error.
    pub error: Option<Text>,
}

/// A call of a host function by the component.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExpectedHostCall {
    /// The interface and the function, as `files.read`.
    pub function: Option<String>,
    /// Its arguments by their names.
    pub input: Option<Value>,
    /// Its answer.
    pub answer: Option<Answer>,
    /// Its error.
    pub error: Option<Text>,
}

/// An expected text, or parts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// The whole text.
    Exact(String),
    /// Parts that the text has, and parts that it does not have.
    Parts(Parts),
}

/// Parts of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Parts {
    /// Parts that the text has.
    pub contains: Vec<String>,
    /// Parts that the text does not have.
    pub lacks: Vec<String>,
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or { contains = [...], lacks = [...] }")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text::Exact(text.to_owned()))
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Text, M::Error> {
                Parts::deserialize(MapAccessDeserializer::new(map)).map(Text::Parts)
            }
        }

        deserializer.deserialize_any(TextVisitor)
    }
}

/// An expected answer of a tool: a value, or parts of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The whole answer.
    Exact(Value),
    /// Parts of the answer: of its text, or of its JSON where it is no text.
    Parts(Parts),
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let is_parts = value
            .as_object()
            .is_some_and(|fields| !fields.is_empty() && fields.keys().all(|key| key == "contains" || key == "lacks"));
        match is_parts {
            true => serde_json::from_value(value).map(Self::Parts).map_err(serde::de::Error::custom),
            false => Ok(Self::Exact(value)),
        }
    }
}

/// A difference between an expectation and a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The steps of the key in the script, such as `expect.plan.session.prompt`.
    pub path: Vec<Step>,
    /// The kind of difference.
    pub kind: Kind,
}

/// A step of a path in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A key of a table.
    Key(String),
    /// A position in a list.
    At(usize),
}

/// A kind of difference.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The values differ. A snapshot takes the recorded value.
    Differs {
        /// The expected value; null for none.
        expected: Value,
        /// The recorded value; null for none.
        found: Value,
    },
    /// A text does not have a part, or has one that it must not have.
    Parts {
        /// The difference.
        why: String,
        /// The text.
        found: String,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expect")?;
        self.path.iter().try_for_each(|step| match step {
            Step::Key(key) => write!(f, ".{key}"),
            Step::At(position) => write!(f, "[{position}]"),
        })
    }
}

impl Expect {
    /// Whether an expectation concerns the course or the end of a job.
    pub fn needs_job(&self) -> bool {
        let texts = [&self.error, &self.result, &self.summary];
        texts.iter().any(|text| text.is_some())
            || self.sessions.is_some()
            || self.calls.is_some()
            || self.questions.is_some()
            || self.decisions.is_some()
            || self.artifacts.is_some()
            || self.memory.is_some()
    }

    /// Whether an expectation concerns what a component does when it plans, and when it carries a job out itself.
    pub fn needs_own_run(&self) -> bool {
        self.host_calls.is_some() || self.log.is_some()
    }

    /// The differences to a recording.
    pub fn compare(&self, found: &Recording) -> Vec<Mismatch> {
        let mut at = Comparison::default();
        let of = |matches: fn(&Outcome) -> Option<&String>| matches(&found.outcome);
        let refusal = of(|outcome| if let Outcome::Refused(why) = outcome { Some(why) } else { None });
        let error = of(|outcome| if let Outcome::Failed(why) = outcome { Some(why) } else { None });
        let result = of(|outcome| if let Outcome::Completed(text) = outcome { Some(text) } else { None });
        let answer = if let Outcome::Answered(value) = &found.outcome { Some(value) } else { None };
        // An early end is the cause of all other differences.
        for (key, expected, found) in [("refusal", &self.refusal, refusal), ("error", &self.error, error)] {
            if expected.is_some() || found.is_some() {
                at.key(key, |at| at.text(expected.as_ref(), found));
            }
        }
        if (refusal.is_some() && self.refusal.is_none()) || (error.is_some() && self.error.is_none()) {
            return at.mismatches;
        }
        if let Some(expected) = &self.plan {
            at.key("plan", |at| at.plan(expected, found.plan.as_ref()));
        }
        if let Some(expected) = &self.result {
            at.key("result", |at| at.text(Some(expected), result));
        }
        if let Some(expected) = &self.answer {
            at.answer(expected, answer);
        }
        if let Some(expected) = &self.sessions {
            at.key("sessions", |at| at.list(expected, &found.sessions, Comparison::session));
        }
        if let Some(expected) = &self.calls {
            at.key("calls", |at| at.list(expected, &found.calls, Comparison::call));
        }
        if let Some(expected) = &self.host_calls {
            at.key("hostCalls", |at| at.list(expected, &found.host_calls, Comparison::host_call));
        }
        if let Some(expected) = &self.summary {
            at.key("summary", |at| at.text(Some(expected), found.summary.as_ref()));
        }
        if let Some(expected) = &self.questions {
            at.key("questions", |at| {
                at.list(expected, &found.questions, |at, one, other| at.text(Some(one), Some(other)))
            });
        }
        if let Some(expected) = &self.decisions {
            at.key("decisions", |at| at.value(&json(expected), &json(&found.decisions)));
        }
        if let Some(expected) = &self.artifacts {
            at.key("artifacts", |at| at.texts(expected, &found.artifacts));
        }
        if let Some(expected) = &self.memory {
            at.key("memory", |at| at.texts(expected, &found.memory));
        }
        if let Some(expected) = &self.log {
            at.key("log", |at| at.text(Some(expected), Some(&found.log)));
        }
        at.mismatches
    }
}

/// A value without fields that are null, which TOML cannot have.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        plain => plain,
    }
}

/// A value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// A comparison under way, at one key of the script.
#[derive(Default)]
struct Comparison {
    path: Vec<Step>,
    mismatches: Vec<Mismatch>,
}

impl Comparison {
    fn key(&mut self, key: &str, compare: impl FnOnce(&mut Self)) {
        self.step(Step::Key(key.to_owned()), compare);
    }

    fn step(&mut self, step: Step, compare: impl FnOnce(&mut Self)) {
        self.path.push(step);
        compare(self);
        self.path.pop();
    }

    fn differs(&mut self, expected: Value, found: Value) {
        self.mismatches.push(Mismatch { path: self.path.clone(), kind: Kind::Differs { expected, found } });
    }

    /// Compares values. TOML has no null, so a field that is null counts as left out.
    fn value(&mut self, expected: &Value, found: &Value) {
        if *expected != without_nulls(found.clone()) {
            self.differs(expected.clone(), found.clone());
        }
    }

    fn text(&mut self, expected: Option<&Text>, found: Option<&String>) {
        match (expected, found) {
            (Some(Text::Exact(expected)), _) => self.value(&json(expected), &json(&found)),
            (Some(Text::Parts(parts)), Some(found)) => self.parts(parts, found),
            (Some(Text::Parts(parts)), None) => self.differs(json(parts), Value::Null),
            (None, found) => self.differs(Value::Null, json(&found)),
        }
    }

    fn parts(&mut self, parts: &Parts, found: &str) {
        let missing = parts.contains.iter().filter(|part| !found.contains(*part)).map(|part| format!("lacks {part:?}"));
        let present = parts.lacks.iter().filter(|part| found.contains(*part)).map(|part| format!("contains {part:?}"));
        for why in missing.chain(present) {
            let kind = Kind::Parts { why, found: found.to_owned() };
            self.mismatches.push(Mismatch { path: self.path.clone(), kind });
        }
    }

    /// Compares texts by their names. None may be missing, and no other may be there.
    fn texts(&mut self, expected: &BTreeMap<String, Text>, found: &BTreeMap<String, String>) {
        for (name, text) in expected {
            self.key(name, |at| at.text(Some(text), found.get(name)));
        }
        for (name, text) in found.iter().filter(|(name, _)| !expected.contains_key(*name)) {
            self.key(name, |at| at.text(None, Some(text)));
        }
    }

    fn list<E, F: Serialize>(&mut self, expected: &[E], found: &[F], compare: impl Fn(&mut Self, &E, &F)) {
        if expected.len() != found.len() {
            return self.differs(Value::String(format!("{} entries", expected.len())), json(&found));
        }
        for ((position, expected), found) in (0..).zip(expected).zip(found) {
            self.step(Step::At(position), |at| compare(at, expected, found));
        }
    }

    fn plan(&mut self, expected: &ExpectedPlan, found: Option<&Plan>) {
        if let Some(session) = &expected.session {
            self.key("session", |at| match found.and_then(Plan::session) {
                Some(found) => at.session_plan(session, found),
                None => at.differs(Value::String("a session".to_owned()), json(&found)),
            });
        }
        if let Some(bounds) = &expected.own_run {
            self.key("ownRun", |at| match found {
                Some(Plan::OwnRun(found)) => at.bounds(bounds, found),
                found => at.differs(json(bounds), json(&found)),
            });
        }
    }

    /// Compares the expected bounds.
    fn bounds(&mut self, expected: &Bounds, found: &Bounds) {
        let (expected, found) = (json(expected), json(found));
        for (key, value) in expected.as_object().into_iter().flatten() {
            self.key(key, |at| at.value(value, found.get(key).unwrap_or(&Value::Null)));
        }
    }

    fn session_plan(&mut self, expected: &ExpectedSession, found: &SessionPlan) {
        let ExpectedSession { system_prompt, prompt, tools, toolbox_tools, model, bounds, ending } = expected;
        self.prompts(system_prompt, &found.system_prompt, prompt, &found.prompt);
        self.names("tools", tools, &found.tools);
        self.names("toolboxTools", toolbox_tools, &found.toolbox_tools);
        self.model(model, &found.model);
        if let Some(bounds) = bounds {
            self.key("bounds", |at| at.bounds(bounds, &found.bounds));
        }
        if let Some(ending) = ending {
            self.key("ending", |at| at.text(Some(ending), None));
        }
    }

    fn session(&mut self, expected: &ExpectedSession, found: &RecordedSession) {
        let ExpectedSession { system_prompt, prompt, tools, toolbox_tools, model, bounds, ending } = expected;
        self.prompts(system_prompt, &found.system_prompt, prompt, &found.prompt);
        self.names("tools", tools, &found.tools);
        self.model(model, &found.model);
        if let Some(ending) = ending {
            self.key("ending", |at| at.text(Some(ending), found.ending.as_ref()));
        }
        // Only plans have these.
        self.names("toolboxTools", toolbox_tools, &[]);
        if let Some(bounds) = bounds {
            self.key("bounds", |at| at.differs(json(bounds), Value::Null));
        }
    }

    fn prompts(&mut self, system: &Option<Text>, found_system: &String, prompt: &Option<Text>, found_prompt: &String) {
        for (key, expected, found) in [("systemPrompt", system, found_system), ("prompt", prompt, found_prompt)] {
            if expected.is_some() {
                self.key(key, |at| at.text(expected.as_ref(), Some(found)));
            }
        }
    }

    fn names(&mut self, key: &str, expected: &Option<Vec<String>>, found: &[String]) {
        if let Some(expected) = expected {
            self.key(key, |at| at.value(&json(expected), &json(&found)));
        }
    }

    fn model(&mut self, expected: &Option<String>, found: &Option<String>) {
        if expected.is_some() {
            self.key("model", |at| at.value(&json(expected), &json(found)));
        }
    }

    fn host_call(&mut self, expected: &ExpectedHostCall, found: &HostCall) {
        if let Some(function) = &expected.function {
            self.key("function", |at| at.value(&json(function), &json(&found.function)));
        }
        let ExpectedHostCall { function: _, input, answer, error } = expected.clone();
        let HostCall { function, input: found, answer: found_answer, error: found_error } = found.clone();
        let found = RecordedCall { session: 0, tool: function, input: found, answer: found_answer, error: found_error };
        self.call(&ExpectedCall { tool: None, input, answer, error }, &found);
    }

    fn answer(&mut self, expected: &Answer, found: Option<&Value>) {
        self.key("answer", |at| match (expected, found) {
            (Answer::Exact(expected), found) => at.value(expected, found.unwrap_or(&Value::Null)),
            (Answer::Parts(parts), Some(Value::String(text))) => at.parts(parts, text),
            (Answer::Parts(parts), Some(value)) => at.parts(parts, &value.to_string()),
            (Answer::Parts(parts), None) => at.differs(json(parts), Value::Null),
        });
    }

    fn call(&mut self, expected: &ExpectedCall, found: &RecordedCall) {
        let ExpectedCall { tool, input, answer, error } = expected;
        if let Some(tool) = tool {
            self.key("tool", |at| at.value(&json(tool), &json(&found.tool)));
        }
        if let Some(input) = input {
            self.key("input", |at| at.value(input, &found.input));
        }
        if let Some(answer) = answer {
            self.answer(answer, found.answer.as_ref());
        }
        if error.is_some() || (answer.is_some() && found.error.is_some()) {
            self.key("error", |at| at.text(error.as_ref(), found.error.as_ref()));
        }
    }
}
