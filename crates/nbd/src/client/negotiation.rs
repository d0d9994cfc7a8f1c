//! The client's side of the handshake.

use super::ClientError;
use super::incoming::Reader;
use crate::wire::handshake::{
    BlockSizes, ExportSize, FIXED_NEWSTYLE, Greeting, InfoRequest, MetaReply, MetaRequest, NO_ZEROES, OptionHeader,
    ReplyHeader, info, option, reply,
};
use runtime::{IoBuf, TcpStream};
use std::net::SocketAddr;

/// Longest data of an option reply that is believed.
const REPLY_BYTES_MAX: u32 = 64 << 10;

/// What the server says of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Size and transmission flags.
    pub size: ExportSize,
    /// Sizes of requests, if the server told them.
    pub block_sizes: Option<BlockSizes>,
    /// The canonical name, if the server told it.
    pub name: Option<String>,
    /// The metadata contexts that were chosen, and what [`block_status`](super::Client::block_status) calls them.
    pub contexts: Vec<MetaReply>,
}

/// The names of all exports of a server.
pub async fn list(address: SocketAddr) -> Result<Vec<String>, ClientError> {
    let stream = TcpStream::connect(address).await?;
    let mut reader = Reader::new(stream.clone());
    greet(&stream, &mut reader).await?;
    ask(&stream, option::LIST, &[]).await?;
    let mut names = Vec::new();
    loop {
        let (kind, data) = answer(&mut reader, option::LIST).await?;
        if kind == reply::ACK {
            return Ok(names);
        }
        let len = data.first_chunk().map(|len| u32::from_be_bytes(*len) as usize);
        let name = len.and_then(|len| data.get(4..4 + len));
        let name = name.ok_or_else(|| ClientError::Protocol("a list entry that does not add up".into()))?;
        names.push(String::from_utf8_lossy(name).into_owned());
    }
}

/// From a fresh connection to transmission.
pub(super) async fn open(
    stream: &TcpStream,
    name: &str,
    structured: bool,
    contexts: &[&str],
) -> Result<(ExportInfo, Reader), ClientError> {
    let mut reader = Reader::new(stream.clone());
    greet(stream, &mut reader).await?;
    if structured {
        ask(stream, option::STRUCTURED_REPLY, &[]).await?;
        answer(&mut reader, option::STRUCTURED_REPLY).await?;
    }
    let chosen = if contexts.is_empty() { Vec::new() } else { choose(stream, &mut reader, name, contexts).await? };
    let mut data = Vec::new();
    InfoRequest::encode(name, &[info::NAME, info::BLOCK_SIZE], &mut data);
    ask(stream, option::GO, &data).await?;
    let (mut size, mut block_sizes, mut canonical) = (None, None, None);
    loop {
        let (kind, data) = answer(&mut reader, option::GO).await?;
        if kind == reply::ACK {
            break;
        }
        let Some((kind, data)) = data.split_first_chunk() else { continue };
        match u16::from_be_bytes(*kind) {
            info::EXPORT => size = ExportSize::decode(data),
            info::BLOCK_SIZE => block_sizes = BlockSizes::decode(data),
            info::NAME => canonical = Some(String::from_utf8_lossy(data).into_owned()),
            _ => {}
        }
    }
    let size = size.ok_or_else(|| ClientError::Protocol("GO was accepted without a size".into()))?;
    Ok((ExportInfo { size, block_sizes, name: canonical, contexts: chosen }, reader))
}

/// Chooses the contexts of the export `name`; those that it has.
async fn choose(
    stream: &TcpStream,
    reader: &mut Reader,
    name: &str,
    contexts: &[&str],
) -> Result<Vec<MetaReply>, ClientError> {
    let (mut data, mut chosen) = (Vec::new(), Vec::new());
    MetaRequest::encode(name, contexts, &mut data);
    ask(stream, option::SET_META_CONTEXT, &data).await?;
    loop {
        let (kind, data) = answer(reader, option::SET_META_CONTEXT).await?;
        if kind == reply::ACK {
            return Ok(chosen);
        }
        let context = MetaReply::decode(&data);
        chosen.push(context.ok_or_else(|| ClientError::Protocol("a context that does not add up".into()))?);
    }
}

async fn greet(stream: &TcpStream, reader: &mut Reader) -> Result<(), ClientError> {
    let greeting = Greeting::decode(&reader.array::<{ Greeting::BYTES }>().await?)?;
    if greeting.is_none_or(|greeting| greeting.flags & FIXED_NEWSTYLE == 0) {
        return Err(ClientError::Protocol("the server does not speak fixed newstyle".into()));
    }
    send(stream, &u32::from(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes()).await
}

async fn ask(stream: &TcpStream, option: u32, data: &[u8]) -> Result<(), ClientError> {
    let mut bytes = OptionHeader { option, len_bytes: data.len() as u32 }.encode().to_vec();
    bytes.extend_from_slice(data);
    send(stream, &bytes).await
}

async fn send(stream: &TcpStream, bytes: &[u8]) -> Result<(), ClientError> {
    Ok(stream.send(&mut vec![IoBuf::copy_of(bytes).freeze()]).await?)
}

/// One reply to `asked` that is no refusal: its kind and data.
async fn answer(reader: &mut Reader, asked: u32) -> Result<(u32, Vec<u8>), ClientError> {
    let bytes = reader.array::<{ ReplyHeader::BYTES }>().await?;
    let Some(ReplyHeader { option, reply, len_bytes }) = ReplyHeader::decode(&bytes)? else {
        return Err(ClientError::Protocol("short reply".into()));
    };
    if option != asked || len_bytes > REPLY_BYTES_MAX {
        return Err(ClientError::Protocol(format!("reply to option {option} of {len_bytes} bytes")));
    }
    let mut data = vec![0; len_bytes as usize];
    reader.fill(&mut data).await?;
    if reply::is_error(reply) {
        return Err(ClientError::Option { option, reply, message: String::from_utf8_lossy(&data).into_owned() });
    }
    Ok((reply, data))
}
