//! Tunnel: two connections joined after an upgrade, until one of them ends or both are silent.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use crate::counts::Passage;

/// Bytes read at once, in each direction.
const BUFFER: usize = 8 << 10;
/// How often within the idle limit a tunnel is looked at.
const LOOKS: u32 = 8;

/// The upstream's side of a connection that switches to another protocol.
#[derive(Debug)]
pub struct Tunnel {
    pub(crate) upstream: OnUpgrade,
    /// Kept to the end.
    pub(crate) room: Option<OwnedSemaphorePermit>,
    /// Counts to the end.
    pub(crate) passage: Passage,
    pub(crate) idle: Duration,
}

impl Tunnel {
    /// Passes bytes both ways until both sides have ended, one fails, or no byte has moved for the
    /// idle limit, or an eighth longer. Returns the number of bytes that the client was sent.
    pub async fn run(self, client: impl AsyncRead + AsyncWrite) -> u64 {
        let (_room, _passage) = (self.room, self.passage);
        let Ok(upstream) = self.upstream.await else {
            return 0; // the upstream left
        };
        join(TokioIo::new(upstream), client, self.idle).await
    }
}

/// Passes bytes both ways, see [`Tunnel::run`].
async fn join(
    upstream: impl AsyncRead + AsyncWrite,
    client: impl AsyncRead + AsyncWrite,
    idle: Duration,
) -> u64 {
    let (mut from_upstream, mut to_upstream) = split(upstream);
    let (mut from_client, mut to_client) = split(client);
    let [sent, received] = [0; 2].map(AtomicU64::new);
    let both = async {
        tokio::try_join!(
            pump(&mut from_client, &mut to_upstream, &sent),
            pump(&mut from_upstream, &mut to_client, &received),
        )
    };
    let silent = async {
        let (mut before, mut quiet) = ([0; 2], 0);
        while quiet < LOOKS {
            sleep(idle / LOOKS).await;
            let now = [&sent, &received].map(|it| it.load(Ordering::Relaxed));
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
        }
    };
    tokio::select! {
        _ = both => {} // an error: one side has left
        () = silent => {}
    }
    received.into_inner()
}

async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
        to.flush().await?; // TLS keeps bytes that the socket did not take
        moved.fetch_add(read as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{BufWriter, duplex};
    use tokio::time::{Instant, timeout};

    const MINUTE: Duration = Duration::from_secs(60);

    /// An hour of virtual time: messages of all sizes, some minutes apart, and then silence.
    #[tokio::test(start_paused = true)]
    async fn an_echo_lasts_an_hour_and_ends_after_its_silence() {
        let (mut client, near) = duplex(4 << 10);
        let (far, upstream) = duplex(4 << 10);
        let (mut read, mut write) = split(upstream);
        tokio::spawn(async move { tokio::io::copy(&mut read, &mut write).await });
        let start = Instant::now();
        let tunnel = tokio::spawn(join(far, near, 10 * MINUTE));
        let mut messages = 0_usize;
        while start.elapsed() < 60 * MINUTE {
            let byte = u8::try_from(messages % 251).unwrap();
            let sent = vec![byte; messages * 101 + 1];
            let (mut reader, mut writer) = split(&mut client);
            let mut echoed = vec![0; sent.len()];
            let write = writer.write_all(&sent);
            let (written, read) = tokio::join!(write, reader.read_exact(&mut echoed));
            assert!(
                written.is_ok() && read.is_ok() && echoed == sent,
                "{messages}"
            );
            messages += 1;
            // The longest silence, now and then.
            let pause = if messages.is_multiple_of(64) {
                9 * MINUTE
            } else {
                MINUTE / 12
            };
            sleep(pause).await;
        }
        assert!(messages > 200, "{messages}");
        let silence = Instant::now();
        tunnel.await.unwrap();
        let silence = silence.elapsed();
        assert!((9 * MINUTE..=12 * MINUTE).contains(&silence), "{silence:?}");
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn bytes_pass_until_the_end() {
        let (mut near, mut from) = duplex(16);
        let (mut to, mut far) = duplex(16);
        let moved = AtomicU64::new(0);
        let text = b"more bytes than any of the buffers holds at once";
        let write = async {
            near.write_all(text).await.unwrap();
            near.shutdown().await.unwrap();
        };
        let mut read = Vec::new();
        let ((), pumped, count) = tokio::join!(
            write,
            pump(&mut from, &mut to, &moved),
            far.read_to_end(&mut read)
        );
        assert_eq!(
            (pumped.is_ok(), count.unwrap(), &read[..]),
            (true, text.len(), &text[..])
        );
        assert_eq!(moved.into_inner(), text.len() as u64);
    }

    #[tokio::test]
    async fn bytes_are_flushed_before_more_are_read() {
        let (mut near, mut from) = duplex(16);
        let (to, mut far) = duplex(16);
        let mut to = BufWriter::new(to);
        let moved = AtomicU64::new(0);
        near.write_all(b"ping").await.unwrap();
        let mut read = [0; 4];
        let passed = async {
            tokio::select! {
                _ = pump(&mut from, &mut to, &moved) => {}
                count = far.read_exact(&mut read) => assert_eq!(count.unwrap(), 4),
            }
        };
        timeout(Duration::from_secs(10), passed).await.unwrap();
        assert_eq!(&read, b"ping");
    }
}
