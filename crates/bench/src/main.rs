//! `cairn-bench`: one measurement per call; `tools/bench.sh` makes the tables of `docs/performance.md` of them.

use bench::cpu::CpuMeter;
use bench::large_map::LargeMap;
use bench::life::LifeOptions;
use bench::load::{self, LoadOptions, LoadResult};
use bench::protocols;
use bench::store_load::StoreLoad;
use clap::{Parser, Subcommand, ValueEnum};
use measure::generator::{Kind, Namespaces, Pattern};
use runtime::sim::Random;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Measures one thing; the result is one line of JSON.
#[derive(Parser)]
struct Arguments {
    /// Operations under way at once.
    #[arg(long, default_value_t = 1)]
    depth: u32,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds before that.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Processes whose CPU is told apart (the target's); this one's comes behind them.
    #[arg(long)]
    pid: Vec<u32>,
    /// Cores that the machine keeps busy by itself, if that is known; else it is looked at for up to three seconds.
    #[arg(long)]
    idle_cores: Option<f64>,
    /// What to do.
    #[arg(long, value_enum, default_value = "read")]
    pattern: Direction,
    /// Of 100 operations of a mix so many read.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    read_percent: u8,
    /// Of 100 operations so many go anywhere, the others follow the last of their direction; 0 is in order (protocols only).
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    random_percent: u8,
    /// Bytes of one operation (protocols only).
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(512..=4 << 20))]
    bytes: u64,
    #[command(subcommand)]
    target: Target,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Direction {
    Read,
    Write,
    Mix,
}

impl Arguments {
    fn pattern(&self) -> Pattern {
        let read_percent = match self.pattern {
            Direction::Read => 100,
            Direction::Write => 0,
            Direction::Mix => self.read_percent,
        };
        Pattern { block_size_bytes: self.bytes, read_percent, random_percent: self.random_percent, flushes: false }
    }

    /// Whether the store alone is to be read, or written: it has no other load.
    fn reads_store(&self) -> io::Result<bool> {
        match (self.pattern, self.random_percent) {
            (Direction::Read, 100) => Ok(true),
            (Direction::Write, 100) => Ok(false),
            _ => {
                Err(io::Error::other("the store alone is read or written at random: mixes and order are for protocols"))
            }
        }
    }
}

#[derive(Subcommand)]
enum Target {
    /// The store alone on a file, which is formatted: give an empty one of the size wanted.
    Store {
        /// The file.
        file: PathBuf,
        /// Bytes of it that the load covers.
        #[arg(long)]
        span: u64,
    },
    /// The store through a long life: formats the file, fills a share of what is usable, overwrites that many times.
    Life {
        /// The file.
        file: PathBuf,
        /// Share of what is usable that is filled, in per cent.
        #[arg(long, default_value_t = 80)]
        share: u64,
        /// How often all of it is overwritten.
        #[arg(long, default_value_t = 10.0)]
        overwrites: f64,
        /// Overwrite by Zipf's law with this exponent instead of uniformly.
        #[arg(long)]
        zipf: Option<f64>,
        /// Offer so many writes per second instead of as many as are taken.
        #[arg(long)]
        rate: Option<f64>,
    },
    /// Formats the file and fills it with `--span` bytes in random order, 4 KiB at a time: for `open`.
    Fill {
        /// The file.
        file: PathBuf,
        /// Bytes of data.
        #[arg(long)]
        span: u64,
        /// Make up the index and write only a checkpoint of it: the file may be sparse and the data too large to be
        /// written.
        #[arg(long)]
        synthetic: bool,
    },
    /// Opens the store on the file, once, in this fresh process.
    Open {
        /// The file.
        file: PathBuf,
    },
    /// NVMe/TCP namespaces, one or many. Their contents are overwritten.
    Nvme {
        /// HOST:PORT.
        address: SocketAddr,
        /// The subsystem.
        nqn: String,
        /// The namespace, or the first of `--namespaces`.
        nsid: u32,
        /// Namespaces, with ids in a row and of one size, over which the load is spread.
        #[arg(long, default_value_t = 1)]
        namespaces: u32,
        /// Controllers, each of a host of its own, over which the namespaces are dealt.
        #[arg(long, default_value_t = 1)]
        controllers: u32,
        /// Connections (I/O queues) of each controller.
        #[arg(long, default_value_t = 1)]
        queues: u16,
        /// Write all namespaces from end to end before.
        #[arg(long)]
        fill: bool,
        /// Header and data digests.
        #[arg(long)]
        digests: bool,
    },
    /// NBD exports, one or many of one size. Their contents are overwritten.
    Nbd {
        /// HOST:PORT.
        address: SocketAddr,
        /// The exports, over which the load is spread.
        #[arg(required = true)]
        names: Vec<String>,
        /// Connections, over which the exports are dealt; each export has one at least.
        #[arg(long, default_value_t = 1)]
        connections: u32,
        /// Write all exports from end to end before.
        #[arg(long)]
        fill: bool,
    },
    /// The map of a large cluster whose nodes are simulated, in an etcd that has a cluster of at most three nodes.
    LargeMap {
        /// http://HOST:PORT, with commas.
        #[arg(long, value_delimiter = ',')]
        etcd: Vec<String>,
        /// Simulated nodes.
        #[arg(long, default_value_t = 50)]
        nodes: u32,
        /// Their devices, together.
        #[arg(long, default_value_t = 997)]
        devices: u32,
        /// Volumes.
        #[arg(long, default_value_t = 100_000)]
        volumes: u64,
    },
    /// TCP alone between two cores: 72 bytes one way, 4,120 back. Tells the machine's state.
    PingPong,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let idle_cores = arguments.idle_cores.map_or_else(CpuMeter::idle_cores, Ok)?;
    let options = LoadOptions {
        depth: arguments.depth,
        warm_up: Duration::from_secs_f64(arguments.warm_up),
        measured: Duration::from_secs_f64(arguments.seconds),
        pids: arguments.pid.clone(),
        idle_cores,
    };
    let result = runtime::uring::block_on(run(arguments, options))??;
    println!("{result}");
    Ok(())
}

async fn run(arguments: Arguments, mut options: LoadOptions) -> io::Result<serde_json::Value> {
    let (pattern, reads_store) = (arguments.pattern(), arguments.reads_store());
    match arguments.target {
        Target::Store { file, span } => {
            let reads = reads_store?;
            options.pids.push(std::process::id());
            let store = Rc::new(StoreLoad::create(&file, span / 4096).await?);
            store.begin().await?;
            store.fill().await?;
            let (device_before, clients_before) = store.written_bytes();
            let loaded = store.clone();
            let result = load::run(options, move |_, random| {
                let (store, random) = (loaded.clone(), draw(random));
                async move {
                    match reads {
                        true => store.read_random(&random).await.map(|()| Kind::Read),
                        false => store.write_random(&random).await.map(|()| Kind::Write),
                    }
                }
            })
            .await?;
            let mut json = to_json(&result);
            let (device, clients) = store.written_bytes();
            if clients > clients_before {
                json["device_bytes_per_client_byte"] =
                    ((device - device_before) as f64 / (clients - clients_before) as f64).into();
            }
            store.close().await;
            Ok(json)
        }
        Target::Life { file, share, overwrites, zipf, rate } => {
            let options = LifeOptions { share_percent: share, overwrites, zipf, depth: options.depth, rate };
            let result = bench::life::run(&file, &options).await?;
            Ok(serde_json::to_value(&result).expect("plain numbers"))
        }
        Target::Fill { file, span, synthetic } => fill(&file, span, synthetic).await,
        Target::Open { file } => measure_open(&file).await,
        Target::Nvme { address, nqn, nsid, namespaces, controllers, queues, fill, digests } => {
            options.pids.push(std::process::id());
            let wanted = Namespaces { address, nqn, nsid, namespaces, controllers, queues, digests };
            Ok(to_json(&protocols::nvme(&wanted, fill, pattern, options).await?))
        }
        Target::Nbd { address, names, connections, fill } => {
            options.pids.push(std::process::id());
            Ok(to_json(&protocols::nbd(address, (&names, connections), fill, pattern, options).await?))
        }
        Target::LargeMap { etcd, nodes, devices, volumes } => {
            bench::large_map::run(&LargeMap { etcd, nodes, devices, volumes }).await
        }
        Target::PingPong => bench::ping_pong::run(options).await.map(|result| to_json(&result)),
    }
}

/// A generator of its own for one operation, drawn from the worker's.
fn draw(random: &Random) -> Random {
    Random::new(random.next_u64())
}

fn to_json(result: &LoadResult) -> serde_json::Value {
    let mut json = serde_json::to_value(result).expect("plain numbers");
    json["machine_cpu_us"] = result.machine_cpu_us_per_operation().into();
    let processes = 0..result.cpu.process_cores.len();
    json["process_cpu_us"] = processes.map(|n| result.process_cpu_us_per_operation(n)).collect();
    json["iops_per_process_core"] = result.cpu.process_cores.iter().map(|cores| result.iops / cores).collect();
    json
}

/// Fills a store with blocks in random order, or makes that up, and closes it.
async fn fill(file: &std::path::Path, span: u64, synthetic: bool) -> io::Result<serde_json::Value> {
    let store = Rc::new(StoreLoad::create(file, span / 4096).await?);
    if synthetic {
        store.make_up().await?;
    } else {
        store.begin().await?;
        store.fill_randomly(64).await?;
    }
    let (index_bytes, blocks) = store.index();
    store.close().await;
    Ok(serde_json::json!({ "blocks": blocks, "index_bytes": index_bytes }))
}

async fn measure_open(file: &std::path::Path) -> io::Result<serde_json::Value> {
    let resident = bench::cpu::resident_bytes()?;
    let used = bench::cpu::process_seconds(std::process::id())?;
    let opened = StoreLoad::reopen(file).await?;
    let now = bench::cpu::process_seconds(std::process::id())?;
    Ok(serde_json::json!({
        "open_seconds": opened.seconds,
        "open_cpu_seconds": now.0 + now.1 - used.0 - used.1,
        "blocks": opened.blocks,
        "index_bytes": opened.index_bytes,
        "index_bytes_per_block": opened.index_bytes as f64 / opened.blocks as f64,
        "resident_bytes": opened.resident_bytes.saturating_sub(resident),
        "log_bytes": opened.log_bytes,
    }))
}
