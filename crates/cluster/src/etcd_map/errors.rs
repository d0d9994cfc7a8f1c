//! What etcd answers instead, and what that leaves open. What was certainly not done is told as such; everything else is unknown.

use crate::map::{LeaseId, MapError, Revision};
use etcd_client::Error;

/// Codes of gRPC.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const OUT_OF_RANGE: i32 = 11;
const UNAUTHENTICATED: i32 = 16;

/// Of a request that names no lease.
pub(super) fn told(error: Error) -> MapError {
    not_done(error, None)
}

/// Of one that names this lease.
pub(super) fn not_done(error: Error, lease: Option<LeaseId>) -> MapError {
    match &error {
        Error::GRpcStatus(status) => by_code(status.code() as i32, status.message(), lease),
        // The client says so of an answer whose time to live is none.
        Error::LeaseKeepAliveError(why) if why.contains("not found") => {
            lease.map_or(MapError::Unknown, MapError::NoLease)
        }
        Error::InvalidArgs(why) => MapError::Refused(why.clone()),
        Error::InvalidUri(why) => MapError::Refused(why.to_string()),
        _ => MapError::Unknown,
    }
}

fn by_code(code: i32, message: &str, lease: Option<LeaseId>) -> MapError {
    match (code, lease) {
        // Users or roles were changed since the connection showed its password: another connection shows it again.
        (INVALID_ARGUMENT, _) if message.contains("revision of auth store is old") => MapError::Unknown,
        (UNAUTHENTICATED, _) if message.contains("invalid auth token") => MapError::Unknown,
        (NOT_FOUND, Some(lease)) if message.contains("lease") => MapError::NoLease(lease),
        (INVALID_ARGUMENT, _) => MapError::Refused(format!("etcd: {message}")),
        // Who asked knows where the history begins, or learns it from a watch.
        (OUT_OF_RANGE, _) if message.contains("compacted") => MapError::Compacted { oldest: Revision(0) },
        (OUT_OF_RANGE, _) => MapError::Refused(format!("etcd: {message}")),
        (PERMISSION_DENIED | UNAUTHENTICATED | RESOURCE_EXHAUSTED, _) => MapError::Storage(format!("etcd: {message}")),
        _ => MapError::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_shown_again_when_etcd_asks_for_it() {
        let told = |code, message| by_code(code, message, None);
        // What the next connection may get done is asked again.
        assert_eq!(told(INVALID_ARGUMENT, "etcdserver: revision of auth store is old"), MapError::Unknown);
        assert_eq!(told(UNAUTHENTICATED, "etcdserver: invalid auth token"), MapError::Unknown);
        let wrong = "etcdserver: authentication failed, invalid user ID or password";
        assert!(matches!(told(INVALID_ARGUMENT, wrong), MapError::Refused(_)));
    }

    #[test]
    fn what_may_have_been_done_is_unknown() {
        let lease = LeaseId(7);
        let told = |code, message| by_code(code, message, Some(lease));
        // Cancelled, unknown, deadline, aborted, internal, unavailable, data loss.
        for code in [1, 2, 4, 10, 13, 14, 15] {
            assert_eq!(told(code, "etcdserver: request timed out"), MapError::Unknown, "code {code}");
        }
        assert_eq!(told(NOT_FOUND, "etcdserver: requested lease not found"), MapError::NoLease(lease));
        assert!(matches!(told(INVALID_ARGUMENT, "etcdserver: request is too large"), MapError::Refused(_)));
        assert!(matches!(told(PERMISSION_DENIED, "etcdserver: permission denied"), MapError::Storage(_)));
        assert!(matches!(told(RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"), MapError::Storage(_)));
    }
}
