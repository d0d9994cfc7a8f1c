//! `tools/read-device.py`, which knows nothing but docs/formats.md, on a simulated disk.

use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE_BYTES: u64 = 64 << 10;

/// A copy of a disk in a file, and room for what is made of it.
pub struct DiskCopy(PathBuf);

impl DiskCopy {
    /// What is on the disk now.
    pub fn of(disk: &SimDisk, size_bytes: u64) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cairn-store-{}-{number}", std::process::id()));
        let file = File::create(&path).expect("a temporary file");
        file.set_len(size_bytes).expect("a sparse file");
        let mut page = vec![0; PAGE_BYTES as usize];
        for at in (0..size_bytes).step_by(PAGE_BYTES as usize) {
            disk.peek(at, &mut page);
            if page.iter().any(|byte| *byte != 0) {
                file.write_all_at(&page, at).expect("room for the disk");
            }
        }
        Self(path)
    }

    /// What a layer shows in its first bytes.
    ///
    /// # Panics
    /// If the reader finds anything damaged, but for superblock slots: a power loss may tear one.
    pub fn extract(&self, layer: LayerId, size_bytes: u64) -> Vec<u8> {
        let image = self.0.with_extension("raw");
        let (layer, size) = (layer.to_string(), size_bytes.to_string());
        let output = self.run(&["extract", "--layer", &layer, "--size", &size, "--out", &image.display().to_string()]);
        let bytes = std::fs::read(&image);
        let _ = std::fs::remove_file(&image);
        assert_not_damaged(&output, &layer);
        bytes.unwrap_or_else(|_| panic!("layer {layer}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Lets the reader judge every record and every block.
    ///
    /// # Panics
    /// As [`extract`](Self::extract).
    pub fn verify(&self) {
        assert_not_damaged(&self.run(&["verify"]), "verify");
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/read-device.py");
        let mut command = Command::new("python3");
        command.arg("-B").arg(reader).arg(arguments[0]).arg(&self.0).args(&arguments[1..]);
        command.output().expect("python3 is installed: `make deps`")
    }
}

fn assert_not_damaged(output: &Output, what: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    let is_damage = |line: &&str| line.starts_with("DAMAGE") && !line.contains("superblock S");
    assert_eq!(said.lines().filter(is_damage).collect::<Vec<_>>(), [""; 0], "{what}");
    assert!(said.lines().last().is_some_and(|line| line.contains("damage")), "{what}: {output:?}");
}

impl Drop for DiskCopy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
