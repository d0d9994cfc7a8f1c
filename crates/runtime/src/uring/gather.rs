//! Lists of buffers as the kernel wants them, recycled.

use crate::buf::SharedBuf;

/// Buffers that leave as one, and where among them the next byte to go is.
pub(super) struct Gather {
    parts: Vec<SharedBuf>,
    vectors: Vec<libc::iovec>,
    /// First vector that has bytes left.
    next: usize,
    left_bytes: usize,
    header: libc::msghdr,
}

impl Gather {
    pub(super) fn new() -> Self {
        // SAFETY: a msghdr of zero bytes is a valid one that names nothing.
        let header = unsafe { std::mem::zeroed() };
        Self { parts: Vec::new(), vectors: Vec::new(), next: 0, left_bytes: 0, header }
    }

    /// Takes the parts out of `list`, which is left empty; [`unload`](Self::unload) gives its room back.
    pub(super) fn load(&mut self, list: &mut Vec<SharedBuf>) {
        assert!(self.parts.is_empty() && self.vectors.is_empty(), "a gather is loaded when empty");
        std::mem::swap(&mut self.parts, list);
        self.left_bytes = 0;
        self.next = 0;
        for part in self.parts.iter().filter(|part| !part.is_empty()) {
            self.left_bytes += part.len();
            self.vectors.push(libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
        }
    }

    /// Drops the parts and gives the list's room back.
    pub(super) fn unload(&mut self, list: &mut Vec<SharedBuf>) {
        self.clear();
        std::mem::swap(&mut self.parts, list);
    }

    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.vectors.clear();
    }

    /// Bytes that have not gone yet.
    pub(super) fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    /// What has not gone yet.
    pub(super) fn vectors(&self) -> &[libc::iovec] {
        &self.vectors[self.next..]
    }

    /// What was loaded, however much of it has gone.
    pub(super) fn parts(&self) -> &[SharedBuf] {
        &self.parts
    }

    /// `count` more bytes have gone.
    pub(super) fn advance(&mut self, mut count: usize) {
        assert!(count <= self.left_bytes, "the kernel took more than there was");
        self.left_bytes -= count;
        while count > 0 {
            let vector = &mut self.vectors[self.next];
            let step = count.min(vector.iov_len);
            // SAFETY: `step` bytes further is inside the part, or just behind it.
            vector.iov_base = unsafe { vector.iov_base.cast::<u8>().add(step).cast() };
            vector.iov_len -= step;
            count -= step;
            if vector.iov_len == 0 {
                self.next += 1;
            }
        }
    }

    /// A message header that names what has not gone yet; valid until this is touched again.
    pub(super) fn header(&mut self) -> *const libc::msghdr {
        let vectors = &mut self.vectors[self.next..];
        self.header.msg_iov = vectors.as_mut_ptr();
        self.header.msg_iovlen = vectors.len();
        &self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::IoBuf;

    #[test]
    fn advancing_over_parts_leaves_exactly_what_has_not_gone() {
        let mut list = vec![
            IoBuf::copy_of(b"cairn").freeze(),
            IoBuf::copy_of(b"").freeze(),
            IoBuf::copy_of(b"of").freeze(),
            IoBuf::copy_of(b"stones").freeze(),
        ];
        let mut gather = Gather::new();
        gather.load(&mut list);
        assert!(list.is_empty() && gather.left_bytes() == 13);
        gather.advance(6);
        assert_eq!(gather.left_bytes(), 7);
        assert_eq!(gather.vectors()[0].iov_len, 1);
        gather.advance(1);
        assert_eq!((gather.vectors().len(), gather.vectors()[0].iov_len), (1, 6));
        gather.advance(6);
        assert!(gather.vectors().is_empty() && gather.left_bytes() == 0);
        gather.unload(&mut list);
        assert!(list.is_empty() && list.capacity() >= 4, "the list's room comes back");
    }
}
