//! A loopback HTTP server: fixed content, byte ranges, validators, and scripted faults.
//!
//! Follows RFC 9110 as far as package clients use it (HEAD, Range, If-Range, If-None-Match,
//! ETag, redirects, Basic authentication) and RFC 9112 for messages (keep-alive,
//! Content-Length).

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use serde::Deserialize;

/// What a path answers.
#[derive(Clone, Debug)]
pub struct Content {
    /// The body.
    pub bytes: Arc<Vec<u8>>,
    /// Content-Type.
    pub kind: &'static str,
    /// Served instead to those whose Accept names this media type.
    pub alternative: Option<(&'static str, Arc<Vec<u8>>)>,
}

impl Content {
    /// Bytes of no particular kind.
    pub fn file(bytes: impl Into<Vec<u8>>) -> Self {
        Content {
            bytes: Arc::new(bytes.into()),
            kind: "application/octet-stream",
            alternative: None,
        }
    }
    /// An HTML page.
    pub fn html(text: impl Into<String>) -> Self {
        Content { kind: "text/html", ..Content::file(text.into().into_bytes()) }
    }
    /// JSON.
    pub fn json(bytes: impl Into<Vec<u8>>) -> Self {
        Content { kind: "application/json", ..Content::file(bytes) }
    }
}

/// One thing that goes wrong. The first that matches a request decides.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Fault {
    /// Path; `*` stands for any run of characters.
    pub path: String,
    /// Only the first so many matching requests (0: all).
    pub times: usize,
    /// Leave so many matching requests alone first.
    pub after: usize,
    /// This status, with a short body.
    pub status: Option<u16>,
    /// This body, with status 200 (or `status`).
    pub body: Option<String>,
    /// Close the connection after this share of the body.
    pub cut: Option<f64>,
    /// A correct but shorter message: this share of the body, with its own Content-Length.
    pub truncate: Option<f64>,
    /// Stop sending after this share of the body, and hold the connection open.
    pub stall: Option<f64>,
    /// Wait so many milliseconds before the answer.
    pub delay: Option<u64>,
    /// Answer 401 to anybody but `user:password`.
    pub auth: Option<String>,
    /// Redirect (302) to this URL; `{{server}}` and `{{other}}` are replaced.
    pub redirect: Option<String>,
    /// Do not honour Range.
    pub no_ranges: bool,
    /// A new ETag for every request, and different bytes after the first request.
    pub changing: bool,
    /// Flip one bit in the middle of the body.
    pub corrupt: bool,
}

/// One request that was served.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `GET` or `HEAD`.
    pub method: String,
    /// Path without query.
    pub path: String,
    /// `Range`, if given.
    pub range: Option<String>,
    /// Whether an Authorization header came along.
    pub authorized: bool,
}

#[derive(Default)]
struct State {
    content: BTreeMap<String, Content>,
    faults: Vec<(Fault, usize)>,
    seen: Vec<Seen>,
}

/// A running server; it ends with the value.
pub struct Server {
    port: u16,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Listens on a free port of the loopback interface.
    pub fn start() -> io::Result<Server> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(State::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (state.clone(), stop.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let (state, stop) = (shared.clone(), stopped.clone());
                std::thread::spawn(move || {
                    // A client that goes away is not this server's concern.
                    let _ = serve(stream, port, &state, &stop);
                });
            }
        });
        Ok(Server { port, state, stop })
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The same server under another host name, for redirects that leave a host.
    pub fn other_url(&self) -> String {
        format!("http://localhost:{}", self.port)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Puts content at a path that starts with `/`.
    pub fn put(&self, path: &str, content: Content) {
        self.lock().content.insert(path.into(), content);
    }

    /// Takes content away.
    pub fn remove(&self, path: &str) {
        self.lock().content.remove(path);
    }

    /// Replaces the faults in force.
    pub fn faults(&self, faults: &[Fault]) {
        self.lock().faults = faults.iter().cloned().map(|f| (f, 0)).collect();
    }

    /// The requests since the last call, in order of arrival.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.lock().seen)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

struct Request {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
}

fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
    // A proxy is asked with the whole URL.
    let target = target
        .strip_prefix("http://")
        .map_or(target, |rest| rest.find('/').map_or("/", |at| &rest[at..]));
    let path = target.split('?').next().unwrap_or("/").to_owned();
    let method = method.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    Ok(Some(Request { method, path, headers }))
}

fn serve(stream: TcpStream, port: u16, state: &Mutex<State>, stop: &AtomicBool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader)? {
        if !answer(&mut out, &request, port, state, stop)? {
            break;
        }
    }
    Ok(())
}

/// Answers one request; `false` closes the connection.
fn answer(
    out: &mut TcpStream,
    request: &Request,
    port: u16,
    state: &Mutex<State>,
    stop: &AtomicBool,
) -> io::Result<bool> {
    let (content, fault, nth) = {
        let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.seen.push(Seen {
            method: request.method.clone(),
            path: request.path.clone(),
            range: request.headers.get("range").cloned(),
            authorized: request.headers.contains_key("authorization"),
        });
        let mut chosen = None;
        let mut nth = 0;
        for (fault, count) in &mut state.faults {
            if !matches(&fault.path, &request.path) {
                continue;
            }
            *count += 1;
            if *count > fault.after && (fault.times == 0 || *count - fault.after <= fault.times) {
                chosen = Some(fault.clone());
                nth = *count - fault.after;
                break;
            }
        }
        let path = percent_decode(&request.path);
        let content = state.content.get(&request.path).or_else(|| state.content.get(&path));
        (content.cloned(), chosen.unwrap_or_default(), nth)
    };

    if let Some(delay) = fault.delay {
        std::thread::sleep(Duration::from_millis(delay));
    }
    if let Some(expected) = &fault.auth {
        let given = request.headers.get("authorization").and_then(|h| h.strip_prefix("Basic "));
        if given != Some(base64::prelude::BASE64_STANDARD.encode(expected).as_str()) {
            let header = [("WWW-Authenticate", "Basic realm=\"packages\"".to_owned())];
            return short(out, request, 401, "who are you?\n", &header);
        }
    }
    if let Some(to) = &fault.redirect {
        let to = to
            .replace("{{server}}", &format!("http://127.0.0.1:{port}"))
            .replace("{{other}}", &format!("http://localhost:{port}"));
        return short(out, request, 302, "", &[("Location", to)]);
    }
    if fault.status.is_some() || fault.body.is_some() {
        let body = fault.body.clone().unwrap_or_else(|| "a scripted fault\n".into());
        let kind = if body.trim_start().starts_with('<') { "text/html" } else { "text/plain" };
        let header = [("Content-Type", kind.to_owned())];
        return short(out, request, fault.status.unwrap_or(200), &body, &header);
    }
    let Some(content) = content else {
        return short(out, request, 404, "not found\n", &[]);
    };

    let accept = request.headers.get("accept").map_or("", String::as_str);
    let (mut body, kind) = match &content.alternative {
        Some((kind, bytes)) if accept.contains(kind) => (bytes.clone(), *kind),
        _ => (content.bytes.clone(), content.kind),
    };
    if fault.corrupt || (fault.changing && nth > 1) {
        let mut bytes = body.to_vec();
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 1;
        }
        body = Arc::new(bytes);
    }
    if let Some(share) = fault.truncate {
        body = Arc::new(body[..part(body.len(), share)].to_vec());
    }

    let mut sum = flate2::Crc::new();
    sum.update(&body);
    let etag = match fault.changing {
        true => format!("\"{:08x}-{nth}\"", sum.sum()),
        false => format!("\"{:08x}-{}\"", sum.sum(), body.len()),
    };
    if request.headers.get("if-none-match").is_some_and(|tags| tags.contains(&etag)) {
        return short(out, request, 304, "", &[("ETag", etag)]);
    }
    let range = request
        .headers
        .get("range")
        .filter(|_| !fault.no_ranges)
        .filter(|_| request.headers.get("if-range").is_none_or(|tag| *tag == etag))
        .and_then(|r| parse_range(r, body.len()));
    let mut head = match range {
        Some((from, to)) => format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{}/{}\r\n",
            to - 1,
            body.len()
        ),
        None => "HTTP/1.1 200 OK\r\n".into(),
    };
    let slice = match range {
        Some((from, to)) => &body[from..to],
        None => &body[..],
    };
    if !fault.no_ranges {
        head += "Accept-Ranges: bytes\r\n";
    }
    head += &format!(
        "Content-Type: {kind}\r\nContent-Length: {}\r\nETag: {etag}\r\nVary: Accept\r\n\r\n",
        slice.len()
    );
    out.write_all(head.as_bytes())?;
    if request.method == "HEAD" {
        return Ok(true);
    }
    if let Some(share) = fault.cut.or(fault.stall) {
        out.write_all(&slice[..part(slice.len(), share)])?;
        out.flush()?;
        // Half a minute is longer than any test's patience; the server's end cuts it short.
        for _ in 0..if fault.stall.is_some() { 300 } else { 0 } {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        return Ok(false);
    }
    out.write_all(slice)?;
    Ok(true)
}

fn short(
    out: &mut TcpStream,
    request: &Request,
    status: u16,
    body: &str,
    headers: &[(&str, String)],
) -> io::Result<bool> {
    let mut text = format!("HTTP/1.1 {status} Scripted\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if status != 304 {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    text += "\r\n";
    if request.method != "HEAD" && status != 304 {
        text += body;
    }
    out.write_all(text.as_bytes())?;
    Ok(true)
}

fn part(len: usize, share: f64) -> usize {
    ((len as f64 * share) as usize).min(len)
}

/// `bytes=a-b`, `bytes=a-` or `bytes=-n` as a half-open range within `len`.
fn parse_range(text: &str, len: usize) -> Option<(usize, usize)> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to) = match (from.parse().ok(), to.parse::<usize>().ok()) {
        (Some(from), Some(to)) => (from, to.saturating_add(1).min(len)),
        (Some(from), None) => (from, len),
        (None, Some(n)) => (len.saturating_sub(n), len),
        (None, None) => return None,
    };
    (from < to).then_some((from, to))
}

/// Whether `path` matches `pattern`, in which `*` stands for any run of characters.
pub fn matches(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((head, rest)) => path.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len())
                .filter(|n| tail.is_char_boundary(*n))
                .any(|n| matches(rest, &tail[n..]))
        }),
    }
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match code {
            Some(code) => {
                out.push(code);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
