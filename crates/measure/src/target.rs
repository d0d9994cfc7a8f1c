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
        /// How it is reached, if not as all are.
        by: Option<By>,
    },
    /// Any NBD URI.
    Nbd(String),
    /// Any NBD server, `HOST:PORT/EXPORT`, by the load generator of our own.
    OwnNbd(String),
    /// Any NVMe/TCP namespace, `nvme-tcp://…`, by the load generator of our own: fio has no such host.
    OwnNvme(String),
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
    /// An image of Vitastor.
    Vitastor {
        /// Its name.
        image: String,
        /// `HOST:PORT` of its etcd, if no configuration file says it.
        etcd: Option<String>,
        /// Its configuration file, if not the one where Vitastor looks.
        conf: Option<String>,
        /// Its engine of fio, if not where packages put it.
        engine: Option<PathBuf>,
    },
}

/// How a volume of Cairn is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// fio's `nbd` engine.
    Nbd,
    /// fio as the volume's head.
    Libcairn,
    /// The load generator of our own, by NBD.
    OwnNbd,
    /// The same, by NVMe/TCP.
    OwnNvme,
}

impl By {
    /// All of them, and what they are called.
    pub const NAMES: [(&'static str, By); 4] =
        [("nbd", By::Nbd), ("libcairn", By::Libcairn), ("own-nbd", By::OwnNbd), ("own-nvme", By::OwnNvme)];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, by)| *by)
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, by)| *by == self).map_or("", |(name, _)| name)
    }
}

const FORMS: &str = "write cairn:VOLUME[?by=nbd|libcairn|own-nbd|own-nvme&conf=FILE], nbd://HOST:PORT/EXPORT, file:PATH, \
     /dev/NAME, rbd:POOL/IMAGE[?conf=FILE], vitastor:IMAGE[?etcd=HOST:PORT&conf=FILE&engine=FILE.so], own-nbd://HOST:PORT/EXPORT \
     or nvme-tcp://HOST:PORT[,HOST:PORT]/NQN?nsid=N";

/// NAME of `NAME?KEY=VALUE&KEY=VALUE`, and the values of these keys; none: another key, one without a value, or no name.
fn options<'a, const N: usize>(text: &'a str, keys: [&str; N]) -> Option<(&'a str, [Option<String>; N])> {
    let (name, rest) = text.split_once('?').map_or((text, None), |(name, rest)| (name, Some(rest)));
    let mut values = [const { None }; N];
    for part in rest.into_iter().flat_map(|rest| rest.split('&')) {
        let (key, value) = part.split_once('=').filter(|(_, value)| !value.is_empty())?;
        let at = keys.iter().position(|known| *known == key)?;
        values[at] = Some(value.to_owned());
    }
    // A line of fio's job each: no line may hold two.
    (!name.is_empty() && !text.contains(char::is_control)).then_some((name, values))
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let forms = || FORMS.to_owned();
        if let Some(rest) = text.strip_prefix("cairn:") {
            let (volume, [conf, by]) = options(rest, ["conf", "by"]).ok_or_else(forms)?;
            let by = by.map(|by| By::named(&by).ok_or_else(forms)).transpose()?;
            return Ok(Self::Cairn { volume: volume.to_owned(), conf, by });
        }
        if let Some(rest) = text.strip_prefix("vitastor:") {
            let (image, [etcd, conf, engine]) = options(rest, ["etcd", "conf", "engine"]).ok_or_else(forms)?;
            return Ok(Self::Vitastor { image: image.to_owned(), etcd, conf, engine: engine.map(PathBuf::from) });
        }
        if let Some(rest) = text.strip_prefix("own-nbd://") {
            let is_one = rest.split_once('/').is_some_and(|(host, export)| !host.is_empty() && !export.is_empty());
            return if is_one { Ok(Self::OwnNbd(rest.to_owned())) } else { Err(forms()) };
        }
        if text.starts_with("nvme-tcp://") {
            return Ok(Self::OwnNvme(text.to_owned()));
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
            let (name, [conf]) = options(rest, ["conf"]).ok_or_else(forms)?;
            return match name.split_once('/') {
                Some((pool, image)) if !pool.is_empty() && !image.is_empty() => {
                    Ok(Self::Rbd { pool: pool.to_owned(), image: image.to_owned(), conf })
                }
                _ => Err(forms()),
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
    /// Vitastor's engine of fio, an object of its own.
    Vitastor {
        /// Image.
        image: String,
        /// `HOST:PORT` of its etcd.
        etcd: Option<String>,
        /// Configuration file.
        conf: Option<String>,
        /// Where the engine is.
        engine: PathBuf,
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
            Self::Vitastor { .. } => "libfio_vitastor",
        }
    }

    /// The object that the engine is, if it is none of fio's own.
    pub fn object(&self) -> Option<&Path> {
        match self {
            Self::Libcairn { engine, .. } | Self::Vitastor { engine, .. } => Some(engine),
            _ => None,
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
        // Before the engine's own options, which fio knows only then.
        let mut lines = match self.object() {
            Some(object) => vec![format!("ioengine=external:{}", object.display())],
            None => vec![format!("ioengine={}", self.engine())],
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
            Self::Vitastor { image, etcd, conf, .. } => {
                lines.push(format!("image={image}"));
                lines.extend(etcd.iter().map(|etcd| format!("etcd={etcd}")));
                lines.extend(conf.iter().map(|conf| format!("conf={conf}")));
                // Its client library is made for threads; without O_DIRECT it may keep writes back.
                lines.push("thread=1".to_owned());
                lines.push("direct=1".to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let cairn =
            |conf: Option<&str>, by| Target::Cairn { volume: "data".to_owned(), conf: conf.map(Into::into), by };
        assert_eq!("cairn:data".parse(), Ok(cairn(None, None)));
        assert_eq!("cairn:data?conf=/etc/c".parse(), Ok(cairn(Some("/etc/c"), None)));
        for (name, by) in By::NAMES {
            assert_eq!(format!("cairn:data?conf=/etc/c&by={name}").parse(), Ok(cairn(Some("/etc/c"), Some(by))));
            assert_eq!(by.name(), name);
        }
        assert_eq!("nbd://h:1/x".parse(), Ok(Target::Nbd("nbd://h:1/x".to_owned())));
        assert_eq!("own-nbd://h:1/x".parse(), Ok(Target::OwnNbd("h:1/x".to_owned())));
        assert_eq!("nvme-tcp://h:1/q?nsid=1".parse(), Ok(Target::OwnNvme("nvme-tcp://h:1/q?nsid=1".to_owned())));
        assert_eq!("file:x.img".parse(), Ok(Target::Path("x.img".into())));
        assert_eq!("/dev/vdb".parse(), Ok(Target::Path("/dev/vdb".into())));
        let rbd = |conf: Option<&str>| Target::Rbd { pool: "p".into(), image: "i".into(), conf: conf.map(Into::into) };
        assert_eq!("rbd:p/i".parse(), Ok(rbd(None)));
        assert_eq!("rbd:p/i?conf=/etc/c".parse(), Ok(rbd(Some("/etc/c"))));
        let vitastor = |etcd: Option<&str>, engine: Option<&str>| Target::Vitastor {
            image: "i".into(),
            etcd: etcd.map(Into::into),
            conf: None,
            engine: engine.map(Into::into),
        };
        assert_eq!("vitastor:i".parse(), Ok(vitastor(None, None)));
        assert_eq!("vitastor:i?etcd=h:2379&engine=/v.so".parse(), Ok(vitastor(Some("h:2379"), Some("/v.so"))));
    }

    #[test]
    fn what_is_no_target_is_refused_with_the_forms() {
        for text in [
            "",
            "data",
            "cairn:",
            "cairn:?conf=c",
            "cairn:data?conf=",
            "cairn:data?by=magic",
            "cairn:data?size=1",
            "rbd:p",
            "rbd:p/i?conf=",
            "vitastor:",
            "vitastor:i?etcd",
            "vitastor:i?etcd=h\nexec_prerun=x",
            "own-nbd://h:1",
            "file:",
            "file:a:b",
            "http://x",
        ] {
            assert!(text.parse::<Target>().unwrap_err().contains("cairn:VOLUME"), "{text}");
        }
    }

    #[test]
    fn a_job_says_how_a_peer_is_reached() {
        let rbd = Door::Rbd { pool: "p".to_owned(), image: "i".to_owned(), conf: Some("/etc/c".to_owned()) };
        assert_eq!(rbd.job_lines(), ["ioengine=rbd", "pool=p", "rbdname=i", "clientname=admin"]);
        assert_eq!(rbd.environment(), Some(("CEPH_CONF", "/etc/c")));
        let vitastor = |etcd: Option<&str>, conf: Option<&str>| Door::Vitastor {
            image: "i".to_owned(),
            etcd: etcd.map(str::to_owned),
            conf: conf.map(str::to_owned),
            engine: "/v/libfio_vitastor.so".into(),
        };
        assert_eq!(
            vitastor(Some("h:2379"), Some("/etc/v")).job_lines(),
            [
                "ioengine=external:/v/libfio_vitastor.so",
                "image=i",
                "etcd=h:2379",
                "conf=/etc/v",
                "thread=1",
                "direct=1"
            ]
        );
        assert_eq!(vitastor(None, None).job_lines().len(), 4);
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
