//! Measures the workers and tools of the tutorials, by language. `cargo xtask tutorials` builds them.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use guild_contract::{Manifest, manifest::FILE_NAME};
use guild_sandbox::Strategy;
use serde_json::json;

use crate::{
    Outcome,
    host::{Setup, call},
    instance::{Ours, activation},
    load::{Connection, request},
    stats::{Aim, Report, median},
    tools::calls,
};

/// The tutorials.
const PAGES: [&str; 5] = ["rust", "javascript", "python", "go", "c"];
/// The longest time that the compilation of a tool may take.
const COMPILED_WITHIN: Duration = Duration::from_secs(120);
/// The number of activations.
const CALLS: u32 = 100;

/// Measures each language: the size, the compilation, `activate`, a tool call, and the memory of a host with the tool.
#[expect(clippy::cast_precision_loss, reason = "components are smaller than 2^52 bytes")]
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    for page in PAGES {
        let work = Path::new("target/tutorials").join(page).join("work");
        let (worker, tool) = (work.join("reader"), work.join("words/words.wasm"));
        if !tool.is_file() {
            return Err(format!("{} is not there; `cargo xtask tutorials` builds it", tool.display()).into());
        }
        let manifest = Manifest::parse(&fs::read(worker.join(FILE_NAME))?)?;
        let spec = manifest.component.ok_or("the worker has no component")?;
        let bytes = fs::metadata(worker.join(&spec.file))?.len();
        report.add(&format!("{page}: size"), bytes as f64 / 1e6, "MB", Aim::Stated, "the worker's component");
        for (strategy, name) in [(Strategy::Winch, "Winch"), (Strategy::Cranelift, "Cranelift")] {
            let begun = Instant::now();
            let ours = Ours::new(&worker, &spec, activation("p".repeat(4096)), strategy)?;
            let took = begun.elapsed().as_secs_f64();
            report.add(&format!("{page}: compile by {name}"), took, "s", Aim::Stated, "nothing cached");
            if strategy == Strategy::Cranelift {
                // The first call fills the caches.
                ours.calls(1).await?;
                let each = ours.calls(CALLS).await? / 1e3;
                report.add(&format!("{page}: activate"), each, "ms", Aim::AtMost(5.0), "a fresh instance, mean of 100");
            }
        }
        let params = json!({"name": "count", "arguments": {"text": "to be or not to be", "word": "be"}});
        let host = Setup::toolbox("languages", &tool)?.start().await?;
        // A call waits a while for a large component that is being compiled, and then fails.
        let begun = Instant::now();
        while let Err(error) = host.result("tools/call", &params).await {
            if begun.elapsed() > COMPILED_WITHIN {
                return Err(error);
            }
        }
        let mut connection = Connection::open(host.address).await?;
        let p50 = median(&calls(&mut connection, &request(&call("tools/call", &params))).await?) / 1e3;
        report.add(&format!("{page}: tool call, p50"), p50, "ms", Aim::Stated, "over HTTP, a fresh instance for each");
        let (resident, ..) = host.memory()?;
        report.add(
            &format!("{page}: memory"),
            resident,
            "MiB",
            Aim::Stated,
            "VmRSS of a host with the tool, after these calls",
        );
    }
    Ok(())
}
