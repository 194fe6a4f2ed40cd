//! Implements `log`: lines for the job's log.

use guild_contract::capability::LOG;

use super::bindings::guild::worker::log::{Host, Level};
use crate::state::State;

impl Host for State {
    async fn write(&mut self, level: Level, message: String) -> wasmtime::Result<()> {
        // The interface has no errors, so a line without the grant is dropped.
        if self.context.granted(&LOG).is_ok() {
            let level = match level {
                Level::Debug => "debug",
                Level::Info => "info",
                Level::Warn => "warn",
                Level::Error => "error",
            };
            self.context.log.line(&format!("{level}: {message}"));
        }
        Ok(())
    }
}
