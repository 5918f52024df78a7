//! Simpler versions of an operation.

use fathom_core::operand::{FlagSet, OperandMut};
use fathom_core::{Mode, Op};

/// Operations like `op` with one argument simpler. Repeated, this ends: every version has a smaller
/// number, fewer flags or a more usual mode.
pub(super) fn smaller(op: &Op) -> impl Iterator<Item = Op> + use<> {
    let op = op.clone();
    (0..).map_while(move |n| {
        let mut version = op.clone();
        let mut choice = Choice { left: n, made: false };
        choice.visit(&mut version);
        choice.made.then_some(version)
    })
}

/// Walks over the arguments of an operation and applies simplification number `left` of all that
/// there are.
struct Choice {
    left: usize,
    made: bool,
}

/// The order in which things are simplified.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Offsets,
    Amounts,
    Flags,
    Modes,
}

impl Choice {
    fn visit(&mut self, op: &mut Op) {
        for pass in [Pass::Offsets, Pass::Amounts, Pass::Flags, Pass::Modes] {
            op.operands_mut(|operand| self.operand(operand, pass));
        }
    }

    fn operand(&mut self, operand: OperandMut<'_>, pass: Pass) {
        match operand {
            OperandMut::Offset(offset, _)
            | OperandMut::Distance(offset, _)
            | OperandMut::Position(Some(offset), _)
                if pass == Pass::Offsets =>
            {
                self.signed(offset)
            }
            OperandMut::Length(len, _) | OperandMut::IntLength(len, _) if pass == Pass::Amounts => {
                self.number(len)
            }
            OperandMut::SignedLength(len, _) if pass == Pass::Amounts => self.signed(len),
            OperandMut::Data(data, ..) if pass == Pass::Amounts => self.number(&mut data.len),
            OperandMut::Flags(flags, _) if pass == Pass::Flags => self.flags(flags),
            OperandMut::Mode(mode, _) if pass == Pass::Modes => self.mode(mode),
            OperandMut::Groups(groups) if pass == Pass::Modes => self.list(groups),
            // Another pass, or as simple as it gets.
            OperandMut::Offset(..)
            | OperandMut::Distance(..)
            | OperandMut::Position(..)
            | OperandMut::Length(..)
            | OperandMut::IntLength(..)
            | OperandMut::SignedLength(..)
            | OperandMut::Data(..)
            | OperandMut::Flags(..)
            | OperandMut::Mode(..)
            | OperandMut::Groups(_) => {}
            OperandMut::Slot(..)
            | OperandMut::Path(..)
            | OperandMut::Target(..)
            | OperandMut::Text(..)
            | OperandMut::XattrName(..)
            | OperandMut::Number(..)
            | OperandMut::Back(_)
            | OperandMut::Whence(..)
            | OperandMut::Mask(..)
            | OperandMut::Device(_)
            | OperandMut::Owner(..)
            | OperandMut::Id(..)
            | OperandMut::Time(_)
            | OperandMut::At(_)
            | OperandMut::Buffer(_)
            | OperandMut::Fixed(..) => {}
        }
    }

    /// Whether the simplification that comes now is the chosen one.
    fn take(&mut self) -> bool {
        let now = !self.made && self.left == 0;
        self.left = self.left.saturating_sub(1);
        self.made |= now;
        now
    }

    fn number(&mut self, number: &mut u64) {
        let value = *number;
        let power = (value > 1).then(|| 1 << (value - 1).ilog2());
        for simpler in [Some(0), Some(1), power, Some(value / 2)].into_iter().flatten() {
            if simpler < value && self.take() {
                *number = simpler;
            }
        }
    }

    /// Negative numbers are there for a reason and stay.
    fn signed(&mut self, number: &mut i64) {
        if let Ok(mut value) = u64::try_from(*number) {
            self.number(&mut value);
            *number = value as i64;
        }
    }

    fn flags(&mut self, flags: &mut dyn FlagSet) {
        let bits = flags.get();
        for bit in (0..32).map(|shift| 1 << shift).filter(|bit| bits & bit != 0) {
            if self.take() {
                flags.set(bits & !bit);
            }
        }
    }

    /// The type bits stay.
    fn mode(&mut self, mode: &mut Mode) {
        let value = mode.0;
        let kind = value & Mode::S_IFMT;
        let usual = [0o644, 0o755];
        if usual.contains(&mode.perm()) {
            return;
        }
        let without_special = (value & !0o7000 != value).then_some(value & 0o777);
        for simpler in usual.into_iter().chain(without_special) {
            if self.take() {
                mode.0 = kind | simpler;
            }
        }
    }

    fn list(&mut self, list: &mut Vec<u32>) {
        if !list.is_empty() && self.take() {
            list.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_core::Pattern;
    use fathom_core::flags::OpenFlags as O;

    #[test]
    fn numbers_get_smaller() {
        let op = Op::Pwrite { slot: 0, offset: 4096, data: Pattern { seed: 9, len: 3 } };
        let versions: Vec<(i64, u64)> = smaller(&op)
            .map(|op| match op {
                Op::Pwrite { offset, data, .. } => (offset, data.len),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            (0, 3),
            (1, 3),
            (2048, 3),
            (2048, 3), // 4096 → 0, 1, the power below, the half
            (4096, 0),
            (4096, 1),
            (4096, 2),
            (4096, 1),
        ];
        assert_eq!(versions, expected);
    }

    #[test]
    fn flags_go_one_by_one_and_negative_offsets_stay() {
        let mode = Mode(0o644);
        let op = Op::Open { slot: 0, path: "f".into(), flags: O::O_RDWR | O::O_EXCL, mode };
        let flags: Vec<O> = smaller(&op)
            .map(|op| match op {
                Op::Open { flags, .. } => flags,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(flags, [O::O_EXCL, O::O_RDWR]);
        let op = Op::Lseek { slot: 0, offset: -5, whence: fathom_core::flags::Whence::End };
        assert_eq!(smaller(&op).count(), 0);
    }

    #[test]
    fn repeated_shrinking_ends() {
        let mut op = Op::Mknod { path: "n".into(), mode: Mode(0o107123), dev: (0, 0) };
        let mut steps = 0;
        while let Some(simpler) = smaller(&op).last() {
            op = simpler;
            steps += 1;
            assert!(steps < 10, "{op:?}");
        }
    }
}
