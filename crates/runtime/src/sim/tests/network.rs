//! Connections: order, back-pressure, and every way they end.

use super::*;
use crate::{TcpListener, TcpStream, now, sleep, spawn, timeout};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

const PORT: u16 = 4420;

fn pair(seed: u64) -> (World, SimNode, SimNode) {
    let world = World::new(seed);
    let client = world.add_node(1, NodeOptions::default());
    let server = world.add_node(1, NodeOptions::default());
    (world, client, server)
}

fn listen(ip: IpAddr) -> TcpListener {
    TcpListener::bind(SocketAddr::new(ip, PORT)).expect("the port is free")
}

async fn connect(ip: IpAddr) -> TcpStream {
    TcpStream::connect(SocketAddr::new(ip, PORT)).await.expect("somebody listens")
}

/// A connection whose ends stay open: the client's and the server's, held outside.
fn connected(world: &World, client: &SimNode, server: &SimNode) -> (TcpStream, TcpStream) {
    let accepted = Rc::new(RefCell::new(None));
    let (slot, ip) = (accepted.clone(), server.ip());
    server.spawn(0, async move {
        let stream = listen(ip).accept().await.expect("one comes");
        *slot.borrow_mut() = Some(stream);
    });
    world.run_for(Duration::from_micros(100));
    let near = world.run_on(client, 0, async move { connect(ip).await }).expect("it ends");
    world.run_until(|| accepted.borrow().is_some()).expect("it is accepted");
    let far = accepted.take().expect("just seen");
    (near, far)
}

fn numbered(from: usize, len: usize) -> SharedBuf {
    let mut buf = IoBuf::new(len);
    buf.iter_mut().enumerate().for_each(|(index, byte)| *byte = ((from + index) % 251) as u8);
    buf.freeze()
}

#[test]
fn bytes_arrive_in_order_in_pieces_of_any_size() {
    for seed in 0..20 {
        let (world, client, server) = pair(seed);
        let (near, far) = connected(&world, &client, &server);
        client.spawn(0, async move {
            let mut at = 0;
            while at < 1 << 20 {
                let len = 1 + crate::random_u64() as usize % 50_000;
                near.send(&mut vec![numbered(at, len), numbered(at + len, 100)]).await.expect("nothing fails");
                at += len + 100;
            }
        });
        let run = async move {
            let (mut at, mut sizes) = (0, Vec::new());
            loop {
                let bytes = far.recv().await.expect("nothing fails");
                if bytes.is_empty() {
                    return (at, sizes);
                }
                assert!(bytes.iter().enumerate().all(|(index, byte)| *byte == ((at + index) % 251) as u8));
                at += bytes.len();
                sizes.push(bytes.len());
                if at < 100_000 {
                    let (result, exact) = far.recv_exact(IoBuf::new(777)).await;
                    result.expect("nothing fails");
                    assert!(exact.iter().enumerate().all(|(index, byte)| *byte == ((at + index) % 251) as u8));
                    at += 777;
                }
            }
        };
        let (received, sizes) = world.run_on(&server, 0, run).expect("it ends");
        assert!(received >= 1 << 20);
        assert!(sizes.iter().any(|size| *size != sizes[0]), "always the same size");
    }
}

#[test]
fn a_sender_waits_for_a_reader_that_does_not_read() {
    let (world, client, server) = pair(1);
    let (near, far) = connected(&world, &client, &server);
    let sent = Rc::new(RefCell::new(0));
    let count = sent.clone();
    client.spawn(0, async move {
        loop {
            near.send(&mut vec![numbered(0, 10_000)]).await.expect("nothing fails");
            *count.borrow_mut() += 10_000;
        }
    });
    world.run_for(Duration::from_secs(10));
    let stuck = *sent.borrow();
    assert!((400_000..600_000).contains(&stuck), "{stuck} bytes sent to a reader that does not read");
    let reader = far.clone();
    let run = async move { reader.recv_exact(IoBuf::new(100_000)).await.0 };
    world.run_on(&server, 0, run).expect("it ends").expect("bytes are there");
    world.run_for(Duration::from_secs(10));
    assert!(*sent.borrow() > stuck + 50_000);
}

#[test]
fn a_cut_link_holds_one_direction_and_gives_it_over_when_healed() {
    let (world, client, server) = pair(2);
    let (near, far) = connected(&world, &client, &server);
    world.cut(&client, &server);
    let run = async move {
        near.send(&mut vec![numbered(0, 10)]).await.expect("the socket takes it");
        near.recv().await.expect("the other direction is not cut").len()
    };
    let far_again = far.clone();
    server.spawn(0, async move { far_again.send(&mut vec![numbered(0, 5)]).await.expect("the socket takes it") });
    assert!((1..=5).contains(&world.run_on(&client, 0, run).expect("it ends")));
    let early = timeout(Duration::from_secs(30), async move { (far.recv().await.map(|bytes| bytes.len()), far) });
    let early = world.run_on(&server, 0, early).expect("it ends");
    assert!(early.is_err(), "nothing crosses a cut link");
}

#[test]
fn what_waited_for_a_healed_link_arrives() {
    let (world, client, server) = pair(3);
    let (near, far) = connected(&world, &client, &server);
    world.cut(&client, &server);
    client.spawn(0, async move {
        near.send(&mut vec![numbered(0, 10)]).await.expect("the socket takes it");
        sleep(Duration::from_secs(1000)).await;
    });
    world.run_for(Duration::from_secs(10));
    world.heal(&client, &server);
    let run = async move { far.recv_exact(IoBuf::new(10)).await.0 };
    world.run_on(&server, 0, run).expect("it ends").expect("the bytes arrive");
}

#[test]
fn the_end_is_seen_without_reading_what_came_before() {
    let (world, client, server) = pair(4);
    let (near, far) = connected(&world, &client, &server);
    let send = async move { near.send(&mut vec![numbered(0, 3000)]).await.expect("nothing fails") };
    assert!(!far.has_ended());
    world.run_on(&client, 0, send).expect("it ends"); // and the stream is dropped
    world.run_for(Duration::from_millis(1));
    assert!(far.has_ended(), "unread bytes hide the end");
    let run = async move {
        let (result, _) = far.recv_exact(IoBuf::new(3000)).await;
        result.expect("what came before the end is there");
        assert!(far.recv().await.expect("an end is no error").is_empty());
        far.recv_exact(IoBuf::new(1)).await.0.expect_err("nothing comes after the end").kind()
    };
    assert_eq!(world.run_on(&server, 0, run).expect("it ends"), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn shutdown_ends_both_directions_at_once() {
    let (world, client, server) = pair(5);
    let (near, far) = connected(&world, &client, &server);
    let waiting = near.clone();
    client.spawn(0, async move {
        sleep(Duration::from_millis(1)).await;
        near.shutdown();
        near.send(&mut vec![numbered(0, 1)]).await.expect_err("this end is shut");
        sleep(Duration::from_secs(1000)).await;
    });
    let run = async move { waiting.recv().await.expect("an end is no error").len() };
    assert_eq!(world.run_on(&client, 0, run).expect("it ends"), 0);
    let run = async move {
        assert!(far.recv().await.expect("an end is no error").is_empty());
        while far.send(&mut vec![numbered(0, 1)]).await.is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
        far.has_ended()
    };
    assert!(world.run_on(&server, 0, run).expect("it ends"), "sending to a shut end is answered with a reset");
}

#[test]
fn a_reset_fails_both_ends() {
    let (world, client, server) = pair(6);
    let (near, far) = connected(&world, &client, &server);
    world.reset_connections(&client, &server);
    for (node, stream) in [(client, near), (server, far)] {
        let kind = world.run_on(&node, 0, async move { stream.recv().await.expect_err("reset").kind() });
        assert_eq!(kind.expect("it ends"), std::io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_half_open_connection_says_nothing_at_all() {
    let (world, client, server) = pair(7);
    let (near, far) = connected(&world, &client, &server);
    world.silence_connections(&client, &server);
    client.spawn(0, async move {
        near.send(&mut vec![numbered(0, 10)]).await.expect("the socket takes it");
    });
    world.run_for(Duration::from_secs(100));
    assert!(!far.has_ended());
    let run = timeout(Duration::from_secs(30), async move { far.recv().await.map(|_| ()) });
    let ended = world.run_on(&server, 0, run).expect("it ends");
    assert!(matches!(ended, Ok(Err(_))), "the kernel ends it after 120 s");
}

#[test]
fn a_crashed_node_resets_its_connections_or_leaves_them_half_open() {
    let (mut told, mut silent) = (0, 0);
    for seed in 0..60 {
        let (world, client, server) = pair(seed);
        let (near, far) = connected(&world, &client, &server);
        server.spawn(0, async move {
            let _held = far;
            sleep(Duration::from_secs(1000)).await;
        });
        world.run_for(Duration::from_millis(1));
        server.crash();
        world.run_for(Duration::from_secs(10));
        match near.has_ended() {
            true => told += 1,
            false => silent += 1,
        }
        // Once the machine is back, whoever sends learns that nobody knows the connection.
        server.start();
        let run = async move {
            while near.send(&mut vec![numbered(0, 100)]).await.is_ok() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        world.run_on(&client, 0, run).expect("a reset comes");
    }
    assert!(told > 10 && silent > 10, "told {told}, silent {silent}");
}

#[test]
fn a_killed_process_ends_its_connections() {
    let (world, client, server) = pair(8);
    let (near, far) = connected(&world, &client, &server);
    server.spawn(0, async move {
        let _held = far;
        sleep(Duration::from_secs(1000)).await;
    });
    world.run_for(Duration::from_millis(1));
    server.kill();
    world.run_for(Duration::from_millis(1));
    assert!(near.has_ended());
}

#[test]
fn connecting_is_refused_without_a_listener_and_waits_for_a_dead_machine() {
    let (world, client, server) = pair(9);
    let address = SocketAddr::new(server.ip(), PORT);
    let attempt =
        || world.run_on(&client, 0, async move { TcpStream::connect(address).await.expect_err("nobody").kind() });
    assert_eq!(attempt().expect("it ends"), std::io::ErrorKind::ConnectionRefused);
    server.crash();
    let before = world.now();
    assert_eq!(attempt().expect("it ends"), std::io::ErrorKind::TimedOut);
    assert!(world.now() - before > Duration::from_secs(30));
    server.start();
    let run = async move {
        let first = listen(address.ip());
        assert_eq!(TcpListener::bind(address).expect_err("taken").kind(), std::io::ErrorKind::AddrInUse);
        drop(first);
        listen(address.ip()).local_address()
    };
    assert_eq!(world.run_on(&server, 0, run).expect("it ends"), address);
}

#[test]
fn a_connection_moves_between_cores() {
    let world = World::new(10);
    let client = world.add_node(1, NodeOptions::default());
    let server = world.add_node(2, NodeOptions::default());
    let (ip, second) = (server.ip(), server.core(1));
    server.spawn(0, async move {
        let detached = listen(ip).accept().await.expect("one comes").detach();
        second.spawn_on(move || async move {
            let stream = detached.attach();
            let bytes = stream.recv().await.expect("nothing fails");
            stream.send(&mut vec![bytes]).await.expect("nothing fails");
        });
    });
    world.run_for(Duration::from_micros(50));
    let run = async move {
        let stream = connect(ip).await;
        stream.send(&mut vec![numbered(7, 1)]).await.expect("nothing fails");
        (stream.recv().await.expect("nothing fails")[0], stream.peer_address())
    };
    assert_eq!(world.run_on(&client, 0, run).expect("it ends"), (7, SocketAddr::new(ip, PORT)));
}

#[test]
fn loopback_reaches_the_same_node() {
    let world = World::new(11);
    let node = world.add_node(1, NodeOptions::default());
    let run = async {
        let listener = TcpListener::bind("127.0.0.1:0".parse().expect("an address")).expect("any port");
        let address = listener.local_address();
        spawn(async move {
            let stream = listener.accept().await.expect("one comes");
            stream.send(&mut vec![numbered(1, 1)]).await.expect("nothing fails");
        });
        let start = now();
        let stream = TcpStream::connect(address).await.expect("somebody listens");
        assert!(now() > start);
        stream.recv().await.expect("nothing fails")[0]
    };
    assert_eq!(world.run_on(&node, 0, run).expect("it ends"), 1);
}

#[test]
fn what_is_sent_later_on_one_connection_overtakes_another() {
    let overtaken = (0..20).filter(|seed| {
        let (world, client, server) = pair(*seed);
        let (near, far) = connected(&world, &client, &server);
        world.lag_connections(&client, &server, Duration::from_secs(1));
        let (slow, port) = (Rc::new(RefCell::new(Vec::new())), SocketAddr::new(server.ip(), PORT + 1));
        let (first, second) = (slow.clone(), slow.clone());
        server.spawn(0, async move {
            spawn(async move {
                far.recv().await.expect("nothing fails");
                first.borrow_mut().push(1);
            });
            let later = TcpListener::bind(port).expect("the port is free").accept().await.expect("one comes");
            later.recv().await.expect("nothing fails");
            second.borrow_mut().push(2);
        });
        client.spawn(0, async move {
            near.send(&mut vec![numbered(0, 100)]).await.expect("nothing fails");
            let later = TcpStream::connect(port).await.expect("somebody listens");
            later.send(&mut vec![numbered(0, 100)]).await.expect("nothing fails");
            sleep(Duration::from_secs(3)).await;
        });
        world.run_for(Duration::from_secs(3));
        let order = slow.take();
        assert_eq!(order.len(), 2, "all arrives");
        order == [2, 1]
    });
    let overtaken = overtaken.count();
    assert!((1..20).contains(&overtaken), "{overtaken} of 20 lag");
}
