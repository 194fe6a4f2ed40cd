//! What a caller can set, in a dispatch's `config`.

use guild_plugin_sdk::{Bounds, Refusal, Request, config};

const TABLES: &str = "**/*.{csv,tsv}";
const MAX_TABLES: (u32, u32) = (5, 20);

/// A dispatch's `config`. Every key is optional.
pub(crate) struct Config {
    /// `tables`: a glob, which files.
    pub(crate) tables: String,
    /// `maxTables`: how many files at most.
    pub(crate) max_tables: usize,
    /// `model`: the model's name, as the host's runtime knows it.
    pub(crate) model: Option<String>,
    /// `maxTurns`, `maxBudgetUsd`, `deadlineSeconds`, where the caller sets them.
    pub(crate) bounds: Bounds,
}

impl Config {
    pub(crate) fn of(request: &Request) -> Result<Self, Refusal> {
        let mut config = config::Config::of(request)?;
        let parsed = Self {
            tables: config.text("tables")?.unwrap_or_else(|| TABLES.to_owned()),
            max_tables: config.count_to("maxTables", MAX_TABLES.1)?.unwrap_or(MAX_TABLES.0) as usize,
            model: config.text("model")?,
            bounds: config.bounds()?,
        };
        config.finish()?;
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(config: &str) -> Result<Config, Refusal> {
        Config::of(&Request { description: "d".into(), task: "t".into(), config: config.into() })
    }

    #[test]
    fn every_key_has_a_default() {
        let config = config("{}").unwrap();
        assert_eq!((config.tables.as_str(), config.max_tables, config.model.as_deref()), ("**/*.{csv,tsv}", 5, None));
    }

    #[test]
    fn what_is_out_of_range_or_unknown_is_refused_by_name() {
        for (bad, named) in [
            (r#"{"maxTables": 21}"#, "config.maxTables must be a whole number from 1 to 20"),
            (r#"{"tables": ""}"#, "config.tables"),
            (r#"{"table": "x"}"#, "tables, maxTables, model, maxTurns, maxBudgetUsd, deadlineSeconds"),
        ] {
            let Some(Refusal::InvalidConfig(text)) = config(bad).err() else { panic!("{bad} was taken") };
            assert!(text.contains(named), "{text}");
        }
    }
}
