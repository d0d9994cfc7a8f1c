//! The same over real sockets: the io_uring backend, real cores, a real file.

use crate::node::{VOLUME_BYTES, connect, options, pattern, start};
use runtime::uring::{Cores, Options as CoreOptions, block_on};
use std::path::PathBuf;
use std::sync::mpsc;

/// A file that serves as a device, removed at the end.
struct DeviceFile(PathBuf);

impl DeviceFile {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cairn-nvme-{name}-{}.img", std::process::id()));
        let file = std::fs::File::create(&path).expect("a file in the temporary directory");
        file.set_len(512 << 20).expect("a sparse file");
        Self(path)
    }
}

impl Drop for DeviceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn queues_on_two_cores_serve_a_host_on_a_third() {
    let device = DeviceFile::new("cores");
    let cores = Cores::start(2, &CoreOptions::default()).expect("two cores");
    let (tell, told) = mpsc::channel();
    let (handles, path) = (cores.handles().to_vec(), device.0.clone());
    cores.handles()[0].spawn_on(move || async move {
        let served = start(handles, [127, 0, 0, 1].into(), &path).await;
        tell.send((served.address, served.nsids)).expect("the test waits");
        std::future::pending::<()>().await;
    });
    let (address, nsids) = told.recv().expect("the target starts");
    block_on(async move {
        for digests in [false, true] {
            let mut options = options(1 + u8::from(digests));
            options.io_queues = 4;
            options.header_digest = digests;
            options.data_digest = digests;
            for nsid in nsids {
                let (_controller, namespace) = connect(address, &options, nsid).await.expect("connected");
                let (sender, mut receiver) = runtime::channel::bounded(64);
                for (index, len) in [4096usize, 16384, 32768, 65536, 131072, 1 << 20].into_iter().enumerate() {
                    for copy in 0..4u64 {
                        let (namespace, sender) = (namespace.clone(), sender.clone());
                        runtime::spawn(async move {
                            let offset = (index as u64 * 4 + copy) << 20;
                            let data = pattern(len, copy as u8);
                            namespace.write(offset, data.clone()).await.expect("written");
                            let read = namespace.read(offset, len as u32).await.expect("read");
                            let _ = sender.try_send(*read == *data);
                        });
                    }
                }
                drop(sender);
                let mut right = 0;
                while let Ok(same) = receiver.recv().await {
                    assert!(same);
                    right += 1;
                }
                assert_eq!(right, 24);
                assert_eq!(namespace.size_bytes(), VOLUME_BYTES);
            }
        }
    })
    .expect("a reactor");
    cores.stop();
}
