//! A small site on a loopback address.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::RawQuery,
    response::{Html, Redirect},
    routing::get,
};
use tokio::net::TcpListener;

const MOTHS: &str = "<html><head><title>Moths</title></head><body><main><h1>Moths</h1>\
    <p>The atlas moth has no mouth, and lives on what it ate as a caterpillar.</p></main></body></html>";

/// Serves `/moths`, `/to?HOST`, which leads to the moths of another host, and `/away`, which leads to an address that
/// nobody may reach, until the runtime ends.
pub(crate) async fn pages() -> SocketAddr {
    let router = Router::new()
        .route("/moths", get(async || Html(MOTHS)))
        .route(
            "/to",
            get(async |RawQuery(host): RawQuery| Redirect::to(&format!("http://{}/moths", host.unwrap_or_default()))),
        )
        .route("/away", get(async || Redirect::to("http://169.254.169.254/latest")));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}
