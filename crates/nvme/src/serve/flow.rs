//! The two tasks of a connection: one receives and admits, one sends.

use super::budget::Budget;
use super::command;
use super::connection::Conn;
use super::hold;
use crate::limits::{GHOST_CHECK_AFTER, MAX_ADMIN_UNSENT_BYTES};
use crate::machine::{Connection, Event};
use runtime::{Instant, MAX_SEND_PARTS, TcpStream, now, turn_end};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use types::{Mutant, mutant};

/// Why admitting stopped.
enum Pause {
    /// More bytes are needed.
    Starved,
    /// The core has taken on all it may.
    Full,
    /// The connection is over.
    Over,
}

/// Receives and admits until the connection ends.
pub(super) async fn receive_loop(connection: &Rc<Conn>) {
    let mut looked = now();
    let mut received = looked;
    while !connection.has_ended() {
        let pause = admit(connection, received);
        match pause {
            Pause::Over => return,
            Pause::Full if connection.core.is_draining() => return discard(connection).await,
            Pause::Full => {
                connection.paused.set(true);
                let core = &connection.core;
                let may_look = |budget: &Budget| may_go_on(connection, budget) || core.is_draining();
                core.budget.until(|budget| may_look(budget) || connection.has_ended()).await;
                connection.paused.set(false);
            }
            Pause::Starved => {
                if !receive(connection).await {
                    return;
                }
            }
        }
        if !is_alive(connection, &mut looked) {
            return;
        }
        if matches!(pause, Pause::Starved) {
            received = looked;
        }
    }
}

/// The node is stopping: what comes is thrown away, until the connection ends. What stood unread when the socket is
/// closed would make the system reset the connection, and answers under way be lost.
async fn discard(connection: &Rc<Conn>) {
    while !connection.has_ended() && connection.stream.recv().await.is_ok_and(|bytes| !bytes.is_empty()) {}
}

/// After a wait of any kind: whether what has come, or is still unread, may be executed. A host that gave up this
/// connection may have sent the same commands on another one since and gone on from there.
pub(super) fn is_alive(connection: &Rc<Conn>, looked: &mut Instant) -> bool {
    let now = now();
    let waited = now.since(std::mem::replace(looked, now));
    if connection.has_ended() {
        return false;
    }
    waited <= GHOST_CHECK_AFTER || mutant(Mutant::GhostExecuted) || host_lives(connection)
}

/// Whether the host is at the other end, by what the socket knows and it has not read, and by when it was heard last.
pub(super) fn host_lives(connection: &Rc<Conn>) -> bool {
    if connection.host_is_silent() {
        connection.end_silent();
        return false;
    }
    !connection.stream.has_ended()
}

/// Gives the machine what arrives next; `false` if the connection ended.
async fn receive(connection: &Rc<Conn>) -> bool {
    let direct = connection.machine.borrow_mut().take_direct();
    if let Some(buf) = direct {
        let buf_len = buf.len();
        let (result, buf) = connection.stream.recv_exact(buf).await;
        connection.machine.borrow_mut().give_direct(buf);
        connection.moved(buf_len);
        return result.is_ok();
    }
    match connection.stream.recv().await {
        Ok(bytes) if !bytes.is_empty() => {
            connection.moved(bytes.len());
            connection.machine.borrow_mut().feed(bytes);
            true
        }
        _ => false,
    }
}

/// Whether another command may be taken. Of an admin queue always, if its host takes its answers: it moves little data, and a
/// Keep Alive that lay unread behind the I/O of others would end a controller whose host is well.
fn may_go_on(connection: &Conn, budget: &Budget) -> bool {
    if connection.is_admin()
        && !mutant(Mutant::AnswersPileUp)
        && connection.waits_to_be_sent() >= MAX_ADMIN_UNSENT_BYTES
    {
        return false;
    }
    let is_served = connection.is_admin() && !connection.core.is_draining();
    is_served || (budget.has_room() && connection.may_take_more())
}

/// Admits all commands that have arrived, the last of them at `received`, as far as there is room.
fn admit(connection: &Rc<Conn>, received: Instant) -> Pause {
    let namespaces = connection.namespaces();
    let pause = loop {
        if connection.has_ended() {
            break Pause::Over;
        }
        if !may_go_on(connection, &connection.core.budget) {
            break Pause::Full;
        }
        let event = connection.machine.borrow_mut().next(&namespaces);
        match event {
            None => break Pause::Starved,
            Some(Event::Io(request)) => command::start(connection, request, received),
            Some(Event::Admin(request)) => connection.admin(request),
            Some(Event::WantsData(tag, _)) => {
                connection.header_received(tag, received);
                if hold::holds_write(connection, tag) {
                    continue;
                }
                if connection.core.budget.may_grant() && connection.may_be_granted() {
                    connection.machine.borrow_mut().grant(tag);
                    connection.transfers_changed();
                } else {
                    connection.core.queue_for_grant(connection, tag);
                }
            }
            Some(Event::Terminated) => break Pause::Over,
            Some(Event::Connect(_)) => unreachable!("a connected queue refuses Connect itself"),
        }
    };
    connection.transfers_changed();
    connection.output_changed();
    pause
}

/// Sends what gathers, all of one turn at once, until the connection ends.
pub(super) async fn send_loop(connection: Rc<Conn>) {
    let mut parts = Vec::new(); // grows with use: most connections are idle
    while !connection.has_ended() {
        poll_fn(|cx| {
            if connection.has_ended() || connection.machine.borrow().queued_bytes() > 0 {
                return Poll::Ready(());
            }
            *connection.sender.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        turn_end().await;
        let bytes = connection.machine.borrow_mut().drain(&mut parts, MAX_SEND_PARTS);
        if parts.is_empty() || connection.has_ended() {
            continue;
        }
        connection.sending_bytes.set(bytes);
        let result = connection.stream.send(&mut parts).await;
        connection.sending_bytes.set(0);
        connection.moved(bytes);
        match result {
            Ok(()) => connection.unsent.sent(bytes),
            Err(_) => connection.end(),
        }
        connection.output_changed();
        if connection.unsent_bytes.get() == 0 {
            connection.sent.wake_all();
        }
    }
    connection.sent.wake_all();
}

/// Sends a refusal and waits for the host to read it and go (or to try again, which a new connection is for).
pub(super) async fn refuse(stream: &TcpStream, machine: &mut Connection) {
    let mut parts = Vec::new();
    machine.drain(&mut parts, MAX_SEND_PARTS);
    if stream.send(&mut parts).await.is_ok() {
        let _ = runtime::timeout(crate::limits::CONNECT_TIMEOUT, stream.recv()).await;
    }
}
