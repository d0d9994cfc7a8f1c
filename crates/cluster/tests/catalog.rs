//! Decisions on the map, in the simulator: with answers that get lost, and nodes that crash between two steps.

use cluster::{
    CatalogError, DEFAULT_POOL, DeviceRecord, DeviceState, GroupRecord, HostAccess, HostChange, LimitChange, Limits,
    MapFaults, MapStore, NSID_MAX, NewPool, NewVolume, Reign, SimMap, Stay, VolumeChange, VolumeRecord, VolumeState,
    add_groups, begin_delete, change_hosts, change_volume, create_volume, deal_again, empty_trash, ensure, ensure_pool,
    finish_delete, give_head, keys, list, load_table, restore_volume, take_heads, trash_volume,
};
use runtime::sim::{NodeOptions, SimNode, World};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{NodeId, StoreId, VolumeEpoch};

/// The head that volumes are made with, in its first reign.
const FIRST: Reign = Reign { node: NodeId(1), epoch: VolumeEpoch(1) };

struct Here {
    world: World,
    node: SimNode,
    map: Arc<SimMap>,
}

impl Here {
    fn new(seed: u64) -> Self {
        let world = World::new(seed);
        let node = world.add_node(1, NodeOptions::default());
        Self { world, node, map: SimMap::new() }
    }

    fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.world.run_on(&self.node, 0, future).expect("the world goes on")
    }

    /// One request in eight never arrives, one answer in eight is lost, one request in eight is done after its caller
    /// was told that this is unknown.
    fn lose_answers(&self) {
        self.map.set_faults(MapFaults {
            latency_max: Duration::from_millis(5),
            requests_lost: 128,
            answers_lost: 128,
            requests_late: 128,
            late_max: Duration::from_secs(1),
            ..MapFaults::NONE
        });
    }

    fn pool(&self, stores: u128) {
        let map = self.map.clone();
        let pool = NewPool {
            name: DEFAULT_POOL.to_owned(),
            replicas: 1,
            min_in_sync: 1,
            rules: None,
            stores: (1..=stores).map(StoreId).collect(),
        };
        self.run(async move {
            for store in &pool.stores {
                patient(async || ensure(&*map, device(*store)).await).await;
            }
            patient(async || ensure_pool(&*map, &pool).await).await
        });
    }
}

fn device(store: StoreId) -> DeviceRecord {
    DeviceRecord { store, node: NodeId(1), path: String::new(), size_bytes: 1 << 30, state: DeviceState::Active }
}

/// A read whose answer was lost is asked again, as a caller would.
async fn patient<T>(ask: impl AsyncFn() -> Result<T, CatalogError>) -> T {
    for _ in 0..100 {
        match ask().await {
            Ok(value) => return value,
            Err(CatalogError::Map(cluster::MapError::Unknown)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("a hundred lost answers in a row")
}

fn new(name: &str) -> NewVolume {
    NewVolume {
        name: name.to_owned(),
        size_bytes: 1 << 20,
        block_size_bytes: 512,
        limits: Limits::default(),
        hosts: Default::default(),
    }
}

async fn volumes(map: &dyn MapStore) -> Vec<VolumeRecord> {
    patient(async || list::<VolumeRecord>(map, keys::VOLUMES).await).await.into_iter().map(|v| v.record).collect()
}

#[test]
fn a_pool_has_a_whole_table_over_a_hundred_groups_per_device() {
    let here = Here::new(1);
    here.pool(2);
    let map = here.map.clone();
    here.run(async move {
        let groups = list::<GroupRecord>(&*map, keys::GROUPS).await.expect("groups");
        assert_eq!(groups.len(), 200);
        let table = load_table(&*map, 1).await.expect("whole");
        let of_table: Vec<_> = groups.iter().map(|group| group.record.id).collect();
        assert_eq!(table.groups(), of_table);
    });
}

#[test]
fn volumes_get_a_namespace_in_turn_and_an_id_of_their_own() {
    let here = Here::new(3);
    here.pool(1);
    let map = here.map.clone();
    here.run(async move {
        let map: &dyn MapStore = &*map;
        let make = async |name: &str| create_volume(map, &new(name), DEFAULT_POOL, NodeId(1)).await.expect("made");
        let (a, b, c) = (make("a").await, make("b").await, make("c").await);
        assert_eq!((a.nsid, b.nsid, c.nsid), (1, 2, 3));
        assert!(a.nguid != b.nguid && a.family_seed != b.family_seed);
        let taken = create_volume(map, &new("b"), DEFAULT_POOL, NodeId(1)).await;
        assert_eq!(taken, Err(CatalogError::Exists("b".to_owned())));

        let deleting = begin_delete(map, "b", FIRST).await.expect("there");
        assert_eq!(begin_delete(map, "b", FIRST).await, Err(CatalogError::NotFound("b".to_owned())));
        let again = make("b").await;
        assert_eq!(again.nsid, 4, "the namespace is taken until nothing of the old volume is left");
        finish_delete(map, &deleting).await.expect("removed");
        finish_delete(map, &deleting).await.expect("twice is once");
        let d = make("d").await;
        assert_eq!(d.nsid, 5, "a host may still send to the second what it had for the volume that was deleted");
        let ids = [a.id, b.id, c.id, again.id, d.id];
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]), "ids are never used again");
        let layers = [&a, &b, &c, &again, &d].map(|volume| volume.layers[0]);
        assert!(layers.windows(2).all(|pair| pair[0] < pair[1]));
    });
}

#[test]
fn a_subsystem_holds_1024_namespaces() {
    let here = Here::new(4);
    here.pool(1);
    let map = here.map.clone();
    here.run(async move {
        for index in 0..NSID_MAX {
            create_volume(&*map, &new(&format!("v{index}")), DEFAULT_POOL, NodeId(1)).await.expect("made");
        }
        let one_more = create_volume(&*map, &new("more"), DEFAULT_POOL, NodeId(1)).await;
        assert!(matches!(one_more, Err(CatalogError::SubsystemFull(_))), "{one_more:?}");
        let deleting = begin_delete(&*map, "v6", FIRST).await.expect("there");
        finish_delete(&*map, &deleting).await.expect("removed");
        let last = create_volume(&*map, &new("more"), DEFAULT_POOL, NodeId(1)).await.expect("one is free");
        assert_eq!(last.nsid, deleting.nsid, "when all others are taken");
    });
}

#[test]
fn what_is_not_allowed_never_reaches_the_map() {
    let here = Here::new(5);
    here.pool(1);
    let map = here.map.clone();
    here.run(async move {
        let bad = [
            NewVolume { name: "No".to_owned(), ..new("x") },
            NewVolume { size_bytes: 4095, ..new("x") },
            NewVolume { block_size_bytes: 520, ..new("x") },
        ];
        for new in &bad {
            let refused = create_volume(&*map, new, DEFAULT_POOL, NodeId(1)).await;
            assert!(matches!(refused, Err(CatalogError::Input(_))), "{refused:?}");
        }
        assert!(volumes(&*map).await.is_empty());
    });
}

/// Creates, deletes and moves of the head while answers get lost, by several tasks that contend: each does what it said
/// exactly once.
#[test]
fn lost_answers_do_nothing_twice() {
    for seed in 0..20 {
        let here = Here::new(100 + seed);
        here.pool(1);
        here.lose_answers();
        let map = here.map.clone();
        here.run(async move {
            let made = Rc::new(std::cell::RefCell::new(Vec::new()));
            for index in 0..4 {
                let (map, made) = (map.clone(), made.clone());
                runtime::spawn(async move {
                    let name = format!("v{index}");
                    let volume = loop {
                        match create_volume(&*map, &new(&name), DEFAULT_POOL, NodeId(1)).await {
                            Ok(volume) => break Some(volume),
                            // Only a call whose own reading back failed may leave this open.
                            Err(CatalogError::Map(_)) => {}
                            Err(CatalogError::Exists(_)) => break None,
                            Err(error) => panic!("{error}"),
                        }
                    };
                    made.borrow_mut().push(volume);
                });
            }
            while made.borrow().len() < 4 {
                runtime::sleep(Duration::from_millis(10)).await;
            }
            let all = volumes(&*map).await;
            assert_eq!(all.len(), 4, "each name once");
            let mut nsids: Vec<u32> = all.iter().map(|volume| volume.nsid).collect();
            nsids.sort_unstable();
            assert_eq!(nsids, [1, 2, 3, 4]);
            for volume in made.borrow().iter().flatten() {
                assert!(all.contains(volume), "what was answered is in the map");
            }

            let heads = patient(async || take_heads(&*map, NodeId(7), |_| true).await).await;
            assert!(heads.iter().all(|volume| volume.head == NodeId(7) && volume.volume_epoch > VolumeEpoch(1)));
            let again = patient(async || take_heads(&*map, NodeId(8), |_| true).await).await;
            assert!(heads.iter().zip(&again).all(|(old, new)| old.volume_epoch < new.volume_epoch));

            loop {
                let is_it = |volume: &&VolumeRecord| volume.name == "v2";
                let found = volumes(&*map).await;
                let by = found.iter().find(is_it).map_or(FIRST, reign);
                match begin_delete(&*map, "v2", by).await {
                    Ok(volume) => {
                        assert_eq!(volume.state, VolumeState::Deleting);
                        patient(async || finish_delete(&*map, &volume).await).await;
                        break;
                    }
                    Err(CatalogError::NotFound(_)) => break, // done by a call whose reading back failed
                    Err(CatalogError::Map(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            let online = volumes(&*map).await.into_iter().filter(|v| v.state == VolumeState::Online).count();
            assert_eq!(online, 3);
        });
    }
}

#[test]
fn a_volume_in_the_trash_has_a_term_and_no_name() {
    let here = Here::new(6);
    here.pool(1);
    let map = here.map.clone();
    here.run(async move {
        let map: &dyn MapStore = &*map;
        let a = create_volume(map, &new("a"), DEFAULT_POOL, NodeId(1)).await.expect("made");
        let before = runtime::wall_clock_ns();
        let trashed = trash_volume(map, "a", FIRST).await.expect("there");
        let VolumeState::Trashed(term) = trashed.state else { panic!("{trashed:?}") };
        assert!((before..=runtime::wall_clock_ns()).contains(&term.deleted_at_ns));
        assert_eq!(term.keep_until_ns - term.deleted_at_ns, 24 * 3600 * 1_000_000_000);
        assert_eq!(trash_volume(map, "a", FIRST).await, Err(CatalogError::NotFound("a".to_owned())));
        assert_eq!(volumes(map).await, std::slice::from_ref(&trashed), "as it was read back, term and all");

        let other = create_volume(map, &new("a"), DEFAULT_POOL, NodeId(1)).await.expect("the name is free");
        assert_ne!(other.nsid, a.nsid, "the namespace id is not");
        let taken = restore_volume(map, a.id, "a", NodeId(1)).await;
        assert_eq!(taken, Err(CatalogError::Exists("a".to_owned())));
        assert!(matches!(restore_volume(map, a.id, "No", NodeId(1)).await, Err(CatalogError::Input(_))));
        let restored = restore_volume(map, a.id, "b", NodeId(2)).await.expect("restored");
        let expected =
            VolumeRecord { name: "b".into(), head: NodeId(2), volume_epoch: VolumeEpoch(a.volume_epoch.0 + 1), ..a };
        assert_eq!(restored, expected);
        for gone in [restore_volume(map, restored.id, "c", NodeId(1)).await, empty_trash(map, restored.id, None).await]
        {
            assert_eq!(gone, Err(CatalogError::NotInTrash(restored.id)));
        }

        trash_volume(map, "b", Reign { node: NodeId(2), epoch: VolumeEpoch(2) }).await.expect("there");
        let deleting = empty_trash(map, restored.id, None).await.expect("there");
        assert_eq!(deleting.state, VolumeState::Deleting);
        assert_eq!(restore_volume(map, restored.id, "b", NodeId(1)).await, Err(CatalogError::NotInTrash(restored.id)));
        finish_delete(map, &deleting).await.expect("removed");
        assert_eq!(empty_trash(map, restored.id, None).await, Err(CatalogError::NotInTrash(restored.id)));
    });
}

/// A call that was answered was done once, and one that was not can be made again.
#[test]
fn lost_answers_neither_lose_nor_double_a_volume_of_the_trash() {
    for seed in 0..20 {
        let here = Here::new(300 + seed);
        here.pool(1);
        let map = here.map.clone();
        let made = here.run(async move { create_volume(&*map, &new("a"), DEFAULT_POOL, NodeId(1)).await });
        let id = made.expect("made").id;
        here.lose_answers();
        let map = here.map.clone();
        here.run(async move {
            let map: &dyn MapStore = &*map;
            for round in 0..10 {
                let (name, next) = (format!("v{round}"), format!("v{}", round + 1));
                let name = if round == 0 { "a" } else { &name };
                loop {
                    let by = reign(&volumes(map).await[0]);
                    match trash_volume(map, name, by).await {
                        Ok(_) | Err(CatalogError::NotFound(_)) => break,
                        Err(CatalogError::Map(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                let all = volumes(map).await;
                assert!(matches!(all[..], [VolumeRecord { state: VolumeState::Trashed(_), .. }]), "{all:?}");
                loop {
                    match restore_volume(map, id, &next, NodeId(1)).await {
                        Ok(_) | Err(CatalogError::NotInTrash(_)) => break,
                        Err(CatalogError::Map(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                let all = volumes(map).await;
                assert!(matches!(&all[..], [v] if v.state == VolumeState::Online && v.name == next), "{all:?}");
            }
        });
    }
}

/// Who the head of a volume is.
fn reign(volume: &VolumeRecord) -> Reign {
    Reign { node: volume.head, epoch: volume.volume_epoch }
}

#[test]
fn where_a_volume_is_sent_it_is_at_home_whoever_brought_it_there() {
    let here = Here::new(1);
    here.pool(1);
    let map = here.map.clone();
    here.run(async move {
        let made = create_volume(&*map, &new("v"), DEFAULT_POOL, NodeId(1)).await.expect("made");
        let (by, to) = (reign(&made), NodeId(2));
        // Sent home or to its hosts meanwhile, while the order waits.
        let gone = give_head(&*map, made.id, by, to, Stay::Meanwhile).await.expect("given");
        assert_eq!((gone.head, gone.home), (to, NodeId(1)));
        let sent = give_head(&*map, made.id, by, to, Stay::ForGood).await.expect("it is there");
        assert_eq!((sent.head, sent.home, sent.volume_epoch), (to, to, gone.volume_epoch));
        assert_eq!(volumes(&*map).await, [sent]);
        // Nobody who is not its head any more sends it on.
        let deposed = give_head(&*map, made.id, by, NodeId(3), Stay::ForGood).await;
        assert!(matches!(deposed, Err(CatalogError::Deposed { .. })), "{deposed:?}");
    });
}

#[test]
fn hosts_are_allowed_and_denied_once_whatever_answers_are_lost() {
    for seed in 0..20 {
        let here = Here::new(seed);
        here.pool(1);
        let map = here.map.clone();
        let id = here.run(async move {
            let new = new("a");
            create_volume(&*map, &new, DEFAULT_POOL, NodeId(1)).await.expect("made").id
        });
        here.lose_answers();
        let (one, two) = ("nqn.2026-01.io.example:1".to_owned(), "nqn.2026-01.io.example:2".to_owned());
        let listed = |nqns: &[&String]| HostAccess::Listed(nqns.iter().map(|nqn| (*nqn).clone()).collect());
        let steps = [
            (HostChange::Allow(two.clone()), listed(&[&two])),
            (HostChange::Allow(one.clone()), listed(&[&one, &two])),
            (HostChange::Allow(one.clone()), listed(&[&one, &two])),
            (HostChange::DenyAny, listed(&[&one, &two])),
            (HostChange::Deny(two.clone()), listed(&[&one])),
            (HostChange::Deny(two.clone()), listed(&[&one])),
            (HostChange::AllowAny, HostAccess::Any),
            (HostChange::DenyAny, listed(&[])),
        ];
        for (change, expected) in steps {
            let map = here.map.clone();
            let changed =
                here.run(async move { patient(async || change_hosts(&*map, id, &change, true, FIRST).await).await });
            assert_eq!(changed.hosts, expected, "seed {seed}");
        }
    }
}

#[test]
fn one_host_is_not_denied_what_all_may_use_and_a_list_has_its_limit() {
    let here = Here::new(1);
    here.pool(1);
    let map = here.map.clone();
    here.run(async move {
        let new = new("a");
        let id = create_volume(&*map, &new, DEFAULT_POOL, NodeId(1)).await.expect("made").id;
        let nqn = |number: usize| format!("nqn.2026-01.io.example:{number:03}");
        let deny = HostChange::Deny(nqn(0));
        let open = change_hosts(&*map, id, &deny, true, FIRST).await;
        assert_eq!(open, Err(CatalogError::OpenToAll("a".into())));
        let closed = change_hosts(&*map, id, &deny, false, FIRST).await.expect("nothing to deny");
        assert!(!closed.hosts.allows(&nqn(0), true), "it is closed from now on, also where open is the rule");
        for number in 0..HostAccess::LISTED_MAX {
            change_hosts(&*map, id, &HostChange::Allow(nqn(number)), false, FIRST).await.expect("allowed");
        }
        let full = change_hosts(&*map, id, &HostChange::Allow(nqn(999)), false, FIRST).await;
        assert_eq!(full, Err(CatalogError::TooManyHosts("a".into())));
        let bad = change_hosts(&*map, id, &HostChange::Allow("host".into()), false, FIRST).await;
        assert!(matches!(bad, Err(CatalogError::Input(_))), "{bad:?}");
        let found = cluster::get::<VolumeRecord>(&*map, &keys::volume(id)).await.expect("read").expect("there").record;
        assert!(found.hosts.allows(&nqn(63), false) && !found.hosts.allows(&nqn(64), false));
    });
}

/// Property: whatever answers are lost, and wherever the node crashes on the way, the device gets as many groups as any
/// other, new volumes use them in proportion to the weights, and volumes that were there keep their table.
#[test]
fn a_device_that_comes_later_gets_groups_and_a_share_of_new_volumes() {
    for seed in 0..20 {
        let here = Here::new(seed);
        here.pool(1);
        let map = here.map.clone();
        let new = NewVolume { size_bytes: 1 << 30, block_size_bytes: 4096, ..new("before") };
        let before = here.run(async move {
            ensure(&*map, device(StoreId(2))).await.expect("it is there");
            create_volume(&*map, &new, DEFAULT_POOL, NodeId(1)).await.expect("made")
        });
        here.lose_answers();
        // Some tries are cut off on their way.
        for cut_after_ms in [seed, 4 * seed] {
            let map = here.map.clone();
            here.run(async move {
                let grown = add_groups(&*map, DEFAULT_POOL, StoreId(2));
                let _ = runtime::timeout(Duration::from_millis(cut_after_ms), grown).await;
            });
        }
        let map = here.map.clone();
        let pool = here.run(async move {
            patient(async || add_groups(&*map, DEFAULT_POOL, StoreId(2)).await).await;
            let weight = |store| if store == StoreId(2) { 300 } else { 100 };
            patient(async || deal_again(&*map, DEFAULT_POOL, weight).await).await
        });
        here.map.set_faults(MapFaults::NONE);
        let (map, table) = (here.map.clone(), pool.table);
        let (groups, dealt) = here.run(async move {
            let groups = list::<GroupRecord>(&*map, keys::GROUPS).await.expect("an answer");
            (groups, load_table(&*map, table).await.expect("a whole table"))
        });
        let of = |store| groups.iter().filter(move |group| group.record.primary == StoreId(store));
        assert_eq!((of(1).count(), of(2).count()), (100, 100), "seed {seed}");
        let slots = |store| {
            let led: Vec<_> = of(store).map(|group| group.record.id).collect();
            (0..=u16::MAX).filter(|slot| led.contains(&dealt.group_of(types::Slot(*slot)))).count()
        };
        let (first, second) = (slots(1), slots(2));
        assert_eq!(first + second, 65_536);
        assert!(second.abs_diff(3 * first) < 400, "seed {seed}: {first} and {second} slots");
        assert_ne!(pool.table, before.table);
        let map = here.map.clone();
        let again = here.run(async move { deal_again(&*map, DEFAULT_POOL, |_| 1).await.expect("nothing to do") });
        assert_eq!(again.table, pool.table, "dealt once");
    }
}

/// Renamed back and forth, larger and with other limits each time, while requests and answers get lost: each change is
/// whole, and the name is taken once.
#[test]
fn a_change_of_a_volume_is_one_transaction_that_may_be_asked_again() {
    for seed in 0..20 {
        let here = Here::new(seed);
        here.pool(1);
        let map = here.map.clone();
        let made = here.run(async move {
            create_volume(&*map, &new("c"), DEFAULT_POOL, NodeId(1)).await.expect("made");
            create_volume(&*map, &new("a"), DEFAULT_POOL, NodeId(1)).await.expect("made")
        });
        here.lose_answers();
        let map = here.map.clone();
        here.run(async move {
            for round in 1..=4_u64 {
                let name = if round % 2 == 1 { "b" } else { "a" };
                let limits = LimitChange { iops: Some(Some(round)), ..LimitChange::default() };
                let size_bytes = Some((1 + round) << 20);
                let change = VolumeChange { name: Some(name.to_owned()), size_bytes, limits };
                let changed = patient(async || change_volume(&*map, made.id, &change, FIRST).await).await;
                assert_eq!((changed.name.as_str(), changed.size_bytes), (name, (1 + round) << 20));
                assert_eq!((changed.limits.iops, changed.nsid, &changed.nguid), (Some(round), made.nsid, &made.nguid));
                assert!(volumes(&*map).await.contains(&changed));
                let names = loop {
                    if let Ok(names) = map.list("volume-names/").await {
                        break names.items.iter().map(|item| item.key.clone()).collect::<Vec<_>>();
                    }
                };
                let mut expected = vec![format!("volume-names/{name}"), "volume-names/c".to_owned()];
                expected.sort();
                assert_eq!(names, expected);
            }
            let taken = loop {
                match change_volume(&*map, made.id, &VolumeChange::name("c"), FIRST).await {
                    Err(CatalogError::Map(cluster::MapError::Unknown)) => {}
                    other => break other,
                }
            };
            assert_eq!(taken, Err(CatalogError::Exists("c".to_owned())));
        });
    }
}
