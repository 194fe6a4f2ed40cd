//! Measures the time from the start of the process to its first answer, and its memory then.

use std::time::Duration;

use serde_json::json;

use crate::{
    Outcome,
    host::Setup,
    stats::{Aim, Report, median, ms, percentile},
};

const STARTS: usize = 20;
/// The pause of Guild Hall between readiness and its next call, after which the component is loaded.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Measures starts with a warm compile cache.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let setup = Setup::new("start")?;
    let host = setup.start().await?;
    // The first dispatch waits for the compilation, which fills the cache.
    host.result("worker/dispatch", &json!({"description": "warm up", "task": "What can a plugin read?"})).await?;
    host.stop().await?;

    let (mut starts, mut stops, mut settled) = (Vec::new(), Vec::new(), Vec::new());
    let (mut at_ready, mut private) = (Vec::new(), Vec::new());
    for turn in 0..STARTS {
        let host = setup.start().await?;
        starts.push(ms(host.first_answer));
        let (all, _, own) = host.memory()?;
        at_ready.push(all);
        private.push(own);
        if turn == 0 {
            host.result("tools/list", &json!({})).await?;
            tokio::time::sleep(SETTLE_TIME).await;
            settled.push(host.memory()?.0);
        }
        stops.push(ms(host.stop().await?));
    }
    let worst = format!("median of {STARTS}; slowest {:.1} ms", percentile(&starts, 1.0));
    report.add("process start to first initialize", median(&starts), "ms", Aim::AtMost(25.0), &worst);
    report.add("memory at ready, one member", median(&at_ready), "MiB", Aim::AtMost(25.0), "VmRSS");
    report.add("private memory at ready, one member", median(&private), "MiB", Aim::AtMost(6.0), "RssAnon");
    report.add("memory one second later", median(&settled), "MiB", Aim::AtMost(25.0), "VmRSS, component loaded");
    report.add("SIGTERM to exit", median(&stops), "ms", Aim::AtMost(300.0), &format!("median of {STARTS}"));
    Ok(())
}
