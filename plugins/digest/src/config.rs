//! What a caller can set, in a dispatch's `config`.

use guild_plugin_sdk::{Bounds, Refusal, Request, config::Config};

/// Text that people wrote to be read.
const GLOB: &str = "**/*.{md,markdown,txt,rst,adoc}";
const MAX_FILES: (u32, u32) = (20, 200);
const PARALLEL: (u32, u32) = (4, 16);

/// A dispatch's `config`. Every key is optional.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// `glob`: which files.
    pub(crate) glob: String,
    /// `focus`: what to concentrate on.
    pub(crate) focus: Option<String>,
    /// `maxFiles`: how many files at most.
    pub(crate) max_files: usize,
    /// `parallel`: how many sessions at once.
    pub(crate) parallel: usize,
    /// `model`: the model's name, as the host's runtime knows it.
    pub(crate) model: Option<String>,
    /// `maxTurns`, `maxBudgetUsd`, `deadlineSeconds`, for all sessions together.
    pub(crate) bounds: Bounds,
}

impl Options {
    pub(crate) fn of(request: &Request) -> Result<Self, Refusal> {
        let mut config = Config::of(request)?;
        let options = Self {
            glob: config.text("glob")?.unwrap_or_else(|| GLOB.to_owned()),
            focus: config.text("focus")?,
            max_files: config.count_to("maxFiles", MAX_FILES.1)?.unwrap_or(MAX_FILES.0) as usize,
            parallel: config.count_to("parallel", PARALLEL.1)?.unwrap_or(PARALLEL.0) as usize,
            model: config.text("model")?,
            bounds: config.bounds()?,
        };
        config.finish()?;
        Ok(options)
    }

    /// The task, and the focus where there is one.
    pub(crate) fn task(&self, task: &str) -> String {
        match &self.focus {
            Some(focus) => format!("{task}\n\nFocus on: {focus}"),
            None => task.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(config: &str) -> Result<Options, Refusal> {
        Options::of(&Request { description: "d".into(), task: "t".into(), config: config.into() })
    }

    #[test]
    fn every_key_has_a_default() {
        let options = options("{}").unwrap();
        assert_eq!((options.max_files, options.parallel), (20, 4));
        assert!(options.glob.contains("md") && options.focus.is_none() && options.model.is_none());
        assert_eq!(options.task("Digest it."), "Digest it.");
    }

    #[test]
    fn a_focus_is_part_of_the_task() {
        assert_eq!(options(r#"{"focus": "cost"}"#).unwrap().task("Digest it."), "Digest it.\n\nFocus on: cost");
    }

    #[test]
    fn what_is_out_of_range_or_unknown_is_refused_by_name() {
        for (bad, named) in [
            (r#"{"maxFiles": 201}"#, "config.maxFiles must be a whole number from 1 to 200"),
            (r#"{"parallel": 17}"#, "config.parallel must be a whole number from 1 to 16"),
            (r#"{"glob": ""}"#, "config.glob"),
            (r#"{"paralel": 2}"#, "glob, focus, maxFiles, parallel, model, maxTurns, maxBudgetUsd, deadlineSeconds"),
        ] {
            let Err(Refusal::InvalidConfig(text)) = options(bad) else { panic!("{bad} was taken") };
            assert!(text.contains(named), "{text}");
        }
    }
}
