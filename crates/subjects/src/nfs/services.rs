//! [`Services`]: what NFS 3 needs beside the server, as one thread: a port mapper (RFC 1833), the service that
//! hands out the first file handle (RFC 1813, appendix I), and one that would tell of restarts (the kernel's
//! lock manager asks for it before it lets anybody lock).
//!
//! All of them on the port of the port mapper, over TCP and UDP.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::proxy::{read_record, write_record};
use super::xdr::{Call, Reader, Writer};
use crate::error::SubjectError;

/// The port of a port mapper, and of everything here.
pub(super) const PORT: u16 = 111;

const PORT_MAPPER: u32 = 100_000;
const MOUNT: u32 = 100_005;
const STATUS: u32 = 100_024;

const TCP: u32 = 6;
const UDP: u32 = 17;

/// Where clients of Ganesha ask for the first handle.
pub(super) const PORT_OF_MOUNTS: u16 = 20048;

/// Where clients ask: every client beyond the first finds the server at an address of its own.
pub(super) const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];

/// Running services; they end with the process.
pub(super) struct Services {
    known: Arc<Known>,
}

/// What the services tell.
#[derive(Default)]
struct Known {
    /// The file handle of the export.
    handle: Mutex<Vec<u8>>,
    /// Ports of programs, by program and protocol.
    ports: Mutex<BTreeMap<(u32, u32), u16>>,
}

/// Started once: they end with the process, and the guest has one of each port.
pub(super) fn services() -> Result<&'static Services, SubjectError> {
    static SERVICES: Mutex<Option<&'static Services>> = Mutex::new(None);
    let mut running = SERVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(services) = *running {
        return Ok(services);
    }
    let started: &'static Services = Box::leak(Box::new(Services::start()?));
    *running = Some(started);
    Ok(started)
}

impl Services {
    /// Starts them.
    fn start() -> Result<Services, SubjectError> {
        let failed = SubjectError::io("listen at", "the port of the port mapper");
        let known = Arc::new(Known::default());
        let start = || -> io::Result<()> {
            for address in ADDRESSES {
                answer_streams(TcpListener::bind((address, PORT))?, &known)?;
                answer_datagrams(UdpSocket::bind((address, PORT))?, &known)?;
            }
            Ok(())
        };
        start().map_err(failed)?;
        Ok(Services { known })
    }

    /// Answers at a socket in a directory, too.
    pub(super) fn listen_locally(&self, path: &str) -> Result<(), SubjectError> {
        let failed = SubjectError::io("listen at", path);
        let here = self.known.clone();
        let listen = || -> io::Result<()> {
            let listener = UnixListener::bind(path)?;
            let accept = move || {
                for stream in listener.incoming().flatten() {
                    let here = here.clone();
                    thread::spawn(move || drop(converse(stream, &here)));
                }
            };
            thread::Builder::new().name("nfs-services-local".into()).spawn(accept).map(drop)
        };
        listen().map_err(failed)
    }

    /// The handle that is handed out from now on.
    pub(super) fn set_handle(&self, handle: Vec<u8>) {
        *self.known.handle.lock().unwrap_or_else(PoisonError::into_inner) = handle;
    }
}

fn answer_streams(listener: TcpListener, known: &Arc<Known>) -> io::Result<()> {
    let known = known.clone();
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let known = known.clone();
            // A client that goes away in the middle of a call is not our business.
            thread::spawn(move || drop(converse(stream, &known)));
        }
    };
    thread::Builder::new().name("nfs-services".into()).spawn(accept).map(drop)
}

fn answer_datagrams(socket: UdpSocket, known: &Arc<Known>) -> io::Result<()> {
    let known = known.clone();
    let answer = move || {
        let mut message = vec![0; 65536];
        while let Ok((count, from)) = socket.recv_from(&mut message) {
            if let Some(answer) = known.answer(&message[..count]) {
                // Who does not hear it asks again.
                let _ = socket.send_to(&answer, from);
            }
        }
    };
    thread::Builder::new().name("nfs-services-udp".into()).spawn(answer).map(drop)
}

fn converse(mut stream: impl Read + Write, known: &Known) -> io::Result<()> {
    loop {
        let message = read_record(&mut stream)?;
        if let Some(answer) = known.answer(&message) {
            write_record(&mut stream, &answer)?;
        }
    }
}

impl Known {
    fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        let (call, mut arguments) = Call::read(message)?;
        let answer = match (call.program, call.version, call.procedure) {
            (_, _, 0) => call.answer(),
            (PORT_MAPPER, version, procedure) => {
                self.map_ports(&call, version, procedure, &mut arguments)?
            }
            (MOUNT, 3, 1) => {
                const AUTH_SYS: u32 = 1;
                let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone();
                call.answer().number(0).opaque(&handle).number(1).number(AUTH_SYS)
            }
            (MOUNT, 3, 3 | 4) => call.answer(),
            // Granted, in state 1.
            (STATUS, 1, 1 | 2) => call.answer().number(0).number(1),
            (STATUS, 1, 3 | 4) => call.answer().number(1),
            _ => call.unavailable(),
        };
        Some(answer.bytes)
    }

    fn map_ports(
        &self,
        call: &Call,
        version: u32,
        procedure: u32,
        arguments: &mut Reader<'_>,
    ) -> Option<Writer> {
        const TRUE: u32 = 1;
        let (program, _) = (arguments.number()?, arguments.number()?);
        let (protocol, port) = match version {
            2 => (Some(arguments.number()?), arguments.number()? as u16),
            _ => {
                let protocol = protocol_of(arguments.text()?);
                (protocol, port_of(arguments.text()?).unwrap_or_default())
            }
        };
        // What listens at addresses of IPv6 is not for our clients: they would ask in vain, again and again.
        let Some(protocol) = protocol else { return Some(call.answer().number(TRUE)) };
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        Some(match procedure {
            1 => {
                ports.insert((program, protocol), port);
                call.answer().number(TRUE)
            }
            2 => {
                ports.retain(|known, _| known.0 != program);
                call.answer().number(TRUE)
            }
            3 => {
                let port = match program {
                    MOUNT | STATUS => PORT,
                    _ => ports.get(&(program, protocol)).copied().unwrap_or_default(),
                };
                match (version, port) {
                    (2, _) => call.answer().number(port.into()),
                    (_, 0) => call.answer().opaque(b""),
                    _ => call.answer().opaque(address_of(port).as_bytes()),
                }
            }
            _ => call.unavailable(),
        })
    }
}

/// The protocol that an identifier of a network means (RFC 5665, section 5.1.1), if it is one of IPv4.
fn protocol_of(netid: &str) -> Option<u32> {
    match netid {
        "tcp" => Some(TCP),
        "udp" => Some(UDP),
        _ => None,
    }
}

/// The port in a universal address (RFC 5665, section 5.2.3.3): the last two numbers.
fn port_of(address: &str) -> Option<u16> {
    let mut parts = address.rsplit('.');
    let low: u16 = parts.next()?.parse().ok()?;
    let high: u16 = parts.next()?.parse().ok()?;
    Some(high << 8 | low)
}

fn address_of(port: u16) -> String {
    format!("127.0.0.1.{}.{}", port >> 8, port & 255)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(known: &Known, program: u32, version: u32, procedure: u32, rest: Writer) -> Vec<u8> {
        let head = Writer::default().number(1).number(0).number(2).number(program).number(version);
        let head = head.number(procedure).number(0).opaque(&[]).number(0).opaque(&[]);
        let answer = known.answer(&[head.bytes, rest.bytes].concat()).unwrap();
        // Identifier, answer, accepted, proof of two words, done.
        assert_eq!(answer[..24], call_answer()[..24]);
        answer[24..].to_vec()
    }

    fn call_answer() -> Vec<u8> {
        Call { xid: 1, program: 0, version: 0, procedure: 0 }.answer().bytes
    }

    #[test]
    fn ports_are_remembered_and_handles_handed_out() {
        let known = Known::default();
        let number = |number: u32| Writer::default().number(number).bytes;
        let of = |program| Writer::default().number(program).number(4).number(TCP).number(2049);
        assert_eq!(ask(&known, PORT_MAPPER, 2, 1, of(100_003)), number(1));
        assert_eq!(ask(&known, PORT_MAPPER, 2, 3, of(100_003)), number(2049));
        assert_eq!(ask(&known, PORT_MAPPER, 2, 3, of(100_021)), number(0));
        let new = Writer::default().number(100_021).number(4).opaque(b"tcp").opaque(b"0.0.0.0.8.1");
        assert_eq!(ask(&known, PORT_MAPPER, 4, 1, new), number(1));
        assert_eq!(ask(&known, PORT_MAPPER, 2, 3, of(100_021)), number(2049));
        // The lock manager listens at an address of IPv6, too, at another port.
        let other = Writer::default().number(100_021).number(4).opaque(b"tcp6").opaque(b"::.9.9");
        assert_eq!(ask(&known, PORT_MAPPER, 4, 1, other), number(1));
        let asked = Writer::default().number(100_021).number(4).opaque(b"tcp").opaque(b"");
        let address = Writer::default().opaque(b"127.0.0.1.8.1").bytes;
        assert_eq!(ask(&known, PORT_MAPPER, 4, 3, asked), address);
        *known.handle.lock().unwrap() = vec![9; 8];
        let mounted = ask(&known, MOUNT, 3, 1, Writer::default().opaque(b"/"));
        assert_eq!(mounted, Writer::default().number(0).opaque(&[9; 8]).number(1).number(1).bytes);
    }
}
