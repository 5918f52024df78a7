//! The encoding of remote procedure calls: XDR (RFC 4506) and the messages of RPC (RFC 5531).

/// Reads values one after the other; after a wrong one nothing more.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        let (bytes, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        Some(u32::from_be_bytes(*bytes))
    }

    /// Bytes with their length before them, padded to four.
    pub(super) fn opaque(&mut self) -> Option<&'a [u8]> {
        let len = self.number()? as usize;
        let bytes = self.rest.get(..len)?;
        self.rest = self.rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.opaque()?).ok()
    }

    /// What was not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

/// Writes values one after the other.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn number(mut self, number: u32) -> Writer {
        self.bytes.extend_from_slice(&number.to_be_bytes());
        self
    }

    pub(super) fn opaque(mut self, bytes: &[u8]) -> Writer {
        self = self.number(bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }
}

/// The head of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) xid: u32,
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
}

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;

impl Call {
    /// Reads a call; the arguments are what is left.
    pub(super) fn read<'a>(message: &'a [u8]) -> Option<(Call, Reader<'a>)> {
        let mut reader = Reader::new(message);
        let xid = reader.number()?;
        let (kind, rpc_version) = (reader.number()?, reader.number()?);
        if kind != CALL || rpc_version != RPC_VERSION {
            return None;
        }
        let call = Call {
            xid,
            program: reader.number()?,
            version: reader.number()?,
            procedure: reader.number()?,
        };
        // Who calls, and the proof of it.
        for _ in 0..2 {
            reader.number()?;
            reader.opaque()?;
        }
        Some((call, reader))
    }

    /// The beginning of an answer: accepted, without a proof, done.
    pub(super) fn answer(&self) -> Writer {
        const ACCEPTED: u32 = 0;
        const DONE: u32 = 0;
        Writer::default()
            .number(self.xid)
            .number(REPLY)
            .number(ACCEPTED)
            .number(0)
            .opaque(&[])
            .number(DONE)
    }

    /// The answer to a procedure that is not there.
    pub(super) fn unavailable(&self) -> Writer {
        const ACCEPTED: u32 = 0;
        const NO_PROCEDURE: u32 = 3;
        let answer = Writer::default().number(self.xid).number(REPLY).number(ACCEPTED);
        answer.number(0).opaque(&[]).number(NO_PROCEDURE)
    }
}

/// The bit of a record's length that says that no further piece follows (RFC 5531, section 11).
pub(super) const LAST_PIECE: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let message = Writer::default()
            .number(7)
            .number(CALL)
            .number(RPC_VERSION)
            .number(100_005)
            .number(3)
            .number(1)
            .number(1)
            .opaque(b"credentials")
            .number(0)
            .opaque(&[])
            .opaque(b"/export");
        let (call, mut arguments) = Call::read(&message.bytes).unwrap();
        assert_eq!(call, Call { xid: 7, program: 100_005, version: 3, procedure: 1 });
        assert_eq!(arguments.text(), Some("/export"));
        assert!(arguments.rest().is_empty());
        assert!(Call::read(&message.bytes[..20]).is_none());
    }
}
