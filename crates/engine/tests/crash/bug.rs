//! What can be wrong with the toy.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    // Writing.
    /// A snapshot counts without a look at its checksum.
    NoChecksum,
    /// Snapshots are written over each other instead of in turns.
    InPlace,
    /// The header goes out with the body instead of after it (ordered design).
    NoFlushBefore,
    /// Nothing makes the device write what it has taken.
    NoFlushAfter,
    /// The same, but only after `mkdir`.
    NoFlushAfterMkdir,
    /// The same, but only after `mkdir` and after `unlink`: two places where it was forgotten.
    NoFlushAfterTwo,
    /// All snapshots have the same number: it is chance which one is newest.
    StaleSequence,

    // Operations.
    /// `unlink` says yes and does nothing.
    UnlinkDoesNothing,
    /// `unlink` does not give back the space.
    UnlinkLeaks,
    /// `unlink` leaves a mark, and the recovery of a marked disk forgets the last entry: as if a new
    /// entry in the place of a removed one were mistaken for it.
    UnlinkMarks,
    /// `rename` is a copy and a removal, each durable by itself.
    RenameInTwoSteps,
    /// `rename` panics.
    RenamePanics,
    /// `O_TRUNC` does not wait for `close`.
    TruncatesAtOnce,

    // Mounting and recovery.
    /// Every mount writes the snapshot again, over itself.
    MountRewrites,
    /// Recovery forgets the last entry.
    ForgetsLast,
    /// Every second recovery forgets the last entry.
    ForgetsSometimes,
    /// Recovery writes over the good snapshot instead of the damaged one.
    RepairsInPlace,
    /// Recovery leaves what no mount accepts.
    MountsOnce,
    /// A recovered disk does not take new files.
    RefusesNewFiles,
    /// A recovered disk panics when a file is made.
    PanicsWhenUsed,
    /// The last file of a recovered disk cannot be read.
    Unreadable,
    /// Every recovery takes away some space.
    RecoveryLeaks,
    /// Recovery leaves a mark that only an independent checker sees.
    LeavesMark,
    /// A second recovery forgets the last entry.
    SecondRecoveryForgets,
    /// Recovery panics.
    RecoveryPanics,
    /// Recovery reads for ever.
    ReadsForEver,
}
