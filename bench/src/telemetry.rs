//! Measures what traces and figures cost: a host that sends traces, and one whose figures are read each second, compared
//! with a host that does neither.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, routing::post};
use tokio::net::TcpListener;

use crate::{
    Outcome,
    host::{Host, Setup},
    http::{compare, polled, ready},
    load::{Connection, get},
    stats::{Aim, Report},
};

const JOBS: u32 = 500;
/// The pause between two readings of the figures, which is a fifteenth of what Prometheus waits.
const READING_INTERVAL: Duration = Duration::from_secs(1);

/// Measures the rates of `worker/status`.
pub(crate) async fn measure(report: &mut Report) -> Outcome<()> {
    let received = Arc::new(AtomicU64::new(0));
    let endpoint = format!("http://{}", collector(received.clone()).await?);
    let plain = start(Setup::new("plain")?).await?;
    let traced = start(Setup::new("traced")?.with_variable("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)).await?;
    let name = "worker/status, traces on, of the rate with them off";
    compare(report, name, Aim::Stated, traced.address, plain.address, polled(JOBS)).await?;
    if received.load(Ordering::Relaxed) == 0 {
        return Err("the collector received nothing".into());
    }
    traced.stop().await?;

    let read = start(Setup::new("read")?).await?;
    let reader = tokio::spawn(read_figures(read.address));
    let name = "worker/status, figures read each second, of the rate";
    compare(report, name, Aim::AtLeast(0.95), read.address, plain.address, polled(JOBS)).await?;
    if reader.is_finished() {
        reader.await??;
        return Err("the figures were not read".into());
    }
    reader.abort();
    Ok(())
}

async fn start(setup: Setup) -> Outcome<Host> {
    let host = setup.with_jobs(JOBS)?.start().await?;
    ready(&host, JOBS).await?;
    Ok(host)
}

/// Starts a collector of traces, which counts the bytes that it receives.
async fn collector(received: Arc<AtomicU64>) -> Outcome<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let count = |State(received): State<Arc<AtomicU64>>, body: Bytes| async move {
        received.fetch_add(body.len() as u64, Ordering::Relaxed);
    };
    let app = Router::new().fallback(post(count)).with_state(received);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// Reads the figures of a host until this is aborted.
async fn read_figures(address: SocketAddr) -> Outcome<()> {
    let mut connection = Connection::open(address).await?;
    loop {
        connection.exchange(&get("/metrics")).await?;
        tokio::time::sleep(READING_INTERVAL).await;
    }
}
