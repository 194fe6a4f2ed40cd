//! Measures a hundred members in one process: the time from its start until every member has answered, and its memory
//! once all components are in service. Each member has a different component; the compile cache is warm.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    Outcome,
    host::{Host, Setup, TIMEOUT, call},
    load::{Connection, get, request_to},
    stats::{Aim, Report, median, ms, percentile},
};

const MEMBERS: usize = 100;
const STARTS: usize = 10;
/// The polling interval until all components are in service.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The time after which the memory of the start is released.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Measures starts with a warm compile cache.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let setup = Setup::roster("hundred", MEMBERS)?;
    let host = setup.start().await?;
    // The first start compiles and pins all components.
    until_ready(&host).await?;
    host.stop().await?;

    let (mut answered, mut loaded, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let initialize = call("initialize", &json!({}));
    for turn in 0..STARTS {
        let host = setup.start().await?;
        let mut connection = Connection::open(host.address).await?;
        for n in 0..MEMBERS {
            connection.exchange(&request_to(&format!("/members/m{n:02}/mcp"), &initialize)).await?;
        }
        answered.push(ms(host.begun.elapsed()));
        until_ready(&host).await?;
        loaded.push(ms(host.begun.elapsed()));
        if turn == 0 {
            tokio::time::sleep(SETTLE_TIME).await;
            memory.push(host.memory()?.0);
        }
        host.stop().await?;
    }
    let worst = |times: &[f64]| format!("median of {STARTS}; slowest {:.1} ms", percentile(times, 1.0));
    let name = "process start until 100 members have answered";
    report.add(name, median(&answered), "ms", Aim::AtMost(300.0), &worst(&answered));
    report.add("... until their 100 components are in service", median(&loaded), "ms", Aim::Stated, &worst(&loaded));
    report.add("memory, 100 members", median(&memory), "MiB", Aim::AtMost(150.0), "VmRSS, all components loaded");
    Ok(())
}

async fn until_ready(host: &Host) -> Outcome<()> {
    let mut connection = Connection::open(host.address).await?;
    while host.begun.elapsed() < TIMEOUT {
        let members: Vec<Value> = serde_json::from_slice(connection.exchange(&get("/members")).await?)?;
        if let Some(broken) = members.iter().find(|member| member.get("error").is_some()) {
            return Err(format!("a member is not in service: {broken}").into());
        }
        let ready = |member: &&Value| member.get("state").and_then(Value::as_str) == Some("ready");
        if members.iter().filter(ready).count() == MEMBERS {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Err("the components do not come into service".into())
}
