//! The spans of sessions in traces, by OpenTelemetry's semantic conventions for generative AI.

use guild_contract::Usage;
use tracing::{Span, field::Empty};

/// The span of a model's turn.
pub(crate) fn chat(provider: &str, model: &str) -> Span {
    tracing::debug_span!(
        "chat",
        otel.kind = "client",
        otel.name = %format_args!("chat {model}"),
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = provider,
        gen_ai.request.model = model,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
    )
}

/// Records the usage of a turn in its span.
pub(crate) fn record_usage(span: &Span, usage: &Usage) {
    let number = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    span.record("gen_ai.usage.input_tokens", number(usage.input_tokens));
    span.record("gen_ai.usage.output_tokens", number(usage.output_tokens));
}
