//! Logs, on stderr.

use std::{
    env,
    io::{self, Write},
};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::failure::Failure;

/// The variable that takes a filter of its own, as `warn,guild_server=debug`.
const FILTER: &str = "GUILD_LOG";

/// What it warns of, and calls errors, is what clients do: that they go away, or ask for what there is not.
const QUIET: &str = "rmcp=off";

/// Begins to log: what `GUILD_LOG` says, else warnings, and more with each `-v`.
pub(crate) fn start(verbose: u8) -> Result<(), Failure> {
    let own = env::var(FILTER).ok().filter(|filter| !filter.is_empty());
    let filter = match (own, verbose) {
        (Some(filter), _) => EnvFilter::try_new(&filter).map_err(|e| {
            Failure::error(format!("{FILTER}={filter} is no log filter, as warn,guild_server=debug: {e}"))
        })?,
        (None, 0) => EnvFilter::new(format!("warn,{QUIET}")),
        (None, 1) => EnvFilter::new(format!("info,{QUIET}")),
        (None, _) => EnvFilter::new("debug"),
    };
    let lines = fmt::layer().with_writer(|| Unbreakable).with_target(verbose > 0).with_ansi(colours());
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(())
}

fn colours() -> bool {
    anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never
}

/// A stderr whose reader may go away: a host outlives whoever reads its log.
struct Unbreakable;

impl Write for Unbreakable {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().lock().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
