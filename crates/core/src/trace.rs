//! [`Trace`]: a run as JSON lines.
//!
//! ```text
//! {"fathom_trace":1,"program":"fathom 0.1.0","subject":"dir:/mnt","reference":"model",…}
//! {"n":0,"op":{"op":"mkdir","path":"d0","mode":"0755"},"outcome":{"result":{"Ok":0}}}
//! …
//! {"end":{"steps":17,"sum":"…32 hex digits…"}}
//! ```
//!
//! *Complete*: the header has the configuration of the reference and the subject, the steps have
//! every argument; nothing else is needed to replay. *Self-checking*: the last line has the number of
//! steps and a digest of all bytes before it; a truncated or changed trace is refused, down to a
//! single bit. *Versioned*: a trace of a newer version is refused by name, not misread.
//!
//! Version 1 is a sequential run of one caller. Version 2 has several: a step says who made the call
//! (`"caller":1`), and, if calls overlapped, when it was made and when it returned, as positions in
//! the sequence of these events (`"interval":[3,6]`). A run of one caller is still written as version
//! 1, byte for byte.
//!
//! [`TraceWriter`] and [`TraceReader`] are streams: a long run needs the memory of one step.

use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twox_hash::XxHash3_128;

use crate::claim::Claim;
use crate::digest::Digest;
use crate::op::{Caller, Op};
use crate::outcome::Outcome;

/// The newest version that this program reads: that of runs with several callers.
pub const VERSION: u32 = 2;

/// The version of runs with one caller.
pub const VERSION_SEQUENTIAL: u32 = 1;

/// Domain of the trace digest.
const DOMAIN_TRACE: u64 = 6;

/// Longer lines are refused: they would be read into memory before anything else is known of them.
/// A listing of a million directory entries with names of 40 bytes still fits.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION_SEQUENTIAL`] or [`VERSION`].
    pub fathom_trace: u32,
    /// Program and version that wrote it.
    pub program: String,
    /// The subject as named on the command line.
    pub subject: String,
    /// What it was compared with.
    pub reference: String,
    /// Seed of the generator, if it was generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Configuration of the reference and of the subject; whoever wrote it knows its shape.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
    /// What must be true after the last step and was not: an exported program ends by checking it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
}

impl Header {
    /// The header of a sequential run of one caller.
    pub fn new(subject: impl Into<String>, reference: impl Into<String>) -> Header {
        Header {
            fathom_trace: VERSION_SEQUENTIAL,
            program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
            subject: subject.into(),
            reference: reference.into(),
            seed: None,
            config: Value::Null,
            claims: Vec::new(),
        }
    }

    /// The same for a run of several callers.
    pub fn with_callers(self) -> Header {
        Header { fathom_trace: VERSION, ..self }
    }
}

/// When a call was made and when it returned: positions in the one sequence of all these events of a
/// run. Of two calls, one was before the other if it returned before the other was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub struct Interval {
    invoked: u64,
    returned: u64,
}

impl Interval {
    /// An interval, if it ends after it began.
    pub fn new(invoked: u64, returned: u64) -> Option<Interval> {
        (invoked < returned).then_some(Interval { invoked, returned })
    }

    /// The position of the invocation.
    pub fn invoked(self) -> u64 {
        self.invoked
    }

    /// The position of the return.
    pub fn returned(self) -> u64 {
        self.returned
    }

    /// Whether this call had returned when the other was made.
    pub fn is_before(self, other: Interval) -> bool {
        self.returned < other.invoked
    }
}

impl TryFrom<(u64, u64)> for Interval {
    type Error = String;

    fn try_from((invoked, returned): (u64, u64)) -> Result<Interval, String> {
        Interval::new(invoked, returned)
            .ok_or_else(|| format!("the call of {invoked} returns at {returned}"))
    }
}

impl From<Interval> for (u64, u64) {
    fn from(interval: Interval) -> (u64, u64) {
        (interval.invoked, interval.returned)
    }
}

/// One executed operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Position, from 0.
    pub n: u64,
    /// Who asked.
    #[serde(default, skip_serializing_if = "is_first")]
    pub caller: Caller,
    /// When it was asked and answered, if other calls were under way at the same time. A step without
    /// it was asked after everything before it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// What was asked.
    pub op: Op,
    /// What the subject answered.
    pub outcome: Outcome,
    /// What the reference answered, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Outcome>,
    /// Digest of the subject's tree afterwards, where it was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Digest>,
}

impl Step {
    /// A step of a sequential run of one caller.
    pub fn new(n: u64, op: Op, outcome: Outcome) -> Step {
        Step { n, caller: 0, interval: None, op, outcome, expected: None, tree: None }
    }

    fn is_sequential(&self) -> bool {
        self.caller == 0 && self.interval.is_none()
    }

    /// Old programs would not see who called: they must not be given such a step.
    fn check_version(&self, version: u32, line: usize) -> Result<(), TraceError> {
        match self.is_sequential() || version >= VERSION {
            true => Ok(()),
            false => Err(TraceError::Callers { line }),
        }
    }
}

fn is_first(caller: &Caller) -> bool {
    *caller == 0
}

#[derive(Serialize, Deserialize)]
struct End {
    end: Totals,
}

#[derive(Serialize, Deserialize)]
struct Totals {
    steps: u64,
    sum: Digest,
}

/// A whole trace in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The first line.
    pub header: Header,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// Why a trace cannot be read or written. Lines are counted from 1.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum TraceError {
    /// Reading or writing failed.
    #[error("line {line} of the trace cannot be read or written: {source}")]
    Io { line: usize, source: std::io::Error },
    /// A line is not what it should be.
    #[error("line {line} of the trace is damaged: {message}")]
    Line { line: usize, message: String },
    /// Written by a newer program.
    #[error(
        "line 1: the trace has version {found}, this program reads up to version {VERSION}: use a newer fathom"
    )]
    Newer { found: u64 },
    /// A trace of one caller has a step of another one.
    #[error(
        "line {line}: the step has a caller or an interval, which a trace of version {VERSION_SEQUENTIAL} does not have"
    )]
    Callers { line: usize },
    /// The last line is missing.
    #[error("the trace is truncated: it ends at line {line} without the checksum")]
    Truncated { line: usize },
    /// The bytes are not those that were written.
    #[error(
        "line {line}: the trace is damaged: the checksum does not match the {steps} steps before it"
    )]
    Checksum { line: usize, steps: u64 },
}

impl Trace {
    /// The operations alone.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.steps.iter().map(|step| &step.op)
    }

    /// Whether all steps are of caller 0, one after the other.
    pub fn is_sequential(&self) -> bool {
        self.steps.iter().all(Step::is_sequential)
    }

    /// Writes the trace with its checksum.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write(&self, out: impl Write) -> Result<(), TraceError> {
        let mut writer = TraceWriter::new(out, &self.header)?;
        for step in &self.steps {
            writer.step(step)?;
        }
        writer.finish()
    }

    /// Reads and verifies a trace.
    ///
    /// # Errors
    /// If it is damaged, truncated or from a newer version.
    pub fn read(input: impl BufRead) -> Result<Trace, TraceError> {
        let mut reader = TraceReader::new(input)?;
        let steps = reader.by_ref().collect::<Result<_, _>>()?;
        Ok(Trace { header: reader.header, steps })
    }
}

/// Writes a trace step by step, so that a killed run leaves what it did on disk.
pub struct TraceWriter<W> {
    out: W,
    /// The line being written; kept for its capacity.
    line: Vec<u8>,
    lines: usize,
    sum: Checksum,
    steps: u64,
    version: u32,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn new(out: W, header: &Header) -> Result<Self, TraceError> {
        let version = header.fathom_trace;
        let mut writer = TraceWriter {
            out,
            line: Vec::new(),
            lines: 0,
            sum: Checksum::new(),
            steps: 0,
            version,
        };
        writer.line(header)?;
        Ok(writer)
    }

    /// Writes one step.
    ///
    /// # Errors
    /// If the writer fails, or the step needs another version than that of the header.
    pub fn step(&mut self, step: &Step) -> Result<(), TraceError> {
        step.check_version(self.version, self.lines + 1)?;
        self.steps += 1;
        self.line(step)
    }

    /// Writes the checksum.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn finish(mut self) -> Result<(), TraceError> {
        let end = End { end: Totals { steps: self.steps, sum: self.sum.digest() } };
        self.line(&end)?;
        self.out.flush().map_err(|source| TraceError::Io { line: self.lines, source })
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), TraceError> {
        self.lines += 1;
        self.line.clear();
        let written = serde_json::to_writer(&mut self.line, value).map_err(std::io::Error::from);
        self.line.push(b'\n');
        self.sum.add(&self.line);
        written
            .and_then(|()| self.out.write_all(&self.line))
            .map_err(|source| TraceError::Io { line: self.lines, source })
    }
}

/// Reads a trace step by step. What it yields is verified only when it has ended without an error:
/// the checksum is in the last line.
pub struct TraceReader<R> {
    input: R,
    header: Header,
    line: Vec<u8>,
    lines: usize,
    sum: Checksum,
    steps: u64,
    ended: bool,
}

impl<R: BufRead> TraceReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// If it is not the header of a trace that this program can read.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        let mut line = Vec::new();
        read_line(&mut input, &mut line, 1)?;
        let header = parse_header(&line)?;
        let mut sum = Checksum::new();
        sum.add(&line);
        Ok(TraceReader { input, header, line, lines: 1, sum, steps: 0, ended: false })
    }

    /// The first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next step; `None` after the last, if everything was as it was written.
    fn step(&mut self) -> Result<Option<Step>, TraceError> {
        self.lines += 1;
        read_line(&mut self.input, &mut self.line, self.lines)?;
        if self.line.starts_with(b"{\"end\":") {
            return self.end().map(|()| None);
        }
        let step: Step = parse(&self.line, self.lines)?;
        step.check_version(self.header.fathom_trace, self.lines)?;
        self.sum.add(&self.line);
        self.steps += 1;
        Ok(Some(step))
    }

    /// Checks the last line: byte for byte what the writer writes after these lines, and the end.
    fn end(&mut self) -> Result<(), TraceError> {
        let _: End = parse(&self.line, self.lines)?;
        let expected = End { end: Totals { steps: self.steps, sum: self.sum.digest() } };
        let mut text = serde_json::to_vec(&expected).expect("two numbers can be written");
        text.push(b'\n');
        if self.line != text {
            return Err(TraceError::Checksum { line: self.lines, steps: self.steps });
        }
        let rest = self.input.fill_buf();
        match rest.map_err(|source| TraceError::Io { line: self.lines + 1, source })? {
            [] => Ok(()),
            _ => Err(damaged(self.lines + 1, "something follows the checksum")),
        }
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<Step, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step().transpose();
        self.ended = !matches!(step, Some(Ok(_)));
        step
    }
}

/// Reads one line with its newline.
fn read_line(
    input: &mut impl BufRead,
    line: &mut Vec<u8>,
    number: usize,
) -> Result<(), TraceError> {
    line.clear();
    input
        .take(LINE_BYTES_MAX)
        .read_until(b'\n', line)
        .map_err(|source| TraceError::Io { line: number, source })?;
    match line.last() {
        Some(b'\n') => Ok(()),
        _ if line.len() as u64 == LINE_BYTES_MAX => Err(damaged(number, "the line is too long")),
        _ => Err(TraceError::Truncated { line: number }),
    }
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8], number: usize) -> Result<T, TraceError> {
    serde_json::from_slice(line).map_err(|error| damaged(number, &error.to_string()))
}

/// The version is looked at before anything else: a newer header may have any other shape.
fn parse_header(line: &[u8]) -> Result<Header, TraceError> {
    let value: Value = parse(line, 1)?;
    match value.get("fathom_trace").and_then(Value::as_u64) {
        None => Err(damaged(1, "not a fathom trace")),
        Some(found) if found > u64::from(VERSION) => Err(TraceError::Newer { found }),
        Some(_) => parse(line, 1),
    }
}

fn damaged(line: usize, message: &str) -> TraceError {
    TraceError::Line { line, message: message.to_owned() }
}

/// The digest of a trace while it is written or read: that of all lines in one piece.
struct Checksum(XxHash3_128);

impl Checksum {
    fn new() -> Checksum {
        Checksum(XxHash3_128::with_seed(DOMAIN_TRACE))
    }

    fn add(&mut self, line: &[u8]) {
        self.0.write(line);
    }

    fn digest(&self) -> Digest {
        Digest(self.0.finish_128())
    }
}
