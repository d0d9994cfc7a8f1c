//! Replies from the stream to the requests that wait for them.

use super::{ClientError, Shared};
use crate::wire::transmission::{
    CHUNK_DONE, CHUNK_MAGIC, ChunkHeader, DATA_OFFSET_BYTES, ErrorPayload, SimpleReply, StatusPayload, chunk,
};
use runtime::{IoBuf, SharedBuf, TcpStream};

/// Rests of at least this many bytes go straight from the socket into their buffer.
const DIRECT_BYTES_MIN: usize = 16 << 10;
/// Longest error message that is believed; the protocol allows 4,096 bytes.
const ERROR_BYTES_MAX: u32 = 8 << 10;
/// Longest list of extents that is believed.
const STATUS_BYTES_MAX: u32 = 1 << 20;

/// A stream that is read structure by structure.
pub(super) struct Reader {
    stream: TcpStream,
    bytes: Option<SharedBuf>,
    at: usize,
}

impl Reader {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, bytes: None, at: 0 }
    }

    /// Received bytes that nobody has read yet; more are received if there are none.
    async fn some(&mut self) -> Result<&[u8], ClientError> {
        if self.bytes.as_ref().is_none_or(|bytes| self.at == bytes.len()) {
            self.bytes = None;
            let bytes = self.stream.recv().await?;
            if bytes.is_empty() {
                return Err(ClientError::Lost("closed by the server".into()));
            }
            (self.bytes, self.at) = (Some(bytes), 0);
        }
        let at = self.at;
        Ok(self.bytes.as_ref().map_or(&[], |bytes| &bytes[at..]))
    }

    pub(super) async fn array<const N: usize>(&mut self) -> Result<[u8; N], ClientError> {
        let mut array = [0; N];
        self.fill(&mut array).await?;
        Ok(array)
    }

    pub(super) async fn fill(&mut self, mut to: &mut [u8]) -> Result<(), ClientError> {
        while !to.is_empty() {
            let bytes = self.some().await?;
            let count = bytes.len().min(to.len());
            to[..count].copy_from_slice(&bytes[..count]);
            self.at += count;
            to = &mut to[count..];
        }
        Ok(())
    }

    /// As [`fill`](Self::fill); a long rest is received without a copy. The buffer is lost with the connection.
    async fn fill_buf(&mut self, mut buf: IoBuf) -> Result<IoBuf, ClientError> {
        let have = self.bytes.as_ref().map_or(0, |bytes| bytes.len() - self.at).min(buf.len());
        if buf.len() - have < DIRECT_BYTES_MIN {
            self.fill(&mut buf).await?;
            return Ok(buf);
        }
        let rest = buf.split_off(have);
        self.fill(&mut buf).await?;
        let (result, rest) = self.stream.recv_exact(rest).await;
        result?;
        buf.unsplit(rest);
        Ok(buf)
    }
}

/// Takes replies until the connection ends; always returns why it did.
pub(super) async fn receive_replies(shared: &Shared, mut reader: Reader) -> Result<(), ClientError> {
    loop {
        // A simple reply is the shorter of the two: a chunk's header has four more bytes.
        let start = reader.array::<{ SimpleReply::BYTES }>().await?;
        if start.starts_with(&CHUNK_MAGIC.to_be_bytes()) {
            let mut bytes = [0; ChunkHeader::BYTES];
            bytes[..SimpleReply::BYTES].copy_from_slice(&start);
            reader.fill(&mut bytes[SimpleReply::BYTES..]).await?;
            if let Some(header) = ChunkHeader::decode(&bytes)? {
                take_chunk(shared, &mut reader, header).await?;
            }
        } else if let Some(reply) = SimpleReply::decode(&start)? {
            take_simple(shared, &mut reader, reply).await?;
        }
    }
}

async fn take_simple(shared: &Shared, reader: &mut Reader, reply: SimpleReply) -> Result<(), ClientError> {
    let index = shared.index_of(reply.cookie)?;
    if reply.error != 0 {
        let error = ClientError::Refused { number: reply.error, message: String::new() };
        shared.slots.borrow_mut()[index].error = Some(error);
    } else {
        let buf = shared.slots.borrow_mut()[index].buf.take();
        if let Some(buf) = buf {
            let buf = reader.fill_buf(buf).await?;
            shared.slots.borrow_mut()[index].buf = Some(buf);
        }
    }
    shared.finish(index);
    Ok(())
}

async fn take_chunk(shared: &Shared, reader: &mut Reader, header: ChunkHeader) -> Result<(), ClientError> {
    let index = shared.index_of(header.cookie)?;
    if chunk::is_error(header.kind) {
        if header.len_bytes > ERROR_BYTES_MAX {
            return Err(ClientError::Protocol(format!("error of {} bytes", header.len_bytes)));
        }
        let mut payload = vec![0; header.len_bytes as usize];
        reader.fill(&mut payload).await?;
        let error = ErrorPayload::decode(&payload)
            .ok_or_else(|| ClientError::Protocol("an error that does not add up".into()))?;
        shared.slots.borrow_mut()[index].error =
            Some(ClientError::Refused { number: error.error, message: error.message });
    } else {
        match header.kind {
            chunk::OFFSET_DATA | chunk::OFFSET_HOLE => take_content(shared, reader, header, index).await?,
            chunk::BLOCK_STATUS => take_status(shared, reader, header, index).await?,
            chunk::NONE if header.len_bytes == 0 => {}
            other => return Err(ClientError::Protocol(format!("unknown chunk {other}"))),
        }
    }
    if header.flags & CHUNK_DONE != 0 {
        shared.finish(index);
    }
    Ok(())
}

/// What one context says of the range of a status request.
async fn take_status(
    shared: &Shared,
    reader: &mut Reader,
    header: ChunkHeader,
    index: usize,
) -> Result<(), ClientError> {
    if header.len_bytes > STATUS_BYTES_MAX {
        return Err(ClientError::Protocol(format!("status of {} bytes", header.len_bytes)));
    }
    let mut payload = vec![0; header.len_bytes as usize];
    reader.fill(&mut payload).await?;
    let status = StatusPayload::decode(&payload);
    let status = status.ok_or_else(|| ClientError::Protocol("a status that does not add up".into()))?;
    let slot = &mut shared.slots.borrow_mut()[index];
    let told: u64 = status.extents.iter().map(|extent| u64::from(extent.len_bytes)).sum();
    let Some(all) = &mut slot.status else {
        return Err(ClientError::Protocol("a status that was not asked for".into()));
    };
    // The protocol lets the last extent end behind the range; this server's never does.
    if told > slot.len_bytes.into() || all.iter().any(|other| other.context == status.context) {
        return Err(ClientError::Protocol(format!("status of {told} bytes, of {} asked", slot.len_bytes)));
    }
    all.push(status);
    Ok(())
}

/// Data or a hole of a read, into its place in the read's buffer.
async fn take_content(
    shared: &Shared,
    reader: &mut Reader,
    header: ChunkHeader,
    index: usize,
) -> Result<(), ClientError> {
    let is_hole = header.kind == chunk::OFFSET_HOLE;
    let offset_bytes = u64::from_be_bytes(reader.array::<DATA_OFFSET_BYTES>().await?);
    let len = if is_hole {
        u32::from_be_bytes(reader.array().await?) as usize
    } else {
        (header.len_bytes as usize).saturating_sub(DATA_OFFSET_BYTES)
    };
    let (first, buf) = {
        let slot = &mut shared.slots.borrow_mut()[index];
        (slot.offset_bytes, slot.buf.take())
    };
    let at = offset_bytes.checked_sub(first).map(|at| at as usize);
    let (Some(at), Some(mut buf)) = (at, buf) else {
        return Err(ClientError::Protocol("data that was not asked for".into()));
    };
    if at.checked_add(len).is_none_or(|end| end > buf.len()) {
        return Err(ClientError::Protocol("data outside the range that was asked for".into()));
    }
    if is_hole {
        buf[at..at + len].fill(0);
    } else {
        let mut middle = buf.split_off(at);
        let end = middle.split_off(len);
        let mut middle = reader.fill_buf(middle).await?;
        middle.unsplit(end);
        buf.unsplit(middle);
    }
    shared.slots.borrow_mut()[index].buf = Some(buf);
    Ok(())
}
