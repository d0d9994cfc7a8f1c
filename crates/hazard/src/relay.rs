//! A relay between host and one address of the target, which can hold everything back.
//!
//! Held, it passes so many bytes more of the host, ending in the midst of a command as like as not. Answers go on, so that all that
//! the host has under way comes to be what is held; it takes what the host still sends, and keeps from each of the two that the other
//! one has hung up. Released, it passes all of it on, in order: for the target it was the network that was slow. Its threads end
//! with the process.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait for the target, of one connection: far more than what a host has under way.
const PIECES_MAX: usize = 1024;
const CONNECT_MAX: Duration = Duration::from_secs(5);

#[derive(Default)]
struct State {
    is_held: bool,
    /// Bytes that still pass.
    passes: usize,
    held_bytes: u64,
    refused_bytes: u64,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until_released(&self) {
        let is_held = |state: &mut State| state.is_held;
        drop(self.changed.wait_while(self.state(), is_held).unwrap_or_else(PoisonError::into_inner));
    }

    /// How many of the rest of a piece may pass now; waits until some may. What has to wait is counted once.
    fn pass(&self, rest: usize, piece: &mut Piece) -> usize {
        let mut state = self.state();
        if state.is_held && state.passes > 0 {
            let some = rest.min(state.passes);
            state.passes -= some;
            return some;
        }
        if state.is_held || piece.came_while_held {
            state.held_bytes += if piece.is_counted { 0 } else { rest as u64 };
            piece.is_counted = true;
        }
        drop(self.changed.wait_while(state, |state| state.is_held).unwrap_or_else(PoisonError::into_inner));
        rest
    }
}

/// What was read of the host at once.
struct Piece {
    bytes: Vec<u8>,
    /// It may lie behind another one that waits.
    came_while_held: bool,
    is_counted: bool,
}

/// See the module.
pub(crate) struct Relay {
    address: SocketAddr,
    gate: Arc<Gate>,
}

impl Relay {
    /// One to this address.
    pub fn new(target: SocketAddr) -> std::io::Result<Self> {
        let here: IpAddr = if target.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let listener = TcpListener::bind((here, 0))?;
        let (address, gate) = (listener.local_addr()?, Arc::new(Gate::default()));
        let of_thread = gate.clone();
        std::thread::spawn(move || {
            for host in listener.incoming().flatten() {
                let gate = of_thread.clone();
                std::thread::spawn(move || connect(&host, target, &gate));
            }
        });
        Ok(Self { address, gate })
    }

    /// Where the host connects.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on so many bytes pass, and then none.
    pub fn hold(&self, passes: usize) {
        *self.gate.state() = State { is_held: true, passes, ..State::default() };
    }

    /// What was held goes on.
    pub fn release(&self) {
        self.gate.state().is_held = false;
        self.gate.changed.notify_all();
    }

    /// Bytes that were held, and those of them that the target did not take.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.gate.state();
        (state.held_bytes, state.refused_bytes)
    }
}

/// A connection of the host. Errors end it, as they would without the relay.
fn connect(host: &TcpStream, target: SocketAddr, gate: &Arc<Gate>) {
    gate.wait_until_released();
    let Ok(target) = TcpStream::connect_timeout(&target, CONNECT_MAX) else { return };
    let clones = (|| {
        target.set_nodelay(true)?;
        host.set_nodelay(true)?;
        Ok::<_, std::io::Error>((host.try_clone()?, host.try_clone()?, target.try_clone()?))
    })();
    let Ok((from_host, to_host, to_target)) = clones else { return };
    let (give, take) = sync_channel(PIECES_MAX);
    let (of_host, of_answers, has_ended) = (gate.clone(), gate.clone(), Arc::new(AtomicBool::new(false)));
    let is_over = has_ended.clone();
    std::thread::spawn(move || read_host(from_host, &give, &of_host));
    std::thread::spawn(move || pass_answers(target, to_host, &of_answers, &is_over));
    write_target(to_target, &take, gate, &has_ended);
}

fn read_host(mut host: TcpStream, give: &SyncSender<Piece>, gate: &Gate) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(bytes @ 1..) = host.read(&mut piece) {
        let came_while_held = gate.state().is_held;
        if give.send(Piece { bytes: piece[..bytes].to_vec(), came_while_held, is_counted: false }).is_err() {
            return;
        }
    }
}

fn write_target(mut target: TcpStream, take: &Receiver<Piece>, gate: &Gate, has_ended: &AtomicBool) {
    let mut is_refused = false;
    for mut piece in take {
        let bytes = std::mem::take(&mut piece.bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(gate.pass(rest.len(), &mut piece));
            // What is sent behind the target's end the kernel takes, and the target does not.
            is_refused |= has_ended.load(Ordering::Relaxed) | target.write_all(now).is_err();
            if is_refused && piece.is_counted {
                gate.state().refused_bytes += now.len() as u64;
            }
            rest = later;
        }
    }
    // That the host has hung up is told no earlier than what it had sent.
    gate.wait_until_released();
    // The target may have ended it.
    let _ = target.shutdown(Shutdown::Write);
}

fn pass_answers(mut target: TcpStream, mut host: TcpStream, gate: &Gate, has_ended: &AtomicBool) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(bytes @ 1..) = target.read(&mut piece) {
        // A host that is gone does not hear it; the target must not be told so by this.
        let _ = host.write_all(&piece[..bytes]);
    }
    has_ended.store(true, Ordering::Relaxed);
    gate.wait_until_released();
    // It may be gone.
    let _ = host.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_comes_later_with_the_end_behind_it() {
        let target = TcpListener::bind("127.0.0.1:0").expect("a port");
        let relay = Relay::new(target.local_addr().expect("bound")).expect("a relay");
        let mut host = TcpStream::connect(relay.address()).expect("it listens");
        let (mut served, _) = target.accept().expect("it is passed on");
        let mut some = [0; 4];
        host.write_all(b"1234").expect("sent");
        served.read_exact(&mut some).expect("passed");
        relay.hold(2);
        host.write_all(b"abcdef").expect("sent");
        drop(host);
        served.read_exact(&mut some[..2]).expect("a part of it");
        assert_eq!(&some[..2], b"ab");
        served.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
        assert!(served.read(&mut some).is_err(), "neither the rest nor the end");
        assert_eq!(relay.counts(), (4, 0));
        relay.release();
        served.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        let mut rest = Vec::new();
        served.read_to_end(&mut rest).expect("and the end");
        assert_eq!(rest, b"cdef");
    }
}
