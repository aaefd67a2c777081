//! A small HTTP server on loopback for the tests of this room: one thread a connection, one
//! request a connection, answers from a closure.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use url::Url;

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path with query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// How often this path was asked for before, whatever the method.
    pub(crate) before: usize,
}

/// What to answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Close the connection after so many bytes of the body.
    cut: Option<usize>,
    /// Send nothing more after so many bytes of the body, but keep the connection.
    stall: Option<usize>,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Reply {
        Reply { status, headers: Vec::new(), body: Vec::new(), cut: None, stall: None }
    }
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Reply {
        Reply { body: body.into(), ..Reply::status(200) }
    }
    pub(crate) fn body(mut self, body: &[u8]) -> Reply {
        self.body = body.to_vec();
        self
    }
    pub(crate) fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.into(), value.into()));
        self
    }
    pub(crate) fn cut(mut self, after: usize) -> Reply {
        self.cut = Some(after);
        self
    }
    pub(crate) fn stall(mut self, after: usize) -> Reply {
        self.stall = Some(after);
        self
    }
    /// A file server's answer: with an entity tag, and in part where asked and unchanged.
    pub(crate) fn file(request: &Request, body: &[u8], etag: &str) -> Reply {
        let whole = Reply::ok(body).header("ETag", etag).header("Accept-Ranges", "bytes");
        let Some(range) = request.headers.get("range") else { return whole };
        if request.headers.get("if-range").is_some_and(|tag| tag != etag) {
            return whole;
        }
        let start = range
            .strip_prefix("bytes=")
            .and_then(|r| r.strip_suffix('-'))
            .and_then(|s| s.parse::<usize>().ok())
            .expect("an open range");
        if start >= body.len() {
            return Reply::status(416);
        }
        let last = body.len() - 1;
        let content_range = format!("bytes {start}-{last}/{}", body.len());
        Reply { status: 206, body: body[start..].to_vec(), ..whole }
            .header("Content-Range", &content_range)
    }
}

/// The server; it ends when dropped.
pub(crate) struct Server {
    address: std::net::SocketAddr,
    log: Arc<Mutex<Vec<Request>>>,
    over: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn new(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("an address");
        let log = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let answer = Arc::new(answer);
        let (thread_log, thread_over) = (log.clone(), over.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if thread_over.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let (answer, log, over) = (answer.clone(), thread_log.clone(), thread_over.clone());
                std::thread::spawn(move || serve(stream, &*answer, &log, &over));
            }
        });
        Server { address, log, over }
    }

    /// Serves a fixed set of files with entity tags.
    pub(crate) fn files(files: Vec<(&'static str, Vec<u8>)>) -> Server {
        Server::new(move |request| match files.iter().find(|(path, _)| *path == request.path) {
            Some((path, body)) => Reply::file(request, body, &format!("\"{}\"", path.len())),
            None => Reply::status(404),
        })
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).expect("a URL")
    }

    /// All requests so far.
    pub(crate) fn log(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    stream: TcpStream,
    answer: &(dyn Fn(&Request) -> Reply + Send + Sync),
    log: &Mutex<Vec<Request>>,
    over: &AtomicBool,
) {
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return };
    let (method, path) = (method.to_string(), path.to_string());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_string());
        }
    }
    let request = {
        let mut log = log.lock().unwrap();
        let before = log.iter().filter(|seen| seen.path == path).count();
        log.push(Request { method, path, headers, before });
        log[log.len() - 1].clone()
    };
    let reply = answer(&request);
    let mut out = &stream;
    let mut head = format!("HTTP/1.1 {} Test\r\nConnection: close\r\n", reply.status);
    let own_length = reply.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("content-length"));
    if !own_length {
        head.push_str(&format!("Content-Length: {}\r\n", reply.body.len()));
    }
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    // A client that went away is the client's business.
    let _ = out.write_all(head.as_bytes());
    if request.method != "HEAD" {
        let end = reply.cut.or(reply.stall).unwrap_or(reply.body.len()).min(reply.body.len());
        let _ = out.write_all(&reply.body[..end]);
        let _ = out.flush();
        while reply.stall.is_some() && !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
