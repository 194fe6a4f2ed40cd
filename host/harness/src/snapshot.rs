//! Writes the outcome of a case into its test file. The comments of the file stay.

use guild_contract::text::one_line;
use serde_json::{Map, Value};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value as TomlValue};

use crate::{
    expect::{Kind, Mismatch, Step, json, without_nulls},
    recording::{Outcome, Recording},
    suite::{TestFile, Verdict},
};

/// The most characters of a value in an error.
const SHOWN_CHARS: usize = 100;

/// A test file that is being changed.
pub struct Snapshot {
    document: DocumentMut,
    /// The number of cases that were changed.
    changed: usize,
}

impl Snapshot {
    /// The snapshot of a file, without changes yet.
    ///
    /// # Errors
    ///
    /// Returns a sentence when the file cannot be read as TOML.
    pub fn of(file: &TestFile) -> Result<Self, String> {
        let document = file.text.parse().map_err(|e| format!("{}: {e}", file.path.display()))?;
        Ok(Self { document, changed: 0 })
    }

    /// Takes the outcome of a case. Expected parts of texts stay: a person has to change them.
    ///
    /// # Errors
    ///
    /// Returns a sentence when TOML cannot represent the value.
    pub fn take(&mut self, case: usize, verdict: &Verdict) -> Result<(), String> {
        match verdict {
            Verdict::Passed | Verdict::Invalid(_) => return Ok(()),
            Verdict::ExpectsNothing(recording) => {
                for (key, value) in expectations(recording) {
                    self.set(case, &[Step::Key(key)], &value)?;
                }
            }
            Verdict::Failed(mismatches, recording) => {
                if mismatches.iter().all(|mismatch| matches!(mismatch.kind, Kind::Parts { .. })) {
                    return Ok(());
                }
                for Mismatch { path, kind } in mismatches {
                    if let Kind::Differs { found, .. } = kind {
                        self.set(case, path, found)?;
                    }
                }
                self.take_outcome(case, mismatches, recording)?;
            }
        }
        self.changed += 1;
        Ok(())
    }

    /// Takes the outcome of a case that expected another kind of outcome.
    fn take_outcome(&mut self, case: usize, mismatches: &[Mismatch], recording: &Recording) -> Result<(), String> {
        let is_other = |path: &[Step]| {
            let [Step::Key(key)] = path else { return false };
            matches!(key.as_str(), "refusal" | "error" | "result" | "answer")
        };
        if !mismatches.iter().any(|mismatch| is_other(&mismatch.path)) {
            return Ok(());
        }
        let outcome = expectations(recording);
        let keys = ["refusal", "error", "result", "answer"];
        for (key, value) in outcome.iter().filter(|(key, _)| keys.contains(&key.as_str())) {
            self.set(case, &[Step::Key(key.clone())], value)?;
        }
        Ok(())
    }

    /// The changed text of the file; `None` if nothing was changed.
    pub fn text(&self) -> Option<String> {
        (self.changed > 0).then(|| self.document.to_string())
    }

    fn set(&mut self, case: usize, path: &[Step], value: &Value) -> Result<(), String> {
        let moved = || "the case is not where it was in the file".to_owned();
        let cases = self.document.get_mut("cases").and_then(Item::as_array_of_tables_mut);
        let table = cases.and_then(|cases| cases.get_mut(case)).ok_or_else(moved)?;
        let mut item = table.entry("expect").or_insert_with(|| Item::Table(Table::new()));
        let Some((last, steps)) = path.split_last() else { return Ok(()) };
        for step in steps {
            item = match step {
                Step::Key(key) => {
                    item.as_table_like_mut().ok_or_else(moved)?.entry(key).or_insert_with(|| Item::Table(Table::new()))
                }
                Step::At(position) => item.get_mut(position).ok_or_else(moved)?,
            };
        }
        let value = without_nulls(value.clone());
        match last {
            Step::Key(key) => {
                let table = item.as_table_like_mut().ok_or_else(moved)?;
                if value.is_null() {
                    table.remove(key);
                } else {
                    let decor = table.get(key).and_then(Item::as_value).map(|old| old.decor().clone());
                    let mut new = toml(&value)?;
                    decor.into_iter().for_each(|decor| *new.decor_mut() = decor);
                    table.insert(key, Item::Value(new));
                }
            }
            Step::At(position) => *item.get_mut(position).ok_or_else(moved)? = Item::Value(toml(&value)?),
        }
        Ok(())
    }
}

/// The keys of `expect` for the parts of a recording that a person reviews.
pub(crate) fn expectations(recording: &Recording) -> Map<String, Value> {
    let mut expect = Map::new();
    let mut put = |key: &str, value: Value| drop(expect.insert(key.to_owned(), value));
    match &recording.outcome {
        Outcome::Planned => put("plan", json(&recording.plan)),
        Outcome::Refused(why) => put("refusal", json(why)),
        Outcome::Failed(why) => put("error", json(why)),
        Outcome::Answered(value) => put("answer", value.clone()),
        Outcome::Completed(result) => put("result", json(result)),
    }
    let calls = (!recording.calls.is_empty()).then(|| json(&recording.calls));
    let questions = (!recording.questions.is_empty()).then(|| json(&recording.questions));
    let decisions = (!recording.decisions.is_empty()).then(|| json(&recording.decisions));
    let artifacts = (!recording.artifacts.is_empty()).then(|| json(&recording.artifacts));
    let summary = recording.summary.as_ref().map(json);
    let all = [
        ("calls", calls),
        ("summary", summary),
        ("questions", questions),
        ("decisions", decisions),
        ("artifacts", artifacts),
    ];
    for (key, value) in all {
        if let Some(value) = value {
            put(key, value);
        }
    }
    expect
}

/// A value as TOML.
///
/// # Errors
///
/// Returns a sentence for a null in a list, which TOML cannot represent.
pub(crate) fn toml(value: &Value) -> Result<TomlValue, String> {
    Ok(match value {
        Value::Null => return Err("TOML has no null: compare this value in parts".to_owned()),
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(float)) => float.into(),
            (None, None) => return Err(format!("TOML has no number {number}")),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => {
            let mut array = Array::new();
            for item in items {
                array.push(toml(item).map_err(|why| format!("{why}: {}", one_line(&value.to_string(), SHOWN_CHARS)))?);
            }
            TomlValue::Array(array)
        }
        Value::Object(fields) => {
            let mut table = InlineTable::new();
            for (name, value) in fields {
                table.insert(name, toml(value)?);
            }
            TomlValue::InlineTable(table)
        }
    })
}
