//! A small HTTP/1.1 server on loopback, for tests: says exactly what a test tells it to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub method: String,
    /// Path and query, undecoded.
    pub target: String,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Send only so many bytes of the body, then hang up.
    cut: Option<usize>,
    /// Serve single ranges of the body.
    ranges: bool,
}

impl Response {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        Response { status, headers, body: body.into(), cut: None, ranges: false }
    }
    pub(crate) fn html(body: impl Into<Vec<u8>>) -> Self {
        Response::new(200, "text/html; charset=utf-8", body)
    }
    pub(crate) fn json(body: impl Into<Vec<u8>>) -> Self {
        Response::new(200, "application/vnd.pypi.simple.v1+json", body)
    }
    pub(crate) fn file(body: impl Into<Vec<u8>>) -> Self {
        Response::new(200, "application/octet-stream", body)
    }
    pub(crate) fn status(status: u16) -> Self {
        Response::new(status, "text/plain", format!("status {status}"))
    }
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
    pub(crate) fn cut(mut self, at: usize) -> Self {
        self.cut = Some(at);
        self
    }
    pub(crate) fn with_ranges(mut self) -> Self {
        self.ranges = true;
        self
    }
}

type Handler = Box<dyn Fn(&Request) -> Response + Send + Sync>;

/// A server that runs until the process ends or it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    stop: Arc<std::sync::atomic::AtomicBool>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let handler: Arc<Handler> = Arc::new(Box::new(handler));
        let (log, stopped) = (seen.clone(), stop.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
                let (handler, log) = (handler.clone(), log.clone());
                std::thread::spawn(move || {
                    // A client that hangs up is none of the server's business.
                    let _ = stream.and_then(|stream| serve(stream, &handler, &log));
                });
            }
        });
        Server { address, seen, stop }
    }

    /// `http://127.0.0.1:PORT` and `path`.
    pub(crate) fn url(&self, path: &str) -> url::Url {
        url::Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }

    /// Requests so far, as `METHOD target`.
    pub(crate) fn seen(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|r| format!("{} {}", r.method, r.target)).collect()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, handler: &Handler, log: &Mutex<Vec<Request>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(()) };
    let (method, target) = (method.to_owned(), target.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let request = Request { method, target, headers };
    log.lock().unwrap().push(request.clone());
    let mut response = handler(&request);
    if response.ranges && response.status == 200 {
        response.headers.push(("Accept-Ranges".into(), "bytes".into()));
        if let Some((from, to)) = range(&request, response.body.len()) {
            let total = response.body.len();
            response.body = response.body[from..=to].to_vec();
            response.status = 206;
            response.headers.push(("Content-Range".into(), format!("bytes {from}-{to}/{total}")));
        }
    }
    write!(out, "HTTP/1.1 {} x\r\nConnection: close\r\n", response.status)?;
    write!(out, "Content-Length: {}\r\n", response.body.len())?;
    for (name, value) in &response.headers {
        write!(out, "{name}: {value}\r\n")?;
    }
    write!(out, "\r\n")?;
    if request.method != "HEAD" {
        let end = response.cut.unwrap_or(response.body.len()).min(response.body.len());
        out.write_all(&response.body[..end])?;
    }
    out.flush()?;
    out.shutdown(std::net::Shutdown::Write)?;
    // Closing with unread input would reset the connection under the client's feet.
    let _ = reader.read(&mut [0; 64]);
    Ok(())
}

/// The one range asked for, inclusive.
fn range(request: &Request, len: usize) -> Option<(usize, usize)> {
    let (from, to) = request.headers.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
    let last = len.checked_sub(1)?;
    if from.is_empty() {
        return Some((len.saturating_sub(to.parse().ok()?), last));
    }
    let from: usize = from.parse().ok()?;
    let to: usize = if to.is_empty() { last } else { to.parse().ok()? };
    (from <= to.min(last)).then_some((from, to.min(last)))
}
