//! What this process speaks: what it was built to, or, for tests of upgrades, what a release after it might.

use std::ffi::OsString;
use std::sync::OnceLock;
use volume::Speaks;

/// `+1`: as a release after this one. Read once; for tests.
pub const PROTOCOL_VARIABLE: &str = "CAIRN_TEST_PROTOCOL";

/// The variable says something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{PROTOCOL_VARIABLE} is '{0}': it is for tests, and is +1 or not set")]
pub struct UnknownProtocol(String);

/// What this process speaks.
///
/// # Errors
/// Its environment says something that is not known.
pub fn of_this_process() -> Result<Speaks, UnknownProtocol> {
    static SPEAKS: OnceLock<Result<Speaks, UnknownProtocol>> = OnceLock::new();
    SPEAKS.get_or_init(|| spoken(std::env::var_os(PROTOCOL_VARIABLE))).clone()
}

fn spoken(variable: Option<OsString>) -> Result<Speaks, UnknownProtocol> {
    match variable.as_ref().map(|value| value.to_string_lossy()).as_deref() {
        None | Some("") => Ok(Speaks::of_this_build()),
        Some("+1") => {
            let speaks = Speaks::rehearsal();
            log::warn!(
                "{PROTOCOL_VARIABLE} is set: this process speaks as a release after this one, for tests (release {})",
                speaks.protocol.release
            );
            Ok(speaks)
        }
        Some(other) => Err(UnknownProtocol(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_was_built_unless_a_test_says_otherwise() {
        assert_eq!(spoken(None), Ok(Speaks::of_this_build()));
        assert_eq!(spoken(Some("".into())), Ok(Speaks::of_this_build()));
        assert!(spoken(Some("+1".into())).is_ok_and(|speaks| speaks.is_rehearsal()));
        assert!(spoken(Some("+2".into())).unwrap_err().to_string().contains("+1 or not set"));
    }
}
