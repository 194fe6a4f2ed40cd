//! Scans a component's bytes in one pass: its contents, its claims, and the types of its imports.

mod claims;
mod languages;
pub(crate) mod traces;

use std::collections::{BTreeMap, btree_map::Entry};

use guild_contract::Limits;
use wasmparser::{
    DataKind, DataSectionReader, Encoding, FuncValidatorAllocations, Operator, Parser, Payload, ValidPayload,
    Validator, WasmFeatures, component_types::ComponentEntityType, types::Types,
};

use self::{
    languages::Libraries,
    traces::{Programs, Traces},
};
use crate::{
    bounds::{cut, steers},
    model::{Contents, Section},
    texts::Texts,
};

/// Distinct names of sections that are counted; those that follow are counted together.
const SECTION_NAMES: usize = 500;
/// Sections that are looked into; those that follow are only validated, and what their modules declare is counted.
const LOOKED_AT: usize = 100_000;
/// Sections that an audit lists.
const SECTIONS: usize = 60;
/// Functions of one import that an audit lists.
const FUNCTIONS: usize = 500;
/// Functions of all imports together.
const ALL_FUNCTIONS: usize = 20_000;
/// Bytes of a memory's page where it does not say.
const PAGE_BYTES: u64 = 64 * 1024;

/// What was found in a component's bytes.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) contents: Contents,
    pub(crate) claimed: claims::Claimed,
    pub(crate) libraries: Libraries,
    /// The functions of each import, by its name; none, where the component is not valid.
    pub(crate) functions: BTreeMap<String, Vec<String>>,
    /// Why it is not valid.
    pub(crate) invalid: Option<String>,
    /// Whether texts in it steer a terminal, or turn the direction of reading.
    pub(crate) steers: bool,
    /// Whether something was left out of the lists.
    pub(crate) truncated: bool,
}

/// What this host's engine takes.
fn features() -> WasmFeatures {
    // The sandbox's wasmtime is built without `gc` and `threads`, and its engine without 64 bit memories.
    let without = WasmFeatures::GC_TYPES | WasmFeatures::EXCEPTIONS | WasmFeatures::THREADS | WasmFeatures::MEMORY64;
    (WasmFeatures::WASM3 - without) | WasmFeatures::COMPONENT_MODEL
}

/// Reads a component, of which the imports are known, to its end.
pub(crate) fn scan(bytes: &[u8], imports: &[String], texts: &mut Texts) -> Scan {
    let mut scan = Scan::default();
    let mut sections = Sections::default();
    let mut traces = Traces::default();
    let mut programs = Programs::default();
    let mut looked_at = 0_usize;
    let mut validation = Validation { validator: Validator::new_with_features(features()), ..Validation::default() };
    // Which of the modules and components that are open are components.
    let mut open: Vec<Encoding> = Vec::new();
    let mut parser = Parser::new(0);
    parser.set_features(features());
    for payload in parser.parse_all(bytes) {
        let payload = match payload {
            Ok(payload) => payload,
            Err(error) => {
                validation.invalid.get_or_insert_with(|| at(&error));
                break;
            }
        };
        match &payload {
            Payload::Version { encoding, .. } => {
                if !open.is_empty() {
                    match encoding {
                        Encoding::Module => scan.contents.core_modules += 1,
                        Encoding::Component => scan.contents.components += 1,
                    }
                }
                open.push(*encoding);
            }
            Payload::End(_) => {
                open.pop();
            }
            _ => {}
        }
        count(&payload, &mut scan.contents);
        validation.payload(&payload);
        if let Some((_, range)) = payload.as_section() {
            looked_at += 1;
            if looked_at > LOOKED_AT {
                continue;
            }
            if let Some(name) = section_name(&payload) {
                sections.add(name, range.len() as u64);
            }
        }
        match &payload {
            Payload::ImportSection(section) => scan.libraries.look(section.clone()),
            Payload::DataSection(section) => {
                let range = section.range();
                let data = bytes.get(range.clone()).unwrap_or_default();
                scan.contents.data_bytes += data.len() as u64;
                traces.look("data", data);
                programs.look(range.start as u64, data);
                let layout = Layout::of(bytes, section.clone());
                texts.data("data", &layout.bytes, &|at| layout.place(at));
            }
            Payload::CustomSection(custom) => {
                if is_debug(custom.name()) {
                    scan.contents.debug_bytes += custom.data().len() as u64;
                } else if !is_of_tools(custom.name()) {
                    let start = custom.data_offset();
                    texts.data(&quoted(custom.name()), custom.data(), &|at| start + at);
                }
                scan.steers |= steers(custom.name());
                traces.look(&quoted(custom.name()), custom.data());
                // What the whole says of itself stands at its top; what its tools say stands anywhere.
                scan.claimed.read(custom, open.len() == 1);
            }
            _ => {}
        }
    }
    let types = validation.finish();
    scan.invalid = validation.invalid;
    if let Some(types) = &types {
        (scan.functions, scan.truncated) = functions(imports, types);
    }
    scan.steers |= scan.claimed.steers();
    scan.truncated |= looked_at > LOOKED_AT || sections.is_full() || scan.claimed.truncated;
    scan.contents.sections = sections.largest();
    (scan.contents.host_paths, scan.contents.host_paths_total) = traces.finish();
    scan.contents.programs = programs.finish();
    scan
}

/// The data of each module of a component as it lies in memory, in their order.
pub fn data_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    let sections = Parser::new(0).parse_all(bytes).map_while(Result::ok).filter_map(|payload| match payload {
        Payload::DataSection(section) => Some(section),
        _ => None,
    });
    sections.map(|section| Layout::of(bytes, section).bytes).collect()
}

/// The data of a module as it lies in memory: what is cut into segments in the file stands together there.
struct Layout {
    bytes: Vec<u8>,
    /// Where segments begin: here, and in the file.
    starts: Vec<(usize, usize)>,
}

impl Layout {
    fn of(file: &[u8], section: DataSectionReader<'_>) -> Self {
        // Where each begins in memory, where that is a constant, and its bytes in the file.
        let mut segments: Vec<(Option<i64>, &[u8])> = Vec::new();
        for segment in section.into_iter().flatten() {
            let offset = match segment.kind {
                DataKind::Active { offset_expr, .. } => match offset_expr.get_operators_reader().read() {
                    Ok(Operator::I32Const { value }) => Some(i64::from(value)),
                    Ok(Operator::I64Const { value }) => Some(value),
                    _ => None,
                },
                DataKind::Passive => None,
            };
            segments.push((offset, segment.data));
        }
        // Those of no known place stay in their order, at the end.
        segments.sort_by_key(|(offset, _)| (offset.is_none(), *offset));
        let mut layout = Self { bytes: Vec::new(), starts: Vec::new() };
        let mut end = None;
        for (offset, data) in segments {
            if offset.is_some() && offset != end {
                layout.bytes.push(0);
            }
            let in_file = data.as_ptr().addr().saturating_sub(file.as_ptr().addr());
            layout.starts.push((layout.bytes.len(), in_file));
            layout.bytes.extend_from_slice(data);
            end = offset.map(|offset| offset.saturating_add(i64::try_from(data.len()).unwrap_or(i64::MAX)));
        }
        layout
    }

    /// Where a byte stands in the file.
    fn place(&self, at: usize) -> usize {
        let before = self.starts.partition_point(|(start, _)| *start <= at);
        let (start, in_file) = before.checked_sub(1).and_then(|n| self.starts.get(n)).copied().unwrap_or_default();
        in_file + (at - start)
    }
}

/// Validates what it is given until something is not valid.
#[derive(Default)]
struct Validation {
    validator: Validator,
    allocations: Option<FuncValidatorAllocations>,
    types: Option<Types>,
    invalid: Option<String>,
}

impl Validation {
    fn payload(&mut self, payload: &Payload<'_>) {
        if self.invalid.is_some() {
            return;
        }
        let step = match self.validator.payload(payload) {
            Ok(ValidPayload::Func(function, body)) => {
                let mut validator = function.into_validator(self.allocations.take().unwrap_or_default());
                let step = validator.validate(&body);
                self.allocations = Some(validator.into_allocations());
                step
            }
            Ok(ValidPayload::End(types)) => {
                // Nested ones end first: the last is the whole.
                self.types = Some(types);
                Ok(())
            }
            Ok(ValidPayload::Ok | ValidPayload::Parser(_)) => Ok(()),
            Err(error) => Err(error),
        };
        self.invalid = step.err().map(|error| at(&error));
    }

    /// The types of the whole, where it is valid.
    fn finish(&mut self) -> Option<Types> {
        self.types.take().filter(|_| self.invalid.is_none())
    }
}

/// An error of the parser, with where it is.
fn at(error: &wasmparser::BinaryReaderError) -> String {
    format!("{} (at byte {})", cut(error.message()), error.offset())
}

/// The functions of each import that is an interface; and whether some were left out.
fn functions(imports: &[String], types: &Types) -> (BTreeMap<String, Vec<String>>, bool) {
    let mut found = BTreeMap::new();
    let (mut left, mut truncated) = (ALL_FUNCTIONS, false);
    let types = types.as_ref();
    for import in imports {
        let Some(item) = types.component_item_for_import(import) else { continue };
        let ComponentEntityType::Instance(instance) = item.ty else { continue };
        let Some(instance) = types.get(instance) else { continue };
        let all = instance.exports.iter().filter(|(_, item)| matches!(item.ty, ComponentEntityType::Func(_)));
        let mut names: Vec<String> = all.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        let most = FUNCTIONS.min(left);
        truncated |= names.len() > most;
        names.truncate(most);
        left -= names.len();
        if !names.is_empty() {
            found.insert(import.clone(), names);
        }
    }
    (found, truncated)
}

/// Counts what core modules define.
fn count(payload: &Payload<'_>, contents: &mut Contents) {
    match payload {
        Payload::CodeSectionStart { count, size, .. } => {
            contents.functions += u64::from(*count);
            contents.code_bytes += u64::from(*size);
        }
        Payload::MemorySection(section) => {
            for memory in section.clone().into_iter().flatten() {
                let page = memory.page_size_log2.map_or(PAGE_BYTES, |log2| 1_u64.checked_shl(log2).unwrap_or(u64::MAX));
                contents.memories += 1;
                contents.memory_bytes = contents.memory_bytes.saturating_add(memory.initial.saturating_mul(page));
            }
        }
        Payload::TableSection(section) => {
            for table in section.clone().into_iter().flatten() {
                contents.tables += 1;
                contents.table_elements = contents.table_elements.saturating_add(table.ty.initial);
            }
        }
        _ => {}
    }
}

/// Sections by their names.
#[derive(Default)]
struct Sections {
    named: BTreeMap<String, (u64, u64)>,
    others: (u64, u64),
}

impl Sections {
    fn add(&mut self, name: String, bytes: u64) {
        let is_full = self.named.len() >= SECTION_NAMES;
        let entry = match self.named.entry(name) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if is_full => &mut self.others,
            Entry::Vacant(entry) => entry.insert_entry((0, 0)).into_mut(),
        };
        entry.0 += 1;
        entry.1 = entry.1.saturating_add(bytes);
    }

    fn is_full(&self) -> bool {
        self.others.0 > 0
    }

    fn largest(self) -> Vec<Section> {
        let mut all: Vec<_> =
            self.named.into_iter().map(|(name, (count, bytes))| Section { name, count, bytes }).collect();
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        let rest = all.split_off(all.len().min(SECTIONS));
        let rest = rest.iter().fold(self.others, |sum, one| (sum.0 + one.count, sum.1.saturating_add(one.bytes)));
        if rest.0 > 0 {
            all.push(Section { name: "(others)".to_owned(), count: rest.0, bytes: rest.1 });
        }
        all
    }
}

/// What a section is called. Those that hold a whole module or component are not counted in addition to what is in them.
fn section_name(payload: &Payload<'_>) -> Option<String> {
    let standard = match payload {
        Payload::CustomSection(custom) => return Some(quoted(custom.name())),
        Payload::TypeSection(_) => "type",
        Payload::ImportSection(_) => "import",
        Payload::FunctionSection(_) => "function",
        Payload::TableSection(_) => "table",
        Payload::MemorySection(_) => "memory",
        Payload::TagSection(_) => "tag",
        Payload::GlobalSection(_) => "global",
        Payload::ExportSection(_) => "export",
        Payload::StartSection { .. } => "start",
        Payload::ElementSection(_) => "element",
        Payload::DataCountSection { .. } => "data count",
        Payload::DataSection(_) => "data",
        Payload::CodeSectionStart { .. } => "code",
        Payload::InstanceSection(_) => "core instance",
        Payload::CoreTypeSection(_) => "core type",
        Payload::ComponentInstanceSection(_) => "component instance",
        Payload::ComponentAliasSection(_) => "alias",
        Payload::ComponentTypeSection(_) => "component type",
        Payload::ComponentCanonicalSection(_) => "canonical function",
        Payload::ComponentStartSection { .. } => "component start",
        Payload::ComponentImportSection(_) => "component import",
        Payload::ComponentExportSection(_) => "component export",
        Payload::UnknownSection { .. } => "unknown",
        _ => return None,
    };
    Some(standard.to_owned())
}

/// A custom section's name as it is shown: a section that calls itself `data` is not the data.
fn quoted(name: &str) -> String {
    format!("\"{}\"", cut(name))
}

/// Whether a custom section is one that tools write, and that is read as what it is.
fn is_of_tools(name: &str) -> bool {
    matches!(name, "producers" | "target_features" | ".dep-v0" | "dylink.0") || name.starts_with("component-")
}

/// Whether a custom section is there for debuggers.
fn is_debug(name: &str) -> bool {
    matches!(name, "name" | "sourceMappingURL" | "external_debug_info") || name.starts_with(".debug_")
}

/// What a component declares beyond its limits, each with the limit's name and both numbers.
pub(crate) fn beyond(contents: &Contents, limits: &Limits) -> Vec<(&'static str, u64, u64)> {
    let declared = [
        ("memory_bytes", contents.memory_bytes, limits.memory_bytes),
        ("memories", contents.memories, limits.memories.into()),
        ("tables", contents.tables, limits.tables.into()),
        ("table_elements", contents.table_elements, limits.table_elements),
    ];
    declared.into_iter().filter(|(_, declared, limit)| declared > limit).collect()
}
