//! TCP on the uring backend.

use runtime::uring::{BUSY_POLL, Lent, block_on, counters};
use runtime::{IoBuf, SharedBuf, TcpListener, TcpStream, sleep, spawn, timeout};
use std::cell::Cell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Runs it on a core with a ring, on one that is lent, and on one that its own thread runs.
fn on_each<F: Future<Output = ()> + 'static>(body: impl Fn() -> F + Copy + Send + 'static) {
    block_on(body()).expect("a ring");
    let core = Lent::start(BUSY_POLL).expect("a poller");
    for is_lent in [true, false] {
        let done = Arc::new(AtomicBool::new(false));
        let tells = done.clone();
        core.handle().spawn_on(move || async move {
            body().await;
            tells.store(true, SeqCst);
        });
        while !done.load(SeqCst) {
            if is_lent {
                assert!(core.lend(Some(Duration::from_secs(30)), || done.load(SeqCst)), "nobody else has it");
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0".parse().expect("an address")).expect("listens")
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = listen();
    let client = TcpStream::connect(listener.local_address()).await.expect("connects");
    (client, listener.accept().await.expect("accepts"))
}

fn bytes(len: usize, seed: u8) -> SharedBuf {
    let mut buf = IoBuf::new(len);
    buf.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index as u8) ^ (index >> 8) as u8 ^ seed);
    buf.freeze()
}

async fn echo(stream: TcpStream) {
    let mut parts = Vec::new();
    loop {
        let received = stream.recv().await.expect("receives");
        if received.is_empty() {
            return;
        }
        parts.push(received);
        stream.send(&mut parts).await.expect("sends");
    }
}

#[test]
fn an_echo_gives_back_every_size() {
    on_each(|| async {
        let (client, server) = pair().await;
        spawn(echo(server));
        for len in [1, 2, 71, 72, 511, 4095, 4096, 4120, 65_537, 131_072, 131_073, 1 << 20, 3_000_001] {
            let (sender, message) = (client.clone(), bytes(len, len as u8));
            let copy = message.clone();
            spawn(async move {
                let middle = copy.len() / 3;
                let mut parts = vec![copy.slice(0..middle), copy.slice(middle..copy.len())];
                sender.send(&mut parts).await.expect("sends");
            });
            let (result, back) = client.recv_exact(IoBuf::new(len)).await;
            result.expect("receives all");
            assert_eq!(&*back, &*message, "{len} bytes");
        }
    });
}

#[test]
fn who_only_sends_lets_others_run() {
    on_each(|| async {
        let (client, server) = pair().await;
        let over = std::rc::Rc::new(std::cell::Cell::new(false));
        let until = over.clone();
        // The reader is another task of this core: it runs only if the sender lets it.
        spawn(async move {
            while server.recv().await.is_ok_and(|bytes| !bytes.is_empty()) {}
            until.set(true);
        });
        let mut parts = Vec::new();
        let polls = std::rc::Rc::new(std::cell::Cell::new(0));
        let seen = polls.clone();
        let other = spawn(async move {
            loop {
                seen.set(seen.get() + 1);
                runtime::yield_now().await;
            }
        });
        for _ in 0..320 {
            parts.push(bytes(1, 0));
            client.send(&mut parts).await.expect("sends");
        }
        assert!(polls.get() >= 5, "others ran {} times beside 320 sends", polls.get());
        other.cancel();
        client.shutdown();
        timeout(Duration::from_secs(5), async {
            while !over.get() {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("the reader sees the end");
    });
}

#[test]
fn a_half_closed_stream_delivers_its_bytes_and_then_its_end() {
    on_each(|| async {
        let (client, server) = pair().await;
        client.send(&mut vec![bytes(1000, 1)]).await.expect("sends");
        client.shutdown();
        let mut got = 0;
        loop {
            let part = server.recv().await.expect("receives");
            if part.is_empty() {
                break;
            }
            got += part.len();
        }
        assert_eq!(got, 1000);
        let (result, _) = server.recv_exact(IoBuf::new(1)).await;
        assert_eq!(result.expect_err("the end").kind(), ErrorKind::UnexpectedEof);
    });
}

#[test]
fn the_end_shows_behind_unread_bytes() {
    on_each(|| async {
        let (client, server) = pair().await;
        assert!(!server.has_ended());
        client.send(&mut vec![bytes(100_000, 1)]).await.expect("sends");
        assert!(!server.has_ended(), "bytes alone are no end");
        drop(client);
        while !server.has_ended() {
            sleep(Duration::from_millis(1)).await; // bounded by the test's own run: the loopback delivers it
        }
        let first = server.recv().await.expect("the bytes are still there");
        assert_eq!(first[..], bytes(100_000, 1)[..first.len()]);
    });
}

#[test]
fn a_receive_given_up_loses_no_bytes() {
    on_each(|| async {
        let (client, server) = pair().await;
        for round in 0..20u8 {
            timeout(Duration::from_millis(1), server.recv()).await.expect_err("nothing was sent");
            client.send(&mut vec![bytes(5000, round)]).await.expect("sends");
            let (result, got) = server.recv_exact(IoBuf::new(3000)).await;
            result.expect("receives");
            let (result, rest) = server.recv_exact(IoBuf::new(2000)).await;
            result.expect("receives");
            assert_eq!([&got[..], &rest[..]].concat(), &bytes(5000, round)[..]);
        }
    });
}

#[test]
fn dropping_a_stream_ends_its_pending_receive_and_the_connection() {
    on_each(|| async {
        let (client, server) = pair().await;
        let reader = {
            let server = server.clone();
            spawn(async move { server.recv().await.map(drop).expect("cancelled before anything comes") })
        };
        runtime::yield_now().await;
        reader.cancel();
        drop(server);
        let end = client.recv().await.expect("a clean end");
        assert!(end.is_empty(), "the peer sees the end although a receive was pending");
    });
}

#[test]
fn a_refused_connect_is_an_error() {
    on_each(|| async {
        let address = listen().local_address(); // the listener is gone: nobody listens there
        sleep(Duration::from_millis(1)).await;
        let error = TcpStream::connect(address).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn receives_wait_when_too_many_buffers_are_held_and_go_on_when_they_come_back() {
    const HELD: usize = 2048 + 512; // 32 MiB of small buffers, 16 KiB each, then 64 MiB of large ones, 128 KiB each
    on_each(|| async {
        let (client, server) = pair().await;
        let mut held = Vec::new();
        for round in 0..HELD {
            client.send(&mut vec![bytes(10, round as u8)]).await.expect("sends");
            held.push(server.recv().await.expect("receives"));
        }
        client.send(&mut vec![bytes(10, 77)]).await.expect("sends");
        timeout(Duration::from_millis(20), server.recv()).await.expect_err("the limit is reached");
        // What lets the core go of them is heard all the same.
        let (other, hears) = pair().await;
        hears.receive_whatever_is_held();
        for seed in 0..3 {
            other.send(&mut vec![bytes(10, seed)]).await.expect("sends");
            assert_eq!(&*hears.recv().await.expect("receives"), &*bytes(10, seed));
        }
        let last = held.pop().expect("many are held");
        std::thread::spawn(move || drop(last)); // freed on another thread: this core is told
        assert_eq!(&*server.recv().await.expect("goes on"), &*bytes(10, 77));
    });
}

#[test]
fn many_connections_that_receive_at_once_find_a_buffer_each() {
    const CONNECTIONS: u32 = 128;
    const WARM_UP_ROUNDS: u32 = 8;
    const ROUNDS: u32 = 24;
    on_each(|| async {
        let received = Rc::new(Cell::new(0));
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let (client, server) = pair().await;
            clients.push(client);
            let received = received.clone();
            spawn(async move {
                while !server.recv().await.expect("receives").is_empty() {
                    received.set(received.get() + 1);
                }
            });
        }
        let mut warm = 0;
        for round in 0..ROUNDS {
            if round == WARM_UP_ROUNDS {
                warm = counters().receives_without_buffer;
            }
            for client in &clients {
                client.send(&mut vec![bytes(144, 1)]).await.expect("sends");
            }
            while received.get() < CONNECTIONS * (round + 1) {
                sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(counters().receives_without_buffer, warm, "once as many are offered as are taken in a turn");
    });
}
