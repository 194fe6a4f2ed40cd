//! Checks a dispatch's `config` key by key.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::types::{Bounds, Refusal, Request};

/// The `config` of a request. Take each key that the worker knows, then [`finish`](Config::finish): what is left is
/// refused. Every refusal names the key and what is accepted.
///
/// ```
/// # use guild_plugin_sdk::{Refusal, Request, config::Config};
/// # fn check(request: &Request) -> Result<(), Refusal> {
/// let mut config = Config::of(request)?;
/// let bounds = config.bounds()?;
/// let focus = config.text("focus")?;
/// config.finish()
/// # }
/// ```
pub struct Config {
    values: BTreeMap<String, Value>,
    known: Vec<&'static str>,
}

impl Config {
    /// Parses a request's `config`.
    pub fn of(request: &Request) -> Result<Self, Refusal> {
        let values = serde_json::from_str(&request.config)
            .map_err(|_| Refusal::InvalidConfig("config must be a JSON object".to_owned()))?;
        Ok(Self { values, known: Vec::new() })
    }

    /// Takes the bounds that the caller asks for: `maxTurns`, `maxBudgetUsd`, `deadlineSeconds`.
    pub fn bounds(&mut self) -> Result<Bounds, Refusal> {
        Ok(Bounds {
            max_turns: self.count("maxTurns")?,
            max_budget_usd: self.amount("maxBudgetUsd")?,
            deadline_seconds: self.count("deadlineSeconds")?,
        })
    }

    /// Takes a whole number, at least 1.
    pub fn count(&mut self, key: &'static str) -> Result<Option<u32>, Refusal> {
        self.take(key, "a whole number, 1 or more", |value| whole(value, u32::MAX))
    }

    /// Takes a whole number from 1 to `most`.
    pub fn count_to(&mut self, key: &'static str, most: u32) -> Result<Option<u32>, Refusal> {
        self.take(key, &format!("a whole number from 1 to {most}"), |value| whole(value, most))
    }

    /// Takes a number above 0.
    pub fn amount(&mut self, key: &'static str) -> Result<Option<f64>, Refusal> {
        self.take(key, "a number above 0", |value| value.as_f64().filter(|n| n.is_finite() && *n > 0.0))
    }

    /// Takes a text that is not blank.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, Refusal> {
        self.take(key, "a text that is not empty", |value| {
            value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
        })
    }

    /// Takes true or false.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>, Refusal> {
        self.take(key, "true or false", Value::as_bool)
    }

    /// Refuses keys that were not taken.
    pub fn finish(self) -> Result<(), Refusal> {
        let unknown: Vec<String> = self.values.keys().map(|key| format!("{key:?}")).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let keys = if unknown.len() == 1 { "key" } else { "keys" };
        Err(Refusal::InvalidConfig(format!(
            "config has the unknown {keys} {}; known are {}",
            unknown.join(", "),
            self.known.join(", ")
        )))
    }

    fn take<T>(
        &mut self,
        key: &'static str,
        accepted: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        self.known.push(key);
        let Some(value) = self.values.remove(key) else { return Ok(None) };
        match read(&value) {
            Some(read) => Ok(Some(read)),
            None => Err(Refusal::InvalidConfig(format!("config.{key} must be {accepted}, not {}", shown(&value)))),
        }
    }
}

/// A whole number from 1 to `most`. 3.0 is one, as in JSON Schema.
fn whole(value: &Value, most: u32) -> Option<u32> {
    let number = value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 1.0 && *n <= f64::from(most))?;
    // The number fits: it was compared above.
    Some(number as u32)
}

/// A value for an error text: at most 80 characters of its JSON.
fn shown(value: &Value) -> String {
    let json = value.to_string();
    let mut short: String = json.chars().take(80).collect();
    if short.len() < json.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Result<Config, Refusal> {
        Config::of(&Request { description: "d".into(), task: "t".into(), config: json.into() })
    }

    fn text(refusal: Refusal) -> String {
        match refusal {
            Refusal::InvalidConfig(text) | Refusal::Unsupported(text) => text,
        }
    }

    #[test]
    fn keys_are_read_by_their_kind() {
        let mut config = config(
            r#"{"maxTurns": 3, "maxBudgetUsd": 0.25, "deadlineSeconds": 60, "focus": " x ", "deep": true, "n": 16}"#,
        )
        .unwrap();
        let bounds = config.bounds().unwrap();
        assert_eq!(bounds, Bounds { max_turns: Some(3), max_budget_usd: Some(0.25), deadline_seconds: Some(60) });
        assert_eq!(config.text("focus").unwrap().as_deref(), Some("x"));
        assert_eq!(config.flag("deep").unwrap(), Some(true));
        assert_eq!(config.count_to("n", 16).unwrap(), Some(16));
        assert_eq!(config.text("model").unwrap(), None);
        assert!(config.finish().is_ok());
    }

    #[test]
    fn unknown_keys_are_named_beside_the_known_ones() {
        let mut config = config(r#"{"maxTurn": 3, "x\ny": null}"#).unwrap();
        config.bounds().unwrap();
        let text = text(config.finish().unwrap_err());
        assert!(text.contains(r#""maxTurn", "x\ny""#), "{text}");
        assert!(text.contains("maxTurns, maxBudgetUsd, deadlineSeconds"), "{text}");
    }

    #[test]
    fn a_bad_value_is_refused_with_its_key_and_what_is_accepted() {
        for bad in ["0", "-1", "2.5", "\"3\"", "null", "4294967296", "[]"] {
            let mut config = config(&format!(r#"{{"maxTurns": {bad}}}"#)).unwrap();
            let text = text(config.bounds().unwrap_err());
            assert!(text.contains("config.maxTurns must be a whole number, 1 or more") && text.contains(bad), "{text}");
        }
        for bad in ["0", "17", "-1", "1.5", "\"3\""] {
            let mut config = config(&format!(r#"{{"parallel": {bad}}}"#)).unwrap();
            let text = text(config.count_to("parallel", 16).unwrap_err());
            assert!(text.contains("config.parallel must be a whole number from 1 to 16"), "{text}");
        }
        for bad in ["0", "-0.5", "\"1\"", "true"] {
            let mut config = config(&format!(r#"{{"maxBudgetUsd": {bad}}}"#)).unwrap();
            assert!(text(config.bounds().unwrap_err()).contains("config.maxBudgetUsd must be a number above 0"));
        }
        assert!(text(config(r#"{"focus": " "}"#).unwrap().text("focus").unwrap_err()).contains("config.focus"));
    }

    #[test]
    fn a_config_that_is_no_object_is_refused() {
        for bad in ["[]", "null", "3", "{", &"[".repeat(100_000)] {
            assert!(text(config(bad).err().unwrap()).contains("JSON object"));
        }
    }

    #[test]
    fn a_long_value_is_cut_in_the_error() {
        let text = text(config(&format!(r#"{{"a": "{}"}}"#, "é".repeat(500))).unwrap().count("a").unwrap_err());
        assert!(text.len() < 300 && text.ends_with('…'));
    }
}
