//! Ranges of bytes of an archive, read with `pread`.
//!
//! Only a zip file's directory is read through a memory map; content is read into buffers, so
//! that an archive of gigabytes does not count as gigabytes of resident memory.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt;

use super::Unpack;
use crate::progress::{Event, Progress};

/// Bytes read at once.
const CHUNK: usize = 256 << 10;
/// Bytes between two events.
const TELL: u64 = 1 << 20;

/// A range of an archive.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    file: &'a File,
    at: u64,
    len: u64,
}

impl<'a> Section<'a> {
    /// `len` bytes from `at`.
    pub(super) fn new(file: &'a File, at: u64, len: u64) -> Self {
        Section { file, at, len }
    }

    /// Bytes in it.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads all of it, into a buffer that is used again and again.
    pub(super) fn read_into(&self, buf: &mut Vec<u8>) -> io::Result<()> {
        if buf.capacity() < self.len as usize {
            // Comes zeroed from the system, where growing would write zeros first.
            *buf = vec![0; self.len as usize];
        } else {
            buf.resize(self.len as usize, 0);
        }
        self.file.read_exact_at(buf, self.at)
    }

    /// Reads it as a stream, telling how far it got.
    pub(super) fn stream(&self, job: &'a Unpack<'_>) -> Stream<'a> {
        Stream {
            section: *self,
            buf: vec![0; CHUNK.min(self.len as usize).max(1)].into_boxed_slice(),
            filled: 0,
            taken: 0,
            told: Some((job.progress, job.file)),
            untold: 0,
        }
    }

    /// CRC-32 of all of it.
    pub(super) fn crc32(&self, job: &'a Unpack<'_>) -> io::Result<u32> {
        let mut stream = self.stream(job);
        stream.told = None;
        let mut crc = libdeflater::Crc::new();
        loop {
            let chunk = stream.fill_buf()?;
            if chunk.is_empty() {
                return Ok(crc.sum());
            }
            crc.update(chunk);
            let n = chunk.len();
            stream.consume(n);
        }
    }
}

/// A section as a stream.
pub(super) struct Stream<'a> {
    /// What is left to read from the file.
    section: Section<'a>,
    buf: Box<[u8]>,
    filled: usize,
    taken: usize,
    told: Option<(&'a dyn Progress, &'a str)>,
    untold: u64,
}

impl Stream<'_> {
    fn tell(&mut self, at_least: u64) {
        if self.untold >= at_least
            && let Some((progress, item)) = self.told
        {
            let delta = std::mem::take(&mut self.untold);
            progress.event(Event::Bytes { item, delta });
        }
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buf)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Stream<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.filled && self.section.len > 0 {
            let want = self.buf.len().min(usize::try_from(self.section.len).unwrap_or(usize::MAX));
            self.section.file.read_exact_at(&mut self.buf[..want], self.section.at)?;
            self.section.at += want as u64;
            self.section.len -= want as u64;
            self.filled = want;
            self.taken = 0;
        }
        Ok(&self.buf[self.taken..self.filled])
    }

    fn consume(&mut self, n: usize) {
        self.taken += n;
        self.untold += n as u64;
        self.tell(TELL);
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.tell(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::{Limits, UnpackPolicy};
    use std::path::Path;
    use std::sync::Mutex;

    struct Sum(Mutex<u64>);
    impl Progress for Sum {
        fn event(&self, event: Event<'_>) {
            if let Event::Bytes { delta, .. } = event {
                *self.0.lock().unwrap() += delta;
            }
        }
    }

    #[test]
    fn reads_its_range_and_tells_all_of_it() {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i >> 3) as u8).collect();
        std::io::Write::write_all(&mut &file, &bytes).unwrap();
        let sum = Sum(Mutex::new(0));
        let job = Unpack {
            archive: Path::new("/a"),
            file: "a",
            into: Path::new("/b"),
            policy: UnpackPolicy::default(),
            limits: Limits::default(),
            progress: &sum,
        };
        let section = Section::new(&file, 100, 2_800_001);
        let wanted = &bytes[100..2_800_101];
        let mut read = Vec::new();
        section.stream(&job).read_to_end(&mut read).unwrap();
        assert_eq!(read, wanted);
        assert_eq!(*sum.0.lock().unwrap(), section.len());
        section.read_into(&mut read).unwrap();
        assert_eq!(read, wanted);
        assert_eq!(section.crc32(&job).unwrap(), libdeflater::crc32(wanted));
        let beyond = Section::new(&file, 2_999_990, 20);
        assert!(beyond.read_into(&mut read).is_err());
        assert!(beyond.stream(&job).read_to_end(&mut Vec::new()).is_err());
    }
}
