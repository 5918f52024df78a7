//! [`Trace`] v1: a run as JSON lines.
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
//! steps and a digest of all bytes before it; a truncated or changed trace is refused. *Versioned*: a
//! trace of a newer version is refused by name, not misread.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;
use crate::op::Op;
use crate::outcome::Outcome;

/// The version this program writes, and the newest it reads.
pub const VERSION: u32 = 1;

/// Domain of the trace digest.
const DOMAIN_TRACE: u64 = 6;

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
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
}

impl Header {
    /// A header of the present version.
    pub fn new(subject: impl Into<String>, reference: impl Into<String>) -> Header {
        Header {
            fathom_trace: VERSION,
            program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
            subject: subject.into(),
            reference: reference.into(),
            seed: None,
            config: Value::Null,
        }
    }
}

/// One executed operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Position, from 0.
    pub n: u64,
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

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Reading or writing failed.
    #[error("cannot read or write the trace: {0}")]
    Io(#[from] std::io::Error),
    /// A line is not what it should be.
    #[error("line {line} of the trace is damaged: {message}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Written by a newer program.
    #[error(
        "the trace has version {found}, this program reads up to version {VERSION}: use a newer fathom"
    )]
    Newer {
        /// Its version.
        found: u64,
    },
    /// The last line is missing.
    #[error("the trace is truncated: its last line with the checksum is missing")]
    Truncated,
    /// The bytes are not those that were written.
    #[error("the trace is damaged: its checksum does not match its {steps} steps")]
    Checksum {
        /// Steps found.
        steps: usize,
    },
}

impl Trace {
    /// The operations alone.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.steps.iter().map(|step| &step.op)
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
        let mut lines = input.split(b'\n').enumerate();
        let (_, first) = lines.next().ok_or(TraceError::Truncated)?;
        let first = first?;
        let header = parse_header(&first)?;
        let mut written = first;
        written.push(b'\n');
        let mut steps = Vec::new();
        for (index, line) in lines {
            let line = line?;
            if line.starts_with(b"{\"end\":") {
                let End { end } = parse(&line, index)?;
                if end.steps != steps.len() as u64 || end.sum != Digest::of(DOMAIN_TRACE, &written) {
                    return Err(TraceError::Checksum { steps: steps.len() });
                }
                return Ok(Trace { header, steps });
            }
            steps.push(parse(&line, index)?);
            written.extend_from_slice(&line);
            written.push(b'\n');
        }
        Err(TraceError::Truncated)
    }
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8], index: usize) -> Result<T, TraceError> {
    serde_json::from_slice(line)
        .map_err(|error| TraceError::Line { line: index + 1, message: error.to_string() })
}

/// The version is looked at before anything else: a newer header may have any other shape.
fn parse_header(line: &[u8]) -> Result<Header, TraceError> {
    let value: Value = parse(line, 0)?;
    match value.get("fathom_trace").and_then(Value::as_u64) {
        None => Err(TraceError::Line { line: 1, message: "not a fathom trace".to_owned() }),
        Some(found) if found > u64::from(VERSION) => Err(TraceError::Newer { found }),
        Some(_) => parse(line, 0),
    }
}

/// Writes a trace step by step, so that a killed run leaves what it did on disk.
pub struct TraceWriter<W> {
    out: W,
    written: Vec<u8>,
    steps: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn new(out: W, header: &Header) -> Result<Self, TraceError> {
        let mut writer = TraceWriter { out, written: Vec::new(), steps: 0 };
        writer.line(header)?;
        Ok(writer)
    }

    /// Writes one step.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn step(&mut self, step: &Step) -> Result<(), TraceError> {
        self.steps += 1;
        self.line(step)
    }

    /// Writes the checksum.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn finish(mut self) -> Result<(), TraceError> {
        let sum = Digest::of(DOMAIN_TRACE, &self.written);
        let end = End { end: Totals { steps: self.steps, sum } };
        self.line(&end)?;
        Ok(self.out.flush()?)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), TraceError> {
        let start = self.written.len();
        serde_json::to_writer(&mut self.written, value).map_err(std::io::Error::from)?;
        self.written.push(b'\n');
        Ok(self.out.write_all(&self.written[start..])?)
    }
}
