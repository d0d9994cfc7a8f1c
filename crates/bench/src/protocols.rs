//! Loads over the protocols: NVMe/TCP namespaces and NBD exports.

use crate::hosts::{Hosts, HostsOptions};
use crate::load::{self, LoadOptions, LoadResult};
use crate::pattern::{Cursor, Operation, Pattern};
use nvme::host::Namespace;
use runtime::sim::Random;
use runtime::{IoBuf, SharedBuf};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::task::Poll;

/// Loads namespaces; with `fill` they are written from end to end before.
///
/// # Errors
/// Of a connection or of the first command that fails; a pattern that is not at random over many namespaces.
pub async fn nvme(hosts: &HostsOptions, fill: bool, pattern: Pattern, options: LoadOptions) -> io::Result<LoadResult> {
    in_order_of_one(pattern, hosts.namespaces)?;
    let hosts = Hosts::connect(hosts).await?;
    if fill {
        hosts.fill(payload).await?;
    }
    let cursor = Cursor::new(pattern, hosts.namespace_bytes())?;
    let payload = payload(pattern.block_size_bytes);
    load::run(options, move |worker, random| {
        let (namespace, payload) = (hosts.namespace(worker, random).clone(), payload.clone());
        let operation = cursor.next(random);
        async move { in_commands(&namespace, operation, &payload).await }
    })
    .await
}

/// One operation in commands no larger than the controller takes, all at once: as a kernel splits what a program asks for.
async fn in_commands(namespace: &Namespace, operation: Operation, payload: &SharedBuf) -> io::Result<()> {
    let (total, most) = (payload.len(), namespace.max_transfer_bytes() as usize);
    if total <= most {
        return command(namespace, operation, payload.clone()).await;
    }
    let parts = (0..total).step_by(most).map(|from| {
        let part = Operation { offset_bytes: operation.offset_bytes + from as u64, ..operation };
        command(namespace, part, payload.slice(from..total.min(from + most)))
    });
    all(parts).await
}

async fn command(namespace: &Namespace, operation: Operation, payload: SharedBuf) -> io::Result<()> {
    let done = match operation.is_read {
        true => namespace.read(operation.offset_bytes, payload.len() as u32).await.map(drop),
        false => namespace.write(operation.offset_bytes, payload).await,
    };
    done.map_err(io::Error::other)
}

/// Until all have ended; the first error of them.
async fn all<F: Future<Output = io::Result<()>>>(futures: impl Iterator<Item = F>) -> io::Result<()> {
    let mut left: Vec<_> = futures.map(Box::pin).collect();
    let mut result = Ok(());
    poll_fn(|context| {
        left.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(done) => {
                if result.is_ok() {
                    result = done;
                }
                false
            }
            Poll::Pending => true,
        });
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    result
}

/// Loads exports of one size, each by a connection of its own and by as many as are wanted; with `fill` they are written from
/// end to end before.
///
/// # Errors
/// Of a connection or of the first request that fails; a pattern that is not at random over many exports.
pub async fn nbd(
    address: SocketAddr,
    (names, connections): (&[String], u32),
    fill: bool,
    pattern: Pattern,
    options: LoadOptions,
) -> io::Result<LoadResult> {
    in_order_of_one(pattern, names.len() as u32)?;
    let mut clients = Vec::new();
    for number in 0..names.len().max(connections as usize) {
        let client = nbd::client::Client::connect(address, &names[number % names.len()], true).await;
        clients.push(client.map_err(io::Error::other)?);
    }
    if fill {
        for client in &clients[..names.len()] {
            fill_export(client).await?;
        }
    }
    let cursor = Cursor::new(pattern, clients[0].info().size.size_bytes)?;
    let (bytes, payload) = (pattern.block_size_bytes, payload(pattern.block_size_bytes));
    let depth = options.depth;
    load::run(options, move |worker, random| {
        let client = clients[of_worker(worker, depth, clients.len(), random)].clone();
        let (operation, payload) = (cursor.next(random), payload.clone());
        async move {
            let done = match operation.is_read {
                true => client.read(operation.offset_bytes, bytes).await.map(drop),
                false => client.write(operation.offset_bytes, payload, false).await,
            };
            done.map_err(io::Error::other)
        }
    })
    .await
}

/// Writes an export of whole MiB from end to end.
async fn fill_export(client: &nbd::client::Client) -> io::Result<()> {
    const BYTES: u32 = 1 << 20;
    let payload = payload(BYTES);
    for at in (0..client.info().size.size_bytes).step_by(BYTES as usize) {
        client.write(at, payload.clone(), false).await.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Which of `count` connections one of `depth` workers asks next: always its own, or, if there are more than workers, one of
/// its own at random.
fn of_worker(worker: u32, depth: u32, count: usize, random: &Random) -> usize {
    let dealt = count.min(depth as usize);
    let first = worker as usize % dealt;
    let mine = (count - first).div_ceil(dealt);
    first + dealt * random.below(mine as u64) as usize
}

fn in_order_of_one(pattern: Pattern, volumes: u32) -> io::Result<()> {
    match volumes {
        0 => Err(io::Error::other("there is nothing to load: name one volume at least")),
        1 => Ok(()),
        _ if pattern.random_percent == 100 => Ok(()),
        _ => {
            Err(io::Error::other("many volumes are loaded at random: leave --random-percent away, or name one volume"))
        }
    }
}

/// Bytes that do not compress.
pub fn payload(bytes: u32) -> SharedBuf {
    let (random, mut buf) = (Random::new(7), IoBuf::zeroed(bytes as usize));
    buf.chunks_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()[..word.len()]));
    buf.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn workers_ask_all_connections_and_each_its_own() {
        let random = Random::new(1);
        for (depth, count) in [(1, 1), (128, 1), (128, 64), (128, 100), (128, 1000), (3, 7)] {
            let mut asked = vec![false; count];
            for worker in 0..depth {
                let own = of_worker(worker, depth, count, &random);
                for _ in 0..200 {
                    let one = of_worker(worker, depth, count, &random);
                    assert!(
                        depth < count as u32 || one == own,
                        "a worker has one connection where there is one for it"
                    );
                    asked[one] = true;
                }
            }
            assert!(asked.iter().all(|asked| *asked), "{depth} workers leave one of {count} connections alone");
        }
    }

    #[test]
    fn all_parts_are_waited_for_and_the_first_error_is_told() {
        let ended = Rc::new(std::cell::Cell::new(0));
        let found = runtime::uring::block_on({
            let ended = ended.clone();
            async move {
                let parts = (0..4).map(|number| {
                    let ended = ended.clone();
                    async move {
                        runtime::sleep(std::time::Duration::from_millis(4 - number)).await;
                        ended.set(ended.get() + 1);
                        if number % 2 == 0 { Ok(()) } else { Err(io::Error::other(format!("{number}"))) }
                    }
                });
                all(parts).await
            }
        });
        let error = found.expect("io_uring works here").expect_err("two have failed");
        assert_eq!((error.to_string().as_str(), ended.get()), ("3", 4));
    }

    #[test]
    fn in_order_is_for_one_volume() {
        let pattern = |random_percent| Pattern { read_percent: 0, random_percent, block_size_bytes: 4096 };
        assert!(in_order_of_one(pattern(0), 1).is_ok() && in_order_of_one(pattern(100), 2).is_ok());
        assert!(in_order_of_one(pattern(99), 2).is_err() && in_order_of_one(pattern(100), 0).is_err());
    }
}
