//! Cost held by counting: memory and system calls of 4 KiB reads and writes, host and target on one core.

#[path = "serve/node.rs"]
#[allow(dead_code)]
mod node;

use nvme::host::Namespace;
use runtime::uring::{Cores, Options as CoreOptions, counters};
use std::cell::Cell;
use std::sync::mpsc;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

const DEPTH: u64 = 32;
const COMMANDS: u64 = 4096;
const BLOCK: u64 = 4096;
/// Blocks that are written and read: few, so that the volume's own structures are warm too.
const BLOCKS: u64 = 1024;

#[derive(Debug, PartialEq, Eq)]
struct Cost {
    allocations: u64,
    enters: u64,
}

/// `DEPTH` tasks share `COMMANDS` commands; the cost of all of them.
async fn cost(namespace: &Namespace, write: bool) -> Cost {
    let data = node::pattern(BLOCK as usize, 5);
    let (sender, mut receiver) = runtime::channel::bounded(DEPTH as usize);
    let (go, wait) = (std::rc::Rc::new(Cell::new(false)), std::rc::Rc::new(runtime::channel::WaitList::default()));
    for lane in 0..DEPTH {
        let (namespace, data, sender) = (namespace.clone(), data.clone(), sender.clone());
        let (go, wait) = (go.clone(), wait.clone());
        runtime::spawn(async move {
            wait.until(|| go.get().then_some(())).await;
            for index in 0..COMMANDS / DEPTH {
                let offset = (lane + index * DEPTH) % BLOCKS * BLOCK;
                if write {
                    namespace.write(offset, data.clone()).await.expect("written");
                } else {
                    namespace.read(offset, BLOCK as u32).await.expect("read");
                }
            }
            let _ = sender.try_send(());
        });
    }
    drop(sender);
    runtime::yield_now().await;
    let before = (counting::on_this_thread(), counters().enters);
    go.set(true);
    wait.wake_all();
    while receiver.recv().await.is_ok() {}
    Cost { allocations: counting::on_this_thread() - before.0, enters: counters().enters - before.1 }
}

#[test]
fn a_warm_read_or_write_takes_no_memory_and_few_system_calls() {
    let path = std::env::temp_dir().join(format!("cairn-nvme-cost-{}.img", std::process::id()));
    std::fs::File::create(&path).and_then(|file| file.set_len(512 << 20)).expect("a sparse file");
    let cores = Cores::start(1, &CoreOptions::default()).expect("a core");
    let (tell, told) = mpsc::channel();
    let (handles, device) = (cores.handles().to_vec(), path.clone());
    cores.handles()[0].spawn_on(move || async move {
        let served = node::start(handles, [127, 0, 0, 1].into(), &device).await;
        let (_controller, namespace) =
            node::connect(served.address, &node::options(1), served.nsids[1]).await.expect("connected");
        let mut costs = Vec::new();
        for _ in 0..7 {
            costs.push([cost(&namespace, true).await, cost(&namespace, false).await]);
        }
        tell.send(costs).expect("the test waits");
    });
    let costs = told.recv().expect("measured");
    cores.stop();
    let _ = std::fs::remove_file(&path);
    println!("{COMMANDS} commands at depth {DEPTH}: {costs:?}");
    // What the node does besides (it begins to see to orders, and reads the map for that) falls into one round or another;
    // what a command takes is in each. A keep alive, a timer or a beat in between may take a little, and a pass of the store's
    // checkpoint a little more; an allocation per command would be thousands.
    let least =
        |kind: usize, of: fn(&Cost) -> u64| costs[3..].iter().map(|round| of(&round[kind])).min().expect("several");
    let least =
        |kind| Cost { allocations: least(kind, |cost| cost.allocations), enters: least(kind, |cost| cost.enters) };
    let costs = [least(0), least(1)];
    let [write, read] = &costs;
    assert!(write.allocations <= COMMANDS / 8, "{write:?}");
    assert!(read.allocations <= COMMANDS / 32, "{read:?}");
    for cost in &costs {
        // Host and target share the ring: a command's four hops (send, receive, send, receive) are shared by a batch.
        assert!(cost.enters <= COMMANDS, "{cost:?}");
    }
}
