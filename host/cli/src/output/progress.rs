//! Shows the progress of a command that waits: a changing line on a terminal, and plain lines elsewhere.

use std::{
    io::{self, IsTerminal},
    sync::Mutex,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

use super::{one_line, tell};

/// The interval of redraws.
const REDRAW_INTERVAL: Duration = Duration::from_millis(120);

/// The progress of a command.
pub(crate) struct Progress {
    /// `None` if stderr is not a terminal.
    line: Option<ProgressBar>,
    /// The reason for waiting.
    waits: Mutex<Option<String>>,
}

impl Progress {
    pub(crate) fn start() -> Self {
        let line = io::stderr().is_terminal().then(|| {
            let line = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                line.set_style(style);
            }
            line.enable_steady_tick(REDRAW_INTERVAL);
            line
        });
        Self { line, waits: Mutex::default() }
    }

    /// Shows a worker's summary of its work; nothing if stderr is not a terminal.
    pub(crate) fn show(&self, summary: Option<&str>) {
        if let (Some(line), Some(summary)) = (&self.line, summary) {
            line.set_message(one_line(summary, usize::MAX));
        }
    }

    /// Shows that a component is being compiled.
    pub(crate) fn compiling(&self, what: &str) {
        self.waiting(&format!("compiling {what}"));
    }

    /// Shows the reason for waiting, and the elapsed time. If stderr is not a terminal, the reason is printed once.
    pub(crate) fn waiting(&self, what: &str) {
        let what = one_line(what, usize::MAX);
        let mut waits = self.waits.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if waits.as_ref() == Some(&what) {
            return;
        }
        match &self.line {
            Some(line) => {
                line.reset_elapsed();
                line.set_message(format!("{what} ..."));
            }
            None => tell(format_args!("{what} ...")),
        }
        *waits = Some(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}
