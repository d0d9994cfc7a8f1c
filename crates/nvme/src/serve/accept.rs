//! From accept to Connect: what every connection goes through before its core is known.

use super::{Handover, Order, Port, Target};
use crate::limits::{CONNECT_TIMEOUT, MAX_UNCONNECTED};
use crate::machine::{ConnectRequest, Connection, Endpoints, Event, NamespaceTable};
use runtime::{MAX_SEND_PARTS, TcpListener, TcpStream, sleep, spawn, timeout};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Pause after a failed accept (no descriptors left): the next would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn accept(target: Arc<Target>, listener: TcpListener, port: Port) {
    let unconnected = Rc::new(Cell::new(0));
    loop {
        let Ok(stream) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if target.has_stopped() {
            return;
        }
        if unconnected.get() >= MAX_UNCONNECTED {
            continue; // dropping the stream closes it
        }
        let place = Place::take(&unconnected);
        let target = target.clone();
        spawn(async move {
            introduce(target, stream, port).await;
            drop(place);
        });
    }
}

/// One of the places for connections that have not sent Connect.
struct Place(Rc<Cell<usize>>);

impl Place {
    fn take(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

async fn introduce(target: Arc<Target>, stream: TcpStream, port: Port) {
    let endpoints = Endpoints { host: stream.peer_address().ip(), target: stream.local_address() };
    let mut machine = Connection::new();
    let request = timeout(CONNECT_TIMEOUT, read_connect(&stream, &mut machine)).await;
    let Ok(Some(request)) = request else { return };
    let queue = request.connect.queue;
    let handover = Handover { stream: stream.detach(), machine, request, endpoints, port };
    // If the core is gone, so is the connection.
    let _ = target.core_of(queue).send(Order::Serve(Box::new(handover))).await;
}

/// Answers ICReq and reads on to the Connect; `None` if the connection ended or was ended.
async fn read_connect(stream: &TcpStream, machine: &mut Connection) -> Option<ConnectRequest> {
    let nothing = NamespaceTable::default();
    let mut parts = Vec::new();
    loop {
        let event = machine.next(&nothing);
        if machine.queued_bytes() > 0 {
            machine.drain(&mut parts, MAX_SEND_PARTS);
            stream.send(&mut parts).await.ok()?;
        }
        match event {
            Some(Event::Connect(request)) => return Some(request),
            Some(_) => {
                // A TermReq was sent: what comes is read and thrown away until the host closes, so that no reset
                // overtakes it. The caller's timeout bounds it.
                while !stream.recv().await.ok()?.is_empty() {}
                return None;
            }
            None => {
                let bytes = stream.recv().await.ok().filter(|bytes| !bytes.is_empty())?;
                machine.feed(bytes);
            }
        }
    }
}
