//! Reads the JSON messages in the body of an answer. Providers frame them as server-sent events, as a JSON text a line,
//! or as one JSON text, and often deviate from the standard. The declared content type has no influence.

use std::borrow::Cow;

use guild_contract::{
    json::{parsed_bytes, replace_lone_surrogates},
    text::cut,
};
use serde_json::Value;

use super::{MAX_ANSWER_BYTES, surrogates};
use crate::api::failure::Failure;

/// The most bytes of memory that one parsed message may take.
const MAX_PARSED_BYTES: u64 = 96 * 1024 * 1024;
/// Characters of unreadable data that an error quotes.
const QUOTED_CHARS: usize = 300;

/// A part of the body.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    /// A JSON message, the name of its event if it has one, and whether it has halves of surrogate pairs.
    Message { event: String, value: Value, has_halves: bool },
    /// `[DONE]`: nothing follows.
    End,
}

/// Reads frames from the bytes of a body.
#[derive(Default)]
pub(super) struct Frames {
    /// The line that is being received.
    line: Vec<u8>,
    /// Whether the last line ended with a carriage return, which a line feed may still follow.
    after_return: bool,
    /// The name of the event that is being received.
    event: String,
    /// The part received so far of a message of several lines.
    message: String,
    /// Whether the message is bare JSON, which empty lines do not end.
    bare: bool,
    /// The beginning of the data that belongs to no message.
    unread: String,
}

impl Frames {
    /// Reads the next bytes, and gives `take` each frame that they complete.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(Frame) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match piece.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (piece, None),
            };
            if std::mem::take(&mut self.after_return) && piece == b"\n" {
                continue;
            }
            if self.line.len() + self.message.len() + text.len() > MAX_ANSWER_BYTES {
                return Err(super::too_large());
            }
            self.line.extend_from_slice(text);
            if let Some(end) = end {
                self.after_return = end == b'\r';
                let line = std::mem::take(&mut self.line);
                self.line(&line, take)?;
            }
        }
        Ok(())
    }

    /// Reads the rest after the end of the body.
    pub(super) fn finish(&mut self, take: &mut dyn FnMut(Frame) -> Result<(), Failure>) -> Result<(), Failure> {
        let line = std::mem::take(&mut self.line);
        self.line(&line, take)?;
        self.flush(take)
    }

    /// The beginning of the data that belongs to no message, for an error.
    pub(super) fn unread(&self) -> Option<&str> {
        (!self.unread.is_empty()).then_some(self.unread.as_str())
    }

    fn line(&mut self, line: &[u8], take: &mut dyn FnMut(Frame) -> Result<(), Failure>) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(line);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        if self.bare {
            return self.bare_line(text, take);
        }
        if text.is_empty() {
            return self.flush(take);
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => self.data(value, take),
            "event" => {
                value.trim().clone_into(&mut self.event);
                Ok(())
            }
            // llama.cpp sends errors as a field of this name.
            "error" => {
                "error".clone_into(&mut self.event);
                self.data(value, take)
            }
            "" | "id" | "retry" => Ok(()),
            _ if text.trim_start().starts_with(['{', '[']) => {
                self.bare = true;
                self.bare_line(text, take)
            }
            _ => {
                self.pass_over(text);
                Ok(())
            }
        }
    }

    /// Reads a line of data. A line with a whole JSON text is a message, since some servers leave out the empty line
    /// between two events.
    fn data(&mut self, text: &str, take: &mut dyn FnMut(Frame) -> Result<(), Failure>) -> Result<(), Failure> {
        if self.message.is_empty() {
            match text.trim() {
                "" => return Ok(()),
                "[DONE]" => return take(Frame::End),
                _ => {}
            }
            if let Some(parsed) = parse(text)? {
                return self.emit(parsed, take);
            }
        }
        self.message.push_str(text);
        self.message.push('\n');
        Ok(())
    }

    /// Reads a line of bare JSON: a whole message, or a part of a message that the end of the body completes.
    fn bare_line(&mut self, text: &str, take: &mut dyn FnMut(Frame) -> Result<(), Failure>) -> Result<(), Failure> {
        if self.message.is_empty() {
            if text.trim().is_empty() {
                return Ok(());
            }
            if let Some(parsed) = parse(text)? {
                self.bare = false;
                return self.emit(parsed, take);
            }
        }
        self.message.push_str(text);
        self.message.push('\n');
        Ok(())
    }

    fn flush(&mut self, take: &mut dyn FnMut(Frame) -> Result<(), Failure>) -> Result<(), Failure> {
        let message = std::mem::take(&mut self.message);
        self.bare = false;
        if message.is_empty() {
            self.event.clear();
            return Ok(());
        }
        match parse(&message)? {
            Some(parsed) => self.emit(parsed, take),
            // The error is a sentence, not JSON.
            None if self.event == "error" => {
                let value = Value::String(message.trim().to_owned());
                self.emit(Parsed { value, has_halves: false }, take)
            }
            None => Err(Failure::passing(format!("a message of the answer is not JSON: {}", quoted(&message)))),
        }
    }

    fn emit(&mut self, parsed: Parsed, take: &mut dyn FnMut(Frame) -> Result<(), Failure>) -> Result<(), Failure> {
        let event = std::mem::take(&mut self.event);
        let has_halves = parsed.has_halves;
        match parsed.value {
            // Some gateways send the messages, or an error, as a list.
            Value::Array(values) => values
                .into_iter()
                .try_for_each(|value| take(Frame::Message { event: event.clone(), value, has_halves })),
            value => take(Frame::Message { event, value, has_halves }),
        }
    }

    fn pass_over(&mut self, text: &str) {
        if self.unread.chars().count() < QUOTED_CHARS && !text.trim().is_empty() {
            self.unread.push_str(cut(text.trim(), QUOTED_CHARS).0);
            self.unread.push(' ');
        }
    }
}

/// A parsed message.
struct Parsed {
    value: Value,
    has_halves: bool,
}

/// Parses a JSON text; `None` if it is incomplete, or not JSON. Half a surrogate pair is kept for
/// [`surrogates::Joiner`].
fn parse(text: &str) -> Result<Option<Parsed>, Failure> {
    if parsed_bytes(text.as_bytes()) > MAX_PARSED_BYTES {
        return Err(Failure::last(format!(
            "a message of the answer would take more than {MAX_PARSED_BYTES} bytes of memory"
        )));
    }
    let replaced = replace_lone_surrogates(text, surrogates::kept);
    let value = serde_json::from_str(&replaced).ok();
    Ok(value.map(|value| Parsed { value, has_halves: matches!(replaced, Cow::Owned(_)) }))
}

/// The beginning of a text from outside, for an error.
pub(super) fn quoted(text: &str) -> String {
    match cut(text.trim(), QUOTED_CHARS) {
        (all, true) => format!("{all:?}"),
        (start, false) => format!("{start:?}…"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The frames of a body, whichever way it is cut into pieces.
    fn frames(body: &str) -> Result<Vec<Frame>, Failure> {
        let read = |size: usize| {
            let (mut frames, mut read) = (Frames::default(), Vec::new());
            let mut take = |frame| {
                read.push(frame);
                Ok(())
            };
            for piece in body.as_bytes().chunks(size) {
                frames.push(piece, &mut take)?;
            }
            frames.finish(&mut take)?;
            Ok(read)
        };
        let whole = read(body.len().max(1));
        for size in 1..=3 {
            assert_eq!(read(size), whole, "in pieces of {size}: {body}");
        }
        whole
    }

    fn message(event: &str, value: Value) -> Frame {
        Frame::Message { event: event.to_owned(), value, has_halves: false }
    }

    #[test]
    fn every_framing_that_servers_use_is_read() {
        let (a, b) = (message("", json!({"a": 1})), message("", json!({"b": "é"})));
        for body in [
            "data: {\"a\":1}\n\ndata: {\"b\":\"é\"}\n\n",
            "data:{\"a\":1}\r\n\r\ndata:{\"b\":\"é\"}\r\n\r\n",
            "data: {\"a\":1}\r\rdata: {\"b\":\"é\"}\r\r",
            "data: {\"a\":1}\ndata: {\"b\":\"é\"}",
            ": waiting\n\nid: 7\nretry: 1\ndata: {\ndata: \"a\":1}\n\ndata: \n\ndata: {\"b\":\"é\"}\n\n",
            "\u{feff}{\"a\":1}\n{\"b\":\"é\"}\n",
            "[{\n  \"a\": 1\n}\n,\n\n{\"b\": \"é\"}]\n",
        ] {
            assert_eq!(frames(body), Ok(vec![a_copy(&a), a_copy(&b)]), "{body:?}");
        }
        assert_eq!(frames("data:[DONE]\n\n"), Ok(vec![Frame::End]));
        assert_eq!(frames("{\n\"a\":\n1}"), Ok(vec![a_copy(&a)]));
        assert_eq!(frames("event: ping\ndata: {}\n\ndata: {\"a\":1}\n\n"), Ok(vec![message("ping", json!({})), a]));
        assert_eq!(frames("error: {\"code\":500}\n\n"), Ok(vec![message("error", json!({"code": 500}))]));
        assert_eq!(frames("event: error\ndata: no memory\n\n"), Ok(vec![message("error", json!("no memory"))]));
        assert_eq!(frames(""), Ok(Vec::new()));
    }

    fn a_copy(frame: &Frame) -> Frame {
        match frame {
            Frame::Message { event, value, .. } => message(event, value.clone()),
            Frame::End => Frame::End,
        }
    }

    #[test]
    fn a_message_that_is_no_json_is_quoted() {
        let error = frames("data: {\"a\": nope}\n\n").unwrap_err();
        assert!(error.again && error.text.contains("nope"), "{error:?}");
    }

    #[test]
    fn a_message_is_bounded_before_it_is_read() {
        let many = format!("data: [{}0]\n\n", "0,".repeat(2_000_000));
        let mut frames = Frames::default();
        let error = frames.push(many.as_bytes(), &mut |_| Ok(())).unwrap_err();
        assert!(error.text.contains("bytes of memory"), "{error:?}");
        let mut frames = Frames::default();
        let endless = vec![b'x'; MAX_ANSWER_BYTES + 1];
        assert!(frames.push(&endless, &mut |_| Ok(())).unwrap_err().text.contains("is larger than"));
    }
}
