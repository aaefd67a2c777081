//! Decoding ahead: a large file is decoded by one thread while another hashes and writes it.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Scope;

/// Bytes of a chunk.
const CHUNK: usize = 1 << 20;
/// Chunks decoded ahead.
const CHUNKS: usize = 4;

/// A reader of what another thread decodes.
pub(super) struct Ahead {
    full: Receiver<io::Result<Vec<u8>>>,
    empty: SyncSender<Vec<u8>>,
    chunk: Vec<u8>,
    taken: usize,
}

impl Ahead {
    /// Starts to read `from` in a thread of `scope`, which ends with `from` or soon after the
    /// reader is dropped.
    pub(super) fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        mut from: Box<dyn Read + Send + 'scope>,
    ) -> Ahead {
        let (send_full, full) = sync_channel(CHUNKS);
        let (empty, take_empty) = sync_channel::<Vec<u8>>(CHUNKS + 2);
        scope.spawn(move || {
            loop {
                let mut chunk = take_empty.try_recv().unwrap_or_default();
                chunk.resize(CHUNK, 0);
                let read = fill(&mut *from, &mut chunk);
                let last = !matches!(read, Ok(CHUNK));
                let sent = send_full.send(read.map(|n| {
                    chunk.truncate(n);
                    chunk
                }));
                if last || sent.is_err() {
                    return;
                }
            }
        });
        Ahead { full, empty, chunk: Vec::new(), taken: 0 }
    }
}

impl Read for Ahead {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.chunk.len() {
            // The channel closes after the last chunk.
            let Ok(next) = self.full.recv() else { return Ok(0) };
            let used = std::mem::replace(&mut self.chunk, next?);
            // Full only if the other side is gone; then it is dropped.
            let _ = self.empty.try_send(used);
            self.taken = 0;
        }
        let n = (&self.chunk[self.taken..]).read(buf)?;
        self.taken += n;
        Ok(n)
    }
}

/// Reads until `buf` is full or the stream ends.
pub(super) fn fill(from: &mut (impl Read + ?Sized), buf: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match from.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_everything_on_and_errors_too() {
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 9 * CHUNK + 17] {
            let bytes: Vec<u8> = (0..len).map(|i| (i >> 4) as u8).collect();
            let mut out = Vec::new();
            std::thread::scope(|s| {
                Ahead::start(s, Box::new(&bytes[..])).read_to_end(&mut out).unwrap();
            });
            assert!(out == bytes, "{len}");
        }
        struct Bad(usize);
        impl Read for Bad {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                if self.0 == 0 {
                    return Err(io::Error::other("bad"));
                }
                let n = buf.len().min(self.0);
                self.0 -= n;
                Ok(n)
            }
        }
        std::thread::scope(|s| {
            let e = Ahead::start(s, Box::new(Bad(3 * CHUNK + 5))).read_to_end(&mut Vec::new());
            assert_eq!(e.unwrap_err().to_string(), "bad");
            // Dropped early, the thread ends as well.
            drop(Ahead::start(s, Box::new(Bad(usize::MAX))));
        });
    }
}
