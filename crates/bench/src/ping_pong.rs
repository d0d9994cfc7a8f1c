//! TCP alone, between two cores of this process: what any protocol over it pays at least, and the machine's state.

use crate::load::{self, LoadOptions, LoadResult};
use measure::generator::Kind;
use runtime::buf::IoBuf;
use runtime::channel::{WaitList, cross};
use runtime::uring::{Cores, Options};
use runtime::{SharedBuf, TcpListener, TcpStream};
use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

/// What a command without data takes on an NVMe/TCP connection.
const REQUEST_BYTES: usize = 72;
/// What 4 KiB of data take there.
const ANSWER_BYTES: usize = 4120;
/// Most answers in one send.
const ANSWERS_AT_ONCE: usize = 128;

/// Requests of 72 bytes, answers of 4,120, `depth` of them under way on one connection.
///
/// # Errors
/// What the network says.
pub async fn run(options: LoadOptions) -> io::Result<LoadResult> {
    let cores = Cores::start(1, &Options::default())?;
    let (told, mut addresses) = cross(1);
    cores.handles()[0].spawn_on(move || async move {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port of 127.0.0.1");
        let _ = told.send(listener.local_address()).await;
        if let Ok(stream) = listener.accept().await {
            answer(stream).await;
        }
    });
    let address = addresses.recv().await.map_err(io::Error::other)?;
    let client = Rc::new(Client {
        stream: TcpStream::connect(address).await?,
        asked: Cell::new(0),
        answered: Cell::new(0),
        changed: WaitList::default(),
    });
    let (sender, receiver) = (client.clone(), client.clone());
    let tasks =
        [runtime::spawn(async move { sender.send().await }), runtime::spawn(async move { receiver.receive().await })];
    let result = load::run(options, move |_, _| {
        let client = client.clone();
        async move {
            let number = client.asked.get() + 1;
            client.asked.set(number);
            client.changed.wake_all();
            client.changed.until(|| (client.answered.get() >= number).then_some(())).await;
            Ok(Kind::Read)
        }
    })
    .await;
    tasks.iter().for_each(|task| task.cancel());
    cores.stop();
    result
}

struct Client {
    stream: TcpStream,
    asked: Cell<u64>,
    answered: Cell<u64>,
    changed: WaitList,
}

impl Client {
    async fn send(&self) {
        let request = IoBuf::zeroed(REQUEST_BYTES * ANSWERS_AT_ONCE).freeze();
        let (mut sent, mut parts) = (0, Vec::new());
        loop {
            let count = self.changed.until(|| (self.asked.get() > sent).then(|| self.asked.get() - sent)).await;
            runtime::turn_end().await;
            let count = count.max(self.asked.get() - sent).min(ANSWERS_AT_ONCE as u64);
            parts.push(request.slice(0..REQUEST_BYTES * count as usize));
            sent += count;
            if self.stream.send(&mut parts).await.is_err() {
                return;
            }
        }
    }

    async fn receive(&self) {
        let mut bytes = 0_u64;
        while let Ok(received) = self.stream.recv().await
            && !received.is_empty()
        {
            bytes += received.len() as u64;
            self.answered.set(bytes / ANSWER_BYTES as u64);
            self.changed.wake_all();
        }
    }
}

async fn answer(stream: TcpStream) {
    let page = IoBuf::zeroed(ANSWER_BYTES).freeze();
    let (mut bytes, mut answered) = (0, 0);
    let mut parts: Vec<SharedBuf> = Vec::new();
    while let Ok(received) = stream.recv().await
        && !received.is_empty()
    {
        bytes += received.len();
        while answered < bytes / REQUEST_BYTES {
            let count = (bytes / REQUEST_BYTES - answered).min(ANSWERS_AT_ONCE);
            parts.extend((0..count).map(|_| page.clone()));
            answered += count;
            if stream.send(&mut parts).await.is_err() {
                return;
            }
        }
    }
}
