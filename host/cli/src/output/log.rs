//! Logs to stderr, with one line for each event whatever the texts of plugins and callers contain.

use std::{
    env,
    fmt::{Debug, Result as Formatted, Write as _},
    io::{self, Write},
};

use clap::Args;
use guild_auth::audit_log::json_line;
use guild_contract::text::OneLine;
use guild_fs::clock::rfc3339;
use guild_roster::NOTICE;
use guild_telemetry::trace::Traces;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{
    EnvFilter, Layer,
    field::MakeExt as _,
    fmt::{
        self,
        format::{Writer, debug_fn},
    },
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::failure::Failure;

/// The variable with a log filter, such as `warn,guild_server=debug`.
const FILTER: &str = "GUILD_LOG";

/// Silences rmcp, whose warnings and errors are about clients: they disconnect, or request something unknown.
const QUIET: &str = "rmcp=off";

/// Starts logging according to `GUILD_LOG`, else warnings, and more with each `-v`. Without `-v`, warnings of the
/// target `printed` are left out, since the command's own error has them.
///
/// Traces go to OpenTelemetry if the environment names a collector; the returned value sends the last of them.
pub(crate) fn start(options: LogArgs, printed: Option<&str>) -> Result<Option<Traces>, Failure> {
    let LogArgs { verbose, log_format: format } = options;
    let own = env::var(FILTER).ok().filter(|filter| !filter.is_empty());
    let filter = match (own, verbose) {
        (Some(filter), _) => EnvFilter::try_new(&filter).map_err(|e| {
            Failure::error(format!("{FILTER}={filter} is not a log filter such as warn,guild_server=debug: {e}"))
        })?,
        (None, 0) => {
            let printed = printed.map(|target| format!(",{target}=error")).unwrap_or_default();
            EnvFilter::new(format!("warn,{NOTICE}=info,{QUIET}{printed}"))
        }
        (None, 1) => EnvFilter::new(format!("info,{QUIET}")),
        // Details of this program only, since those of its libraries are for developers.
        (None, 2) => EnvFilter::new(format!("info,guild=debug,{QUIET}")),
        (None, _) => EnvFilter::new("debug"),
    };
    let lines = fmt::layer()
        .fmt_fields(debug_fn(field).delimited(" "))
        .with_writer(|| InfallibleStderr)
        .with_target(verbose > 0)
        .with_ansi(colours());
    let is_json = format == LogFormat::Json;
    let json = is_json.then_some(JsonLines(|| InfallibleStderr));
    let written = Layer::and_then((!is_json).then_some(lines), json).with_filter(filter);
    let traces = Traces::from_env().map_err(|e| Failure::error(format!("no traces can be sent: {e}")))?;
    tracing_subscriber::registry().with(traces.as_ref().map(Traces::layer)).with(written).init();
    Ok(traces)
}

/// Writes a message of a command as a line of the JSON log.
pub(crate) fn tell(level: Level, message: &str) {
    let line = JsonLine { message: message.into(), ..JsonLine::now(level, env!("CARGO_CRATE_NAME")) };
    line.write(InfallibleStderr);
}

/// The level and the format of the log.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LogArgs {
    /// Log more on stderr: -v logs information, -vv each request, dispatch, denial and tool error, -vvv everything
    /// (GUILD_LOG sets a filter)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// The format of the log on stderr
    #[arg(long, global = true, value_name = "FORMAT", value_enum, env = "GUILD_LOG_FORMAT", default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line: time, level, target, message, fields
    Json,
}

/// Writes each event as one JSON object on a line, with its own fields and those of its spans.
struct JsonLines<W>(W);

/// The fields of a span, kept for the events in it.
struct SpanFields(Map<String, Value>);

#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    level: &'a str,
    target: &'a str,
    message: Value,
    fields: Map<String, Value>,
}

impl<S, W, O> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Fn() -> O + 'static,
    O: Write,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(fields.0));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(SpanFields(of_span)) = span.extensions().get() {
                fields.0.extend(of_span.clone());
            }
        }
        event.record(&mut fields);
        let mut fields = fields.0;
        let message = fields.remove("message").unwrap_or_default();
        let line = JsonLine::now(*event.metadata().level(), event.metadata().target());
        JsonLine { message, fields, ..line }.write((self.0)());
    }
}

impl<'a> JsonLine<'a> {
    fn now(level: Level, target: &'a str) -> Self {
        let time = rfc3339(Timestamp::now());
        Self { time, level: level.as_str(), target, message: Value::Null, fields: Map::new() }
    }

    fn write(&self, mut to: impl Write) {
        let Ok(mut line) = json_line(self) else { return };
        line.push(b'\n');
        let _ = to.write_all(&line);
    }
}

/// The fields of an event or a span, as JSON.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        if !is_of_traces(field) {
            self.0.insert(field.name().to_owned(), value.into());
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.set(field, u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }
}

/// Whether a field is for traces only: OpenTelemetry's names have dots.
fn is_of_traces(field: &Field) -> bool {
    field.name().contains('.')
}

/// Writes a message, or a field with its name, escaped so that it stays on one line and cannot control a terminal.
fn field(to: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> Formatted {
    if is_of_traces(field) {
        return Ok(());
    }
    if field.name() != "message" {
        write!(to, "{}=", field.name())?;
    }
    write!(OneLine(to), "{value:?}")
}

fn colours() -> bool {
    anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never
}

/// A stderr without write errors: a host outlives the reader of its log.
struct InfallibleStderr;

impl Write for InfallibleStderr {
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
    fn a_json_event_has_the_fields_of_its_spans() {
        let written = Written::default();
        let to = written.clone();
        let lines = JsonLines(move || to.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let span = tracing::warn_span!("job", member = "ann", job = %7);
            span.in_scope(|| tracing::warn!(ms = 3_u64, text = "a\n\u{202e}", gone = true, "why: {}", "\u{1b}[2J\n"));
        });
        let log = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert!(!log.trim_end().contains(guild_contract::text::is_steering), "{log}");
        assert_eq!(log.lines().count(), 1, "{log}");
        let line: Value = serde_json::from_str(&log).unwrap();
        let fields = serde_json::json!({"member": "ann", "job": "7", "ms": 3, "text": "a\n\u{202e}", "gone": true});
        assert_eq!((&line["fields"], &line["message"]), (&fields, &"why: \u{1b}[2J\n".into()));
        assert_eq!((&line["level"], &line["target"]), (&"WARN".into(), &module_path!().into()));
        assert!(line["time"].as_str().unwrap().parse::<Timestamp>().is_ok(), "{log}");
    }

    #[test]
    fn an_event_is_always_one_line() {
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
        // Quoted texts are escaped by the quoting already.
        let quoted = r#""a\nERROR b\r\u{1b}[2J\0\u{202e}\u{2066}\u{200b}""#;
        assert_eq!(
            log,
            format!(" WARN load{{member={shown}}}: why: {shown} plain=\"x\" text={quoted} shown={shown}\n")
        );
    }
}
