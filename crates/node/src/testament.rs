//! What a worker tells its supervisor while it lives, so that this can speak for it when it is dead: lines of JSON through a pipe, each
//! the whole. A line that a crash cut short does not count.

use crate::control::ControlHandle;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::time::Duration;
use types::{ClusterId, Incarnation, NodeId, StoreId};
use volume::Testament;

/// Names the pipe's descriptor to the worker.
pub(crate) const PIPE_VARIABLE: &str = "CAIRN_SUPERVISED";
/// How often it is looked at whether there is something new to tell.
const LOOK_WAIT: Duration = Duration::from_secs(1);

/// As it goes through the pipe.
#[derive(Serialize, Deserialize)]
struct Line {
    cluster: String,
    key: [u8; 32],
    node: u32,
    lives: Vec<(String, u64)>,
    peers: Vec<(u32, std::net::SocketAddr)>,
}

/// One line, with its end.
pub(crate) fn to_line(testament: &Testament) -> String {
    let line = Line {
        cluster: testament.cluster.to_string(),
        key: testament.key.0,
        node: testament.node.0,
        lives: testament.lives.iter().map(|(store, life)| (store.to_string(), life.0)).collect(),
        peers: testament.peers.iter().map(|(node, address)| (node.0, *address)).collect(),
    };
    let text = serde_json::to_string(&line).expect("plain fields are JSON");
    text + "\n"
}

/// What a line says; nothing, if it is none.
pub(crate) fn of_line(text: &str) -> Option<Testament> {
    let line: Line = serde_json::from_str(text).ok()?;
    let hex = |text: &str| u128::from_str_radix(text, 16).ok();
    let life = |(store, life): &(String, u64)| Some((StoreId(hex(store)?), Incarnation(*life)));
    Some(Testament {
        cluster: ClusterId(hex(&line.cluster)?),
        key: volume::ClusterKey(line.key),
        node: NodeId(line.node),
        lives: line.lives.iter().map(life).collect::<Option<_>>()?,
        peers: line.peers.into_iter().map(|(node, address)| (NodeId(node), address)).collect(),
    })
}

/// The pipe, in a process that a supervisor has started: in no other.
pub fn pipe() -> Option<File> {
    let number: libc::c_int = std::env::var(PIPE_VARIABLE).ok()?.parse().ok()?;
    // SAFETY: a plain system call; it fails for a number that is no descriptor. What this process starts does not get it.
    if number <= libc::STDERR_FILENO || unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return None;
    }
    // SAFETY: the supervisor has opened it for this process and says so; nobody else here knows its number.
    Some(unsafe { File::from_raw_fd(number) })
}

/// Tells the supervisor what it has to know, whenever that changes, as long as both live.
pub(crate) async fn tell(control: ControlHandle, pipe: File) {
    let pipe = Arc::new(pipe);
    let mut told = String::new();
    loop {
        if let Ok(testament) = control.testament().await {
            let line = to_line(&testament);
            if line != told {
                let (pipe, text) = (pipe.clone(), line.clone());
                // A supervisor that stands still must not hold up anything else.
                let written = tokio::task::spawn_blocking(move || (&*pipe).write_all(text.as_bytes())).await;
                if !matches!(written, Ok(Ok(()))) {
                    return;
                }
                told = line;
            }
        }
        tokio::time::sleep(LOOK_WAIT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood_and_half_of_it_is_nothing() {
        let testament = Testament {
            cluster: ClusterId(7 << 100),
            key: volume::ClusterKey([9; 32]),
            node: NodeId(2),
            lives: vec![(StoreId(1 << 127), Incarnation(u64::MAX)), (StoreId(3), Incarnation(4))],
            peers: vec![(NodeId(1), "127.0.0.1:5".parse().unwrap()), (NodeId(3), "[::1]:6".parse().unwrap())],
        };
        let line = to_line(&testament);
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        assert_eq!(of_line(line.trim_end()), Some(testament));
        assert_eq!(of_line(&line[..line.len() / 2]), None);
    }
}
