//! Measures `guild audit` of a component of 20 MB, from the start of the process to its end.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
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

/// Measures the audits of a large component and of an installed one.
pub(crate) fn measure(report: &mut Report) -> Outcome<()> {
    fs::create_dir_all(host::scratch())?;
    let large = host::scratch().join("audit.wasm");
    let bytes = component(&body(), FUNCTIONS, (0..DATA_BYTES).map(|n| u8::try_from(n * n % 251).unwrap_or_default()));
    let size = bytes.len();
    fs::write(&large, bytes)?;
    let packed = host::scratch().join("audit-packed.wasm");
    fs::write(&packed, component(&body(), 1, lines(20_000_000)))?;
    let took = audits(&packed, "text")?;
    let how =
        format!("median of {RUNS}, slowest {:.0} ms; lines of base64, each of which is a text", percentile(&took, 1.0));
    report.add("audit of 20 MB of encoded data", median(&took), "ms", Aim::AtMost(3000.0), &how);
    report.add("audit of 20 MB of encoded data, peak memory", peak(&packed)?, "MiB", Aim::AtMost(300.0), "VmHWM");
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

/// The duration of each run of the command.
fn audits(file: &Path, format: &str) -> Outcome<Vec<f64>> {
    let mut took = Vec::new();
    for _ in 0..RUNS {
        let begun = Instant::now();
        let ended = command(file, format)?.status()?;
        took.push(ms(begun.elapsed()));
        if !ended.success() {
            return Err(format!("the audit of {} ended with {ended}", file.display()).into());
        }
    }
    Ok(took)
}

/// The command, with its output discarded.
fn command(file: &Path, format: &str) -> Outcome<Command> {
    let guild = std::env::var_os("GUILD_BIN").ok_or("GUILD_BIN does not name the binary; run `cargo xtask bench`")?;
    let mut command = Command::new(guild);
    command.arg("audit").arg(file).args(["--format", format]);
    command.env("XDG_CONFIG_HOME", fs::canonicalize(host::scratch())?).env_remove("GUILD_CONFIG");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

/// The peak memory of a run of the command in MiB, sampled every millisecond.
fn peak(file: &Path) -> Outcome<f64> {
    let mut child = command(file, "text")?.spawn()?;
    let mut peak = 0.0;
    while child.try_wait()?.is_none() {
        if let Ok(status) = fs::read_to_string(format!("/proc/{}/status", child.id())) {
            let kib =
                status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
            peak = kib.map_or(peak, |kib: f64| kib / 1024.0);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(peak)
}

/// Lines of base64 with random content.
fn lines(bytes: usize) -> impl ExactSizeIterator<Item = u8> {
    const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..bytes).map(move |at| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let symbol = usize::try_from(state >> 58).unwrap_or_default();
        if at % 80 == 79 { b' ' } else { SYMBOLS.get(symbol).copied().unwrap_or_default() }
    })
}

/// The body of a function, which repeatedly loads, multiplies and adds its argument.
fn body() -> Function {
    let mut body = Function::new([]);
    let mut computing = body.instructions();
    computing.local_get(0);
    for _ in 0..27 {
        computing.local_get(0).i32_load(MemArg { offset: 0, align: 2, memory_index: 0 });
        computing.local_get(1).i32_mul().i32_add();
    }
    computing.end();
    body
}

/// A component with one core module, which has that many functions, and data.
fn component(body: &Function, count: usize, data: impl ExactSizeIterator<Item = u8>) -> Vec<u8> {
    let (mut types, mut functions, mut code) = (TypeSection::new(), FunctionSection::new(), CodeSection::new());
    types.ty().function([ValType::I32, ValType::I32], [ValType::I32]);
    for _ in 0..count {
        functions.function(0);
        code.function(body);
    }
    let mut memories = MemorySection::new();
    memories.memory(MemoryType { minimum: 400, maximum: None, memory64: false, shared: false, page_size_log2: None });
    let mut segments = DataSection::new();
    segments.active(0, &ConstExpr::i32_const(0), data);
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&memories).section(&code).section(&segments);
    let mut component = Component::new();
    component.section(&ModuleSection(&module));
    component.finish()
}
