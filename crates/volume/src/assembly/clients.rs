//! Volumes go to where their hosts are: a host that can reach no node that serves a volume has no device (H14), and home (H15).
//!
//! ```text
//!   controllers come and go ─► clients/N in the map, under the node's lease ─► every node
//!
//!   a node with a host     the head has no session, or is silent ──────────────► takes it
//!                          the head has no client of it ── waits for the head ─► takes it after 3 s
//!   the head               no client of it here, and a host of it elsewhere ───► gives it there
//!                          its home has a host of it for 5 s, or it is idle ───► gives it home
//! ```
//!
//! All of this is about who should be the head; that there is one, and that none but it is listened to, does not depend on it.

use super::Assembly;
use crate::head::Head;
use cluster::{
    Change, ClientsRecord, MapError, Outcome, Record, Stay, Transaction, VolumeRecord, VolumeState as Life, encode,
};
use runtime::{Instant, now};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::time::Duration;
use types::{Mutant, NodeId, VolumeId, mutant};

/// Between two looks, if nothing is heard.
const TEND_WAIT: Duration = Duration::from_millis(250);
/// A host that has left may come again so soon: until then nothing is given away.
const COMES_AGAIN: Duration = Duration::from_secs(1);
/// A head that has no client of a volume has so long to give it to a node that has; then it is taken.
const GIVES_WITHIN: Duration = Duration::from_secs(3);
/// A move that failed is tried again after this.
const MOVE_AGAIN: Duration = Duration::from_secs(5);
/// Of a head that has answered no beat for so long its node is taken for gone, although it has a session: by one node after the
/// other, so long apart.
const SILENCE: Duration = Duration::from_secs(2);
const TURN: Duration = Duration::from_millis(500);
/// A node takes a volume from a silent head so often at most: two nodes that do not hear each other and have hosts of it both
/// would take it from each other for ever.
const SILENT_AGAIN: Duration = Duration::from_secs(60);
/// That a node which has a session is not heard is told after so long: most that are silent are gone by then, or have come back.
const UNHEARD: Duration = Duration::from_secs(4);
/// A core is waited for so long, to say which volumes stand still.
const STOPPED_WAIT: Duration = Duration::from_secs(1);
/// The home has had a host of the volume for so long.
const HOME_USED: Duration = Duration::from_secs(5);
/// The home is up, and nobody uses the volume anywhere, for so long.
const HOME_IDLE: Duration = Duration::from_secs(30);
/// A volume goes home so often at most.
const HOME_AGAIN: Duration = Duration::from_secs(60);

/// What is remembered of wishes.
#[derive(Default)]
pub(super) struct Wishes {
    /// What all nodes say of their clients.
    clients: RefCell<BTreeMap<NodeId, ClientsRecord>>,
    /// Volumes that hosts here wait for, and since when.
    wanted: RefCell<BTreeMap<VolumeId, Instant>>,
    /// Volumes whose home is ready for them, since when and why.
    homesick: RefCell<BTreeMap<VolumeId, (Instant, Home)>>,
    /// When this node has last tried to give one away, sent it home; or has taken it from a silent head.
    given: RefCell<BTreeMap<VolumeId, Instant>>,
    sent_home: RefCell<BTreeMap<VolumeId, Instant>>,
    taken: RefCell<BTreeMap<VolumeId, Instant>>,
    /// Volumes whose head does not hear who leads a group of it, and since when this node knows.
    unreached: RefCell<BTreeMap<VolumeId, Instant>>,
    /// Hosts that had left this node, and since when it is so many.
    lost: Cell<(u64, Instant)>,
    /// What the map was last told, and under which lease.
    said: RefCell<Option<(cluster::LeaseId, ClientsRecord)>>,
}

/// Why a home is ready.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// A host of the volume is there.
    Used,
    /// The volume is used nowhere.
    Idle,
}

impl Wishes {
    /// A node says this of its clients, or nothing any more.
    pub(super) fn hear(&self, node: NodeId, clients: Option<ClientsRecord>) {
        match clients {
            Some(clients) => self.clients.borrow_mut().insert(node, clients),
            None => self.clients.borrow_mut().remove(&node),
        };
    }

    /// Whether it has said anything: a client does as long as it has a session.
    pub(super) fn hears_of(&self, node: NodeId) -> bool {
        self.clients.borrow().contains_key(&node)
    }

    /// Another that uses the volume, or would take it.
    pub(super) fn user_of(&self, volume: &VolumeRecord, but: NodeId) -> Option<NodeId> {
        let clients = self.clients.borrow();
        clients.values().find(|clients| clients.node != but && clients.uses(volume)).map(|clients| clients.node)
    }

    /// Whether another node has the key that the volume may need.
    pub(super) fn has_key(&self, node: NodeId, volume: &VolumeRecord) -> bool {
        match self.clients.borrow().get(&node) {
            Some(clients) => clients.can_serve(volume),
            None => volume.key.is_none(),
        }
    }

    pub(super) fn forget_all(&self) {
        self.clients.borrow_mut().clear();
    }

    fn is_due(since: &RefCell<BTreeMap<VolumeId, Instant>>, id: VolumeId, wait: Duration) -> bool {
        let mut since = since.borrow_mut();
        since.retain(|_, at| now().since(*at) < wait);
        !since.contains_key(&id)
    }

    fn uses(&self, node: NodeId, volume: &VolumeRecord) -> bool {
        self.clients.borrow().get(&node).is_some_and(|clients| clients.uses(volume))
    }
}

impl Assembly {
    pub(super) fn begin_clients(&self) {
        let this: Weak<super::Node> = Rc::downgrade(&self.0);
        let awaits = move |nqn: &str| this.upgrade().is_some_and(|node| Self(node).has_to_wait(nqn));
        self.0.head.directory.clients().are_fetched_for(Some(Rc::new(awaits)));
        let this: Weak<super::Node> = Rc::downgrade(&self.0);
        let gives = move |id, to| -> Pin<Box<dyn Future<Output = bool>>> {
            let this = this.clone();
            Box::pin(async move {
                match this.upgrade() {
                    Some(node) => Self(node).give_unused(id, to).await,
                    None => false,
                }
            })
        };
        self.0.head.directory.clients().are_given_by(Some(Rc::new(gives)));
        let this = self.clone();
        let tends = runtime::spawn(async move { this.tend_clients().await });
        self.0.tasks.borrow_mut().push(tends);
    }

    /// Says who is here, and follows from who is where, for ever.
    async fn tend_clients(&self) {
        let clients = self.0.head.directory.clone();
        loop {
            let seen = clients.clients().generation();
            if let Err(error) = self.say_clients().await {
                log::debug!("the map is not told who uses volumes here: {error}");
            }
            self.fetch_volumes().await;
            self.give_volumes();
            let _ = runtime::timeout(TEND_WAIT, clients.clients().changed(seen)).await;
        }
    }

    // ---- who is here -----------------------------------------------------------------------------------------------

    /// What the map is to say of this node.
    fn clients_here(&self) -> ClientsRecord {
        let clients = self.0.head.directory.clone();
        let mut hosts = clients.clients().hosts();
        let has_more = hosts.len() > ClientsRecord::HOSTS_MAX;
        hosts.truncate(ClientsRecord::HOSTS_MAX);
        let any_host = !hosts.is_empty() && clients.clients().open_by_default();
        let keys = self.0.keys.borrow().keys().copied().collect();
        let opened = clients.clients().opened();
        let (unheard, unreached) = (self.unheard(), Vec::new());
        ClientsRecord { node: self.0.id, any_host, hosts, has_more, opened, keys, unheard, unreached }
    }

    /// Nodes that have a session, are not known to have ended, and are not heard here.
    fn unheard(&self) -> Vec<NodeId> {
        let is_unheard = |node: &NodeId| (UNHEARD..Duration::MAX).contains(&self.0.groups.silence_of(*node));
        self.0.heads.alive().into_iter().filter(|node| *node != self.0.id && is_unheard(node)).collect()
    }

    /// Volumes that are served here, and of which a group serves nobody; none, if a core does not say so in time.
    async fn stopped(&self) -> Vec<VolumeId> {
        let of_core = |head: Rc<Head>| -> Pin<Box<dyn Future<Output = Vec<VolumeId>>>> {
            Box::pin(async move { head.patience.stopped().into_iter().map(|(volume, _)| volume).collect() })
        };
        let told = runtime::timeout(STOPPED_WAIT, self.on_each_core(of_core)).await.unwrap_or_default();
        let stopped: BTreeSet<_> = told.into_iter().flatten().collect();
        stopped.into_iter().filter(|id| self.0.heads.reign(*id).is_some()).collect()
    }

    async fn say_clients(&self) -> Result<(), MapError> {
        let Some(lease) = self.0.groups.session_lease() else { return Ok(()) };
        let mut is = self.clients_here();
        if !is.unheard.is_empty() {
            is.unreached = self.stopped().await;
        }
        let nobody = ClientsRecord { node: self.0.id, ..ClientsRecord::default() };
        let wishes = self.0.heads.wishes();
        let is_said = match &*wishes.said.borrow() {
            Some((under, said)) => *under == lease && *said == is,
            // A client lives as long as that is said.
            None => is == nobody && !is.node.is_client(),
        };
        // What an earlier life said goes with its session.
        let is_heard = wishes.clients.borrow().get(&self.0.id).is_none_or(|heard| *heard == is);
        if is_said && is_heard {
            return Ok(());
        }
        wishes.said.replace(None);
        let modified = self.0.map.get(&is.key()).await?.map(|found| found.modified).unwrap_or_default();
        let mut transaction = Transaction::new().expect(is.key(), modified);
        transaction.changes.push(Change::Put { key: is.key(), value: encode(&is), lease: Some(lease) });
        if let Outcome::Committed(_) = self.0.map.transact(transaction).await? {
            wishes.said.replace(Some((lease, is)));
        }
        Ok(())
    }

    // ---- as a node that has hosts ----------------------------------------------------------------------------------

    /// Whether a host of this node waits for a volume: its head is no node that has a client of it.
    fn has_to_wait(&self, nqn: &str) -> bool {
        let heads = &self.0.heads;
        let open_by_default = self.0.head.directory.clients().open_by_default();
        let volumes = heads.volumes();
        volumes.iter().filter(|volume| volume.hosts.allows(nqn, open_by_default)).any(|volume| {
            let is_away = self.is_listed_elsewhere(volume);
            let is_useless = || {
                volume.head == self.0.id || !heads.is_alive(volume.head) || !heads.wishes().uses(volume.head, volume)
            };
            is_away && is_useless()
        })
    }

    /// Whether it is known here, can be used, and is served by another.
    fn is_listed_elsewhere(&self, volume: &VolumeRecord) -> bool {
        let listed = self.0.head.directory.by_id(volume.id);
        volume.state == Life::Online
            && listed.is_some_and(|listed| listed.standing() == crate::api::Standing::Elsewhere)
    }

    /// Takes volumes that hosts here wait for, and nobody serves or gives.
    async fn fetch_volumes(&self) {
        let (heads, me) = (&self.0.heads, self.clients_here());
        let wishes = heads.wishes();
        let volumes = heads.volumes();
        let clients = self.0.head.directory.clone();
        let has_client = |volume: &VolumeRecord| me.has_host_of(volume) || clients.clients().wants(volume.id);
        let is_wanted = |volume: &&Rc<VolumeRecord>| {
            volume.head != me.node && has_client(volume) && self.is_listed_elsewhere(volume)
        };
        let wanted: Vec<&Rc<VolumeRecord>> = volumes.iter().filter(is_wanted).collect();
        wishes.wanted.borrow_mut().retain(|id, _| wanted.iter().any(|volume| volume.id == *id));
        let (mut due, mut of_silent) = (BTreeMap::new(), Vec::new());
        for volume in wanted {
            let (is_alive, is_used) = (heads.is_alive(volume.head), wishes.uses(volume.head, volume));
            let is_silent = is_alive && self.is_silent_head(volume);
            if is_used || !is_alive {
                wishes.wanted.borrow_mut().remove(&volume.id);
            }
            let since = *wishes.wanted.borrow_mut().entry(volume.id).or_insert_with(now);
            of_silent.extend(is_silent.then_some(volume.id));
            let is_to_give = !is_used && now().since(since) >= GIVES_WITHIN && me.unheard.is_empty();
            if !is_alive || is_silent || is_to_give {
                due.insert(volume.id, volume.volume_epoch);
            }
        }
        for volume in self.unreached_by_their_heads(&volumes, &me) {
            due.insert(volume.id, volume.volume_epoch);
            of_silent.push(volume.id);
        }
        if due.is_empty() || !heads.is_alive(me.node) {
            return;
        }
        log::info!(
            "this node takes volumes that clients can reach through it and not through their head: {:?}",
            due.keys()
        );
        let is_due = |volume: &VolumeRecord| due.get(&volume.id) == Some(&volume.volume_epoch);
        match self.take(is_due, |_| false).await {
            // What was not taken is tried again, and not in a minute only: the map may be electing a leader.
            Ok(taken) => {
                let of_silent = taken.into_iter().filter(|id| of_silent.contains(id));
                wishes.taken.borrow_mut().extend(of_silent.map(|id| (id, now())));
            }
            Err(error) => log::warn!("volumes that hosts wait for were not taken: {error}"),
        }
    }

    /// Volumes whose head does not hear who leads a group of it, where this node hears all, and it is its turn to take them.
    fn unreached_by_their_heads<'a>(
        &self,
        volumes: &'a [Rc<VolumeRecord>],
        me: &ClientsRecord,
    ) -> Vec<&'a VolumeRecord> {
        let (heads, wishes) = (&self.0.heads, self.0.heads.wishes());
        let is_heard = |node: &NodeId| *node == me.node || self.0.groups.silence_of(*node) < SILENCE;
        let is_unreached = |volume: &&VolumeRecord| {
            let clients = wishes.clients.borrow();
            let its_head = clients.get(&volume.head).filter(|head| head.unreached.contains(&volume.id));
            let could_reach = |head: &ClientsRecord| is_heard(&head.node) && head.unheard.iter().all(is_heard);
            volume.state == Life::Online && its_head.is_some_and(could_reach)
        };
        let unreached: Vec<&VolumeRecord> = volumes.iter().map(Rc::as_ref).filter(is_unreached).collect();
        let mut known = wishes.unreached.borrow_mut();
        known.retain(|id, _| unreached.iter().any(|volume| volume.id == *id));
        let reaches_all = me.unheard.is_empty() && !me.node.is_client() && !mutant(Mutant::UnreachedStays);
        let wait = TURN * heads.place_of(me.node);
        let mut is_to_take = |volume: &&VolumeRecord| {
            let since = *known.entry(volume.id).or_insert_with(now);
            reaches_all
                && now().since(since) >= wait
                && me.can_serve(volume)
                && self.relocation(volume.id).is_none()
                && Wishes::is_due(&wishes.taken, volume.id, SILENT_AGAIN)
        };
        unreached.into_iter().filter(|volume| is_to_take(volume)).collect()
    }

    /// Whether its head answers no beats, and it is this node's turn to take it.
    fn is_silent_head(&self, volume: &VolumeRecord) -> bool {
        if volume.head.is_client() && self.0.id.is_client() {
            // They hear nothing of each other.
            return false;
        }
        let place = self.0.heads.place_of(self.0.id);
        let silence = self.0.groups.silence_of(volume.head);
        silence >= SILENCE + TURN * place
            && self.is_answered_by_another(volume.head)
            && Wishes::is_due(&self.0.heads.wishes().taken, volume.id, SILENT_AGAIN)
    }

    /// Whether any other node answers this one, if there is one more that has a session: to a node that is not heard all others are
    /// silent, and it would take back what another has taken from it. Of two nodes the one with the smaller number leads all groups
    /// if both live, and the other does if it is alone (R21).
    fn is_answered_by_another(&self, than: NodeId) -> bool {
        let mut others = self.0.heads.alive().into_iter().filter(|node| *node != than && *node != self.0.id).peekable();
        let is_answered = |node| self.0.groups.silence_of(node) < SILENCE;
        if mutant(Mutant::UnheardTakes) {
            return true;
        }
        match others.peek() {
            None => self.0.id < than || !self.0.groups.leads_any(than),
            Some(_) => others.any(is_answered),
        }
    }

    // ---- as the head -----------------------------------------------------------------------------------------------

    /// Gives volumes away that are of use elsewhere: in the background, each by itself.
    fn give_volumes(&self) {
        let (heads, me) = (&self.0.heads, self.clients_here());
        let wishes = heads.wishes();
        let volumes = heads.volumes();
        let mine: Vec<_> =
            volumes.iter().filter(|volume| volume.state == Life::Online && heads.is_mine(volume)).collect();
        wishes.homesick.borrow_mut().retain(|id, _| mine.iter().any(|volume| volume.id == *id));
        for volume in mine {
            let Some((to, sent)) = self.better_place(volume, &me) else { continue };
            if !Wishes::is_due(&wishes.given, volume.id, MOVE_AGAIN) {
                continue;
            }
            wishes.given.borrow_mut().insert(volume.id, now());
            if sent.is_some() {
                wishes.sent_home.borrow_mut().insert(volume.id, now());
            }
            let (this, id, name) = (self.clone(), volume.id, volume.name.clone());
            runtime::spawn(async move {
                match this.hand_over(id, to, Stay::Meanwhile).await {
                    Ok(_) => log::info!("volume {name} goes to node {to}, where it is used or at home"),
                    Err(error) => log::info!("volume {name} stays for now: {error}"),
                }
            });
        }
    }

    /// An NBD client opens the volume through another node. If nobody has it open, and that node can serve it, it goes there;
    /// returns whether it does.
    async fn give_unused(&self, id: VolumeId, to: NodeId) -> bool {
        let (heads, me) = (&self.0.heads, self.clients_here());
        let volumes = heads.volumes();
        let Some(volume) = volumes.iter().find(|volume| volume.id == id && heads.is_mine(volume)) else { return false };
        let others: Vec<ClientsRecord> = heads.wishes().clients.borrow().values().cloned().collect();
        let is_used =
            others.iter().any(|clients| clients.node != me.node && clients.node != to && clients.uses(volume));
        let may_go = volume.state == Life::Online && !me.uses(volume) && !is_used && !self.has_just_lost_one();
        if !may_go || !self.can_serve(volume, to, &others) {
            return false;
        }
        match self.hand_over(id, to, Stay::Meanwhile).await {
            Ok(_) => log::info!("volume {} goes to node {to}, where it is opened", volume.name),
            Err(error) => {
                log::info!("volume {} stays, and node {to} passes on what its clients ask: {error}", volume.name);
                return false;
            }
        }
        true
    }

    /// Whether another node is up, and has the key that the volume may need. One that is being moved to other groups stays with
    /// who does that.
    fn can_serve(&self, volume: &VolumeRecord, node: NodeId, others: &[ClientsRecord]) -> bool {
        if self.relocation(volume.id).is_some() {
            return false;
        }
        let clients = others.iter().find(|clients| clients.node == node);
        let has_key = clients.map_or(volume.key.is_none(), |clients| clients.can_serve(volume));
        // It does not hear who is heard here.
        let is_heard = |node: &NodeId| *node == self.0.id || self.0.groups.silence_of(*node) < SILENCE;
        let is_deaf = clients.is_some_and(|clients| clients.unheard.iter().any(is_heard));
        node != self.0.id
            && has_key
            && !is_deaf
            && self.0.heads.is_alive(node)
            && self.0.groups.silence_of(node) < SILENCE
    }

    /// Where the volume is better served than here, and whether that is its home for its own sake.
    fn better_place(&self, volume: &VolumeRecord, me: &ClientsRecord) -> Option<(NodeId, Option<Home>)> {
        let wishes = self.0.heads.wishes();
        if me.opened.contains(&volume.id) {
            // An NBD client would have to connect again.
            return None;
        }
        let others: Vec<ClientsRecord> = wishes.clients.borrow().values().cloned().collect();
        let serves = |node: NodeId| self.can_serve(volume, node, &others);
        let users: BTreeSet<NodeId> =
            others.iter().filter(|clients| clients.has_host_of(volume)).map(|clients| clients.node).collect();
        let is_left = !me.uses(volume) && !self.has_just_lost_one();
        if is_left {
            let first = Some(volume.home).filter(|home| users.contains(home));
            if let Some(to) = first.into_iter().chain(users.iter().copied()).find(|node| serves(*node)) {
                return Some((to, None));
            }
        }
        let is_idle = !me.uses(volume) && !others.iter().any(|clients| clients.node != me.node && clients.uses(volume));
        let why = if users.contains(&volume.home) { Some(Home::Used) } else { is_idle.then_some(Home::Idle) };
        let why = why.filter(|_| volume.home != NodeId(0) && serves(volume.home) && !mutant(Mutant::HomeForgotten));
        let mut homesick = wishes.homesick.borrow_mut();
        let Some(why) = why else {
            homesick.remove(&volume.id);
            return None;
        };
        let since = homesick.entry(volume.id).or_insert((now(), why));
        if since.1 != why {
            *since = (now(), why);
        }
        let wait = if why == Home::Used { HOME_USED } else { HOME_IDLE };
        let is_due = now().since(since.0) >= wait && Wishes::is_due(&wishes.sent_home, volume.id, HOME_AGAIN);
        is_due.then_some((volume.home, Some(why)))
    }

    /// Whether a host has left so lately that it may be about to come again.
    fn has_just_lost_one(&self) -> bool {
        let (left, lost) = (self.0.head.directory.clients().left(), &self.0.heads.wishes().lost);
        if left > lost.get().0 {
            lost.set((left, now()));
        }
        left > 0 && now().since(lost.get().1) < COMES_AGAIN
    }

    /// Hosts that can reach a volume only through nodes that do not serve it, in words (H14).
    pub(super) fn who_waits(&self) -> Vec<String> {
        let (heads, me) = (&self.0.heads, self.clients_here());
        let clients = heads.wishes().clients.borrow();
        let mut words = Vec::new();
        for volume in heads.volumes().iter().filter(|volume| heads.is_mine(volume) && me.uses(volume)) {
            let waits = |clients: &ClientsRecord| {
                let may = |host: &&String| volume.hosts.allows(host, clients.any_host) && !me.hosts.contains(host);
                clients.hosts.iter().find(may).cloned()
            };
            let waiting = clients
                .values()
                .filter(|clients| clients.node != me.node)
                .find_map(|clients| Some((clients.node, waits(clients)?)));
            if let Some((node, host)) = waiting {
                words.push(format!(
                    "host {} reaches volume {} only through node {node}, and node {} serves it for other clients: connect \
                     it there too",
                    host.escape_debug(),
                    volume.name,
                    me.node
                ));
            }
        }
        words
    }
}
