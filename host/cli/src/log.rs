//! Logs, on stderr: one event is one line, whatever texts of plugins and callers are in it.

use std::{
    env,
    fmt::{Debug, Result as Formatted, Write as _},
    io::{self, Write},
};

use guild_contract::text::OneLine;
use tracing::field::Field;
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt as _,
    fmt::{
        self,
        format::{Writer, debug_fn},
    },
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

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
    let lines = fmt::layer()
        .fmt_fields(debug_fn(field).delimited(" "))
        .with_writer(|| Unbreakable)
        .with_target(verbose > 0)
        .with_ansi(colours());
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(())
}

/// Writes a message, or another field with its name, so that nothing in it can pass for another line or steer a terminal.
fn field(to: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> Formatted {
    if field.name() != "message" {
        write!(to, "{}=", field.name())?;
    }
    write!(OneLine(to), "{value:?}")
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_line_whatever_its_texts_are() {
        let written = Written::default();
        let to = written.clone();
        let lines = fmt::layer()
            .fmt_fields(debug_fn(field).delimited(" "))
            .with_writer(move || to.clone())
            .with_target(false)
            .without_time()
            .with_ansi(false);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let hostile = "a\nERROR b\r\u{1b}[2J\0\u{202e}\u{2066}\u{200b}";
            let span = tracing::warn_span!("load", member = %hostile);
            span.in_scope(|| tracing::warn!(plain = "x", text = hostile, shown = %hostile, "why: {hostile}"));
        });
        let log = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let shown = r"a\nERROR b\r\u{1b}[2J\u{0}\u{202e}\u{2066}\u{200b}";
        // What is quoted is escaped by its quoting already.
        let quoted = r#""a\nERROR b\r\u{1b}[2J\0\u{202e}\u{2066}\u{200b}""#;
        assert_eq!(
            log,
            format!(" WARN load{{member={shown}}}: why: {shown} plain=\"x\" text={quoted} shown={shown}\n")
        );
    }
}
