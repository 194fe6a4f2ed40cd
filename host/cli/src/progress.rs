//! What a command that waits shows meanwhile: a line on a terminal that changes, and plain lines elsewhere.

use std::{
    io::{self, IsTerminal},
    sync::Mutex,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{one_line, tell};

/// Between two frames of the line.
const FRAME: Duration = Duration::from_millis(120);

/// The line, where stderr is a terminal.
pub(crate) struct Progress {
    line: Option<ProgressBar>,
    /// What is waited for.
    waits: Mutex<Option<String>>,
}

impl Progress {
    pub(crate) fn start() -> Self {
        let line = io::stderr().is_terminal().then(|| {
            let line = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                line.set_style(style);
            }
            line.enable_steady_tick(FRAME);
            line
        });
        Self { line, waits: Mutex::default() }
    }

    /// Shows what a worker says of its work; nothing where stderr is no terminal.
    pub(crate) fn show(&self, summary: Option<&str>) {
        if let (Some(line), Some(summary)) = (&self.line, summary) {
            line.set_message(one_line(summary, usize::MAX));
        }
    }

    /// A component has to be compiled first.
    pub(crate) fn compiling(&self, what: &str) {
        self.waiting(&format!("compiling {what}"));
    }

    /// Shows what is waited for, and for how long by now. Elsewhere than on a terminal it is told once.
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
