//! Assembles an answer from the messages that a provider sends. No number of the provider's determines a size: indexes
//! are labels, and data is counted before it is added.

use guild_config::Tokens;
use guild_contract::{json::parsed_bytes, text::cut};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{
    MAX_ANSWER_BYTES, MAX_CALLS, MAX_INPUT_BYTES, MAX_NOTES, MAX_PARTS,
    surrogates::{self, Joiner},
};
use crate::api::{
    chat::{ModelAnswer, ModelCall, Part, Received, Stop},
    failure::Failure,
};

/// The most characters of a provider's own word, such as a reason to stop, that are kept.
const WORD_CHARS: usize = 100;

/// The parts of an answer so far.
#[derive(Default)]
pub(super) struct Assembly {
    drafts: Vec<Draft>,
    calls: usize,
    /// The received bytes of texts, reasoning and calls.
    size: usize,
    /// Whether the current message has halves of surrogate pairs.
    pub(super) has_halves: bool,
    /// Text that was added since it was last taken.
    fresh: String,
    /// The provider's reason to stop; the last one if there are several.
    pub(super) finish: Option<String>,
    /// Whether the provider announced the end of the answer.
    pub(super) ended: bool,
    /// The model's refusal, in protocols that tell a refusal from an answer.
    pub(super) refusal: String,
    pub(super) tokens: Option<Tokens>,
    notes: Vec<String>,
}

/// A part while it is received.
enum Draft {
    Text { text: String, joiner: Joiner, signature: Option<String> },
    Reasoning { text: String, joiner: Joiner, signature: Option<String>, label: Option<String> },
    Opaque(Value),
    Call(CallDraft),
}

/// A call while it is received.
#[derive(Default)]
pub(super) struct CallDraft {
    /// The provider's label of the call, as it was sent.
    pub(super) label: Option<String>,
    pub(super) id: String,
    pub(super) name: String,
    /// The input so far, as JSON text.
    input: String,
    joiner: Joiner,
    /// Whether the input came as a JSON value, and is whole.
    whole: bool,
    /// The nesting of the input's JSON text so far.
    nesting: Nesting,
    /// Whether the provider announced the end of the input.
    closed: bool,
    signature: Option<String>,
}

/// Finds the end of a JSON text that is received in pieces.
#[derive(Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Whether the first object or list has ended.
    is_complete: bool,
}

impl Nesting {
    fn add(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if std::mem::take(&mut self.is_escaped) => {}
                b'\\' => self.is_escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_complete |= self.depth == 0;
                }
                _ => {}
            }
        }
    }
}

impl CallDraft {
    /// Whether the input so far is one whole object, so that further input belongs to another call.
    pub(super) fn is_complete(&self) -> bool {
        self.closed || self.whole || self.nesting.is_complete
    }

    /// Whether some of the input was received.
    pub(super) fn has_input(&self) -> bool {
        !self.input.trim().is_empty()
    }

    /// The input, if it is one JSON object of at most `room` bytes of memory.
    fn object(&self, room: &mut u64) -> Result<Option<Map<String, Value>>, Failure> {
        let input = self.input.trim();
        Ok(match parse(input, room)? {
            Some(Value::Object(input)) => Some(input),
            // Some servers encode the input twice.
            Some(Value::String(text)) => object_of(parse(&text, room)?),
            Some(_) => None,
            // Gateways to Anthropic may send its empty beginning before the pieces.
            None => match input.strip_prefix("{}") {
                Some(rest) => object_of(parse(rest, room)?),
                None => None,
            },
        })
    }
}

fn object_of(value: Option<Value>) -> Option<Map<String, Value>> {
    match value {
        Some(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

/// A JSON text, if it takes no more memory than there is room for.
fn parse(text: &str, room: &mut u64) -> Result<Option<Value>, Failure> {
    *room = room.checked_sub(parsed_bytes(text.as_bytes())).ok_or_else(|| {
        Failure::last(format!("the inputs of the model's calls take more than {MAX_INPUT_BYTES} bytes of memory"))
    })?;
    Ok(serde_json::from_str(text).ok())
}

impl Assembly {
    /// Adds a piece of text.
    pub(super) fn text(&mut self, piece: &str, signature: Option<String>) -> Result<(), Failure> {
        self.count(piece.len() + signature.as_ref().map_or(0, String::len))?;
        let signature = signature.filter(|signature| !signature.is_empty());
        if piece.is_empty() && signature.is_none() {
            return Ok(());
        }
        // A piece with a signature is not joined with another.
        if signature.is_some() || !matches!(self.drafts.last(), Some(Draft::Text { signature: None, .. })) {
            self.push(Draft::Text { text: String::new(), joiner: Joiner::default(), signature })?;
        }
        if let Some(Draft::Text { text, joiner, .. }) = self.drafts.last_mut() {
            let joined = joiner.join(piece, self.has_halves);
            text.push_str(&joined);
            self.fresh.push_str(&joined);
        }
        Ok(())
    }

    /// Adds a piece of the reasoning, of the block with this label.
    pub(super) fn reasoning(&mut self, piece: &str, of: Option<&str>) -> Result<(), Failure> {
        self.count(piece.len())?;
        if piece.is_empty() {
            return Ok(());
        }
        let at = self.reasoning_block(of)?;
        if let Some(Draft::Reasoning { text, joiner, .. }) = self.drafts.get_mut(at) {
            text.push_str(&joiner.join(piece, self.has_halves));
        }
        Ok(())
    }

    /// Adds to the signature of the reasoning in the block with this label.
    pub(super) fn sign_reasoning(&mut self, piece: &str, of: Option<&str>) -> Result<(), Failure> {
        self.count(piece.len())?;
        if piece.is_empty() {
            return Ok(());
        }
        let at = self.reasoning_block(of)?;
        if let Some(Draft::Reasoning { signature, .. }) = self.drafts.get_mut(at) {
            signature.get_or_insert_default().push_str(piece);
        }
        Ok(())
    }

    /// The position among the parts of the block of reasoning with this label. Without a label, reasoning after another
    /// part is a new block.
    fn reasoning_block(&mut self, of: Option<&str>) -> Result<usize, Failure> {
        let is_block = |draft: &Draft| matches!(draft, Draft::Reasoning { label, .. } if label.as_deref() == of);
        let at = match of {
            Some(_) => self.drafts.iter().rposition(is_block),
            None => self.drafts.len().checked_sub(1).filter(|last| self.drafts.get(*last).is_some_and(is_block)),
        };
        match at {
            Some(at) => Ok(at),
            None => {
                let (text, joiner, label) = (String::new(), Joiner::default(), of.map(str::to_owned));
                self.push(Draft::Reasoning { text, joiner, signature: None, label })?;
                Ok(self.drafts.len().saturating_sub(1))
            }
        }
    }

    /// Adds a block that is sent back to the provider unchanged. The pieces of a block are joined.
    pub(super) fn opaque(&mut self, block: &Value) -> Result<(), Failure> {
        let text = block.to_string();
        self.count(text.len())?;
        if let Some(Draft::Opaque(last)) = self.drafts.last_mut()
            && continues(last, block)
        {
            return Ok(());
        }
        let block = if self.has_halves { serde_json::from_str(&self.whole(&text)).ok() } else { Some(block.clone()) };
        block.map_or(Ok(()), |block| self.push(Draft::Opaque(block)))
    }

    /// Begins a call, which the provider numbers by `label`.
    pub(super) fn begin_call(
        &mut self,
        label: Option<String>,
        id: &str,
        name: &str,
        signature: Option<String>,
    ) -> Result<(), Failure> {
        self.count(id.len() + name.len() + signature.as_ref().map_or(0, String::len))?;
        if self.calls == MAX_CALLS {
            return Err(Failure::last(format!("the model makes more than {MAX_CALLS} calls in one answer")));
        }
        self.calls += 1;
        let (id, name) = (self.whole(id), self.whole(name));
        self.push(Draft::Call(CallDraft { label, id, name, signature, ..CallDraft::default() }))
    }

    /// The last call that matches.
    pub(super) fn find_call(&mut self, is: impl Fn(&CallDraft) -> bool) -> Option<&mut CallDraft> {
        self.drafts.iter_mut().rev().find_map(|draft| match draft {
            Draft::Call(call) if is(call) => Some(call),
            _ => None,
        })
    }

    /// Adds to a call's input: a text is a piece of the input, an object is the whole input.
    pub(super) fn add_input(&mut self, is: impl Fn(&CallDraft) -> bool, input: &Value) -> Result<(), Failure> {
        let (piece, whole) = match input {
            Value::Null => return Ok(()),
            Value::String(text) => (text.clone(), false),
            value => (self.whole(&value.to_string()), true),
        };
        if piece.is_empty() {
            return Ok(());
        }
        self.count(piece.len())?;
        let has_halves = self.has_halves && !whole;
        let Some(call) = self.find_call(is) else { return Ok(()) };
        if whole && call.whole && call.input == piece {
            return Ok(());
        }
        if call.closed || call.whole || (whole && call.has_input()) {
            return Err(Failure::passing(format!(
                "the provider sent more input for the call {:?} after all of it was sent",
                cut(&call.name, WORD_CHARS).0
            )));
        }
        call.whole = whole;
        let joined = call.joiner.join(&piece, has_halves);
        call.nesting.add(&joined);
        call.input.push_str(&joined);
        Ok(())
    }

    /// Closes the input of a call.
    pub(super) fn close_call(&mut self, is: impl Fn(&CallDraft) -> bool) {
        if let Some(call) = self.find_call(is) {
            call.closed = true;
        }
    }

    /// Adds a note about ignored data, for the transcript.
    pub(super) fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The first note, for an error.
    pub(super) fn first_note(&self) -> Option<&str> {
        self.notes.first().map(String::as_str)
    }

    /// The text that was added since the last time.
    pub(super) fn take_fresh(&mut self) -> String {
        std::mem::take(&mut self.fresh)
    }

    /// The whole answer, with the text that was not taken yet.
    pub(super) fn finish(mut self, stop: Stop) -> Result<(Received, String), Failure> {
        self.end_text();
        let fresh = self.take_fresh();
        let mut parts = Vec::with_capacity(self.drafts.len());
        let mut ids: Vec<String> = Vec::new();
        let mut room = MAX_INPUT_BYTES;
        for draft in self.drafts {
            parts.push(match draft {
                Draft::Text { text, signature, .. } => Part::Text { text, signature },
                Draft::Reasoning { text, mut joiner, signature, .. } => {
                    Part::Reasoning { text: text + joiner.finish(), signature }
                }
                Draft::Opaque(block) => Part::Opaque(block),
                Draft::Call(mut call) => {
                    call.input.push_str(call.joiner.finish());
                    if call.name.trim().is_empty() {
                        return Err(Failure::passing("the provider sent a call that names no tool"));
                    }
                    // A missing input means a tool without input, unless the answer was cut there.
                    let input = match call.has_input() {
                        true => call.object(&mut room)?,
                        false => (stop != Stop::Cut || call.closed).then(Map::new),
                    };
                    let own_id = call.id.is_empty() || ids.contains(&call.id);
                    let id = if own_id { format!("call_{}", Uuid::new_v4().simple()) } else { call.id };
                    ids.push(id.clone());
                    Part::Call(ModelCall { id, own_id, name: call.name, input, signature: call.signature })
                }
            });
        }
        // Reasoning is needed only with calls, which the next request repeats.
        if self.calls == 0 {
            parts.retain(|part| !matches!(part, Part::Reasoning { .. } | Part::Opaque(_)));
        }
        let answer = ModelAnswer { parts, stop };
        let tokens = self.tokens.filter(|tokens| *tokens != Tokens::default());
        Ok((Received { answer, tokens, notes: self.notes }, fresh))
    }

    /// Ends the text before another part: half a surrogate pair at its end stays unpaired.
    fn end_text(&mut self) {
        if let Some(Draft::Text { text, joiner, .. }) = self.drafts.last_mut() {
            let end = joiner.finish();
            text.push_str(end);
            self.fresh.push_str(end);
        }
    }

    /// A text that came in one piece.
    fn whole(&self, text: &str) -> String {
        if self.has_halves { surrogates::joined(text) } else { text.to_owned() }
    }

    /// Begins another part.
    fn push(&mut self, draft: Draft) -> Result<(), Failure> {
        if self.drafts.len() == MAX_PARTS {
            return Err(Failure::last(format!("the answer has more than {MAX_PARTS} parts")));
        }
        self.end_text();
        self.drafts.push(draft);
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), Failure> {
        self.size = self.size.saturating_add(bytes);
        if self.size > MAX_ANSWER_BYTES { Err(super::too_large()) } else { Ok(()) }
    }
}

/// Adds a piece to the block that it continues, as in OpenRouter's details of reasoning. Returns false if the piece is
/// a block of its own.
fn continues(block: &mut Value, piece: &Value) -> bool {
    if ["type", "index", "id"].iter().any(|field| block.get(field) != piece.get(field)) {
        return false;
    }
    let (Some(Value::String(before)), Some(Value::String(text))) = (block.get_mut("text"), piece.get("text")) else {
        return false;
    };
    before.push_str(text);
    if let (Some(fields), Some(signature @ Value::String(_))) = (block.as_object_mut(), piece.get("signature")) {
        fields.insert("signature".to_owned(), signature.clone());
    }
    true
}

/// The part of a provider's own word that is kept.
pub(super) fn word(text: &str) -> String {
    cut(text, WORD_CHARS).0.to_owned()
}
