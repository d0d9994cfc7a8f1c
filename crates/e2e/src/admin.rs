//! The few requests that tests make of the admin API.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// GETs `path` and returns the JSON.
///
/// # Panics
/// If there is no such answer within 5 s.
pub fn get(admin: SocketAddr, path: &str) -> Value {
    let (status, body) = request(admin, path).unwrap_or_else(|error| panic!("GET {path} from {admin}: {error}"));
    assert_eq!(status, 200, "GET {path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("GET {path}: {error} in {body}"))
}

/// As [`get`]; `None` if nobody answers, or with something else: of a node that may be down.
pub fn try_get(admin: SocketAddr, path: &str) -> Option<Value> {
    let (status, body) = request(admin, path).ok()?;
    (status == 200).then(|| serde_json::from_str(&body).ok()).flatten()
}

/// Whether the node answers that it is ready. One that is just being killed may still take connections, and answers none.
pub fn is_ready(admin: SocketAddr) -> bool {
    request(admin, "/readyz").is_ok_and(|(status, _)| status == 200)
}

fn request(admin: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&admin, ANSWER_TIME_MAX)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    // HTTP/1.0: the answer ends with the connection, so it needs no parser for chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok((status, body.to_owned()))
}
