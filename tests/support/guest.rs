//! Components made for tests, from WAT text and a few lines of WIT: they build anywhere.

use std::path::Path;

use serde_json::{Value, json};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{
    ManglingAndAbi, PackageId, Resolve, TypeDefKind, WorldId, WorldItem, WorldKey,
    abi::{AbiVariant, WasmType},
};

/// The project's `wit/`.
fn wit() -> (Resolve, PackageId) {
    let mut resolve = Resolve::default();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let (package, _) = resolve.push_dir(path).unwrap();
    (resolve, package)
}

fn encode(mut module: Vec<u8>, resolve: &Resolve, world: WorldId) -> Vec<u8> {
    embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}

/// A component of a world made of these WIT lines. `module` is the core module: its imports and exports carry the
/// canonical names, as `guild:worker/dispatch@0.1.0#activate`.
pub(crate) fn component(world: &str, module: &str) -> Vec<u8> {
    component_with("", world, module)
}

/// As [`component`], of a world that uses this package too.
pub(crate) fn component_with(more: &str, world: &str, module: &str) -> Vec<u8> {
    let (mut resolve, _) = wit();
    if !more.is_empty() {
        resolve.push_str("more.wit", more).unwrap();
    }
    let text = format!("package test:guest;\nworld guest {{\n{world}\n}}");
    let package = resolve.push_str("guest.wit", &text).unwrap();
    let world = resolve.select_world(&[package], Some("guest")).unwrap();
    encode(wat::parse_str(module).unwrap(), &resolve, world)
}

/// A component that imports all that the world has, and whose exports trap.
pub(crate) fn dummy(world: &str) -> Vec<u8> {
    let (resolve, package) = wit();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    let module = wit_component::dummy_module(&resolve, world, ManglingAndAbi::Standard32);
    encode(module, &resolve, world)
}

/// Every function that some world of `wit/` imports, as `interface#function`, in order.
pub(crate) fn imported_functions() -> Vec<String> {
    let (resolve, package) = wit();
    let mut functions = Vec::new();
    for (_, interface) in &resolve.packages[package].interfaces {
        let used = resolve.packages[package].worlds.values().any(|world| {
            let imports = resolve.worlds[*world].imports.values();
            imports
                .into_iter()
                .any(|item| matches!(item, wit_parser::WorldItem::Interface { id, .. } if id == interface))
        });
        if used {
            let interface = &resolve.interfaces[*interface];
            let name = interface.name.clone().unwrap();
            functions.extend(interface.functions.keys().map(|function| format!("{name}#{function}")));
        }
    }
    functions
}

/// The world of a worker that imports nothing.
pub(crate) const WORKER: &str = "export guild:worker/dispatch@0.1.0;";
/// The world of one that runs itself.
pub(crate) const AUTONOMOUS: &str = "export guild:worker/dispatch@0.1.0; export guild:worker/run@0.1.0;";

/// The world of tools and nothing else.
pub(crate) const TOOLBOX: &str = "export guild:worker/toolbox@0.1.0;";

/// A worker whose `activate` is this WAT: it has one parameter (where the activation is) and gives back where the
/// answer is.
pub(crate) fn worker(activate: &str) -> Vec<u8> {
    Guest::default().activate(activate).build()
}

/// A worker that plans to run itself, and whose `run` is this WAT.
pub(crate) fn autonomous(run: &str) -> Vec<u8> {
    Guest::default().run(run).build()
}

/// A tool that a guest lists: its name, and its input schema.
pub(crate) type Tool<'a> = (&'a str, &'a str);

/// The input schema of a tool that takes anything.
pub(crate) const ANYTHING: &str = r#"{"type": "object"}"#;

/// A toolbox with one tool, `do`, whose call is this WAT: see [`Guest::call`].
pub(crate) fn toolbox(call: &str) -> Vec<u8> {
    Guest::default().tools(&[("do", ANYTHING)]).call(call).build()
}

/// `activate` that answers `ok(own-run({none, none, none}))`: the answer is made of zeros but for the plan's case.
const OWN_RUN: &str = "(i32.store8 (i32.const 4104) (i32.const 1)) (i32.const 4096)";

/// `activate` that refuses with `unsupported(text)`.
pub(crate) fn refusing(text: &str) -> Vec<u8> {
    let body = format!("(call $refuse (i32.const 1024) (i32.const {}))", text.len());
    Guest::default().activate(&body).with(&format!("(data (i32.const 1024) {text:?})")).build()
}

/// A guest written in WAT. Its module has
/// - every function of the interfaces that it imports, as `$interface.function` with the canonical signature; methods
///   are `$poll.pollable.block`, and the end of a resource is `$poll.pollable.drop`;
/// - `$ok` and `$failed`, which give `run` its answer: a text, by address and length;
/// - `$refuse`, which gives `activate` its refusal: a text, by address and length;
/// - `$fault` (of a toolbox), which gives `call-tool` an error: which one it is, and a text, by address and length; `$ok` gives it an answer;
/// - `$outcome`, which gives `run` as its answer what a host function answered at 8192: "ok", or the error's text;
/// - `$case`, the length of the task that the activation at an address has, by which a caller chooses what it does.
///
/// Addresses from 4096 to 8191 are for answers to the host, from 8192 for those of host functions; what these return
/// stands above 65536, unless [`Guest::realloc`] puts it elsewhere.
#[derive(Default)]
pub(crate) struct Guest {
    imports: Vec<String>,
    activate: Option<String>,
    run: Option<String>,
    output: Option<&'static str>,
    list: Option<String>,
    call: Option<String>,
    realloc: Option<String>,
    pages: Option<u32>,
    more: String,
}

impl Guest {
    /// One that imports these interfaces: `log` is of `guild:worker`, `random/random` of WASI.
    pub(crate) fn importing(interfaces: &[&str]) -> Self {
        let name = |interface: &&str| match interface.contains('/') {
            true => format!("wasi:{interface}@0.2.12"),
            false => format!("guild:worker/{interface}@0.1.0"),
        };
        Self { imports: interfaces.iter().map(name).collect(), ..Self::default() }
    }

    /// The body of `activate`, unless it plans to run itself.
    pub(crate) fn activate(mut self, body: &str) -> Self {
        self.activate = Some(body.to_owned());
        self
    }

    /// The body of `run`; without one it is a worker that exports `dispatch` only.
    pub(crate) fn run(mut self, body: &str) -> Self {
        self.run = Some(body.to_owned());
        self
    }

    /// The output schema of all tools that are listed from now on.
    pub(crate) fn output(mut self, schema: &'static str) -> Self {
        self.output = Some(schema);
        self
    }

    /// What `list-tools` lists, after what [`Guest::list`] has it do; with it, it exports `toolbox`, and `dispatch` only if
    /// `activate` is given.
    pub(crate) fn tools(self, tools: &[Tool<'_>]) -> Self {
        const AT: usize = 32768;
        let (mut records, mut texts) = (Vec::new(), Vec::new());
        for (name, schema) in tools {
            // Of the record there are: name, no title, no description, input schema, perhaps output schema, not read-only.
            let mut fields = [0_u32; 13];
            fields[9] = self.output.is_some().into();
            for (field, text) in [(0, name), (7, schema)].into_iter().chain(self.output.iter().map(|text| (10, text))) {
                fields[field] = u32::try_from(AT + tools.len() * size_of_val(&fields) + texts.len()).unwrap();
                fields[field + 1] = u32::try_from(text.len()).unwrap();
                texts.extend_from_slice(text.as_bytes());
            }
            records.extend(fields.into_iter().flat_map(u32::to_le_bytes));
        }
        let data: String = records.iter().chain(&texts).map(|byte| format!("\\{byte:02x}")).collect();
        let before = self.list.as_deref().unwrap_or_default();
        let list = format!(
            "{before} (i32.store (i32.const 4096) (i32.const {AT})) (i32.store (i32.const 4100) (i32.const {})) (i32.const 4096)",
            tools.len()
        );
        self.list(&list).with(&format!("(data (i32.const {AT}) \"{data}\")"))
    }

    /// The body of `list-tools`.
    pub(crate) fn list(mut self, body: &str) -> Self {
        self.list = Some(body.to_owned());
        self
    }

    /// The body of `call-tool`. Its parameters are the name and the input, each by address and length.
    pub(crate) fn call(mut self, body: &str) -> Self {
        self.call = Some(body.to_owned());
        self
    }

    /// The body of the function that allocates for what the host passes: the size is its fourth parameter.
    pub(crate) fn realloc(mut self, body: &str) -> Self {
        self.realloc = Some(body.to_owned());
        self
    }

    /// How many pages of memory it begins with.
    pub(crate) fn pages(mut self, pages: u32) -> Self {
        self.pages = Some(pages);
        self
    }

    /// More fields of its module.
    pub(crate) fn with(mut self, fields: &str) -> Self {
        self.more.push_str(fields);
        self
    }

    pub(crate) fn build(self) -> Vec<u8> {
        let (mut resolve, _) = wit();
        resolve.push_str("wasi.wit", include_str!("wasi.wit")).unwrap();
        let imports: String = self.imports.iter().map(|name| format!("import {name};\n")).collect();
        let exports = match (&self.run, &self.list, &self.activate) {
            (Some(_), ..) => AUTONOMOUS.to_owned(),
            (None, None, _) => WORKER.to_owned(),
            (None, Some(_), None) => TOOLBOX.to_owned(),
            (None, Some(_), Some(_)) => format!("{WORKER} {TOOLBOX}"),
        };
        let world = format!("package test:guest;\nworld guest {{\n{imports}{exports}\n}}");
        let package = resolve.push_str("guest.wit", &world).unwrap();
        let world = resolve.select_world(&[package], Some("guest")).unwrap();
        let module = self.module(&resolve, world);
        encode(wat::parse_str(module).unwrap(), &resolve, world)
    }

    fn module(&self, resolve: &Resolve, world: WorldId) -> String {
        let activate = self.activate.as_deref().or(self.list.is_none().then_some(OWN_RUN));
        let activate = activate.map(|body| export("guild:worker/dispatch@0.1.0#activate", body));
        let run = self.run.as_ref().map(|run| export("guild:worker/run@0.1.0#run", run));
        let toolbox = self.list.as_ref().map(|list| {
            let call = self.call.as_deref().unwrap_or("unreachable");
            format!(
                "(func $fault (param i32 i32 i32) (result i32)
                   (i32.store8 (i32.const 4096) (i32.const 1)) (i32.store8 (i32.const 4100) (local.get 0))
                   (i32.store (i32.const 4104) (local.get 1)) (i32.store (i32.const 4108) (local.get 2)) (i32.const 4096))
                 (func (export \"guild:worker/toolbox@0.1.0#list-tools\") (result i32) {list})
                 (func (export \"guild:worker/toolbox@0.1.0#call-tool\") (param i32 i32 i32 i32) (result i32) {call})"
            )
        });
        let realloc = self.realloc.as_deref().unwrap_or(
            "(local $at i32)
             (local.set $at (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
             (global.set $next (i32.add (local.get $at) (local.get 3)))
             (local.get $at)",
        );
        format!(
            "(module
               {imports}
               (memory (export \"memory\") {pages})
               (global $next (mut i32) (i32.const 65536))
               (func $case (param i32) (result i32) (i32.load offset=24 (local.get 0)))
               (func $text (param i32 i32 i32) (result i32)
                 (i32.store8 (i32.const 4096) (local.get 0))
                 (i32.store (i32.const 4100) (local.get 1)) (i32.store (i32.const 4104) (local.get 2)) (i32.const 4096))
               (func $ok (param i32 i32) (result i32) (call $text (i32.const 0) (local.get 0) (local.get 1)))
               (func $failed (param i32 i32) (result i32) (call $text (i32.const 1) (local.get 0) (local.get 1)))
               (func $refuse (param i32 i32) (result i32)
                 (i32.store8 (i32.const 4096) (i32.const 1)) (i32.store8 (i32.const 4104) (i32.const 1))
                 (i32.store (i32.const 4108) (local.get 0)) (i32.store (i32.const 4112) (local.get 1)) (i32.const 4096))
               (func $outcome (result i32)
                 (if (i32.load8_u (i32.const 8192))
                   (then (return (call $failed (i32.load (i32.const 8200)) (i32.load (i32.const 8204))))))
                 (i32.store16 (i32.const 4112) (i32.const 0x6b6f))
                 (call $ok (i32.const 4112) (i32.const 2)))
               {activate}
               {run}
               {toolbox}
               {more}
               (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) {realloc}))",
            imports = core_imports(resolve, world, &self.imports),
            pages = self.pages.unwrap_or(2),
            activate = activate.unwrap_or_default(),
            run = run.unwrap_or_default(),
            toolbox = toolbox.unwrap_or_default(),
            more = self.more,
        )
    }
}

fn export(name: &str, body: &str) -> String {
    format!("(func (export \"{name}\") (param i32) (result i32) {body})")
}

/// An import of the module for every function, and every end of a resource, of these interfaces of the world.
fn core_imports(resolve: &Resolve, world: WorldId, interfaces: &[String]) -> String {
    let mut text = String::new();
    for (key, item) in &resolve.worlds[world].imports {
        let (WorldKey::Interface(_), WorldItem::Interface { id, .. }) = (key, item) else { continue };
        let module = resolve.id_of(*id).unwrap();
        if !interfaces.contains(&module) {
            continue;
        }
        let interface = &resolve.interfaces[*id];
        let short = interface.name.as_deref().unwrap();
        for (name, function) in &interface.functions {
            let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
            let plain = name.rsplit(']').next().unwrap();
            let (params, results) = (core_types(&signature.params), core_types(&signature.results));
            text += &format!(
                "(import \"{module}\" \"{name}\" (func ${short}.{plain} (param {params}) (result {results})))\n"
            );
        }
        for (name, ty) in &interface.types {
            if matches!(resolve.types[*ty].kind, TypeDefKind::Resource) {
                text += &format!(
                    "(import \"{module}\" \"[resource-drop]{name}\" (func ${short}.{name}.drop (param i32)))\n"
                );
            }
        }
    }
    text
}

fn core_types(types: &[WasmType]) -> String {
    let name = |ty: &WasmType| match ty {
        WasmType::I64 | WasmType::PointerOrI64 => "i64 ",
        WasmType::F32 => "f32 ",
        WasmType::F64 => "f64 ",
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32 ",
    };
    types.iter().map(name).collect()
}

/// All that a component can ask for outside of a hall, as `component.grants` has it.
pub(crate) fn everything() -> Value {
    json!({
        "log": {}, "memory": {"write": true}, "files": {}, "web": {"search": true}, "job-tools": {}, "status": {},
        "agent": {"ownTools": true}
    })
}

/// A component that `cargo xtask guests` built.
pub(crate) fn built(name: &str) -> Vec<u8> {
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/target/wasm32-wasip2/release");
    let file = release.join(format!("{name}.wasm"));
    std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}; `cargo xtask guests` builds it", file.display()))
}
