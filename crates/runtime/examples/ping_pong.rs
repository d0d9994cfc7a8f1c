//! What a message costs: 72 bytes one way, 4,120 back, as an NVMe/TCP read is; client and server on a core each.
//!
//! `cargo run --release -p cairn-runtime --example ping_pong`

use runtime::uring::{Cores, Counters, Options, counters};
use runtime::{IoBuf, SharedBuf, TcpListener, TcpStream, spawn};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const COMMAND_BYTES: usize = 72;
const HEADER_BYTES: usize = 24;
const REPLY_BYTES: usize = HEADER_BYTES + 4096;
const RUN: Duration = Duration::from_millis(700);
/// Replies gathered into one send at most.
const BATCH_MAX: usize = 128;

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "every thread has a clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Report {
    messages: u64,
    cpu: Duration,
    counters: Counters,
}

async fn serve(stream: TcpStream, report: mpsc::Sender<Report>) {
    let header = IoBuf::zeroed(HEADER_BYTES).freeze();
    let block = IoBuf::zeroed(4096).freeze();
    let mut parts: Vec<SharedBuf> = Vec::with_capacity(2 * BATCH_MAX);
    let (mut bytes, mut messages) = (0, 0u64);
    let (cpu, before) = (thread_cpu(), counters());
    loop {
        let received = match stream.recv().await {
            Ok(received) if !received.is_empty() => received,
            _ => break, // the client has its time and resets what it did not read
        };
        bytes += received.len();
        while bytes >= COMMAND_BYTES {
            bytes -= COMMAND_BYTES;
            messages += 1;
            parts.extend([header.clone(), block.clone()]);
            if parts.len() >= 2 * BATCH_MAX {
                let _ = stream.send(&mut parts).await; // the next receive says that the client is gone
            }
        }
        let _ = stream.send(&mut parts).await; // as above
    }
    let after = counters();
    let counters = Counters { enters: after.enters - before.enters, sleeps: after.sleeps - before.sleeps, ..after };
    report.send(Report { messages, cpu: thread_cpu() - cpu, counters }).expect("somebody waits");
}

async fn drive(address: std::net::SocketAddr, depth: usize, report: mpsc::Sender<Report>) {
    let stream = TcpStream::connect(address).await.expect("connects");
    let commands = IoBuf::zeroed(COMMAND_BYTES * depth).freeze();
    let mut parts = vec![commands.clone()];
    let (cpu, before, start) = (thread_cpu(), counters(), Instant::now());
    let (mut bytes, mut messages) = (0, 0u64);
    while start.elapsed() < RUN {
        if !parts.is_empty() {
            stream.send(&mut parts).await.expect("sends");
        }
        bytes += stream.recv().await.expect("receives").len();
        let replies = bytes / REPLY_BYTES;
        bytes %= REPLY_BYTES;
        messages += replies as u64;
        if replies > 0 {
            parts.push(commands.slice(0..replies * COMMAND_BYTES));
        }
    }
    let after = counters();
    let counters = Counters { enters: after.enters - before.enters, sleeps: after.sleeps - before.sleeps, ..after };
    report.send(Report { messages, cpu: thread_cpu() - cpu, counters }).expect("somebody waits");
}

/// Runs `connections` connections of `depth` commands each.
fn measure(cores: &Cores, connections: usize, depth: usize) {
    let (tell_server, told_server) = mpsc::channel();
    let (tell_client, told_client) = mpsc::channel();
    let (tell_address, address) = mpsc::channel();
    cores.handles()[0].spawn_on(move || async move {
        let listener = TcpListener::bind("127.0.0.1:0".parse().expect("an address")).expect("listens");
        tell_address.send(listener.local_address()).expect("somebody waits");
        for _ in 0..connections {
            spawn(serve(listener.accept().await.expect("accepts"), tell_server.clone()));
        }
    });
    let address = address.recv().expect("listens");
    for _ in 0..connections {
        let tell = tell_client.clone();
        cores.handles()[1].spawn_on(move || drive(address, depth, tell));
    }
    drop(tell_client);
    println!("{connections} x depth {depth}");
    for (name, reports) in [("client", told_client), ("server", told_server)] {
        let reports: Vec<Report> = reports.iter().collect();
        let messages = reports.iter().map(|report| report.messages).sum::<u64>() as f64;
        // Tasks of one core count its CPU time and its enters each: the longest look is all of it.
        let cpu = reports.iter().map(|report| report.cpu).max().unwrap_or_default();
        let enters = reports.iter().map(|report| report.counters.enters).max().unwrap_or_default();
        println!(
            "  {name}: {:8.0} messages/s, {:6.0} ns of CPU and {:.3} enters per message",
            messages / RUN.as_secs_f64(),
            cpu.as_nanos() as f64 / messages,
            enters as f64 / messages,
        );
    }
}

fn main() {
    let cores = Cores::start(2, &Options::default()).expect("io_uring");
    for (connections, depth) in [(1, 1), (1, 16), (1, 128), (32, 1), (32, 4)] {
        measure(&cores, connections, depth);
    }
}
