//! Generates the OpenRPC documents of endpoints from the types on the wire.

use bytes::Bytes;
use guild_contract::{
    operation::{Operation, Row},
    rpc::code,
};
use guild_hall::operations::HallOperation;
use guild_roster::to_json;
use schemars::{
    JsonSchema,
    generate::{SchemaGenerator, SchemaSettings},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The OpenRPC version of the document. It needs no later version, and many tools support none.
const OPENRPC: &str = "1.3.2";

/// Errors that any request can receive, regardless of its method: name, code, and cause.
const ERRORS: [(&str, i32, &str); 5] = [
    ("ParseError", code::PARSE_ERROR, "The body is not JSON."),
    (
        "InvalidRequest",
        code::INVALID_REQUEST,
        "The body is JSON, but not a request; or it nests too deep, or takes too much memory.",
    ),
    ("InternalError", code::INTERNAL_ERROR, "The host failed."),
    (
        "Busy",
        code::BUSY,
        "The host, or in a batch the caller's token, is at a limit; the same request may succeed later.",
    ),
    ("Forbidden", code::FORBIDDEN, "In a batch: the caller's token does not permit this method."),
];

#[derive(Serialize)]
struct Document<'a> {
    openrpc: &'static str,
    info: Info<'a>,
    #[serde(flatten)]
    common: &'a Common,
}

#[derive(Serialize)]
struct Info<'a> {
    title: &'a str,
    version: &'a str,
    description: &'a str,
    #[serde(rename = "x-host")]
    host: Host,
}

/// The program that serves the member.
#[derive(Serialize)]
struct Host {
    name: &'static str,
    version: &'static str,
}

/// The common part of the documents of many endpoints.
#[derive(Serialize)]
pub(crate) struct Common {
    methods: Vec<Method>,
    components: Value,
}

impl Common {
    /// A document with these methods.
    pub(crate) fn new(described: impl Iterator<Item = fn(&mut Shapes) -> Method>) -> Self {
        Self::with(described, |_| Vec::new())
    }

    /// A document with these methods and further ones.
    pub(crate) fn with(
        described: impl Iterator<Item = fn(&mut Shapes) -> Method>,
        more: impl FnOnce(&mut Shapes) -> Vec<Method>,
    ) -> Self {
        let mut shapes = Shapes::new();
        let mut methods: Vec<Method> = described.map(|describe| describe(&mut shapes)).collect();
        methods.extend(more(&mut shapes));
        let errors: Map<String, Value> =
            ERRORS.into_iter().map(|(name, code, when)| (name.to_owned(), error(code, when))).collect();
        Self { methods, components: json!({"schemas": shapes.0.take_definitions(true), "errors": errors}) }
    }

    /// The document of an endpoint with this title.
    pub(crate) fn document(&self, title: &str, version: &str, description: &str) -> Bytes {
        let host = Host { name: "guild", version: env!("CARGO_PKG_VERSION") };
        to_json(&Document { openrpc: OPENRPC, info: Info { title, version, description, host }, common: self })
    }
}

/// A method in an OpenRPC document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Method {
    name: &'static str,
    summary: &'static str,
    param_structure: &'static str,
    params: Vec<Content>,
    result: Content,
    errors: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_docs: Option<Value>,
}

/// A parameter or a result.
#[derive(Serialize)]
pub(crate) struct Content {
    name: String,
    required: bool,
    schema: Value,
}

impl Content {
    pub(crate) fn required(name: &str, schema: Value) -> Self {
        Self { name: name.to_owned(), required: true, schema }
    }

    pub(crate) fn optional(name: &str, schema: Value) -> Self {
        Self { required: false, ..Self::required(name, schema) }
    }
}

impl Method {
    pub(crate) fn new(name: &'static str, summary: &'static str, params: Vec<Content>, result: Content) -> Self {
        let any = ERRORS.iter().map(|(name, ..)| json!({"$ref": format!("#/components/errors/{name}")}));
        let (param_structure, errors) = ("by-name", any.collect());
        Self { name, summary, param_structure, params, result, errors, external_docs: None }
    }

    /// Describes the cases in which the method rejects its parameters.
    pub(crate) fn refuses(mut self, when: &str) -> Self {
        self.errors.insert(0, error(code::INVALID_PARAMS, when));
        self
    }

    pub(crate) fn described_at(mut self, url: &str) -> Self {
        self.external_docs = Some(json!({"url": url}));
        self
    }
}

fn error(code: i32, when: &str) -> Value {
    json!({"code": code, "message": when})
}

/// Collects the types that the methods share, as OpenRPC requires: in JSON Schema draft 7, each under its name.
pub(crate) struct Shapes(SchemaGenerator);

impl Shapes {
    fn new() -> Self {
        let settings = SchemaSettings::draft07().for_serialize();
        Self(settings.with(|settings| settings.definitions_path = "/components/schemas".into()).into_generator())
    }

    /// The schema of a type.
    pub(crate) fn of<T: JsonSchema>(&mut self) -> Value {
        self.0.subschema_for::<T>().into()
    }

    /// The entry of an operation.
    pub(crate) fn of_operation<O: Operation>(&mut self) -> Method {
        let params = self.params::<O::Input>();
        let output = self.of::<O::Output>();
        described(&O::ROW, params, output)
    }

    /// The entry of an operation of the hall.
    pub(crate) fn of_hall(&mut self, operation: &HallOperation) -> Method {
        let (input, output) = (operation.shapes)(&mut self.0);
        described(&operation.row, params(&input), output)
    }

    /// The fields of a type as parameters.
    fn params<T: JsonSchema>(&mut self) -> Vec<Content> {
        params(&self.0.root_schema_for::<T>().to_value())
    }
}

/// The fields of an object schema as parameters. Required ones come first, as OpenRPC demands.
fn params(shape: &Value) -> Vec<Content> {
    let needed = shape.get("required").and_then(Value::as_array);
    let fields = shape.get("properties").and_then(Value::as_object).into_iter().flatten();
    let mut params: Vec<Content> = fields
        .map(|(name, schema)| match needed.is_some_and(|needed| needed.iter().any(|one| one == name)) {
            true => Content::required(name, schema.clone()),
            false => Content::optional(name, schema.clone()),
        })
        .collect();
    params.sort_by(|a, b| (!a.required, &a.name).cmp(&(!b.required, &b.name)));
    params
}

/// The entry of a row.
fn described(row: &Row, params: Vec<Content>, output: Value) -> Method {
    let refuses = if row.refuses.is_empty() { REFUSES } else { row.refuses };
    Method::new(row.name, row.text, params, Content::required("result", output)).refuses(refuses)
}

/// The default description of an operation's parameter errors.
const REFUSES: &str =
    "A parameter is missing or of the wrong type, or the hall refuses it. The message says which and why.";
