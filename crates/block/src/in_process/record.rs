//! Recording a library file system.

use fathom_core::HarnessFault;

use super::{InProcess, device, guarded};
use crate::backed::BlockBacked;
use crate::disks::{End, Record, Recording, SubjectFailure, Workload};
use crate::image::Image;
use crate::recorder::Recorder;

impl Record for InProcess<'_> {
    fn record(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        let device = device(self.library(), base)?;
        let recorded = guarded(|| run(self.library(), device, workload));
        Ok(recorded.unwrap_or_else(|message| Err(SubjectFailure::Panic(message))))
    }
}

fn run(
    subject: &dyn BlockBacked,
    device: Recorder,
    workload: &Workload<'_>,
) -> Result<Recording, SubjectFailure> {
    let mut mounted =
        subject.mount(device).map_err(|failure| SubjectFailure::Mount(failure.errno))?;
    let mut marks = Vec::with_capacity(workload.ops.len() + 2);
    let mut outcomes = Vec::with_capacity(workload.ops.len());
    marks.push(mounted.position());
    for op in workload.ops {
        outcomes.push(mounted.apply(op));
        marks.push(mounted.position());
    }
    let tree = workload.look.then(|| mounted.observe());
    let (device, unmounted) = match workload.end {
        End::PowerOff => (mounted.power_off(), None),
        End::Unmount => {
            let (outcome, device) = mounted.unmount();
            marks.push(device.position());
            (device, Some(outcome))
        }
    };
    let (_, log) = device.into_parts();
    Ok(Recording { outcomes, log, marks, unmounted, tree, accounts: Vec::new() })
}
