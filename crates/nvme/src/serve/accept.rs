//! From accept to Connect: what every connection goes through before its core is known.

use super::complaints::Complaints;
use super::{Handover, Order, Port, Target};
use crate::limits::{CONNECT_TIMEOUT, MAX_UNCONNECTED};
use crate::machine::{ConnectRequest, Connection, Endpoints, Event, NamespaceTable};
use runtime::{MAX_SEND_PARTS, TaskHandle, TcpListener, TcpStream, sleep, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Pause after a failed accept (no descriptors left): the next would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn accept(target: Arc<Target>, listener: TcpListener, port: Port) {
    let unconnected = Rc::new(Unconnected::default());
    loop {
        let Ok(stream) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if target.has_stopped() {
            return;
        }
        let (target, all) = (target.clone(), unconnected.clone());
        let number = unconnected.next.replace(unconnected.next.get() + 1);
        let task = spawn(async move {
            introduce(&all, target, stream, port).await;
            all.waiting.borrow_mut().remove(&number);
        });
        unconnected.add(number, task);
    }
}

/// Connections that have not sent Connect, the oldest first. A host that means it has done so after some milliseconds:
/// when there are too many it is the oldest that goes.
#[derive(Default)]
struct Unconnected {
    next: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, TaskHandle>>,
    complaints: Complaints,
}

impl Unconnected {
    fn add(&self, number: u64, task: TaskHandle) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.insert(number, task);
        if waiting.len() > MAX_UNCONNECTED
            && let Some((_, oldest)) = waiting.pop_first()
        {
            oldest.cancel(); // with its task the stream is dropped, which closes it
            self.complaints
                .tell(format_args!("{MAX_UNCONNECTED} NVMe connections have not sent Connect: the oldest is closed"));
        }
    }
}

async fn introduce(all: &Unconnected, target: Arc<Target>, stream: TcpStream, port: Port) {
    let endpoints = Endpoints { host: stream.peer_address().ip(), target: stream.local_address() };
    let mut machine = Connection::new();
    let request = timeout(CONNECT_TIMEOUT, read_connect(&stream, &mut machine)).await;
    let Ok(Some(request)) = request else {
        let (at, seconds) = (endpoints.host, CONNECT_TIMEOUT.as_secs());
        match machine.ending() {
            Some(ending) => all.complaints.tell(format_args!("NVMe connection of {at} before Connect: {ending}")),
            None if request.is_err() => {
                all.complaints.tell(format_args!("NVMe connection of {at}: no Connect within {seconds} s"));
            }
            None => {}
        }
        return;
    };
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
