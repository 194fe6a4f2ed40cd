//! `guild audit` of a component of 20 MB: what a reviewer waits for, from the start of the process to its end.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use wasm_encoder::{
    CodeSection, Component, ConstExpr, DataSection, Function, FunctionSection, MemArg, MemorySection, MemoryType,
    Module, ModuleSection, TypeSection, ValType,
};

use crate::{
    Outcome, host,
    stats::{Aim, Report, median, ms, percentile},
};

const RUNS: usize = 9;
const FUNCTIONS: usize = 60_000;
const DATA_BYTES: usize = 5_000_000;

/// Measures the audit of one that is large, and of one that is installed.
pub(crate) fn measure(report: &mut Report) -> Outcome<()> {
    fs::create_dir_all(host::scratch())?;
    let large = host::scratch().join("audit.wasm");
    let bytes = component();
    let size = bytes.len();
    fs::write(&large, bytes)?;
    let installed = Path::new("guild-members/researcher/researcher.wasm");
    for format in ["text", "html"] {
        let took = audits(&large, format)?;
        let how = format!(
            "median of {RUNS}, slowest {:.0} ms; {FUNCTIONS} functions, {:.1} MB",
            percentile(&took, 1.0),
            size as f64 / 1e6
        );
        report.add(&format!("audit of a 20 MB component, as {format}"), median(&took), "ms", Aim::AtMost(2000.0), &how);
    }
    let took = audits(installed, "text")?;
    report.add("audit of the researcher", median(&took), "ms", Aim::Stated, &format!("median of {RUNS}"));
    Ok(())
}

/// How long each run of the command takes.
fn audits(file: &Path, format: &str) -> Outcome<Vec<f64>> {
    let guild = std::env::var_os("GUILD_BIN").ok_or("GUILD_BIN does not name the binary; run `cargo xtask bench`")?;
    let mut took = Vec::new();
    for _ in 0..RUNS {
        let begun = Instant::now();
        let mut command = Command::new(&guild);
        command.arg("audit").arg(file).args(["--format", format]);
        let ended = command
            .env("XDG_CONFIG_HOME", fs::canonicalize(host::scratch())?)
            .env_remove("GUILD_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        took.push(ms(begun.elapsed()));
        if !ended.success() {
            return Err(format!("the audit of {} ended with {ended}", file.display()).into());
        }
    }
    Ok(took)
}

/// A component with one large core module: many functions that compute something, and data.
fn component() -> Vec<u8> {
    let (mut types, mut functions, mut code) = (TypeSection::new(), FunctionSection::new(), CodeSection::new());
    types.ty().function([ValType::I32, ValType::I32], [ValType::I32]);
    // What it is given, loaded, multiplied and added, over and over.
    let mut body = Function::new([]);
    let mut computing = body.instructions();
    computing.local_get(0);
    for _ in 0..27 {
        computing.local_get(0).i32_load(MemArg { offset: 0, align: 2, memory_index: 0 });
        computing.local_get(1).i32_mul().i32_add();
    }
    computing.end();
    for _ in 0..FUNCTIONS {
        functions.function(0);
        code.function(&body);
    }
    let mut memories = MemorySection::new();
    memories.memory(MemoryType { minimum: 100, maximum: None, memory64: false, shared: false, page_size_log2: None });
    let mut data = DataSection::new();
    data.active(0, &ConstExpr::i32_const(0), (0..DATA_BYTES).map(|n| u8::try_from(n * n % 251).unwrap_or_default()));
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&memories).section(&code).section(&data);
    let mut component = Component::new();
    component.section(&ModuleSection(&module));
    component.finish()
}
