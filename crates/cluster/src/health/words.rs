//! Times, sizes, numbers and names as people say them.

use std::time::Duration;

/// Names that are listed; of more, how many there are.
const NAMED_MAX: usize = 5;

/// "40 s", "12 min", "3 h 20 min", "2 d 4 h".
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

/// How long it is from one moment to another, ns since 1970.
pub fn ago(from_ns: u64, to_ns: u64) -> String {
    span(Duration::from_nanos(to_ns.saturating_sub(from_ns)))
}

/// Bytes, to a tenth of a unit below a hundred of it.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = UNITS.iter().find(|(_, shift)| bytes >> shift > 0) else { return format!("{bytes} B") };
    let tenths = ((u128::from(bytes) * 10) >> shift) as u64;
    match tenths {
        1000.. => format!("{} {unit}", tenths / 10),
        _ if tenths.is_multiple_of(10) => format!("{} {unit}", tenths / 10),
        _ => format!("{}.{} {unit}", tenths / 10, tenths % 10),
    }
}

/// "1 placement group", "12 placement groups".
pub(super) fn groups(count: usize) -> String {
    if count == 1 { "1 placement group".to_owned() } else { format!("{count} placement groups") }
}

/// "a, b, c", "a, b, c, d, e and 7 more".
pub fn named(names: &[impl AsRef<str>]) -> String {
    let listed: Vec<&str> = names.iter().take(NAMED_MAX).map(AsRef::as_ref).collect();
    let more = names.len() - listed.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", listed.join(", "))
}

/// "volume a", "3 volumes (a, b, c)".
pub(super) fn volumes(names: &[impl AsRef<str>]) -> String {
    match names {
        [one] => format!("volume {}", one.as_ref()),
        all => format!("{} volumes ({})", all.len(), named(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_names_are_short() {
        let told = [0, 119, 120, 7_199, 7_200, 12_000, 172_800, 180_000].map(|s| span(Duration::from_secs(s)));
        assert_eq!(told, ["0 s", "119 s", "2 min", "119 min", "2 h", "3 h 20 min", "2 d", "2 d 2 h"]);
        let told = [0, 1023, 1024, 1536, 400 << 20, 5 << 40, 99 << 30].map(size);
        assert_eq!(told, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "400 MiB", "5 TiB", "99 GiB"]);
        assert_eq!(named(&["a", "b"]), "a, b");
        assert_eq!(named(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
        assert_eq!((volumes(&["a"]), volumes(&["a", "b"])), ("volume a".to_owned(), "2 volumes (a, b)".to_owned()));
        assert_eq!(ago(5, 3), "0 s", "clocks differ");
    }
}
