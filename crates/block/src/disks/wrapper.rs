//! File systems around file systems.
//!
//! Some methods of [`Examine`] and [`DiskFileSystem`] have a default, so whoever forwards them by hand loses
//! each new one without a word. Here they are forwarded once, and a lint refuses an implementation that
//! leaves one out; a wrapper says only what it does differently.

use std::sync::Arc;

use fathom_core::HarnessFault;

use super::{
    DiskFileSystem, Examine, Facts, Memo, Questions, Record, Recording, SubjectFailure, Workload,
};
use crate::backed::Guarantee;
use crate::geometry::Geometry;
use crate::image::Image;

/// A [`DiskFileSystem`] around another one, to which everything is passed on that is not said here.
pub trait DiskWrapper: Send + Sync {
    /// The kind of file system inside.
    type Inner: DiskFileSystem + ?Sized;

    /// The file system inside.
    fn inner(&self) -> &Self::Inner;

    /// How the whole is named.
    fn wrapped_name(&self) -> &str {
        self.inner().name()
    }

    /// Makes an empty file system.
    ///
    /// # Errors
    /// As [`DiskFileSystem::format`].
    fn make(&self) -> Result<Image, HarnessFault> {
        self.inner().format()
    }

    /// Whether the whole writes the same log again.
    fn repeats_itself(&self) -> bool {
        self.inner().is_deterministic()
    }

    /// Records operations.
    ///
    /// # Errors
    /// As [`Record::record`].
    fn record_wrapped(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        self.inner().record(base, workload)
    }
}

impl<T: DiskFileSystem + ?Sized> DiskWrapper for &T {
    type Inner = T;

    fn inner(&self) -> &T {
        self
    }
}

impl<W: DiskWrapper> Record for W {
    fn record(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        self.record_wrapped(base, workload)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl<W: DiskWrapper> Examine for W {
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        self.inner().examine(disks, questions)
    }

    fn examine_knowing(
        &self,
        disks: &[Image],
        questions: &Questions,
        memo: &Memo,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        self.inner().examine_knowing(disks, questions, memo)
    }

    fn examine_telling_reads(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Option<Result<Vec<Arc<Facts>>, HarnessFault>> {
        self.inner().examine_telling_reads(disks, questions)
    }

    fn batch_disks(&self) -> usize {
        self.inner().batch_disks()
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl<W: DiskWrapper> DiskFileSystem for W {
    fn name(&self) -> &str {
        self.wrapped_name()
    }

    fn version(&self) -> &str {
        self.inner().version()
    }

    fn geometry(&self) -> Geometry {
        self.inner().geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        self.inner().guarantee()
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        self.make()
    }

    fn is_deterministic(&self) -> bool {
        self.repeats_itself()
    }
}
