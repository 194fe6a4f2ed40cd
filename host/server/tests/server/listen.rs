//! The port, and the end.

use std::{net::Ipv4Addr, time::Instant};

use guild_contract::Limits;
use guild_server::listen::{BindError, Bound};
use tokio::{net::TcpStream, time::timeout};

use crate::harness::{PATIENCE, Server};

const PATH: &str = "/members/broken/mcp";
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test]
async fn a_port_that_is_taken_is_known_at_once_even_before_its_owner_listens() {
    let first = Bound::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    assert_ne!(first.address().port(), 0);
    let taken = Bound::bind(first.address()).unwrap_err();
    assert!(matches!(taken, BindError::InUse(address) if address == first.address()));
    let text = format!("port {} is already in use on 127.0.0.1", first.address().port());
    assert_eq!(taken.to_string(), text);

    let address = first.address();
    let _listener = first.listen(&Limits::default()).unwrap();
    assert!(matches!(Bound::bind(address), Err(BindError::InUse(_))));
}

#[tokio::test]
async fn nobody_can_connect_before_the_host_listens() {
    let bound = Bound::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = bound.address();
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let _listener = bound.listen(&Limits::default()).unwrap();
    TcpStream::connect(address).await.unwrap();
}

#[tokio::test]
async fn an_address_that_is_not_this_machines_is_another_error() {
    let elsewhere = Bound::bind(([192, 0, 2, 1], 0).into()).unwrap_err();
    assert!(matches!(elsewhere, BindError::Other { .. }), "{elsewhere}");
}

#[tokio::test]
async fn a_host_that_is_told_to_stop_stops_at_once() {
    let mut server = Server::of_a_broken_member(Limits::default()).await;
    let mut idle = server.connect().await;
    idle.post(PATH, PING).await.json();
    let mut halfway = server.connect().await;
    halfway.send("POST ").await;

    let begin = Instant::now();
    server.stop.cancel();
    timeout(PATIENCE, &mut server.task).await.unwrap().unwrap();
    assert!(begin.elapsed().as_millis() < 300, "{:?}", begin.elapsed());
    tokio::join!(idle.closed(), halfway.closed());
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_host_that_has_stopped_leaves_its_port_to_the_next() {
    let mut server = Server::of_a_broken_member(Limits::default()).await;
    let mut idle = server.connect().await;
    idle.post(PATH, PING).await.json();
    server.stop.cancel();
    timeout(PATIENCE, &mut server.task).await.unwrap().unwrap();
    Bound::bind(server.address).unwrap();
}
