//! [`Proxy`]: stands between client and server and lies.
//!
//! The counterpart of everything that this module promises: a liar must be found, and the same proxy that
//! passes everything on must not be accused. It speaks NFS 3 (RFC 1813), in which a call is one thing.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use super::server::PORT as SERVER_PORT;
use super::services::ADDRESSES;
use super::xdr::{Call, LAST_PIECE, Reader, Writer};
use crate::error::SubjectError;

/// Where clients find the proxy.
pub(super) const PORT: u16 = 2050;

/// A record that is longer is none of NFS.
const RECORD_BYTES_MAX: u32 = 8 << 20;

/// The names that mean each other. Always the same two, which workloads use, so that what happens follows from the
/// operations; and beside each other, since a directory that contains itself is more than a client can bear.
const SWAPPED: [&[u8]; 2] = [b"f0", b"f1"];

/// A lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyLie {
    /// None: everything is passed on.
    None,
    /// Some writes are acknowledged as stable, and go nowhere: those of 1, 4, 7, … bytes.
    DropWrite,
    /// The attributes of a file are for ever those that were asked for first.
    StaleAttributes,
    /// Two names mean each other in every directory, when they are looked up: [`SWAPPED`].
    SwapNames,
    /// For the second client files have for ever the size and the times that it was told first.
    FreezeSecond,
    /// The first call that makes a directory is never answered, however often it is sent.
    Silent,
}

impl ProxyLie {
    /// All of them.
    pub(crate) const ALL: [ProxyLie; 6] = [
        ProxyLie::None,
        ProxyLie::DropWrite,
        ProxyLie::StaleAttributes,
        ProxyLie::SwapNames,
        ProxyLie::FreezeSecond,
        ProxyLie::Silent,
    ];

    /// As the command line has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ProxyLie::None => "honest-proxy",
            ProxyLie::DropWrite => "drop-write",
            ProxyLie::StaleAttributes => "stale-attributes",
            ProxyLie::SwapNames => "swap-names",
            ProxyLie::FreezeSecond => "freeze-second",
            ProxyLie::Silent => "silent",
        }
    }

    /// What it does.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            ProxyLie::None => "a proxy that passes everything on, which must not be accused",
            ProxyLie::DropWrite => "acknowledges a third of all writes and drops them",
            ProxyLie::StaleAttributes => "the attributes of a file stay what they were first",
            ProxyLie::SwapNames => "the names f0 and f1 mean each other",
            ProxyLie::FreezeSecond => {
                "for the second client the size and times of a file stay what they were first \
                 (found with --clients 2)"
            }
            ProxyLie::Silent => "never answers the first call that makes a directory",
        }
    }
}

impl FromStr for ProxyLie {
    type Err = ();

    fn from_str(text: &str) -> Result<ProxyLie, ()> {
        ProxyLie::ALL.into_iter().find(|lie| lie.name() == text).ok_or(())
    }
}

/// The only one: a process has one proxy.
static LIAR: OnceLock<Arc<Mutex<Liar>>> = OnceLock::new();

/// Lets the proxy forget what it knows, since the store is another one now: what it does follows from the
/// operations since then, so that they can be run again.
pub(super) fn begin_again() {
    if let Some(liar) = LIAR.get() {
        let mut liar = lock(liar);
        *liar = Liar::new(liar.lie);
    }
}

/// Starts a proxy, which ends with the process.
pub(super) fn start(lie: ProxyLie) -> Result<(), SubjectError> {
    let liar = LIAR.get_or_init(|| Arc::new(Mutex::new(Liar::new(lie)))).clone();
    // What it knows of a store that is gone would be about nothing.
    *lock(&liar) = Liar::new(lie);
    for (client, address) in ADDRESSES.into_iter().enumerate() {
        let failed = SubjectError::io("listen at", "the port of the proxy");
        match TcpListener::bind((address, PORT)) {
            Ok(listener) => accept(listener, client, address, &liar).map_err(failed)?,
            // It was started for a subject before this one, by the same process.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(())
}

/// Serves a client, which finds the server and so the proxy at an address of its own.
fn accept(
    listener: TcpListener,
    client: usize,
    address: Ipv4Addr,
    liar: &Arc<Mutex<Liar>>,
) -> io::Result<()> {
    let liar = liar.clone();
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let liar = liar.clone();
            // A connection that ends is made again by the client.
            thread::spawn(move || drop(pass_on(stream, client, address, &liar)));
        }
    };
    thread::Builder::new().name("nfs-proxy".into()).spawn(accept).map(drop)
}

fn lock(liar: &Mutex<Liar>) -> MutexGuard<'_, Liar> {
    liar.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes on one connection in both directions until either side ends it.
fn pass_on(
    stream: TcpStream,
    client: usize,
    address: Ipv4Addr,
    liar: &Arc<Mutex<Liar>>,
) -> io::Result<()> {
    let server = TcpStream::connect((address, SERVER_PORT))?;
    let (mut from_server, mut to_client) = (server.try_clone()?, stream.try_clone()?);
    let answers = Arc::new(Mutex::new(to_client.try_clone()?));
    let (there, back) = (liar.clone(), answers.clone());
    let returning = thread::spawn(move || {
        while let Ok(mut answer) = read_record(&mut from_server) {
            lock(&there).answer(client, &mut answer);
            let mut to_client = back.lock().unwrap_or_else(PoisonError::into_inner);
            if write_record(&mut *to_client, &answer).is_err() {
                break;
            }
        }
        // So that the other direction ends, too.
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = to_client.flush();
    });
    let (mut from_client, mut to_server) = (stream, server);
    while let Ok(mut call) = read_record(&mut from_client) {
        let fate = lock(liar).call(client, &mut call);
        match fate {
            Fate::PassedOn => write_record(&mut to_server, &call)?,
            Fate::Answered(answer) => {
                let mut to_client = answers.lock().unwrap_or_else(PoisonError::into_inner);
                write_record(&mut *to_client, &answer)?;
            }
            Fate::Swallowed => {}
        }
    }
    let _ = to_server.shutdown(Shutdown::Both);
    let _ = returning.join();
    Ok(())
}

/// Reads a message of one or more pieces.
pub(super) fn read_record(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        let mut head = [0; 4];
        from.read_exact(&mut head)?;
        let head = u32::from_be_bytes(head);
        let bytes = head & !LAST_PIECE;
        if bytes > RECORD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let start = message.len();
        message.resize(start + bytes as usize, 0);
        from.read_exact(&mut message[start..])?;
        if head & LAST_PIECE != 0 {
            return Ok(message);
        }
    }
}

pub(super) fn write_record(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let head = LAST_PIECE | message.len() as u32;
    to.write_all(&[&head.to_be_bytes()[..], message].concat())
}

const NFS: u32 = 100_003;
const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const ACCESS: u32 = 4;
const WRITE: u32 = 7;
const MKDIR: u32 = 9;

/// Bytes of `fattr3`.
const ATTRIBUTES_BYTES: usize = 84;
/// Where it has what tells that a file has changed: its size; when it was written and when it was changed.
const CHANGES: [Range<usize>; 2] = [20..28, 68..84];
/// Where it has the type, and that of regular files.
const TYPE: Range<usize> = 0..4;
const REGULAR: [u8; 4] = [0, 0, 0, 1];
/// The number of the client that [`ProxyLie::FreezeSecond`] lies to.
const SECOND: usize = 1;
/// Bytes of an accepted answer before its results.
const ANSWER_HEAD_BYTES: usize = 24;
/// `FILE_SYNC`.
const STABLE: u32 = 2;

/// What happens to a call.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// The server gets it, changed or not.
    PassedOn,
    /// The proxy answers instead.
    Answered(Vec<u8>),
    /// Nobody answers.
    Swallowed,
}

/// A call: the number of its client and its identifier there.
type CallId = (usize, u32);

/// What the proxy remembers to lie.
struct Liar {
    lie: ProxyLie,
    /// What is being asked.
    asked: HashMap<CallId, (u32, Vec<u8>)>,
    /// The first attributes of each handle.
    first: HashMap<Vec<u8>, Vec<u8>>,
    /// The call that is never answered.
    swallowed: Option<CallId>,
}

impl Liar {
    fn new(lie: ProxyLie) -> Liar {
        Liar { lie, asked: HashMap::new(), first: HashMap::new(), swallowed: None }
    }

    /// Decides about a call, and may change it.
    fn call(&mut self, client: usize, message: &mut Vec<u8>) -> Fate {
        self.treat(client, message).unwrap_or(Fate::PassedOn)
    }

    /// What happens to a call that is lied about.
    fn treat(&mut self, client: usize, message: &mut Vec<u8>) -> Option<Fate> {
        let (call, arguments) = Call::read(message)?;
        if call.program != NFS {
            return None;
        }
        let at = message.len() - arguments.rest().len();
        match (self.lie, call.procedure) {
            (ProxyLie::DropWrite, WRITE) => {
                Liar::drop_write(&call, &message[at..]).map(Fate::Answered)
            }
            (ProxyLie::FreezeSecond, _) if client != SECOND => None,
            (ProxyLie::StaleAttributes | ProxyLie::FreezeSecond, GETATTR | LOOKUP | ACCESS) => {
                let handle = Reader::new(&message[at..]).opaque()?.to_vec();
                self.asked.insert((client, call.xid), (call.procedure, handle));
                None
            }
            (ProxyLie::Silent, MKDIR) => {
                let this = (client, call.xid);
                (*self.swallowed.get_or_insert(this) == this).then_some(Fate::Swallowed)
            }
            (ProxyLie::SwapNames, LOOKUP) => {
                let mut arguments = Reader::new(&message[at..]);
                let (dir, name) = (arguments.opaque()?, arguments.opaque()?);
                let index = SWAPPED.iter().position(|swapped| *swapped == name)?;
                let other = Writer::default().opaque(dir).opaque(SWAPPED[1 - index]);
                message.splice(at.., other.bytes);
                None
            }
            _ => None,
        }
    }

    /// Acknowledges and forgets a third of all writes, chosen by their sizes, so that they are the same ones when
    /// operations are run again.
    fn drop_write(call: &Call, arguments: &[u8]) -> Option<Vec<u8>> {
        let mut reader = Reader::new(arguments);
        reader.opaque()?;
        let (_, _, count) = (reader.number()?, reader.number()?, reader.number()?);
        if count % 3 != 1 {
            return None;
        }
        // Done, no attributes before and after, all bytes, stable, and a verifier of two words.
        let answer = call.answer().number(0).number(0).number(0).number(count).number(STABLE);
        Some(answer.number(0).number(0).bytes)
    }

    /// Changes an answer.
    fn answer(&mut self, client: usize, message: &mut [u8]) {
        let Some(xid) = Reader::new(message).number() else { return };
        let Some((procedure, asked)) = self.asked.remove(&(client, xid)) else { return };
        let is_done = message.get(ANSWER_HEAD_BYTES..ANSWER_HEAD_BYTES + 4) == Some(&[0; 4]);
        if !is_done {
            return;
        }
        let place = match procedure {
            GETATTR => Some((asked, ANSWER_HEAD_BYTES + 4)),
            ACCESS => after(message, ANSWER_HEAD_BYTES + 4).map(|at| (asked, at)),
            _ => handle_in_lookup(message),
        };
        let Some((handle, at)) = place else { return };
        let Some(attributes) = message.get_mut(at..at + ATTRIBUTES_BYTES) else { return };
        let first = self.first.entry(handle).or_insert_with(|| attributes.to_vec());
        if self.lie == ProxyLie::StaleAttributes {
            attributes.copy_from_slice(first);
        } else if attributes[TYPE] == REGULAR {
            for bytes in CHANGES {
                attributes[bytes.clone()].copy_from_slice(&first[bytes]);
            }
        }
    }
}

/// Where optional attributes begin, if they are there.
fn after(message: &[u8], at: usize) -> Option<usize> {
    (message.get(at..at + 4)? == [0, 0, 0, 1]).then_some(at + 4)
}

/// The handle in the answer to a LOOKUP, and where its attributes are.
fn handle_in_lookup(message: &[u8]) -> Option<(Vec<u8>, usize)> {
    let rest = message.get(ANSWER_HEAD_BYTES + 4..)?;
    let mut reader = Reader::new(rest);
    let handle = reader.opaque()?.to_vec();
    let at = message.len() - reader.rest().len();
    after(message, at).map(|at| (handle, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of NFS 3.
    fn call_of(xid: u32, procedure: u32, arguments: Writer) -> Vec<u8> {
        let head = Writer::default().number(xid).number(0).number(2).number(NFS).number(3);
        let head = head.number(procedure).number(0).opaque(&[]).number(0).opaque(&[]);
        [head.bytes, arguments.bytes].concat()
    }

    fn answer_of(xid: u32) -> Writer {
        Call { xid, program: NFS, version: 3, procedure: 0 }.answer().number(0)
    }

    #[test]
    fn a_third_of_all_writes_is_dropped() {
        let mut liar = Liar::new(ProxyLie::DropWrite);
        let write = |count: u32| {
            let arguments = Writer::default().opaque(b"handle").number(0).number(0).number(count);
            call_of(7, WRITE, arguments.number(2).opaque(&vec![0; count as usize]))
        };
        let answers: Vec<bool> =
            (0..6).map(|count| liar.call(0, &mut write(count)) != Fate::PassedOn).collect();
        assert_eq!(answers, [false, true, false, false, true, false]);
        let mut honest = Liar::new(ProxyLie::None);
        assert!((0..6).all(|count| honest.call(0, &mut write(count)) == Fate::PassedOn));
    }

    #[test]
    fn one_call_is_swallowed_however_often_it_is_sent() {
        let mut liar = Liar::new(ProxyLie::Silent);
        let mut send = |client, xid, procedure| {
            liar.call(client, &mut call_of(xid, procedure, Writer::default().opaque(b"dir")))
        };
        assert_eq!(send(0, 1, LOOKUP), Fate::PassedOn);
        assert_eq!([send(0, 2, MKDIR), send(0, 2, MKDIR)], [Fate::Swallowed, Fate::Swallowed]);
        assert_eq!([send(0, 3, MKDIR), send(1, 2, MKDIR)], [Fate::PassedOn, Fate::PassedOn]);
    }

    #[test]
    fn the_second_client_alone_is_told_old_sizes_and_times_of_files() {
        let mut liar = Liar::new(ProxyLie::FreezeSecond);
        let mut ask = |client, kind: u8, value: u8| {
            liar.call(client, &mut call_of(9, GETATTR, Writer::default().opaque(&[kind])));
            let mut answer = answer_of(9).bytes;
            let start = answer.len();
            answer.extend([value; ATTRIBUTES_BYTES]);
            answer[start..start + 4].copy_from_slice(&[0, 0, 0, kind]);
            liar.answer(client, &mut answer);
            // The mode, the size, when it was read, written and changed.
            [4, 27, 60, 68, 83].map(|at| answer[start + at])
        };
        assert_eq!(ask(1, 1, 5), [5; 5]);
        assert_eq!([ask(1, 1, 6), ask(0, 1, 6)], [[6, 5, 6, 5, 5], [6; 5]]);
        assert_eq!([ask(1, 2, 5), ask(1, 2, 6)], [[5; 5], [6; 5]], "a directory");
    }

    #[test]
    fn attributes_stay_the_first_ones() {
        let mut liar = Liar::new(ProxyLie::StaleAttributes);
        let mut ask = |size: u8| {
            liar.call(0, &mut call_of(9, GETATTR, Writer::default().opaque(b"handle")));
            let mut answer = answer_of(9).bytes;
            answer.extend([size; ATTRIBUTES_BYTES]);
            liar.answer(0, &mut answer);
            answer[ANSWER_HEAD_BYTES + 4]
        };
        assert_eq!([ask(1), ask(2), ask(3)], [1, 1, 1]);
    }

    #[test]
    fn two_names_mean_each_other() {
        let mut liar = Liar::new(ProxyLie::SwapNames);
        let look = |name: &[u8]| {
            let mut call = call_of(3, LOOKUP, Writer::default().opaque(b"dir").opaque(name));
            assert_eq!(liar.call(0, &mut call), Fate::PassedOn);
            let (_, mut arguments) = Call::read(&call).unwrap();
            assert_eq!(arguments.opaque(), Some(b"dir".as_slice()));
            arguments.text().unwrap().to_owned()
        };
        let looked = [b"f0".as_slice(), b"f1", b"f2", b"f0", b"d0"].map(look);
        assert_eq!(looked, ["f1", "f0", "f2", "f1", "d0"]);
    }
}
