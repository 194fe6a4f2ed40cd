//! Components that are made of bytes: whole enough to get past a parser, which random bytes hardly do.

use arbitrary::{Result, Unstructured};
use wasm_encoder::{
    ComponentBuilder, ComponentExportKind, ComponentTypeRef, CustomSection, InstanceType, MemorySection, MemoryType,
    Module,
};

/// Names of packages and interfaces that mean something to the host, and one that does not.
const INTERFACES: [&str; 19] = [
    "guild:worker/types",
    "guild:worker/log",
    "guild:worker/memory",
    "guild:worker/files",
    "guild:worker/web",
    "guild:worker/job-tools",
    "guild:worker/status",
    "guild:worker/agent",
    "guild:worker/hall",
    "guild:worker/manager",
    "guild:worker/dispatch",
    "guild:worker/run",
    "guild:worker/toolbox",
    "wasi:io/error",
    "wasi:cli/environment",
    "wasi:filesystem/types",
    "wasi:sockets/network",
    "wasi:http/types",
    "other:package/interface",
];
const VERSIONS: [&str; 6] = ["@0.1.0", "@0.1.1", "@0.2.0", "@0.2.12", "@99.0.0-rc.1+x", ""];
/// What an instance without arguments is made with.
const NOTHING: [(&str, ComponentExportKind, u32); 0] = [];
/// Custom sections that the host reads.
const CUSTOM: [&str; 6] = ["producers", "name", ".dep-v0", "component-type", ".debug_str", "minisig"];

/// What a component is made of.
enum Part<'a> {
    Import(Name<'a>, u8),
    /// An empty instance, under this name.
    Export(Name<'a>),
    Custom(Choice<'a>, &'a [u8]),
    /// A core module with a memory of so many pages, and custom sections.
    Module(u32, Option<u32>, Vec<(Choice<'a>, &'a [u8])>),
    /// A component in the component.
    Inner(Vec<Part<'a>>),
    /// A core module of any bytes.
    Raw(&'a [u8]),
}

/// Parts of a component, and of a module.
const MOST: u32 = 32;
/// Components in components.
const DEEPEST: u32 = 8;

enum Name<'a> {
    Known(u8, u8),
    Other(&'a str),
}

enum Choice<'a> {
    Known(u8),
    Other(&'a str),
}

impl<'a> Part<'a> {
    /// As many parts as there are bytes for.
    fn all(data: &mut Unstructured<'a>, depth: u32) -> Result<Vec<Self>> {
        let mut parts = Vec::new();
        data.arbitrary_loop(None, Some(MOST), |data| {
            parts.push(Self::of(data, depth)?);
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        Ok(parts)
    }

    fn of(data: &mut Unstructured<'a>, depth: u32) -> Result<Self> {
        Ok(match data.int_in_range(0..=5)? {
            0 => Self::Import(Name::of(data)?, data.arbitrary()?),
            1 => Self::Export(Name::of(data)?),
            2 => Self::Custom(Choice::of(data)?, data.arbitrary()?),
            3 => {
                let (minimum, maximum, mut sections) = (data.arbitrary()?, data.arbitrary()?, Vec::new());
                data.arbitrary_loop(None, Some(MOST), |data| {
                    sections.push((Choice::of(data)?, data.arbitrary()?));
                    Ok(std::ops::ControlFlow::Continue(()))
                })?;
                Self::Module(minimum, maximum, sections)
            }
            4 if depth < DEEPEST => Self::Inner(Self::all(data, depth + 1)?),
            _ => Self::Raw(data.arbitrary()?),
        })
    }
}

impl<'a> Name<'a> {
    fn of(data: &mut Unstructured<'a>) -> Result<Self> {
        let other = data.ratio(1, 8)?;
        if other { data.arbitrary().map(Self::Other) } else { Ok(Self::Known(data.arbitrary()?, data.arbitrary()?)) }
    }
}

impl<'a> Choice<'a> {
    fn of(data: &mut Unstructured<'a>) -> Result<Self> {
        let other = data.ratio(1, 8)?;
        if other { data.arbitrary().map(Self::Other) } else { data.arbitrary().map(Self::Known) }
    }
}

fn pick(from: &[&'static str], n: u8) -> &'static str {
    from.get(usize::from(n) % from.len()).copied().unwrap_or_default()
}

impl Name<'_> {
    fn text(&self) -> String {
        match self {
            Self::Known(interface, version) => {
                format!("{}{}", pick(&INTERFACES, *interface), pick(&VERSIONS, *version))
            }
            Self::Other(text) => (*text).to_owned(),
        }
    }
}

impl Choice<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Known(n) => pick(&CUSTOM, *n),
            Self::Other(text) => text,
        }
    }
}

/// The input itself where it begins as WebAssembly does, or with `=`, which is taken off; else a component that is made
/// of it.
pub(crate) fn component(data: &[u8]) -> Vec<u8> {
    if let Some(plain) = data.strip_prefix(b"=") {
        return plain.to_owned();
    }
    if data.starts_with(b"\0asm") {
        return data.to_owned();
    }
    build(&Part::all(&mut Unstructured::new(data), 0).unwrap_or_default()).finish()
}

fn build(parts: &[Part<'_>]) -> ComponentBuilder {
    let mut component = ComponentBuilder::default();
    for part in parts {
        match part {
            Part::Import(name, kind) => {
                let mut instance = InstanceType::new();
                instance.ty().function().params([] as [(&str, wasm_encoder::ComponentValType); 0]).result(None);
                for n in 0..kind % 4 {
                    instance.export(format!("f{n}"), ComponentTypeRef::Func(0));
                }
                let ty = component.type_instance(None, &instance);
                let ty = if *kind > 250 { ComponentTypeRef::Component(ty) } else { ComponentTypeRef::Instance(ty) };
                component.import(name.text(), ty);
            }
            Part::Export(name) => {
                let empty = component.component(None, ComponentBuilder::default());
                let instance = component.instantiate(None, empty, NOTHING);
                component.export(name.text(), ComponentExportKind::Instance, instance, None);
            }
            Part::Custom(name, data) => component.raw_custom_section(&custom(name.text(), data)),
            Part::Module(minimum, maximum, sections) => {
                let mut module = Module::new();
                let mut memories = MemorySection::new();
                memories.memory(MemoryType {
                    minimum: (*minimum).into(),
                    maximum: maximum.map(Into::into),
                    memory64: false,
                    shared: false,
                    page_size_log2: None,
                });
                module.section(&memories);
                for (name, data) in sections {
                    module.section(&CustomSection { name: name.text().into(), data: (*data).into() });
                }
                component.core_module(None, &module);
            }
            Part::Inner(parts) => drop(component.component(None, build(parts))),
            Part::Raw(bytes) => drop(component.core_module_raw(None, bytes)),
        }
    }
    component
}

/// A custom section with its id, as it is in the file.
fn custom(name: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    wasm_encoder::Encode::encode(&CustomSection { name: name.into(), data: data.into() }, &mut bytes);
    bytes
}
