//! The map in etcd: a real one, which the test starts and ends.

use crate::certificates::{PASSWORD, Trust, USER, set_password};
use crate::suite::{self, Subject, answer, put, told};
use cluster::{Change, EtcdMap, EtcdOptions, Event, MapError, MapStore, Outcome, Revision, Transaction, Watch};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Beside what a loaded machine needs to start a process and elect a leader.
const STARTED_WITHIN: Duration = Duration::from_secs(120);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Members of one etcd; they and their directory go with it.
struct Etcd {
    directory: PathBuf,
    /// Of each its ports for clients and for members.
    ports: Vec<(u16, u16)>,
    running: Vec<Option<Child>>,
    /// By which its members know their clients, and are known.
    trust: Option<Trust>,
}

impl Etcd {
    fn start(members: usize) -> Self {
        Self::start_with(members, None)
    }

    fn start_with(members: usize, trust: Option<Trust>) -> Self {
        let number = NUMBER.fetch_add(1, Relaxed);
        let directory = std::env::temp_dir().join(format!("cairn-etcd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        // All at once, so that they differ.
        let free: Vec<_> = (0..2 * members).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let ports: Vec<_> = free.iter().map(|port| port.local_addr().expect("bound").port()).collect();
        let ports = ports.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        drop(free);
        let mut etcd = Self { directory, ports, running: (0..members).map(|_| None).collect(), trust };
        if let Some(trust) = &etcd.trust {
            trust.write_into(&etcd.directory);
        }
        (0..members).for_each(|member| etcd.run(member));
        etcd
    }

    fn run(&mut self, member: usize) {
        let (client, peer) = self.ports[member];
        let (client, peer) = (format!("{}://127.0.0.1:{client}", self.scheme()), format!("http://127.0.0.1:{peer}"));
        let all: Vec<_> =
            self.ports.iter().enumerate().map(|(at, (_, port))| format!("m{at}=http://127.0.0.1:{port}")).collect();
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(self.directory.join(format!("m{member}")));
        command.args(["--name", &format!("m{member}"), "--initial-cluster", &all.join(",")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        if self.trust.is_some() {
            let file = |name: &str| self.directory.join(name);
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(file("authority.pem"));
            command.arg("--cert-file").arg(file("member.pem")).arg("--key-file").arg(file("member.key"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: prctl is a system call and nothing else, and allowed between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = command.spawn().unwrap_or_else(|error| panic!("etcd: {error}: install etcd-server: tools/deps.sh"));
        self.running[member] = Some(child);
    }

    fn scheme(&self) -> &'static str {
        if self.trust.is_some() { "https" } else { "http" }
    }

    fn endpoints(&self) -> Vec<String> {
        self.ports.iter().map(|(port, _)| format!("{}://127.0.0.1:{port}", self.scheme())).collect()
    }

    fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.running[member].take() {
            child.kill().and_then(|()| child.wait()).expect("it was started here");
        }
    }

    fn open(&self) -> Arc<EtcdMap> {
        EtcdMap::open(&EtcdOptions { endpoints: self.endpoints(), ..EtcdOptions::default() }).expect("endpoints")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.running.len()).for_each(|member| self.kill(member));
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn run<T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    runtime::uring::block_on(work).expect("io_uring is there")
}

/// Until it answers.
async fn serves(map: &EtcdMap) {
    let asked = async {
        while map.get("there").await.is_err() {
            runtime::sleep(Duration::from_millis(100)).await;
        }
    };
    runtime::timeout(STARTED_WITHIN, asked).await.expect("etcd answers");
}

/// What a watch is told until this key is put, and what it was told that it cannot be told.
async fn told_until(watch: &mut dyn Watch, last: &str) -> Result<Vec<Event>, MapError> {
    let mut all: Vec<Event> = Vec::new();
    while all.last().is_none_or(|event| event.key != last) {
        match watch.next().await {
            Ok(events) => all.extend(events),
            Err(MapError::Silent) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

#[test]
fn etcd_keeps_the_suite() {
    let etcd = Etcd::start(1);
    let map = etcd.open();
    run(async move {
        serves(&map).await;
        // etcd looks each 100 ms for what a watch has missed.
        let heard_within = Duration::from_secs(1);
        let subject =
            Subject { map: &*map, lease_time: Duration::from_secs(3), late_max: Duration::ZERO, heard_within };
        suite::run(&subject).await;
    });
}

#[test]
fn a_watch_outlives_etcd() {
    let mut etcd = Etcd::start(1);
    let map = etcd.open();
    run(async move {
        serves(&map).await;
        let start = put(&*map, "watched/0", "").await;
        let mut watch = map.watch("watched/", Revision(start.0 + 1));
        put(&*map, "watched/1", "").await;
        assert_eq!(told(&mut *watch, 1).await.len(), 1);
        put(&*map, "watched/2", "").await;
        etcd.kill(0);
        assert_eq!(map.get("watched/2").await, Err(MapError::Unknown), "whatever is asked of what is away");
        etcd.run(0);
        serves(&map).await;
        put(&*map, "watched/3", "").await;
        let told = told_until(&mut *watch, "watched/3").await.expect("nothing was compacted");
        let keys: Vec<_> = told.iter().map(|event| event.key.as_str()).collect();
        assert_eq!(keys, ["watched/2", "watched/3"], "each once, in order");
    });
}

/// What happened while the watch heard nothing is compacted: it is told so, and never goes on behind a gap.
#[test]
fn a_watch_behind_a_compaction_is_told() {
    let mut etcd = Etcd::start(1);
    let map = etcd.open();
    run(async move {
        serves(&map).await;
        let start = put(&*map, "watched/0", "").await;
        // Begun, and not asked since: it stands at what comes next.
        let mut watch = map.watch("watched/", Revision(start.0 + 1));
        assert_eq!(runtime::timeout(Duration::from_millis(300), watch.next()).await, Err(runtime::Elapsed));
        etcd.kill(0);
        etcd.run(0);
        let other = etcd.open();
        serves(&other).await;
        let delete = Transaction::new().delete("watched/0").put("other", vec![]);
        answer(|| other.transact(delete.clone())).await.expect("done");
        let last = put(&*other, "watched/2", "").await;
        answer(|| other.compact(last)).await.expect("compacted");
        put(&*other, "watched/3", "").await;
        match told_until(&mut *watch, "watched/3").await {
            Ok(events) => {
                let keys: Vec<_> = events.iter().map(|event| event.key.as_str()).collect();
                assert_eq!(keys, ["watched/0", "watched/2", "watched/3"], "it was there before the compaction");
            }
            Err(error) => assert_eq!(error, MapError::Compacted { oldest: Revision(last.0 + 1) }),
        }
        // Another, from there, is told the same.
        let begun = map.watch("watched/", Revision(start.0 + 1)).next().await;
        assert_eq!(begun, Err(MapError::Compacted { oldest: Revision(last.0 + 1) }));
    });
}

/// A counter goes on while one member after the other is killed; each step is told once.
#[test]
fn one_of_three_members_may_go() {
    let mut etcd = Etcd::start(3);
    let map = etcd.open();
    run(async move {
        serves(&map).await;
        let start = put(&*map, "counter", "start").await;
        let mut watch = map.watch("counter", Revision(start.0 + 1));
        for member in 0..3 {
            etcd.kill(member);
            for step in 0..5 {
                put(&*map, "counter", &format!("{member}.{step}")).await;
            }
            etcd.run(member);
            // The next may go when this one is back: two of three make a majority.
            let only = EtcdOptions {
                endpoints: vec![format!("http://127.0.0.1:{}", etcd.ports[member].0)],
                ..EtcdOptions::default()
            };
            serves(&EtcdMap::open(&only).expect("an endpoint")).await;
        }
        let told = told(&mut *watch, 15).await;
        let values: Vec<_> = told.iter().map(|event| event.value.clone().expect("put")).collect();
        let expected: Vec<_> =
            (0..3).flat_map(|member| (0..5).map(move |step| format!("{member}.{step}").into_bytes())).collect();
        assert_eq!(values, expected, "each once, in order");
    });
}

/// A member is another each time, with all that it had: the suite on three of them, of which one is away.
#[test]
fn two_of_three_members_keep_the_suite() {
    let mut etcd = Etcd::start(3);
    let map = etcd.open();
    run(async move {
        serves(&map).await;
        put(&*map, "before", "").await;
        etcd.kill(0);
        serves(&map).await;
        let heard_within = Duration::from_secs(1);
        // Whoever leads anew gives leases their time anew.
        let late_max = Duration::from_secs(5);
        let subject = Subject { map: &*map, lease_time: Duration::from_secs(3), late_max, heard_within };
        suite::run(&subject).await;
        etcd.run(0);
        let only = EtcdOptions { endpoints: etcd.endpoints()[..1].to_vec(), ..EtcdOptions::default() };
        let returned = EtcdMap::open(&only).expect("an endpoint");
        serves(&returned).await;
        let kept = answer(|| returned.get("before")).await.expect("it answers");
        assert!(kept.is_some(), "it has what it had");
    });
}

/// Who knows the authority, has a certificate of it and the password is served, and nobody else is.
#[test]
fn etcd_with_certificates_and_a_password_keeps_the_suite() {
    let trust = Trust::new();
    let options = |endpoints: Vec<String>| EtcdOptions {
        endpoints,
        user: Some((USER.to_owned(), PASSWORD.to_owned())),
        authority_pem: Some(trust.authorities_pem()),
        identity_pem: Some(trust.identity_pem()),
    };
    let etcd = Etcd::start_with(1, Some(trust.clone()));
    let all = options(etcd.endpoints());
    run(async move {
        let without_user = EtcdMap::open(&EtcdOptions { user: None, ..all.clone() }).expect("options");
        serves(&without_user).await;
        set_password(&all);
        assert!(without_user.get("there").await.is_err(), "no password");
        let map = EtcdMap::open(&all).expect("options");
        serves(&map).await;
        let heard_within = Duration::from_secs(1);
        let subject =
            Subject { map: &*map, lease_time: Duration::from_secs(3), late_max: Duration::ZERO, heard_within };
        suite::run(&subject).await;
        let strangers = [
            ("no certificate", EtcdOptions { identity_pem: None, ..all.clone() }),
            ("another authority", EtcdOptions { authority_pem: Some(trust.stranger_pem()), ..all.clone() }),
            ("another password", EtcdOptions { user: Some((USER.to_owned(), "guess".to_owned())), ..all.clone() }),
        ];
        for (what, options) in strangers {
            let stranger = EtcdMap::open(&options).expect("options");
            for _ in 0..3 {
                assert!(stranger.get("there").await.is_err(), "{what}");
            }
        }
        // A user comes: what was shown before is old, and shown again.
        crate::certificates::add_user(&all, "other");
        serves(&map).await;
        put(&*map, "after", "").await;
    });
}

/// More keys than etcd is asked for at once.
#[test]
fn a_long_listing_is_of_one_revision() {
    let etcd = Etcd::start(1);
    let map = etcd.open();
    run(async move {
        serves(&map).await;
        for batch in 0..50 {
            let keys = (0..100).map(|at| format!("many/{:06}", batch * 100 + at));
            let puts = keys.fold(Transaction::new(), |transaction, key| transaction.put(key, vec![7; 100]));
            answer(|| map.transact(puts.clone())).await.expect("done");
        }
        put(&*map, "manz", "").await;
        let last = put(&*map, "man", "").await;
        let listing = answer(|| map.list("many/")).await.expect("it answers");
        assert_eq!(listing.revision, last);
        let expected = (0..5000).map(|at| format!("many/{at:06}"));
        assert!(listing.items.iter().map(|item| item.key.clone()).eq(expected), "{} keys", listing.items.len());
        assert_eq!(answer(|| map.list("")).await.expect("it answers").items.len(), 5002);
    });
}

/// What one node has written the other sees in its next listing of all, which is of what it keeps in memory: etcd is not listed again until
/// the connection was lost.
#[test]
fn a_listing_out_of_memory_shows_all_that_was_written_before() {
    let mut etcd = Etcd::start(1);
    let (map, other) = (etcd.open(), etcd.open());
    run(async move {
        serves(&map).await;
        serves(&other).await;
        let lease = answer(|| other.grant(Duration::from_secs(60))).await.expect("granted");
        answer(|| map.list("")).await.expect("it answers");
        let pages = map.pages_read();
        for at in 0..200 {
            let (kept, gone) = (format!("kept/{at:03}"), format!("gone/{:03}", at - at % 2));
            let changes = Transaction::new().put(&kept, vec![at as u8]);
            let changes = if at % 2 == 0 { changes.put(&gone, Vec::new()) } else { changes.delete(&gone) };
            let Ok(Outcome::Committed(revision)) = other.transact(changes).await else {
                panic!("one node, no compare")
            };
            let all = map.list("").await.expect("it answers");
            assert!(all.revision >= revision && all.items.iter().any(|item| item.key == kept), "{at}");
            let of_prefix = map.list("gone/").await.expect("it answers").items;
            assert_eq!(of_prefix.iter().any(|item| item.key == gone), at % 2 == 0, "{at}");
            assert!(of_prefix.iter().all(|item| item.key.starts_with("gone/")));
        }
        let leased = Change::Put { key: "leased".to_owned(), value: vec![1], lease: Some(lease) };
        other.transact(Transaction { changes: vec![leased], ..Transaction::new() }).await.expect("put");
        let (of_memory, of_etcd) = (map.list("").await.expect("it answers"), other.list("").await.expect("it answers"));
        assert_eq!(of_memory, of_etcd);
        assert_eq!(of_memory.items.iter().find(|item| item.key == "leased").expect("put").lease, Some(lease));
        assert_eq!(map.pages_read(), pages, "etcd was not listed again");
        // Whatever it has come back with is read again.
        etcd.kill(0);
        etcd.run(0);
        serves(&etcd.open()).await;
        let last = put(&*other, "behind", "").await;
        let listing = answer(|| map.list("")).await.expect("it answers");
        assert!(listing.revision >= last && listing.items.iter().any(|item| item.key == "behind"));
        assert!(map.pages_read() > pages, "it was listed");
    });
}

/// Nobody takes what a watch has to tell for a while: then it goes on where it was.
#[test]
fn a_watch_that_is_read_late_misses_nothing() {
    let etcd = Etcd::start(1);
    let map = etcd.open();
    run(async move {
        serves(&map).await;
        let start = put(&*map, "watched/0", "").await;
        let mut watch = map.watch("watched/", Revision(start.0 + 1));
        assert_eq!(runtime::timeout(Duration::from_millis(300), watch.next()).await, Err(runtime::Elapsed));
        for at in 1..=300 {
            put(&*map, &format!("watched/{at}"), "").await;
        }
        let told = told_until(&mut *watch, "watched/300").await.expect("nothing was compacted");
        let expected = (1..=300).map(|at| format!("watched/{at}"));
        assert!(told.iter().map(|event| event.key.clone()).eq(expected), "each once, in order");
    });
}

/// One etcd is made anew at the same place, and has other revisions: what was known of the first says nothing of it.
#[test]
fn another_etcd_is_not_taken_for_the_map() {
    let mut etcd = Etcd::start(1);
    let map = etcd.open();
    run(async move {
        serves(&map).await;
        put(&*map, "one", "").await;
        etcd.kill(0);
        std::fs::remove_dir_all(etcd.directory.join("m0")).expect("its data");
        // Its id is made of its members' addresses.
        let was = etcd.ports[0].1;
        etcd.ports[0].1 = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port").port();
        assert_ne!(was, etcd.ports[0].1);
        etcd.run(0);
        serves(&etcd.open()).await;
        let refused = async {
            loop {
                match map.get("one").await {
                    Err(MapError::Unknown) => runtime::sleep(Duration::from_millis(100)).await,
                    answer => return answer,
                }
            }
        };
        let refused = runtime::timeout(STARTED_WITHIN, refused).await.expect("it answers");
        let Err(MapError::Storage(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("another etcd cluster"), "{why}");
    });
}
