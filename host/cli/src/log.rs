//! Logs, on stderr.

use std::io::{self, Write};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Begins to log: what `GUILD_LOG` says, else warnings, and more with each `-v`.
pub(crate) fn start(verbose: u8, own_level: &str) {
    let default = match verbose {
        0 => format!("warn,{own_level}"),
        1 => "info".to_owned(),
        _ => "debug".to_owned(),
    };
    let filter =
        EnvFilter::builder().with_env_var("GUILD_LOG").try_from_env().unwrap_or_else(|_| EnvFilter::new(default));
    let lines = fmt::layer().with_writer(|| Unbreakable).with_target(verbose > 0).with_ansi(colours());
    tracing_subscriber::registry().with(filter).with(lines).init();
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
