//! The admin socket with bounds: so many connections, and none that is silent for long. What a stranger opens there
//! takes no descriptor from the doors.

use axum::serve::Listener;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Connections at a time; the next one waits in the kernel's queue.
const CONNECTIONS_MAX: usize = 128;
/// A connection that has sent nothing for so long is closed: far above any wait of the API itself.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A listener that keeps both bounds.
pub(super) struct BoundedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    silence_max: Duration,
}

impl BoundedListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self::with_bounds(listener, CONNECTIONS_MAX, SILENCE_MAX)
    }

    fn with_bounds(listener: TcpListener, connections_max: usize, silence_max: Duration) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(connections_max)), silence_max }
    }
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        let place = self.places.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let silence_end = Box::pin(sleep(self.silence_max));
        (BoundedStream { stream, silence_end, silence_max: self.silence_max, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that holds one place and ends when it is silent for too long.
pub(super) struct BoundedStream {
    stream: TcpStream,
    silence_end: Pin<Box<Sleep>>,
    silence_max: Duration,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for BoundedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            let end = Instant::now() + self.silence_max;
            self.silence_end.as_mut().reset(end);
            return Poll::Ready(result);
        }
        ready!(self.silence_end.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[test]
    fn a_silent_connection_ends_and_frees_its_place() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let inner = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = inner.local_addr().unwrap();
            let mut listener = BoundedListener::with_bounds(inner, 1, Duration::from_millis(20));
            let _silent = TcpStream::connect(address).await.unwrap();
            let _waiting = TcpStream::connect(address).await.unwrap();
            let (mut first, _) = Listener::accept(&mut listener).await;
            assert_eq!(listener.places.available_permits(), 0);
            let error = first.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(first);
            Listener::accept(&mut listener).await;
        });
    }
}
