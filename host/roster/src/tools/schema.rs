//! Validates values against JSON Schemas of members: of a dispatch's `config`, and of the tools' inputs and outputs.
//!
//! The author of the member wrote them, so they are trusted as little as its component. Validating a value against a
//! schema can take exponential time and memory, so a schema is used in the host itself only where its cost is known and
//! small: it has no recursion, and no keyword whose cost is not in proportion to its size ([`Schema::quick`]). All
//! others are compiled and applied in a child process, with a deadline and a memory limit ([`SCHEMA`]).
//!
//! The cost is estimated because a child for every check would be slower. Measured on two cores, with the compiled
//! schema kept in a warm child: 54 us for a check in place of 0.1 us, so that a tool call of 258 us takes 1.2 times as
//! long with an input schema, and 1.4 times with an output schema too; and one child makes 14,500 checks in a second
//! for all members, of whom one with a costly schema would hold up the others.

mod explain;

use std::{collections::HashMap, time::Instant};

use guild_confine::{Bounds, Ended, Task};
use guild_contract::{Limits, MemberKey, manifest::ComponentSpec, rpc::RpcError};
use jsonschema::{PatternOptions, Retrieve, Uri, Validator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};
use tokio::{sync::Semaphore, time::timeout_at};

use self::explain::Checked;

/// Compiles schemas, and applies one to a value. The request is a [`Request`] in JSON, the answer a [`Problem`] or
/// null.
pub(crate) static SCHEMA: Task = Task { name: "schema", run: in_child };

/// Problems of a value that are listed.
const PROBLEMS: usize = 5;
/// Bytes that the compiled patterns of a component may take together: each as much as the others, but so much at most.
const ALL_PATTERNS_BYTES: usize = 128 * 1024 * 1024;
const PATTERN_BYTES: usize = 4 * 1024 * 1024;
/// How many schemas one schema may stand for, with its references followed.
const WEIGHT: u64 = 50_000;
/// How many references may lead on from one to the next.
const REFERENCES: usize = 64;
/// How deep a schema may nest, with its references followed: it is looked through, and compiled, by recursion.
const DEPTH: usize = 128;
/// Up to which weight a schema is compiled in the host itself, and all schemas of a component together.
const QUICK_WEIGHT: u64 = 2_000;
pub(crate) const QUICK_WEIGHTS: u64 = 20_000;
/// Up to which cost a value is checked in the host itself: some milliseconds, and some megabytes where all is wrong
/// with it.
const QUICK: u64 = 20_000;
/// Bytes of text that cost as much as one part of a value.
const TEXT_UNIT: u64 = 1024;
/// Keywords whose cost is not in proportion to the schema's size times the value's: they compare parts with each other,
/// go through other keywords again, or match texts. A property may be called so too; then it costs a process.
const COSTLY: [&str; 8] = [
    "contentEncoding",
    "contentMediaType",
    "format",
    "pattern",
    "patternProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];
/// Checks in child processes at a time, over all members.
static CHILDREN: Semaphore = Semaphore::const_new(8);

/// A schema that can be applied.
pub(crate) struct Schema {
    json: Box<RawValue>,
    pattern_bytes: usize,
    /// For the values that are quick to check; none where no value is.
    quick: Option<Quick>,
}

struct Quick {
    validator: Validator,
    weight: u64,
}

/// The request to a child.
#[derive(Serialize, Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    schemas: Vec<&'a RawValue>,
    pattern_bytes: usize,
    /// Applied to the first schema.
    value: Option<Box<RawValue>>,
}

/// The finding of a child.
#[derive(Debug, Serialize, Deserialize)]
struct Problem {
    /// The position of the schema.
    schema: usize,
    /// The error of the schema, or of the value.
    why: String,
}

/// The reason that a value is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The first problems: where each is, and what is wrong there; or which limit the check reached.
    Invalid(String),
    /// Others are being checked. Nothing was done.
    Busy,
}

/// How many values of one member's callers are checked in child processes at a time.
pub(crate) const PERMITS: usize = 2;

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
    /// A schema, each of whose patterns may take so much room. It is known to be valid once [`check_all`] has
    /// succeeded. `room` is what weight its component has left for schemas that are compiled in the host itself.
    ///
    /// # Errors
    ///
    /// Returns an error when the schema has references outside itself, nests too deep, or weighs too much.
    pub(crate) fn of(schema: &Value, pattern_bytes: usize, room: &mut u64) -> Result<Self, String> {
        let mut scale = Scale { schema, known: HashMap::new(), references: 0, depth: 0, is_plain: true };
        let weight = scale.weigh(schema, true)?;
        if weight > WEIGHT {
            return Err(format!("its references make it stand for more than {WEIGHT} schemas; make it simpler"));
        }
        let json = serde_json::value::to_raw_value(schema).map_err(|e| e.to_string())?;
        let is_quick = scale.is_plain && weight <= QUICK_WEIGHT.min(*room);
        // The child says why it is no schema.
        let validator = is_quick.then(|| compile(schema, pattern_bytes).ok()).flatten();
        let quick = validator.map(|validator| {
            *room = room.saturating_sub(weight);
            Quick { validator, weight }
        });
        Ok(Self { json, pattern_bytes, quick })
    }

    /// The validator, where a value is checked so quickly that nothing else is delayed.
    fn quick(&self, value: &Value) -> Option<&Validator> {
        let Quick { validator, weight } = self.quick.as_ref()?;
        let Size { parts, text } = Size::of(value);
        (weight.saturating_mul(parts.saturating_add(text / TEXT_UNIT)) <= QUICK).then_some(validator)
    }

    /// Whether a value satisfies it. Where that is not quick, a child process checks it, once it has one of `permits`,
    /// for which it waits until `until`; it is ended with the future.
    ///
    /// # Errors
    ///
    /// Returns [`Refused`].
    pub(crate) async fn check(
        &self,
        value: &Value,
        limits: &Limits,
        permits: &Semaphore,
        until: Instant,
    ) -> Result<(), Refused> {
        if let Some(validator) = self.quick(value) {
            return applied(validator, value, || serde_json::from_str(self.json.get()).unwrap_or_default())
                .map_err(Refused::Invalid);
        }
        let of_own_and_of_all = async { (permits.acquire().await, CHILDREN.acquire().await) };
        let _permits = timeout_at(until.into(), of_own_and_of_all).await.map_err(|_| Refused::Busy)?;
        let answer = self.ask_child(value, limits).await.map_err(Refused::Invalid)?;
        answer.map_or(Ok(()), |problem| Err(Refused::Invalid(problem.why)))
    }

    /// Refuses a dispatch's `config` that this schema of its member does not accept.
    ///
    /// # Errors
    ///
    /// Returns the error for the caller of the dispatch.
    pub(crate) async fn check_config(
        &self,
        member: &MemberKey,
        config: &Value,
        limits: &Limits,
        permits: &Semaphore,
        until: Instant,
    ) -> Result<(), RpcError> {
        self.check(config, limits, permits, until).await.map_err(|refused| match refused {
            Refused::Invalid(why) => RpcError::invalid_params(format!("`config` is not what {member} takes: {why}")),
            Refused::Busy => RpcError::busy(format!(
                "the configurations of other dispatches to {member} are being checked; try again"
            )),
        })
    }

    async fn ask_child(&self, value: &Value, limits: &Limits) -> Result<Option<Problem>, String> {
        let value = Some(RawValue::from_string(value.to_string()).map_err(|e| e.to_string())?);
        let request = Request { schemas: vec![&self.json], pattern_bytes: self.pattern_bytes, value };
        let request = serde_json::to_vec(&request).map_err(|e| e.to_string())?;
        answered(guild_confine::run(&SCHEMA, bounds(limits), request).await, limits)
    }
}

/// Whether all of these are JSON Schemas; each comes with what it is called. It blocks, where one is not plainly small.
///
/// # Errors
///
/// Returns the label of the first invalid schema, and the reason.
pub(crate) fn check_all<'a>(
    schemas: impl IntoIterator<Item = (String, &'a Schema)>,
    limits: &Limits,
) -> Result<(), String> {
    let (names, larger): (Vec<String>, Vec<&Schema>) =
        schemas.into_iter().filter(|(_, schema)| schema.quick.is_none()).unzip();
    let (Some(name), Some(first)) = (names.first(), larger.first()) else { return Ok(()) };
    let json = larger.iter().map(|schema| &*schema.json).collect();
    let request = Request { schemas: json, pattern_bytes: first.pattern_bytes, value: None };
    let request = serde_json::to_vec(&request).map_err(|e| e.to_string())?;
    let answer = guild_confine::run_blocking(&SCHEMA, bounds(limits), request);
    match answered(answer, limits) {
        Ok(None) => Ok(()),
        Ok(Some(Problem { schema, why })) => Err(format!("{}: {why}", names.get(schema).unwrap_or(name))),
        Err(why) => Err(format!("{name}: {why}")),
    }
}

fn bounds(limits: &Limits) -> Bounds {
    Bounds { seconds: limits.schema_seconds, memory_bytes: limits.schema_memory_bytes }
}

/// The finding of a child, or the limit that ended it.
fn answered(answer: Result<Vec<u8>, Ended>, limits: &Limits) -> Result<Option<Problem>, String> {
    let answer = answer.map_err(|ended| match ended {
        Ended::TooLong => {
            let (limit, most) = (Limits::cited("schema_seconds"), limits.schema_seconds);
            format!("checking it takes longer than {limit} = {most}")
        }
        Ended::TooMuchMemory => {
            let (limit, most) = (Limits::cited("schema_memory_bytes"), limits.schema_memory_bytes);
            format!("checking it takes more memory than {limit} = {most}")
        }
        Ended::Failed(why) => format!("checking it failed: {why}"),
    })?;
    serde_json::from_slice(&answer).map_err(|e| format!("checking it failed: {e}"))
}

/// [`SCHEMA`], in the child.
fn in_child(request: &[u8]) -> Vec<u8> {
    let found = match serde_json::from_slice::<Request<'_>>(request) {
        Ok(request) => problem(&request).err(),
        Err(e) => Some(Problem { schema: 0, why: e.to_string() }),
    };
    serde_json::to_vec(&found).unwrap_or_default()
}

fn problem(Request { schemas, pattern_bytes, value }: &Request<'_>) -> Result<(), Problem> {
    for (schema, json) in schemas.iter().enumerate() {
        let of_this = |why: String| Problem { schema, why };
        let parsed = serde_json::from_str(json.get()).map_err(|e| of_this(e.to_string()))?;
        let validator = compile(&parsed, *pattern_bytes).map_err(of_this)?;
        if let Some(value) = value {
            let value = serde_json::from_str(value.get()).map_err(|e| of_this(e.to_string()))?;
            return applied(&validator, &value, || parsed).map_err(of_this);
        }
    }
    Ok(())
}

/// The error is a sentence about the schema.
fn compile(schema: &Value, pattern_bytes: usize) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(pattern_bytes).dfa_size_limit(pattern_bytes);
    let compiled = jsonschema::options().with_retriever(NothingElse).with_pattern_options(patterns).build(schema);
    compiled.map_err(|error| {
        let what = explain::explained(&error, Checked { value: schema, schema: &Value::Null });
        // The one word that the compiler has for a pattern is said where there is no more to it.
        let hint = "look-around and back references are not supported, and a pattern can be too large";
        if what.contains("is not a \"regex\"") { format!("{what}: {hint}") } else { what }
    })
}

/// The error has the first problems, for which it is looked into the schema.
fn applied(validator: &Validator, value: &Value, schema: impl FnOnce() -> Value) -> Result<(), String> {
    if validator.is_valid(value) {
        return Ok(());
    }
    let schema = schema();
    let checked = Checked { value, schema: &schema };
    let problems = validator.iter_errors(value).take(PROBLEMS).map(|error| explain::explained(&error, checked));
    Err(problems.collect::<Vec<_>>().join("; "))
}

/// How large a value is.
#[derive(Default)]
struct Size {
    parts: u64,
    /// Bytes of all texts.
    text: u64,
}

impl Size {
    fn of(value: &Value) -> Self {
        let mut size = Self::default();
        size.add(value);
        size
    }

    fn add(&mut self, value: &Value) {
        self.parts += 1;
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.text += key.len() as u64;
                    self.add(value);
                }
            }
            Value::String(text) => self.text += text.len() as u64,
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Finds how many schemas a schema stands for, with its references followed.
struct Scale<'a> {
    schema: &'a Value,
    /// By reference; none while it is being weighed.
    known: HashMap<&'a str, Option<u64>>,
    /// How many have led on from one to the next.
    references: usize,
    depth: usize,
    /// Whether what it costs is known: it does not lead back to itself, and has no keyword that is [`COSTLY`].
    is_plain: bool,
}

impl<'a> Scale<'a> {
    /// At least the weight of a part: data that looks like a schema is weighed too.
    fn weigh(&mut self, part: &'a Value, root: bool) -> Result<u64, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("it nests deeper than {DEPTH} levels, with its references followed"));
        }
        let weight = match part {
            Value::Object(fields) => self.weigh_object(fields, root)?,
            Value::Array(items) => items
                .iter()
                .try_fold(0_u64, |sum, item| Ok::<_, String>(sum.saturating_add(self.weigh(item, false)?)))?,
            // The items of `enum` are compared with the value.
            _ => 1,
        };
        self.depth -= 1;
        Ok(weight)
    }

    fn weigh_object(&mut self, fields: &'a Map<String, Value>, root: bool) -> Result<u64, String> {
        let mut sum = 1_u64;
        for (key, value) in fields {
            self.is_plain &= !COSTLY.contains(&key.as_str());
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
                self.is_plain = false;
                return Ok(1);
            }
            None => {}
        }
        let shown = || reference.get(..reference.floor_char_boundary(120)).unwrap_or_default();
        // Decoded, it can mean another place than the one that was weighed.
        if reference.contains('%') {
            return Err(format!(
                "its `$ref` {:?} has a `%`, which is not supported; give the place a plain name",
                shown()
            ));
        }
        let pointer = reference.strip_prefix('#');
        let Some(target) = pointer.and_then(|pointer| self.schema.pointer(pointer)) else {
            return Err(format!(
                "its `$ref` {:?} leads nowhere in it, and nothing is fetched; put what it needs under `$defs`, and refer \
                 to it as \"#/$defs/NAME\"",
                shown()
            ));
        };
        if self.references >= REFERENCES {
            return Err(format!("more than {REFERENCES} references lead on from one to the next, to {:?}", shown()));
        }
        self.known.insert(reference, None);
        self.references += 1;
        let weight = self.weigh(target, target == self.schema)?;
        self.references -= 1;
        self.known.insert(reference, Some(weight));
        Ok(weight)
    }
}

/// What a `configSchema` is called that is not valid.
const NOT_A_SCHEMA: &str = "`component.configSchema` of the manifest is no JSON Schema";

/// The manifest's `configSchema`. It is known to be valid once [`check_config_schema`] has succeeded.
pub(crate) fn config_schema(spec: &ComponentSpec) -> Result<Option<Schema>, String> {
    let schema = spec.config_schema.as_ref();
    let schema = schema.map(|schema| Schema::of(schema, pattern_bytes([schema]), &mut QUICK_WEIGHTS.clone()));
    schema.transpose().map_err(|why| format!("{NOT_A_SCHEMA}: {why}"))
}

/// Whether the manifest's `configSchema` is valid. It blocks, where that is not plain.
pub(crate) fn check_config_schema(spec: &ComponentSpec, limits: &Limits) -> Result<(), String> {
    let schema = config_schema(spec)?;
    check_all(schema.iter().map(|schema| (NOT_A_SCHEMA.to_owned(), schema)), limits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A valid schema.
    fn valid(schema: &Value) -> Result<Schema, String> {
        let compiled = Schema::of(schema, pattern_bytes([schema]), &mut QUICK_WEIGHTS.clone())?;
        check_all([("it".to_owned(), &compiled)], &Limits::default())?;
        Ok(compiled)
    }

    fn check(schema: &Schema, value: &Value) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (limits, permits) = (Limits::default(), Semaphore::new(1));
        let until = Instant::now() + std::time::Duration::from_secs(10);
        runtime.block_on(schema.check(value, &limits, &permits, until)).map_err(|refused| match refused {
            Refused::Invalid(why) => why,
            Refused::Busy => panic!("nothing else is checked"),
        })
    }

    fn refused(schema: Value) -> String {
        valid(&schema).err().unwrap_or_else(|| panic!("{schema} was taken"))
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
        // The compiler itself has no way to fetch anything.
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
        assert!(valid(&doubled(8)).is_ok());
        assert!(refused(doubled(40)).contains("stand for more than"));
        let chain: serde_json::Map<_, _> =
            (0..100).map(|n: u32| (n.to_string(), json!({"$ref": format!("#/$defs/{}", (n + 1) % 100)}))).collect();
        assert!(refused(json!({"$defs": chain, "$ref": "#/$defs/0"})).contains("lead on"));
    }

    #[test]
    fn a_schema_may_lead_back_to_itself_and_is_then_never_taken_for_quick() {
        for schema in [json!({"$ref": "#"}), json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})] {
            assert!(check(&valid(&schema).unwrap(), &json!(1)).is_ok());
        }
        let tree = valid(&json!({"type": "object", "properties": {"below": {"items": {"$ref": "#"}}}})).unwrap();
        assert!(tree.quick(&json!({})).is_none());
        let why = check(&tree, &json!({"below": [{}, {"below": [7]}]})).unwrap_err();
        assert!(why.starts_with("at /below/1/below/0: "), "{why}");
        let flat = valid(&json!({"type": "object", "properties": {"a": {"type": "string"}}})).unwrap();
        assert!(flat.quick(&json!({"a": "b"})).is_some() && flat.quick(&json!(vec![1; 100_000])).is_none());
    }

    #[test]
    fn a_schema_is_used_in_the_host_itself_only_where_its_cost_is_known() {
        let is_quick = |schema: Value| {
            let schema = Schema::of(&schema, PATTERN_BYTES, &mut QUICK_WEIGHTS.clone()).unwrap();
            schema.quick(&json!({})).is_some()
        };
        assert!(is_quick(json!({"$defs": {"a": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/a"}}})));
        for (keyword, value) in [
            ("pattern", json!("a")),
            ("patternProperties", json!({"a": {}})),
            ("format", json!("regex")),
            ("uniqueItems", json!(true)),
            ("unevaluatedProperties", json!(false)),
        ] {
            assert!(!is_quick(json!({"properties": {"a": {keyword: value}}})), "{keyword}");
        }
        assert!(!is_quick(json!({"enum": vec![json!(1); 2_001]})));
        // Of many, only so many.
        let mut room = 10;
        let of = |room: &mut u64| Schema::of(&json!({"type": "object", "title": "t"}), PATTERN_BYTES, room).unwrap();
        let quick: Vec<bool> = (0..5).map(|_| of(&mut room).quick.is_some()).collect();
        assert_eq!(quick, [true, true, true, false, false]);
    }

    #[test]
    fn what_a_reference_means_is_what_was_weighed() {
        let decoy =
            json!({"$defs": {"a": {"items": {"$ref": "#/%24defs/a"}}}, "%24defs": {"a": true}, "$ref": "#/%24defs/a"});
        assert!(refused(decoy).contains("has a `%`"));
    }

    #[test]
    fn a_schema_nests_no_deeper_than_the_stack_is_for() {
        let nested = |levels: usize, end: Value| (0..levels).fold(end, |inner, _| json!({"not": inner}));
        assert!(valid(&nested(100, json!({}))).is_ok());
        let defs: serde_json::Map<_, _> = (0..60)
            .map(|n: u32| (n.to_string(), nested(100, json!({"$ref": format!("#/$defs/{}", n + 1)}))))
            .chain([("60".to_owned(), json!({}))])
            .collect();
        assert!(refused(json!({"$defs": defs, "$ref": "#/$defs/0"})).contains("nests deeper than 128 levels"));
    }

    #[test]
    fn problems_say_where_and_are_few_and_short() {
        let schema = valid(&json!({"type": "object", "properties": {"rows": {"items": {"type": "array"}}}})).unwrap();
        let long = "x".repeat(10_000);
        let why = check(&schema, &json!({"rows": [long, long, 1, 2, 3, 4, 5]})).unwrap_err();
        assert!(
            why.starts_with("at /rows/0: ") && why.contains("at /rows/4: ") && !why.contains("at /rows/5: "),
            "{why}"
        );
        assert!(why.len() < PROBLEMS * (explain::PROBLEM_BYTES + 40), "{why}");
    }

    #[test]
    fn patterns_are_matched_in_linear_time_and_bounded() {
        let slow = valid(&json!({"pattern": "^(a+)+$"})).unwrap();
        assert!(check(&slow, &json!(format!("{}b", "a".repeat(20_000)))).is_err());
        assert!(valid(&json!({"pattern": "^\\p{L}{1,64}$"})).is_ok());
        for pattern in ["(?=a)b", "(a)\\1", "\\w{1000}{1000}"] {
            let why = refused(json!({"properties": {"a": {"pattern": pattern}}}));
            assert!(why.contains("look-around") || why.contains("pattern"), "{why}");
        }
        let many: Vec<Value> = (0..1000).map(|n| json!({"pattern": format!("^{n}\\p{{L}}{{1,64}}$")})).collect();
        assert!(refused(json!({"anyOf": many})).contains("too large"));
    }
}
