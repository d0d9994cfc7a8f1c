//! A blocking NBD connection that does exactly what it is told: it can send without reading, and leave at any moment.

use nbd::wire::handshake::{
    FIXED_NEWSTYLE, Greeting, InfoRequest, NO_ZEROES, OptionHeader, ReplyHeader, option, reply,
};
use nbd::wire::transmission::{Request, SimpleReply, command};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// What a test waits for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// An open export, with simple replies.
pub struct RawNbd(TcpStream);

impl RawNbd {
    /// Connects and sends all of the handshake up to GO without waiting for an answer, so that it works on a target
    /// that is paused; [`opened`](Self::opened) reads the answers.
    ///
    /// # Panics
    /// If the target does not take it (as all below).
    pub fn connect(address: SocketAddr, name: &str) -> Self {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIME_MAX).expect("the target listens");
        stream.set_read_timeout(Some(ANSWER_TIME_MAX)).expect("a socket of ours");
        stream.set_write_timeout(Some(ANSWER_TIME_MAX)).expect("a socket of ours");
        stream.set_nodelay(true).expect("a socket of ours");
        let mut data = Vec::new();
        InfoRequest::encode(name, &[], &mut data);
        let mut hello = u32::from(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes().to_vec();
        hello.extend(OptionHeader { option: option::GO, len_bytes: data.len() as u32 }.encode());
        hello.extend(data);
        stream.write_all(&hello).expect("room for a handshake");
        Self(stream)
    }

    /// Reads the answers to the handshake.
    pub fn opened(mut self) -> Self {
        let greeting = self.read::<{ Greeting::BYTES }>();
        Greeting::decode(&greeting).expect("a greeting");
        loop {
            let header = self.read::<{ ReplyHeader::BYTES }>();
            let header = ReplyHeader::decode(&header).expect("a reply").expect("whole");
            let mut data = vec![0; header.len_bytes as usize];
            self.0.read_exact(&mut data).expect("the reply's data");
            match header.reply {
                reply::ACK => return self,
                reply::INFO => {}
                other => panic!("GO was refused with {other:#x}: {}", String::from_utf8_lossy(&data)),
            }
        }
    }

    fn read<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).expect("an answer in time");
        bytes
    }

    /// Sends a read; nobody waits for the answer.
    pub fn send_read(&mut self, cookie: u64, offset_bytes: u64, len_bytes: u32) {
        let request = Request { flags: 0, command: command::READ, cookie, offset_bytes, len_bytes };
        self.0.write_all(&request.encode()).expect("room in the socket");
    }

    /// Sends a write; nobody waits for the answer.
    pub fn send_write(&mut self, cookie: u64, offset_bytes: u64, bytes: &[u8]) {
        let len_bytes = bytes.len() as u32;
        let request = Request { flags: 0, command: command::WRITE, cookie, offset_bytes, len_bytes };
        self.0.write_all(&[&request.encode(), bytes].concat()).expect("room in the socket");
    }

    /// Writes, and waits for the answer.
    pub fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        self.send_write(1, offset_bytes, bytes);
        self.answer(1);
    }

    /// Reads the header of the next answer, which must be a success for `cookie`.
    pub fn answer(&mut self, cookie: u64) {
        assert_eq!(self.next_answer(), cookie);
    }

    /// Reads the header of the next answer, whichever it is, and returns its cookie.
    pub fn next_answer(&mut self) -> u64 {
        let bytes = self.read::<{ SimpleReply::BYTES }>();
        let reply = SimpleReply::decode(&bytes).expect("a simple reply").expect("whole");
        assert_eq!(reply.error, 0);
        reply.cookie
    }

    /// Reads.
    pub fn read_range(&mut self, offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
        self.send_read(2, offset_bytes, len_bytes);
        self.answer(2);
        let mut bytes = vec![0; len_bytes as usize];
        self.0.read_exact(&mut bytes).expect("the data");
        bytes
    }

    /// Leaves as Linux does before it resubmits elsewhere: both directions are shut, then the socket is closed.
    pub fn leave(self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
