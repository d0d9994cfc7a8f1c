//! Loads over the protocols: NVMe/TCP namespaces and NBD exports, by the load generator of `cairn bench`.

use crate::load::{self, LoadOptions, LoadResult};
use measure::generator::{Jobs, Links, Load, Namespaces, Pattern};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

/// What is drawn is the same in each run.
const SEED: u64 = 1;

/// Loads namespaces; with `fill` they are written from end to end before.
///
/// # Errors
/// Of a connection or of the first command that fails; a pattern that is not at random over many namespaces.
pub async fn nvme(wanted: &Namespaces, fill: bool, pattern: Pattern, options: LoadOptions) -> io::Result<LoadResult> {
    in_order_of_one(pattern, wanted.namespaces)?;
    let links = Links::of_namespaces(wanted, options.depth).await.map_err(io::Error::other)?;
    run(links, fill, pattern, options).await
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
    let links = Links::of_exports(address, names, connections, options.depth).await.map_err(io::Error::other)?;
    run(links, fill, pattern, options).await
}

/// One job of all workers: what is in order is so over all that is under way, as it is of a job of fio.
async fn run(links: Links, fill: bool, pattern: Pattern, options: LoadOptions) -> io::Result<LoadResult> {
    let (bytes, links) = (links.volume_bytes(), Rc::new(links));
    if fill {
        links.fill(bytes).await.map_err(io::Error::other)?;
    }
    let load = Load::new(None);
    Jobs::new(links, pattern, bytes, 1, SEED).map_err(io::Error::other)?.start(&load, options.depth);
    load::measured(&load, &options).await
}

fn in_order_of_one(pattern: Pattern, volumes: u32) -> io::Result<()> {
    if volumes > 1 && pattern.random_percent < 100 {
        let why = "many volumes are loaded at random: leave --random-percent away, or name one volume";
        return Err(io::Error::other(why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_is_for_one_volume() {
        let pattern =
            |random_percent| Pattern { block_size_bytes: 4096, read_percent: 0, random_percent, flushes: false };
        assert!(in_order_of_one(pattern(0), 1).is_ok() && in_order_of_one(pattern(100), 2).is_ok());
        assert!(in_order_of_one(pattern(99), 2).is_err());
    }
}
