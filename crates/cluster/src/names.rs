//! What comes from outside: names and sizes, checked before they are in the map.

use crate::records::Limits;
use types::BLOCK_BYTES;

/// Longest name: a DNS label, and it fits every protocol's name field.
pub const NAME_BYTES_MAX: usize = 63;
/// Smallest volume: one chunk.
pub const VOLUME_BYTES_MIN: u64 = 1 << 20;
/// Largest volume: 2^26 chunks, well inside a 32-bit chunk number.
pub const VOLUME_BYTES_MAX: u64 = 64 << 40;

/// A name or a size that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInput {
    /// The name.
    #[error(
        "the name {0:?} is not allowed: begin with a-z or 0-9 and go on with a-z, 0-9, '.', '_' or '-', at most 63 in all"
    )]
    Name(String),
    /// The size.
    #[error("a size of {0} bytes is not allowed: give a multiple of 4K from 1M to 64T")]
    Size(u64),
    /// The block size.
    #[error("a block size of {0} bytes is not allowed: give 512 or 4096")]
    BlockSize(u32),
    /// Commands in a second.
    #[error("a limit of {0} IOPS is not allowed: give a number from 1 to {IOPS_LIMIT_MAX}, or none")]
    Iops(u64),
    /// Bytes in a second.
    #[error("a bandwidth of {0} bytes/s is not allowed: give 64K/s to 1T/s, or none")]
    Bandwidth(u64),
    /// How long unused allowance is kept.
    #[error("a burst of {0} ms is not allowed: give 10ms to 1h")]
    Burst(u64),
    /// Nothing that could be saved up.
    #[error("a burst needs a limit: give iops or bandwidth with it")]
    BurstAlone,
    /// The name of a host.
    #[error(
        "{0:?} is no NVMe host: write its NQN as `cat /etc/nvme/hostnqn` on the host shows it, \
         nqn.2014-08.org.nvmexpress:uuid:UUID or nqn.YYYY-MM.REVERSE.DOMAIN:NAME"
    )]
    Nqn(String),
}

/// Checks a name: `[a-z0-9][a-z0-9._-]{0,62}`.
pub fn check_name(name: &str) -> Result<(), InvalidInput> {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let later = |byte: u8| first(byte) || matches!(byte, b'.' | b'_' | b'-');
    let bytes = name.as_bytes();
    let allowed = (1..=NAME_BYTES_MAX).contains(&bytes.len()) && first(bytes[0]) && bytes.iter().copied().all(later);
    if allowed { Ok(()) } else { Err(InvalidInput::Name(name.chars().take(2 * NAME_BYTES_MAX).collect())) }
}

/// Longest NVMe qualified name (NVMe Base 2.0 §4.5).
pub const NQN_BYTES_MAX: usize = 223;

/// Checks the NVMe qualified name of a host (NVMe Base 2.0 §4.5): `nqn.2014-08.org.nvmexpress:uuid:` and a UUID, or
/// `nqn.`, year and month, a reverse domain name, `:` and what its owner chose.
pub fn check_nqn(nqn: &str) -> Result<(), InvalidInput> {
    if is_nqn(nqn) { Ok(()) } else { Err(InvalidInput::Nqn(nqn.chars().take(NQN_BYTES_MAX + 1).collect())) }
}

fn is_nqn(nqn: &str) -> bool {
    let visible = nqn.chars().all(|char| !char.is_control() && !char.is_whitespace());
    let Some((owner, chosen)) = nqn.split_once(':').filter(|_| visible && nqn.len() <= NQN_BYTES_MAX) else {
        return false;
    };
    let Some((date, domain)) = owner.strip_prefix("nqn.").and_then(|dated| dated.split_once('.')) else { return false };
    let digits = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    let dated = date
        .split_once('-')
        .is_some_and(|(year, month)| digits(year, 4) && digits(month, 2) && matches!(month.parse(), Ok(1..=12)));
    let label =
        |label: &str| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let uuid = |text: &str| {
        let groups: Vec<usize> = text.split('-').map(str::len).collect();
        groups == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
    };
    let is_own = (date, domain) == ("2014-08", "org.nvmexpress");
    let fits = if is_own { chosen.strip_prefix("uuid:").is_some_and(uuid) } else { !chosen.is_empty() };
    dated && domain.split('.').all(label) && fits
}

/// Checks a volume's size: whole 4 KiB, 1 MiB to 64 TiB.
pub fn check_volume_size(size_bytes: u64) -> Result<(), InvalidInput> {
    let allowed = (VOLUME_BYTES_MIN..=VOLUME_BYTES_MAX).contains(&size_bytes);
    if allowed && size_bytes.is_multiple_of(BLOCK_BYTES as u64) { Ok(()) } else { Err(InvalidInput::Size(size_bytes)) }
}

/// Most commands in a second that a limit may allow: more than a node does, so it limits nothing.
pub const IOPS_LIMIT_MAX: u64 = 100_000_000;
/// Smallest bandwidth: the largest command of 1 MiB then has the volume for sixteen seconds, half of the time after which
/// hosts give a command up.
pub const BANDWIDTH_LIMIT_MIN: u64 = 64 << 10;
/// Largest bandwidth in bytes per second.
pub const BANDWIDTH_LIMIT_MAX: u64 = 1 << 40;
/// Shortest burst in ms: less than a timer may be late would cost a part of the rate.
pub const BURST_MS_MIN: u64 = 10;
/// Longest burst in ms.
pub const BURST_MS_MAX: u64 = 60 * 60 * 1000;

/// Checks what a volume may do in a second.
pub fn check_limits(limits: &Limits) -> Result<(), InvalidInput> {
    match *limits {
        Limits { iops: Some(iops), .. } if !(1..=IOPS_LIMIT_MAX).contains(&iops) => Err(InvalidInput::Iops(iops)),
        Limits { bytes_per_second: Some(bytes), .. }
            if !(BANDWIDTH_LIMIT_MIN..=BANDWIDTH_LIMIT_MAX).contains(&bytes) =>
        {
            Err(InvalidInput::Bandwidth(bytes))
        }
        Limits { burst_ms: Some(burst), .. } if !(BURST_MS_MIN..=BURST_MS_MAX).contains(&burst) => {
            Err(InvalidInput::Burst(burst))
        }
        Limits { burst_ms: Some(_), .. } if limits.is_unset() => Err(InvalidInput::BurstAlone),
        _ => Ok(()),
    }
}

/// Checks a volume's logical block: 512 or 4,096.
pub fn check_block_size(block_size_bytes: u32) -> Result<(), InvalidInput> {
    if matches!(block_size_bytes, 512 | 4096) { Ok(()) } else { Err(InvalidInput::BlockSize(block_size_bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_contract_says() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        for name in ["a", "0", "demo", "pvc-1.2_3", longest.as_str()] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        let too_long = "a".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "-a", ".a", "_a", "A", "a b", "a/b", "ä", "a\n", too_long.as_str()] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn hosts_are_named_as_the_specification_says() {
        let longest = format!("nqn.2026-01.io.example:{}", "h".repeat(NQN_BYTES_MAX - 23));
        for nqn in [
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "nqn.2014-08.com.example:nvme.host.sys.xyz",
            "nqn.2026-12.io.example-1:ä/b:c",
            longest.as_str(),
        ] {
            assert_eq!(check_nqn(nqn), Ok(()), "{nqn}");
        }
        let too_long = format!("{longest}h");
        for nqn in [
            "",
            "any",
            "nqn.2014-08.org.nvmexpress.discovery",
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae",
            "nqn.2014-08.org.nvmexpress:other",
            "nqn.2014-13.com.example:a",
            "nqn.14-01.com.example:a",
            "nqn.2014-01.com..example:a",
            "nqn.2014-01.com.example:",
            "nqn.2014-01.com.example:a b",
            "nqn.2014-01.com.example:a\n",
            "iqn.2014-01.com.example:a",
            too_long.as_str(),
        ] {
            assert!(check_nqn(nqn).is_err(), "{nqn:?}");
        }
    }

    #[test]
    fn sizes_are_whole_blocks_from_1m_to_64t() {
        for size in [1 << 20, (1 << 20) + 4096, 64 << 40] {
            assert_eq!(check_volume_size(size), Ok(()));
        }
        for size in [0, 4096, (1 << 20) - 4096, (1 << 20) + 512, (64 << 40) + 4096, u64::MAX] {
            assert_eq!(check_volume_size(size), Err(InvalidInput::Size(size)));
        }
        assert!(check_block_size(512).is_ok() && check_block_size(4096).is_ok() && check_block_size(520).is_err());
    }
}
