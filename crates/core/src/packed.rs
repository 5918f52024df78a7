//! Operations as a few bytes, for memory that is written before every operation and almost never
//! read: a record of a [`Journal`](crate::Journal).
//!
//! Writer and reader are the same program, so there is no version and nothing to skip; what is kept
//! for others is a [`Trace`](crate::Trace). Numbers are little endian in groups of seven bits, small
//! ones first (a negative one has its sign in the lowest bit); byte strings have their length before
//! them. Which field follows which is in the table of [`crate::operand`].

use crate::bytes::FsBytes;
use crate::flags::{
    AccessMode, FallocateMode, Mode, MsyncFlags, OpenFlags, RenameFlags, ServerEvents,
    SyncRangeFlags, Whence, XattrFlags,
};
use crate::op::{Target, TimeArg};
use crate::pattern::Pattern;

/// A field of an operation that can be packed.
pub(crate) trait Packed: Sized {
    /// Appends the value.
    fn pack(&self, to: &mut Vec<u8>);

    /// Takes a value off the front; `None` if there is none.
    fn unpack(from: &mut &[u8]) -> Option<Self>;
}

impl Packed for u64 {
    #[inline]
    fn pack(&self, to: &mut Vec<u8>) {
        if *self < 0x80 {
            return to.push(*self as u8);
        }
        // All bytes at once: the vector is asked for room once.
        let (mut bytes, mut len, mut rest) = ([0; 10], 0, *self);
        while rest >= 0x80 {
            bytes[len] = rest as u8 | 0x80;
            (len, rest) = (len + 1, rest >> 7);
        }
        bytes[len] = rest as u8;
        to.extend_from_slice(&bytes[..=len]);
    }

    fn unpack(from: &mut &[u8]) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = from.split_first()?;
            *from = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl Packed for i64 {
    #[inline]
    fn pack(&self, to: &mut Vec<u8>) {
        // The sign goes to the lowest bit, so that small negative numbers are small.
        (((*self << 1) ^ (*self >> 63)) as u64).pack(to);
    }

    fn unpack(from: &mut &[u8]) -> Option<i64> {
        let folded = u64::unpack(from)?;
        Some((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }
}

/// Types that are packed as another one.
macro_rules! packed_as {
    ($($name:ty as $other:ty: $to:expr, $from:expr;)*) => {$(
        impl Packed for $name {
            #[inline]
            fn pack(&self, to: &mut Vec<u8>) {
                let other: fn(&$name) -> $other = $to;
                other(self).pack(to);
            }

            fn unpack(from: &mut &[u8]) -> Option<$name> {
                let value: fn($other) -> Option<$name> = $from;
                value(Packed::unpack(from)?)
            }
        }
    )*};
}

packed_as! {
    u8 as u64: |number| (*number).into(), |number| number.try_into().ok();
    u32 as u64: |number| (*number).into(), |number| number.try_into().ok();
    bool as u64: |flag| (*flag).into(), |number| (number < 2).then_some(number == 1);
    Mode as u32: |mode| mode.0, |bits| Some(Mode(bits));
    OpenFlags as u32: |flags| flags.bits(), |bits| Some(OpenFlags::from_bits_retain(bits));
    RenameFlags as u32: |flags| flags.bits(), |bits| Some(RenameFlags::from_bits_retain(bits));
    AccessMode as u32: |flags| flags.bits(), |bits| Some(AccessMode::from_bits_retain(bits));
    FallocateMode as u32: |flags| flags.bits(), |bits| Some(FallocateMode::from_bits_retain(bits));
    XattrFlags as u32: |flags| flags.bits(), |bits| Some(XattrFlags::from_bits_retain(bits));
    MsyncFlags as u32: |flags| flags.bits(), |bits| Some(MsyncFlags::from_bits_retain(bits));
    ServerEvents as u32: |events| events.bits(), |bits| Some(ServerEvents::from_bits_retain(bits));
    SyncRangeFlags as u32:
        |flags| flags.bits(), |bits| Some(SyncRangeFlags::from_bits_retain(bits));
    Whence as u64: |whence| *whence as u64, |number| WHENCES.get(number as usize).copied();
    Pattern as (u64, u64): |data| (data.seed, data.len), |(seed, len)| Some(Pattern { seed, len });
}

/// By their numbers.
const WHENCES: [Whence; 5] = [Whence::Set, Whence::Cur, Whence::End, Whence::Data, Whence::Hole];

impl<A: Packed, B: Packed> Packed for (A, B) {
    #[inline]
    fn pack(&self, to: &mut Vec<u8>) {
        self.0.pack(to);
        self.1.pack(to);
    }

    fn unpack(from: &mut &[u8]) -> Option<(A, B)> {
        Some((A::unpack(from)?, B::unpack(from)?))
    }
}

impl<T: Packed> Packed for Option<T> {
    #[inline]
    fn pack(&self, to: &mut Vec<u8>) {
        self.is_some().pack(to);
        if let Some(value) = self {
            value.pack(to);
        }
    }

    fn unpack(from: &mut &[u8]) -> Option<Option<T>> {
        if bool::unpack(from)? { T::unpack(from).map(Some) } else { Some(None) }
    }
}

impl<T: Packed> Packed for Vec<T> {
    fn pack(&self, to: &mut Vec<u8>) {
        (self.len() as u64).pack(to);
        self.iter().for_each(|value| value.pack(to));
    }

    fn unpack(from: &mut &[u8]) -> Option<Vec<T>> {
        let len = u64::unpack(from)?;
        (0..len).map(|_| T::unpack(from)).collect()
    }
}

impl Packed for FsBytes {
    #[inline]
    fn pack(&self, to: &mut Vec<u8>) {
        (self.as_bytes().len() as u64).pack(to);
        to.extend_from_slice(self.as_bytes());
    }

    fn unpack(from: &mut &[u8]) -> Option<FsBytes> {
        let len = usize::try_from(u64::unpack(from)?).ok()?;
        let (bytes, rest) = from.split_at_checked(len)?;
        *from = rest;
        Some(FsBytes::from(bytes))
    }
}

impl Packed for Target {
    #[inline]
    fn pack(&self, to: &mut Vec<u8>) {
        match self {
            Target::Path(path) => {
                to.push(0);
                path.pack(to);
            }
            Target::Link(path) => {
                to.push(1);
                path.pack(to);
            }
            Target::Slot(slot) => {
                to.push(2);
                slot.pack(to);
            }
        }
    }

    fn unpack(from: &mut &[u8]) -> Option<Target> {
        Some(match u64::unpack(from)? {
            0 => Target::Path(Packed::unpack(from)?),
            1 => Target::Link(Packed::unpack(from)?),
            2 => Target::Slot(Packed::unpack(from)?),
            _ => return None,
        })
    }
}

impl Packed for TimeArg {
    fn pack(&self, to: &mut Vec<u8>) {
        match self {
            TimeArg::Now => to.push(0),
            TimeArg::Omit => to.push(1),
            TimeArg::At { sec, nsec } => {
                to.push(2);
                sec.pack(to);
                nsec.pack(to);
            }
        }
    }

    fn unpack(from: &mut &[u8]) -> Option<TimeArg> {
        Some(match u64::unpack(from)? {
            0 => TimeArg::Now,
            1 => TimeArg::Omit,
            2 => TimeArg::At { sec: Packed::unpack(from)?, nsec: Packed::unpack(from)? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_small_ones_are_short() {
        for value in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN, 4096, -4097] {
            let mut bytes = Vec::new();
            value.pack(&mut bytes);
            assert_eq!(bytes.len() == 1, (-64..64).contains(&value), "{value}");
            assert_eq!(i64::unpack(&mut bytes.as_slice()), Some(value));
            let mut bytes = Vec::new();
            (value as u64).pack(&mut bytes);
            assert_eq!(u64::unpack(&mut bytes.as_slice()), Some(value as u64));
        }
    }

    #[test]
    fn what_is_cut_off_or_out_of_range_is_nothing() {
        assert_eq!(u64::unpack(&mut &[0x80; 3][..]), None);
        assert_eq!(u64::unpack(&mut &[0xff; 11][..]), None);
        assert_eq!(u8::unpack(&mut &[0x80, 0x02][..]), None);
        assert_eq!(bool::unpack(&mut &[2][..]), None);
        assert_eq!(Whence::unpack(&mut &[5][..]), None);
        assert_eq!(FsBytes::unpack(&mut &[3, b'a', b'b'][..]), None);
        assert_eq!(Target::unpack(&mut &[3, 0][..]), None);
        assert_eq!(TimeArg::unpack(&mut &[3][..]), None);
        assert_eq!(Vec::<u32>::unpack(&mut &[2, 1][..]), None);
    }

    #[test]
    fn every_whence_has_its_number() {
        for (number, whence) in WHENCES.into_iter().enumerate() {
            assert_eq!(whence as usize, number);
        }
    }
}
