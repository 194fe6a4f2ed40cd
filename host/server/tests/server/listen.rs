//! The port, slow clients, and the host's end.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use guild_contract::Limits;
use guild_server::listen::{BindError, Bound};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{interval, sleep, timeout},
};

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
async fn connections_that_say_nothing_make_room_for_who_asks() {
    let server = Server::of_a_broken_member(Limits { connections: 4, ..Limits::default() }).await;
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(server.connect().await);
        server.connect().await.post(PATH, PING).await.json();
    }
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

/// Sends garbage, after which the host closes the connection first: the system keeps such a connection for a minute.
async fn closed_by_the_host(server: &Server) {
    let mut connection = server.connect().await;
    connection.send("garbage\r\n\r\n").await;
    assert_eq!(connection.reply().await.status, 400);
    connection.closed().await;
}

#[tokio::test]
async fn connections_that_the_host_closed_first_keep_its_port_from_no_later_host() {
    let mut server = Server::of_a_broken_member(Limits::default()).await;
    closed_by_the_host(&server).await;
    server.stop.cancel();
    timeout(PATIENCE, &mut server.task).await.unwrap().unwrap();
    // A socket without address reuse cannot bind the address.
    let naive = TcpSocket::new_v4().unwrap();
    assert_eq!(naive.bind(server.address).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);

    let next = Bound::bind(server.address).unwrap();
    assert!(matches!(Bound::bind(server.address), Err(BindError::InUse(_))), "and it is one host's then, too");
    let _listener = next.listen(&Limits::default()).unwrap();
    assert!(matches!(Bound::bind(server.address), Err(BindError::InUse(_))));
}

/// Requests more than it reads, and reads `bytes` every 50 ms, until the connection is reset.
async fn takes(server: &Server, bytes: usize) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let (mut reading, mut writing) = socket.connect(server.address).await.unwrap().into_split();
    let batch = format!("[{}]", vec![PING; 100].join(","));
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{batch}",
        batch.len()
    );
    let asking = async { while writing.write_all(request.as_bytes()).await.is_ok() {} };
    let taking = async {
        let (mut pause, mut taken) = (interval(Duration::from_millis(50)), vec![0; bytes]);
        loop {
            pause.tick().await;
            if reading.read_exact(&mut taken).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(asking, taking);
}

#[tokio::test]
async fn a_client_that_takes_its_answers_drop_by_drop_is_let_go_and_one_that_is_only_slow_is_not() {
    let server = Server::of_a_broken_member(Limits { client_seconds: 1, ..Limits::default() }).await;
    let begin = Instant::now();
    let drips = async {
        timeout(PATIENCE, takes(&server, 512)).await.expect("it is still connected");
        begin.elapsed()
    };
    let slow = async {
        tokio::select! {
            () = takes(&server, 32 * 1024) => panic!("cut after {:?}", begin.elapsed()),
            () = sleep(Duration::from_millis(2500)) => {}
        }
    };
    let (after, ()) = tokio::join!(drips, slow);
    assert!(after >= Duration::from_secs(1), "{after:?}");
}
