//! The admin HTTP API: JSON under `/v1/`, OpenAPI at `/v1/openapi.json`, liveness at `/healthz`, readiness at `/readyz`,
//! Prometheus metrics at `/metrics`.
//!
//! Runs on the process's own tokio thread, never on a core of the data path, and asks those by message.

mod book;
mod change;
mod check;
pub mod check_types;
mod debug;
mod devices;
mod duties;
pub mod duty_types;
mod elsewhere;
mod error;
pub mod event_types;
mod events;
pub mod group_types;
mod groups;
mod health;
pub mod health_types;
mod hosts;
mod keys;
mod listener;
mod map_members;
mod moves;
mod observe;
mod own;
pub mod pool_types;
mod pools;
mod server;
mod snapshots;
pub mod types;
mod upgrade;
pub mod upgrade_types;
mod view;

pub use book::AddressBook;
pub use duties::cost_of;
pub use elsewhere::{ASKED_MAX, Asked};
pub use health::Looked;
pub(crate) use health::{is_of_failed, now_ns};
pub use server::{ADMIN_PATHS, Admin};
pub use view::{Addresses, NodeAddresses};
pub(crate) use view::{Found, status as status_of};
