//! Serves the page of a swarm while it runs: one page and its data, to whoever asks on the given address.
//!
//! Only `GET` of two paths, with bounded requests and deadlines; a request that names another host than the
//! one that is listened on is refused, so that no page of somebody else can read it through a browser.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::SwarmError;

/// Longest request.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Time for a request and its answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// What is served.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The page.
    pub html: String,
    /// The same for machines.
    pub json: String,
}

/// Serves a page.
pub struct Listener {
    page: Arc<Mutex<Page>>,
    address: SocketAddr,
}

impl Listener {
    /// Begins to listen. The thread ends with the program.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn start(address: SocketAddr) -> Result<Listener, SwarmError> {
        let failed = |error| SwarmError::Other(format!("cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let page = Arc::new(Mutex::new(Page::default()));
        let served = Arc::clone(&page);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let page = served.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // One after the other: whoever is slow is cut off. A visitor who goes is no problem.
                let _ = answer(stream, &page, address);
            }
        });
        Ok(Listener { page, address })
    }

    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces what is served.
    pub fn show(&self, page: Page) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page;
    }
}

fn answer(mut stream: TcpStream, page: &Page, address: SocketAddr) -> std::io::Result<()> {
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        match stream.read(&mut buffer)? {
            0 => break,
            read => request.extend_from_slice(&buffer[..read]),
        }
    }
    let request = String::from_utf8_lossy(&request);
    let (status, kind, body) = respond(&request, page, address);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
         connect-src 'self'; img-src data:\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn respond<'p>(
    request: &str,
    page: &'p Page,
    address: SocketAddr,
) -> (&'static str, &'static str, &'p str) {
    let mut lines = request.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let host = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    if !host.is_some_and(|host| is_us(host, address)) {
        return ("421 Misdirected Request", "text/plain", "this is not the host you asked for\n");
    }
    match (method, path.split('?').next().unwrap_or_default()) {
        ("GET", "/") => ("200 OK", "text/html", &page.html),
        ("GET", "/status.json") => ("200 OK", "application/json", &page.json),
        ("GET", _) => ("404 Not Found", "text/plain", "there is only /\n"),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n"),
    }
}

/// Whether a request names this address, this machine by `localhost`, or, if all addresses are listened on,
/// an address instead of a name.
fn is_us(host: &str, address: SocketAddr) -> bool {
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "80"));
    if port.parse() != Ok(address.port()) {
        return false;
    }
    let ip: Option<IpAddr> = name.trim_start_matches('[').trim_end_matches(']').parse().ok();
    match ip {
        Some(ip) => ip == address.ip() || address.ip().is_unspecified(),
        None => {
            name == "localhost" && (address.ip().is_loopback() || address.ip().is_unspecified())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_page_is_served_to_whoever_asks_for_this_host() {
        let listener = Listener::start("127.0.0.1:0".parse().unwrap()).unwrap();
        listener.show(Page { html: "<p>swarm".into(), json: "{}".into() });
        let address = listener.address();
        let get = |path: &str, host: &str| {
            ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
        };
        let own = address.to_string();
        assert!(get("/", &own).ends_with("<p>swarm"));
        assert!(get("/status.json?x", &format!("localhost:{}", address.port())).ends_with("{}"));
        assert!(get("/../etc/passwd", &own).starts_with("HTTP/1.1 404"));
        assert!(get("/", "evil.example").starts_with("HTTP/1.1 421"));
        assert!(get("/", &format!("evil.example:{}", address.port())).starts_with("HTTP/1.1 421"));
        assert!(ask(address, "POST / HTTP/1.1\r\nHost: ").starts_with("HTTP/1.1 4"));
        assert!(ask(address, "\0\u{ff}").starts_with("HTTP/1.1 421"));
    }
}
