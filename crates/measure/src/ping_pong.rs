//! How fast the machine passes a message just now: what every measurement carries, so that a slow minute is seen.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// A command of a block protocol and an answer of 4 KiB.
const ASKED_BYTES: usize = 72;
const ANSWER_BYTES: usize = 4120;
/// What a peer that is gone may cost.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Round trips per second over one loopback TCP connection, 72 bytes one way and 4,120 back.
///
/// # Errors
/// If there is no loopback.
pub fn round_trips_per_second(during: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
    }
    let answers = thread::spawn(move || {
        let (mut asked, answer) = ([0; ASKED_BYTES], [0; ANSWER_BYTES]);
        // Ends when the other side closes.
        while server.read_exact(&mut asked).is_ok() && server.write_all(&answer).is_ok() {}
    });
    let (asked, mut answer) = ([0; ASKED_BYTES], [0; ANSWER_BYTES]);
    let began = Instant::now();
    let mut trips = 0_u64;
    let ended = loop {
        if let Err(error) = client.write_all(&asked).and_then(|()| client.read_exact(&mut answer)) {
            break Err(error);
        }
        trips += 1;
        if began.elapsed() >= during {
            break Ok(());
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    drop(client);
    let _ = answers.join();
    ended.map(|()| trips as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_there_and_back() {
        assert!(round_trips_per_second(Duration::from_millis(20)).unwrap() > 0.0);
    }
}
