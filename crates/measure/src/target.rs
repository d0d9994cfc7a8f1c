//! What is measured, and which engine of fio reaches it.

use crate::MeasureError;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// At both ends of a device, where partition tables, file systems, volume managers and arrays have their marks.
const LOOKED_AT_BYTES: u64 = 1 << 20;

/// What the command line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A volume of the cluster that the admin API is asked about.
    Cairn {
        /// Its name.
        volume: String,
        /// For libcairn: the file that names the cluster's etcd, if not the one where it looks.
        conf: Option<String>,
    },
    /// Any NBD URI.
    Nbd(String),
    /// A file or block device of this machine.
    Path(PathBuf),
    /// An image of Ceph.
    Rbd {
        /// Its pool.
        pool: String,
        /// Its name.
        image: String,
        /// The cluster's configuration file, if not the one where Ceph looks.
        conf: Option<String>,
    },
}

const FORMS: &str =
    "write cairn:VOLUME[?conf=FILE], nbd://HOST:PORT/EXPORT, file:PATH, /dev/NAME or rbd:POOL/IMAGE[?conf=FILE]";

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("cairn:") {
            let (volume, conf) = match rest.split_once("?conf=") {
                Some((volume, conf)) => (volume, Some(conf.to_owned())),
                None => (rest, None),
            };
            let is_one = !volume.is_empty() && !rest.contains(char::is_control) && conf.as_deref() != Some("");
            return if is_one { Ok(Self::Cairn { volume: volume.to_owned(), conf }) } else { Err(FORMS.to_owned()) };
        }
        if ["nbd://", "nbds://", "nbd+unix://", "nbds+unix://"].iter().any(|scheme| text.starts_with(scheme)) {
            return if text.contains(char::is_control) {
                Err(FORMS.to_owned())
            } else {
                Ok(Self::Nbd(text.to_owned()))
            };
        }
        if let Some(path) = text.strip_prefix("file:").or(text.starts_with("/dev/").then_some(text)) {
            // fio takes a colon for the end of a file's name.
            if path.is_empty() || path.contains([':', '\n']) {
                return Err(format!("{FORMS}; the path has no ':'"));
            }
            return Ok(Self::Path(PathBuf::from(path)));
        }
        if let Some(rest) = text.strip_prefix("rbd:") {
            let (name, conf) = match rest.split_once("?conf=") {
                Some((name, conf)) => (name, Some(conf.to_owned())),
                None => (rest, None),
            };
            return match name.split_once('/') {
                Some((pool, image)) if !pool.is_empty() && !image.is_empty() => {
                    Ok(Self::Rbd { pool: pool.to_owned(), image: image.to_owned(), conf })
                }
                _ => Err(FORMS.to_owned()),
            };
        }
        Err(FORMS.to_owned())
    }
}

/// What fio opens: the engine and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door {
    /// fio's `nbd` engine.
    Nbd {
        /// Its URI.
        uri: String,
    },
    /// Our engine of fio, an object of its own: fio is the volume's head.
    Libcairn {
        /// `cairn:VOLUME?conf=FILE`.
        uri: String,
        /// Where the engine is.
        engine: PathBuf,
    },
    /// fio's `libaio` engine, past the page cache.
    Path {
        /// A file or block device.
        path: PathBuf,
        /// `libaio` or `io_uring`.
        engine: String,
    },
    /// fio's `rbd` engine.
    Rbd {
        /// Pool.
        pool: String,
        /// Image.
        image: String,
        /// Configuration file.
        conf: Option<String>,
    },
}

impl Door {
    /// The engine of fio that it needs.
    pub fn engine(&self) -> &str {
        match self {
            Self::Nbd { .. } => "nbd",
            Self::Path { engine, .. } => engine,
            Self::Libcairn { .. } => "libcairn",
            Self::Rbd { .. } => "rbd",
        }
    }

    /// What fio's environment says of it: its rbd engine has no option for Ceph's configuration file, librados asks for this.
    pub fn environment(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Rbd { conf: Some(conf), .. } => Some(("CEPH_CONF", conf)),
            _ => None,
        }
    }

    /// The lines of a job that say where the I/O goes.
    pub fn job_lines(&self) -> Vec<String> {
        let mut lines = match self {
            Self::Libcairn { engine, .. } => vec![format!("ioengine=external:{}", engine.display())],
            _ => vec![format!("ioengine={}", self.engine())],
        };
        match self {
            Self::Libcairn { uri, .. } => {
                lines.push(format!("uri={uri}"));
                // All jobs are one process, and one head.
                lines.push("thread=1".to_owned());
            }
            // fio takes no colon in a file's name; a URI has an option of its own.
            Self::Nbd { uri } => lines.push(format!("uri={uri}")),
            Self::Path { path, .. } => {
                lines.push(format!("filename={}", path.display()));
                lines.push("direct=1".to_owned());
            }
            Self::Rbd { pool, image, .. } => {
                lines.push(format!("pool={pool}"));
                lines.push(format!("rbdname={image}"));
                lines.push("clientname=admin".to_owned());
            }
        }
        lines
    }
}

/// Looks whether a file or device may be written over, and makes a file that is not there. Returns its size.
///
/// # Errors
/// If it is mounted or in use, holds something and `overwrite` does not say that nobody needs it, or is neither file nor device.
pub fn prepare_path(path: &Path, span_bytes: u64, overwrite: bool) -> Result<u64, MeasureError> {
    let refuse = |why: String| MeasureError::Target(format!("{}: {why}", path.display()));
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !path.starts_with("/dev/") => {
            let made = OpenOptions::new().write(true).create_new(true).open(path);
            made.and_then(|file| file.set_len(span_bytes)).map_err(|error| refuse(error.to_string()))?;
            return Ok(span_bytes);
        }
        Err(error) => return Err(refuse(error.to_string())),
    };
    let kind = metadata.file_type();
    if kind.is_block_device() {
        // Refused by the kernel while it is mounted or part of something.
        let mut device = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EBUSY) => refuse("is mounted or in use: end that first, or name another device".to_owned()),
                _ => refuse(error.to_string()),
            }
        })?;
        let size = device.seek(SeekFrom::End(0)).map_err(|error| refuse(error.to_string()))?;
        if !overwrite && has_marks(&mut device, size).map_err(|error| refuse(error.to_string()))? {
            return Err(refuse(
                "holds something, which would be written over: --overwrite says that nobody needs it".to_owned(),
            ));
        }
        return Ok(size);
    }
    if !kind.is_file() {
        return Err(refuse("is neither a block device nor a regular file: name one of these".to_owned()));
    }
    if is_backing_a_loop_device(&metadata) {
        return Err(refuse("is the file of a loop device: name another file, or detach it (losetup -d)".to_owned()));
    }
    if !overwrite && metadata.blocks() > 0 {
        return Err(refuse(
            "holds something, which would be written over: --overwrite says that nobody needs it".to_owned(),
        ));
    }
    if metadata.len() < span_bytes {
        let grown = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(span_bytes));
        grown.map_err(|error| refuse(error.to_string()))?;
    }
    Ok(metadata.len().max(span_bytes))
}

fn has_marks(device: &mut File, size_bytes: u64) -> std::io::Result<bool> {
    let length = LOOKED_AT_BYTES.min(size_bytes);
    for offset in [0, size_bytes - length] {
        device.seek(SeekFrom::Start(offset))?;
        let mut bytes = vec![0; length as usize];
        device.read_exact(&mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a loop device, which may be mounted, lies over this file.
fn is_backing_a_loop_device(metadata: &fs::Metadata) -> bool {
    let Ok(devices) = fs::read_dir("/sys/block") else { return false };
    devices.flatten().any(|device| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        let backing = backing.ok().and_then(|path| fs::metadata(path.trim_end()).ok());
        backing.is_some_and(|backing| (backing.dev(), backing.ino()) == (metadata.dev(), metadata.ino()))
    })
}

/// What a path's bytes lie on: `memory`, or the disk's kind; and its device number, by which the kernel counts its I/O.
pub fn media_of(path: &Path) -> (String, Option<u64>) {
    let Ok(metadata) = fs::metadata(path) else { return ("unknown".to_owned(), None) };
    let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = (libc::major(device), libc::minor(device));
    let sys = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if !sys.exists() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let is_memory = mounts.lines().any(|line| {
            line.split_whitespace().nth(2) == Some(&format!("{major}:{minor}"))
                && line.rsplit_once(" - ").is_some_and(|(_, rest)| rest.starts_with("tmpfs "))
        });
        return (if is_memory { "memory" } else { "unknown" }.to_owned(), None);
    }
    // A partition's queue is its disk's.
    let text = |name: &str| {
        let read = |at: PathBuf| fs::read_to_string(at).ok().map(|text| text.trim().to_owned());
        read(sys.join(name)).or_else(|| read(sys.join("..").join(name)))
    };
    let model = text("device/model").unwrap_or_else(|| {
        let name =
            fs::canonicalize(&sys).ok().and_then(|path| path.file_name().map(|n| n.to_string_lossy().into_owned()));
        name.unwrap_or_default().trim_end_matches(|c: char| c.is_ascii_digit()).to_owned()
    });
    let kind = if text("queue/rotational").as_deref() == Some("1") { "rotating disk" } else { "disk" };
    let cache = text("queue/write_cache").unwrap_or_else(|| "cache unknown".to_owned());
    (format!("{kind} {model}, {cache}"), Some(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let cairn = |conf: Option<&str>| Target::Cairn { volume: "data".to_owned(), conf: conf.map(Into::into) };
        assert_eq!("cairn:data".parse(), Ok(cairn(None)));
        assert_eq!("cairn:data?conf=/etc/c".parse(), Ok(cairn(Some("/etc/c"))));
        assert_eq!("nbd://h:1/x".parse(), Ok(Target::Nbd("nbd://h:1/x".to_owned())));
        assert_eq!("file:x.img".parse(), Ok(Target::Path("x.img".into())));
        assert_eq!("/dev/vdb".parse(), Ok(Target::Path("/dev/vdb".into())));
        let rbd = |conf: Option<&str>| Target::Rbd { pool: "p".into(), image: "i".into(), conf: conf.map(Into::into) };
        assert_eq!("rbd:p/i".parse(), Ok(rbd(None)));
        assert_eq!("rbd:p/i?conf=/etc/c".parse(), Ok(rbd(Some("/etc/c"))));
    }

    #[test]
    fn what_is_no_target_is_refused_with_the_forms() {
        for text in
            ["", "data", "cairn:", "cairn:?conf=c", "cairn:data?conf=", "rbd:p", "file:", "file:a:b", "http://x"]
        {
            assert!(text.parse::<Target>().unwrap_err().contains("cairn:VOLUME"), "{text}");
        }
    }

    #[test]
    fn a_file_that_holds_something_is_not_written_over_unasked() {
        let path = std::env::temp_dir().join(format!("cairn-measure-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        assert_eq!(prepare_path(&path, 1 << 20, false).unwrap(), 1 << 20);
        assert_eq!(prepare_path(&path, 1 << 20, false).unwrap(), 1 << 20, "it is still empty");
        fs::write(&path, vec![1; 4096]).unwrap();
        let refused = prepare_path(&path, 1 << 20, false).unwrap_err().to_string();
        assert!(refused.contains("--overwrite"), "{refused}");
        assert_eq!(prepare_path(&path, 1 << 20, true).unwrap(), 1 << 20, "and grows to what is asked");
        assert!(prepare_path(Path::new("/dev/null"), 1, true).is_err());
        fs::remove_file(&path).unwrap();
    }
}
