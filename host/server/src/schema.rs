//! JSON Schemas that came with a member: of a dispatch's `config`, and of its tools' input.
//!
//! Whoever wrote the member wrote them, so they are believed as little as its component is: nothing is fetched for them,
//! what their patterns take is bounded and matched in linear time, and a few lines cannot stand for more work than a large
//! schema is.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Retrieve, Uri, ValidationError, Validator};
use serde_json::Value;

/// Problems of a value that are told.
const PROBLEMS: usize = 5;
/// Bytes of each.
const PROBLEM_BYTES: usize = 400;
/// Bytes that all compiled patterns of a component may take together: each as much as the others, but so much at most.
const ALL_PATTERNS_BYTES: usize = 128 * 1024 * 1024;
const PATTERN_BYTES: usize = 4 * 1024 * 1024;
/// How many schemas one schema may stand for, with its references followed.
const WEIGHT: u64 = 50_000;
/// How many references may lead on from one to the next.
const REFERENCES: usize = 64;
/// What is checked within a tick: the weight of the schema times that of the value.
const QUICK: u64 = 100_000;

/// A compiled schema.
pub(crate) struct Schema {
    validator: Validator,
    weight: u64,
    /// Whether it leads back to itself, so that what it takes depends on how deep the value is.
    recursive: bool,
}

/// Answers each `$ref` that leads out of the schema.
struct NothingElse;

impl Retrieve for NothingElse {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("{uri} is outside of the schema, and nothing is fetched").into())
    }
}

/// How much room each pattern has, where these are all the schemas of a component.
pub(crate) fn pattern_bytes<'a>(schemas: impl IntoIterator<Item = &'a Value>) -> usize {
    let all: usize = schemas.into_iter().map(patterns).sum();
    PATTERN_BYTES.min(ALL_PATTERNS_BYTES / all.max(1))
}

/// At least as many patterns as a schema has.
fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Array(items) => items.iter().map(patterns).sum(),
        Value::Object(fields) => {
            let own = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                ("pattern", Value::String(_)) => 1,
                ("patternProperties", Value::Object(by_pattern)) => by_pattern.len(),
                _ => 0,
            };
            fields.iter().map(own).sum::<usize>() + fields.values().map(patterns).sum::<usize>()
        }
        _ => 0,
    }
}

impl Schema {
    /// Compiles a schema, each of whose patterns may take so much room.
    ///
    /// # Errors
    /// Where it is no JSON Schema, one that leads out of itself, or stands for too much.
    pub(crate) fn compile(schema: &Value, pattern_bytes: usize) -> Result<Self, String> {
        let mut scale = Scale { schema, known: HashMap::new(), depth: 0, recursive: false };
        let weight = scale.weigh(schema, true)?;
        if weight > WEIGHT {
            return Err(format!("its references make it stand for more than {WEIGHT} schemas; make it simpler"));
        }
        let patterns = PatternOptions::regex().size_limit(pattern_bytes).dfa_size_limit(pattern_bytes);
        let compiled = jsonschema::options().with_retriever(NothingElse).with_pattern_options(patterns).build(schema);
        let validator = compiled.map_err(|error| {
            let what = described(&error);
            // The one word that the compiler has for a pattern is said where there is no more to it.
            let hint = "look-around and back references are not supported, and a pattern can be too large";
            if what.contains("is not a \"regex\"") { format!("{what}: {hint}") } else { what }
        })?;
        Ok(Self { validator, weight, recursive: scale.recursive })
    }

    /// Whether a value is checked so quickly that nobody else waits.
    pub(crate) fn is_quick(&self, value: &Value) -> bool {
        !self.recursive && self.weight.saturating_mul(size(value)) <= QUICK
    }

    /// Whether a value satisfies it.
    ///
    /// # Errors
    /// The first problems: where each is, and what is wrong there.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let problems = self.validator.iter_errors(value).take(PROBLEMS).map(|error| described(&error));
        Err(problems.collect::<Vec<_>>().join("; "))
    }
}

/// Parts of a value, and of its texts.
fn size(value: &Value) -> u64 {
    let inner: u64 = match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() as u64 / 16 + size(value)).sum(),
        Value::String(text) => text.len() as u64 / 16,
        _ => 0,
    };
    inner + 1
}

/// Where, and what is wrong there.
fn described(error: &ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    let mut text = if place.is_empty() { error.to_string() } else { format!("at {place}: {error}") };
    if text.len() > PROBLEM_BYTES {
        text.truncate(text.floor_char_boundary(PROBLEM_BYTES));
        text.push_str("... (cut here)");
    }
    text
}

/// Finds how many schemas a schema stands for, with its references followed.
struct Scale<'a> {
    schema: &'a Value,
    /// By reference; none while it is being weighed.
    known: HashMap<&'a str, Option<u64>>,
    depth: usize,
    recursive: bool,
}

impl<'a> Scale<'a> {
    /// At least the weight of a part: data that looks like a schema is weighed too.
    fn weigh(&mut self, part: &'a Value, root: bool) -> Result<u64, String> {
        let fields = match part {
            Value::Object(fields) => fields,
            Value::Array(items) => {
                return items.iter().try_fold(0_u64, |sum, item| Ok(sum.saturating_add(self.weigh(item, false)?)));
            }
            _ => return Ok(0),
        };
        let mut sum = 1_u64;
        for (key, value) in fields {
            let more = match (key.as_str(), value) {
                ("$ref", Value::String(reference)) => self.follow(reference)?,
                ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                    return Err(format!("it uses `{key}`, which is not supported; use `$ref`"));
                }
                ("$id" | "$schema", Value::String(_)) if !root => {
                    return Err(format!("it has `{key}` in a part of it, which is not supported; leave it out"));
                }
                ("$schema", Value::String(draft)) if draft.contains("draft-03") || draft.contains("draft-04") => {
                    return Err(format!(
                        "it is written for {draft}, which is too old; draft-06 and later are supported"
                    ));
                }
                (_, value) => self.weigh(value, false)?,
            };
            sum = sum.saturating_add(more);
        }
        Ok(sum)
    }

    fn follow(&mut self, reference: &'a str) -> Result<u64, String> {
        match self.known.get(reference) {
            Some(Some(weight)) => return Ok(*weight),
            Some(None) => {
                self.recursive = true;
                return Ok(1);
            }
            None => {}
        }
        let shown = || reference.get(..reference.floor_char_boundary(120)).unwrap_or_default();
        let pointer = reference.strip_prefix('#');
        let Some(target) = pointer.and_then(|pointer| self.schema.pointer(pointer)) else {
            return Err(format!(
                "its `$ref` {:?} leads nowhere in it, and nothing is fetched; put what it needs under `$defs`, and refer \
                 to it as \"#/$defs/NAME\"",
                shown()
            ));
        };
        if self.depth >= REFERENCES {
            return Err(format!("more than {REFERENCES} references lead on from one to the next, to {:?}", shown()));
        }
        self.known.insert(reference, None);
        self.depth += 1;
        let weight = self.weigh(target, target == self.schema)?;
        self.depth -= 1;
        self.known.insert(reference, Some(weight));
        Ok(weight)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compile(schema: &Value) -> Result<Schema, String> {
        Schema::compile(schema, pattern_bytes([schema]))
    }

    fn refused(schema: Value) -> String {
        compile(&schema).err().unwrap_or_else(|| panic!("{schema} was taken"))
    }

    #[test]
    fn a_reference_that_leads_out_of_the_schema_is_refused_and_nothing_is_fetched() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        let url = format!("http://{}/schema.json", server.local_addr().unwrap());
        for reference in
            [&url, "https://example.org/a", "file:///etc/hostname", "other.json", "urn:a:b", "#/$defs/none", "#name"]
        {
            let why = refused(json!({"type": "object", "properties": {"a": {"$ref": reference}}}));
            assert!(why.contains(reference) && why.contains("nothing is fetched"), "{why}");
        }
        for meta in [json!({"$schema": url}), json!({"$id": url, "$dynamicRef": "#a"}), json!({"items": {"$id": url}})]
        {
            refused(meta);
        }
        // The compiler itself has nobody who would fetch, whatever it finds.
        let built = jsonschema::options().with_retriever(NothingElse).build(&json!({"$ref": url}));
        assert!(built.unwrap_err().to_string().contains("nothing is fetched"));
        assert!(server.accept().is_err());
    }

    #[test]
    fn a_few_lines_cannot_stand_for_endless_work() {
        let doubled = |levels: usize| {
            let mut defs = serde_json::Map::new();
            for level in 0..levels {
                let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
                defs.insert(level.to_string(), json!({"allOf": [next, next]}));
            }
            defs.insert(levels.to_string(), json!({"type": "string"}));
            json!({"$defs": defs, "$ref": "#/$defs/0"})
        };
        assert!(compile(&doubled(8)).is_ok());
        assert!(refused(doubled(40)).contains("stand for more than"));
        let chain: serde_json::Map<_, _> =
            (0..100).map(|n: u32| (n.to_string(), json!({"$ref": format!("#/$defs/{}", (n + 1) % 100)}))).collect();
        assert!(refused(json!({"$defs": chain, "$ref": "#/$defs/0"})).contains("lead on"));
    }

    #[test]
    fn a_schema_may_lead_back_to_itself_and_is_then_never_taken_for_quick() {
        for schema in [json!({"$ref": "#"}), json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})] {
            assert!(compile(&schema).unwrap().check(&json!(1)).is_ok());
        }
        let tree = compile(&json!({"type": "object", "properties": {"below": {"items": {"$ref": "#"}}}})).unwrap();
        assert!(!tree.is_quick(&json!({})));
        let why = tree.check(&json!({"below": [{}, {"below": [7]}]})).unwrap_err();
        assert!(why.starts_with("at /below/1/below/0: "), "{why}");
        let flat = compile(&json!({"type": "object", "properties": {"a": {"type": "string"}}})).unwrap();
        assert!(flat.is_quick(&json!({"a": "b"})) && !flat.is_quick(&json!({"a": "b".repeat(1_000_000)})));
    }

    #[test]
    fn problems_say_where_and_are_few_and_short() {
        let schema = compile(&json!({"type": "object", "properties": {"rows": {"items": {"type": "array"}}}})).unwrap();
        let long = "x".repeat(10_000);
        let why = schema.check(&json!({"rows": [long, long, 1, 2, 3, 4, 5]})).unwrap_err();
        assert!(
            why.starts_with("at /rows/0: ") && why.contains("at /rows/4: ") && !why.contains("at /rows/5: "),
            "{why}"
        );
        assert!(why.len() < PROBLEMS * (PROBLEM_BYTES + 40), "{why}");
    }

    #[test]
    fn patterns_are_matched_in_linear_time_and_bounded() {
        let slow = compile(&json!({"pattern": "^(a+)+$"})).unwrap();
        assert!(slow.check(&json!(format!("{}b", "a".repeat(20_000)))).is_err());
        assert!(compile(&json!({"pattern": "^\\p{L}{1,64}$"})).is_ok());
        for pattern in ["(?=a)b", "(a)\\1", "\\w{1000}{1000}"] {
            let why = refused(json!({"properties": {"a": {"pattern": pattern}}}));
            assert!(why.contains("look-around") || why.contains("pattern"), "{why}");
        }
        let many: Vec<Value> = (0..1000).map(|n| json!({"pattern": format!("^{n}\\p{{L}}{{1,64}}$")})).collect();
        assert!(refused(json!({"anyOf": many})).contains("too large"));
    }
}
