//! Sends traces to a collector of OpenTelemetry by OTLP, if the environment names one.
//!
//! The standard variables apply, such as `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME` and `OTEL_TRACES_SAMPLER`.
//! A trace is made of the spans of this program's own crates. Without a collector none of them exists.

use std::{collections::HashMap, env, fmt::Display};

use opentelemetry::{
    Context,
    propagation::TextMapPropagator as _,
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_otlp::{OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, SpanExporter};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing::{Level, Span, Subscriber, level_filters::LevelFilter};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

/// The name of this program's service, unless `OTEL_SERVICE_NAME` has another.
const SERVICE: &str = "guild";
/// The variable with the name.
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// The variable that switches everything off with the value `true`.
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// The header, or the key of `_meta`, with the caller's span (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";
/// The traces of this process. Dropping it sends what is left.
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Prepares to send traces; none if the environment names no collector.
    ///
    /// # Errors
    ///
    /// Returns the reason when a variable of OpenTelemetry is invalid.
    pub fn from_env() -> Result<Option<Self>, impl Display> {
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_on = is_set(OTEL_EXPORTER_OTLP_ENDPOINT) || is_set(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT);
        if !is_on || env::var(DISABLED).is_ok_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        SpanExporter::builder().with_http().build().map(|exporter| {
            let resource = Resource::builder();
            let resource = if is_set(SERVICE_NAME) { resource } else { resource.with_service_name(SERVICE) };
            Some(Self(
                SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter).build(),
            ))
        })
    }

    /// The layer that makes the traces from spans.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let own = filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with("guild"));
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("guild"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_filter(own.with_max_level_hint(LevelFilter::DEBUG))
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(e) = self.0.shutdown() {
            tracing::warn!("the last traces could not be sent: {e}");
        }
    }
}

/// Whether spans of requests exist, for a log or for traces.
pub fn is_on() -> bool {
    tracing::span_enabled!(Level::DEBUG)
}

/// Makes a span part of its caller's trace, by the value of [`TRACEPARENT`]. An invalid value begins a trace of its own.
pub fn continue_trace(span: &Span, traceparent: Option<&str>) {
    let Some(traceparent) = traceparent.filter(|_| !span.is_disabled()) else { return };
    let carried = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    let context = TraceContextPropagator::new().extract(&carried);
    if context.span().span_context().is_valid() {
        // It fails where there is no collector.
        let _ = span.set_parent(context);
    }
}

/// The current span, as the parent of work that outlives it.
#[derive(Clone, Default)]
pub struct Parent(Option<Context>);

impl Parent {
    /// The current span.
    pub fn current() -> Self {
        Self(Some(Span::current().context()).filter(|context| context.span().span_context().is_valid()))
    }

    /// Makes it the parent of a span.
    pub fn adopt(self, span: &Span) {
        if let Some(context) = self.0 {
            let _ = span.set_parent(context);
        }
    }
}

/// The value of [`TRACEPARENT`] with which a request to another service continues the trace of the current span.
pub fn traceparent() -> Option<String> {
    let mut headers = HashMap::new();
    let context = Span::current().context();
    if context.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&context, &mut headers);
    }
    headers.remove(TRACEPARENT)
}
