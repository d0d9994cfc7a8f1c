//! A controller as a host sees it: connected, enabled, kept alive.

use super::queue::{Completion, Opening, Queue};
use super::{HostError, Namespace};
use crate::wire::identify::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, cns, decode_namespace_list};
use crate::wire::log::GetLogPage;
use crate::wire::{
    ALL_NAMESPACES, Configuration, Connect, ConnectData, DYNAMIC_CONTROLLER, Property, Sqe, admin, array_at,
    controller_status, fabrics_type, feature, property,
};
use runtime::{IoBuf, SharedBuf, sleep, spawn, timeout};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// How often CSTS is read while a controller gets ready.
const READY_POLL: Duration = Duration::from_millis(2);
/// A controller that is not ready after this time is given up.
const READY_TIMEOUT_SECONDS: u64 = 10;

/// Who the host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Its NQN.
    pub nqn: String,
    /// Its id.
    pub id: [u8; 16],
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who connects.
    pub host: HostIdentity,
    /// To which subsystem.
    pub subsystem: String,
    /// I/O queues wanted; the controller may give fewer.
    pub io_queues: u16,
    /// Commands under way in each I/O queue.
    pub queue_depth: u16,
    /// Keep alive timeout; zero is none.
    pub keep_alive: Duration,
    /// Header digests.
    pub header_digest: bool,
    /// Data digests.
    pub data_digest: bool,
    /// Switch SQ flow control off, so that a read needs no completion of its own.
    pub no_flow_control: bool,
}

impl Options {
    /// One I/O queue of depth 128, no digests, no flow control, keep alive after 5 s.
    pub fn new(host: HostIdentity, subsystem: &str) -> Self {
        Self {
            host,
            subsystem: subsystem.to_owned(),
            io_queues: 1,
            queue_depth: 128,
            keep_alive: Duration::from_secs(5),
            header_digest: false,
            data_digest: false,
            no_flow_control: true,
        }
    }
}

/// A connected controller. Clones share it; it is disconnected when the last goes.
#[derive(Clone)]
pub struct Controller(Rc<Inner>);

struct Inner {
    id: u16,
    identity: IdentifyController,
    admin: Queue,
    io: Vec<Queue>,
}

impl Inner {
    fn close(&self) {
        self.io.iter().for_each(Queue::close);
        self.admin.close();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// A queue whose connection ends with the attempt to connect, unless it is kept.
struct Attempt(Option<Queue>);

impl Attempt {
    fn queue(&self) -> &Queue {
        self.0.as_ref().expect("it is kept at the end")
    }

    fn keep(mut self) -> Queue {
        self.0.take().expect("once")
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            queue.close();
        }
    }
}

impl Controller {
    /// Connects the admin queue, enables the controller, connects the I/O queues and keeps it alive.
    pub async fn connect(address: SocketAddr, options: &Options) -> Result<Self, HostError> {
        let (admin, id) = connect_admin(address, options).await?;
        let identity = prepare(admin.queue()).await?;
        let mut inner = Inner { id, identity, admin: admin.keep(), io: Vec::new() };
        let granted = if options.io_queues > 0 { set_queue_count(&inner.admin, options.io_queues).await? } else { 0 };
        for number in 1..=granted {
            let queue = connect_queue(address, options, number, id).await?;
            queue.set_capsule_bytes(inner.identity.in_capsule_bytes());
            inner.io.push(queue);
        }
        let controller = Self(Rc::new(inner));
        if !options.keep_alive.is_zero() {
            spawn(keep_alive(Rc::downgrade(&controller.0), options.keep_alive));
        }
        Ok(controller)
    }

    /// The controller's id.
    pub fn id(&self) -> u16 {
        self.0.id
    }
    /// What it told of itself.
    pub fn identity(&self) -> &IdentifyController {
        &self.0.identity
    }
    /// The admin queue.
    pub fn admin(&self) -> &Queue {
        &self.0.admin
    }
    /// The I/O queues.
    pub fn queues(&self) -> &[Queue] {
        &self.0.io
    }

    /// Ends its connections, whoever shares it; what is under way fails.
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether one of its connections has ended: it is of no more use.
    pub fn has_failed(&self) -> bool {
        self.0.io.iter().chain([&self.0.admin]).any(|queue| queue.failure().is_some())
    }

    /// Whether it is this one, and not another to the same address.
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Ids of the active namespaces.
    pub async fn namespaces(&self) -> Result<Vec<u32>, HostError> {
        let page = identify(&self.0.admin, cns::ACTIVE_NAMESPACES, 0).await?;
        Ok(decode_namespace_list(&page))
    }

    /// A namespace, for I/O on all queues in turn.
    pub async fn namespace(&self, nsid: u32) -> Result<Namespace, HostError> {
        let page = identify(&self.0.admin, cns::NAMESPACE, nsid).await?;
        let identity = IdentifyNamespace::decode(&page)
            .ok_or_else(|| HostError::Unsupported(format!("there is no namespace {nsid}")))?;
        let max_transfer = self.0.identity.max_transfer_bytes().unwrap_or(1 << 20);
        Namespace::new(self.clone(), nsid, identity, max_transfer)
    }

    /// `len_bytes` (a multiple of 4) of a log page.
    pub async fn log_page(&self, page: u8, offset_bytes: u64, len_bytes: u32) -> Result<SharedBuf, HostError> {
        get_log_page(&self.0.admin, page, offset_bytes, len_bytes).await
    }

    /// Any admin command without data for the controller.
    pub async fn admin_command(&self, sqe: Sqe, expected_bytes: u32) -> Result<Completion, HostError> {
        self.0.admin.submit(sqe, None, expected_bytes).await
    }

    /// Says which notices there shall be (bits of OAES).
    pub async fn configure_events(&self, notices: u32) -> Result<(), HostError> {
        let mut sqe = Sqe::new(admin::SET_FEATURES, 0);
        sqe.cdw[0] = u32::from(feature::ASYNC_EVENT_CONFIGURATION);
        sqe.cdw[1] = notices;
        self.0.admin.submit(sqe, None, 0).await.map(drop)
    }

    /// Waits for the next asynchronous event; its dword 0.
    pub async fn next_event(&self) -> Result<u32, HostError> {
        let event = self.0.admin.submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), None, 0).await?;
        Ok(event.result as u32)
    }

    /// Shuts the controller down in good order and disconnects.
    pub async fn shutdown(self) -> Result<(), HostError> {
        let normal = 1 << 14;
        set_property(&self.0.admin, property::CONFIGURATION, u64::from(Configuration::ENABLE.0 | normal)).await?;
        wait_for_status(&self.0.admin, controller_status::SHUTDOWN_COMPLETE, controller_status::SHUTDOWN_COMPLETE).await
    }
}

async fn connect_admin(address: SocketAddr, options: &Options) -> Result<(Attempt, u16), HostError> {
    let opening =
        Opening { depth: ADMIN_ENTRIES - 1, header_digest: options.header_digest, data_digest: options.data_digest };
    let attempt = Attempt(Some(Queue::open(address, opening).await?));
    let connect = Connect {
        record_format: 0,
        queue: 0,
        sq_size: ADMIN_ENTRIES - 1,
        attributes: 0,
        keep_alive_ms: options.keep_alive.as_millis() as u32,
    };
    let id = send_connect(attempt.queue(), options, &connect, DYNAMIC_CONTROLLER).await?;
    Ok((attempt, id))
}

async fn connect_queue(address: SocketAddr, options: &Options, number: u16, id: u16) -> Result<Queue, HostError> {
    // A ring of n entries holds n − 1 commands; without flow control too, to be on the safe side of every target.
    let depth = options.queue_depth.clamp(1, crate::limits::MAX_QUEUE_ENTRIES - 1);
    let opening = Opening { depth, header_digest: options.header_digest, data_digest: options.data_digest };
    let attempt = Attempt(Some(Queue::open(address, opening).await?));
    let connect = Connect {
        record_format: 0,
        queue: number,
        sq_size: depth,
        attributes: if options.no_flow_control { Connect::NO_FLOW_CONTROL } else { 0 },
        keep_alive_ms: 0,
    };
    send_connect(attempt.queue(), options, &connect, id).await?;
    Ok(attempt.keep())
}

async fn send_connect(queue: &Queue, options: &Options, connect: &Connect, controller: u16) -> Result<u16, HostError> {
    let data = ConnectData {
        host_id: options.host.id,
        controller,
        subsystem: Some(options.subsystem.clone()),
        host: Some(options.host.nqn.clone()),
    };
    let completion = queue.submit(connect.encode(), Some(IoBuf::copy_of(&data.encode()).freeze()), 0).await?;
    Ok(completion.result as u16)
}

/// Enables the controller and asks who it is.
async fn prepare(admin: &Queue) -> Result<IdentifyController, HostError> {
    set_property(admin, property::CONFIGURATION, u64::from(Configuration::ENABLE.0)).await?;
    wait_for_status(admin, controller_status::READY, controller_status::READY).await?;
    Ok(IdentifyController::decode(&identify(admin, cns::CONTROLLER, 0).await?))
}

async fn wait_for_status(admin: &Queue, mask: u32, value: u32) -> Result<(), HostError> {
    let rounds = READY_TIMEOUT_SECONDS * 1000 / READY_POLL.as_millis() as u64;
    for _ in 0..rounds {
        let get = Property { size_bytes: Some(4), offset: property::STATUS, value: 0 };
        let status = admin.submit(get.encode(fabrics_type::PROPERTY_GET), None, 0).await?.result as u32;
        if status & mask == value {
            return Ok(());
        }
        sleep(READY_POLL).await;
    }
    Err(HostError::NotReady(READY_TIMEOUT_SECONDS))
}

async fn set_property(admin: &Queue, offset: u32, value: u64) -> Result<(), HostError> {
    let set = Property { size_bytes: Some(4), offset, value };
    admin.submit(set.encode(fabrics_type::PROPERTY_SET), None, 0).await.map(|_| ())
}

async fn set_queue_count(admin: &Queue, wanted: u16) -> Result<u16, HostError> {
    let less_one = u32::from(wanted - 1);
    let mut sqe = Sqe::new(admin::SET_FEATURES, 0);
    sqe.cdw[0] = u32::from(feature::NUMBER_OF_QUEUES);
    sqe.cdw[1] = less_one | less_one << 16;
    let granted = admin.submit(sqe, None, 0).await?.result as u32;
    let fewer = (granted & 0xFFFF).min(granted >> 16);
    Ok(wanted.min(fewer as u16 + 1))
}

pub(super) async fn identify(admin: &Queue, selector: u8, nsid: u32) -> Result<[u8; IDENTIFY_BYTES], HostError> {
    let mut sqe = Sqe::new(admin::IDENTIFY, nsid);
    sqe.cdw[0] = u32::from(selector);
    let data = admin.submit(sqe, None, IDENTIFY_BYTES as u32).await?.data;
    Ok(array_at(&data.expect("the queue checked its length"), 0))
}

pub(super) async fn get_log_page(admin: &Queue, page: u8, offset: u64, len: u32) -> Result<SharedBuf, HostError> {
    let get = GetLogPage {
        page,
        specific: 0,
        retain_event: false,
        len_bytes: u64::from(len),
        offset_bytes: offset,
        offset_is_index: false,
    };
    let mut sqe = Sqe::new(admin::GET_LOG_PAGE, ALL_NAMESPACES);
    sqe.cdw = get.encode();
    let data = admin.submit(sqe, None, len).await?.data;
    Ok(data.expect("the queue checked its length"))
}

/// Lives as long as its controller, and ends it when that does not answer within its keep alive timeout.
async fn keep_alive(controller: Weak<Inner>, patience: Duration) {
    loop {
        sleep(patience / 2).await;
        let Some(admin) = controller.upgrade().map(|inner| inner.admin.clone()) else { return };
        let answer = timeout(patience, admin.submit(Sqe::new(admin::KEEP_ALIVE, 0), None, 0)).await;
        if !matches!(answer, Ok(Ok(_))) {
            controller.upgrade().inspect(|inner| inner.close());
            return;
        }
    }
}

/// Connects to a discovery controller: an admin queue and nothing else.
pub(super) async fn connect_discovery(address: SocketAddr, options: &Options) -> Result<Queue, HostError> {
    let (admin, _) = connect_admin(address, options).await?;
    prepare(admin.queue()).await?;
    Ok(admin.keep())
}
