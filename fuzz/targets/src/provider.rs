//! Answers of model providers, as they come over the network.

use guild_agent::api::{AnswerRead, read_answer};
use guild_config::Provider;

/// A body in the protocol of Anthropic.
pub fn anthropic(data: &[u8]) {
    run(Provider::Anthropic, data);
}

/// A body in the protocol of OpenAI.
pub fn openai(data: &[u8]) {
    run(Provider::OpenAi, data);
}

/// A body in the protocol of Gemini.
pub fn gemini(data: &[u8]) {
    run(Provider::Gemini, data);
}

/// A body in the protocol of Ollama.
pub fn ollama(data: &[u8]) {
    run(Provider::Ollama, data);
}

/// Reads a body whole, in pieces, and cut short. An allocation by a number in the body ends the process, since no limit of
/// a fuzzer and no machine allows it.
fn run(provider: Provider, data: &[u8]) {
    let whole = read_answer(provider, [data]);
    for size in [1, 7] {
        assert_eq!(read_answer(provider, data.chunks(size)), whole, "pieces of {size} bytes make a difference");
    }
    let Ok(whole) = whole else { return };
    check(&whole, data);
    // A beginning of the answer says no more than the answer.
    let ends: Vec<usize> = data.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    for end in ends.iter().step_by(ends.len() / 64 + 1) {
        let Ok(beginning) = read_answer(provider, [&data[..*end]]) else { continue };
        check(&beginning, data);
        assert!(beginning.calls.len() <= whole.calls.len(), "a call was lost");
        let said = beginning.text.trim_end_matches('\u{fffd}');
        assert!(whole.text.starts_with(said), "text was lost: {:?} of {:?}", whole.text, beginning.text);
    }
}

fn check(read: &AnswerRead, data: &[u8]) {
    assert_eq!(read.shown, read.text, "what was shown is not what is kept");
    assert!(read.parts <= 4096, "an answer of {} parts", read.parts);
    // Each call is in the answer, by its name. A name may also be written with escapes.
    let text = String::from_utf8_lossy(data);
    if !text.contains("\\u") {
        assert!(read.calls.len() <= text.matches("\"name\"").count(), "a call was invented: {:?}", read.calls);
    }
    assert!(read.calls.iter().all(|(name, _)| !name.trim().is_empty()), "a call names no tool");
}
