//! Block devices that record every write, and the images that a power failure leaves of them.
//!
//! A subject runs on a [`Recorder`]: reads come from an [`Image`], and whatever changes the device
//! goes into a [`WriteLog`], in order. Afterwards the [`crash`] enumerators cut the power in that log
//! and build every image that the fault model allows (it is stated in [`crash`]); each has a
//! [`CrashPoint`], a short text from which the same image can be built again.
//!
//! ```
//! use std::ops::ControlFlow;
//! use fathom_block::{Bounds, Distinct, Geometry, Level, Recorder, Window};
//!
//! let geometry = Geometry::disk(64 * 1024);
//! let mut device = Recorder::new(geometry.blank_image(), geometry)?;
//! device.write(0, &[1; 512])?;
//! device.write(4096, &[2; 512])?;
//! device.flush();
//!
//! let base = geometry.blank_image();
//! let window = Window::new(&base, device.log(), geometry.atomic_bytes);
//! let mut distinct = Distinct::default();
//! let _ = Level::Epoch.enumerator(&Bounds::default()).visit(&window, &mut |point, image| {
//!     if distinct.insert(image) {
//!         assert_eq!(window.rebuild(point).as_ref(), Ok(image));
//!     }
//!     ControlFlow::Continue(())
//! });
//! assert_eq!(distinct.len(), 4); // neither, one, the other, both
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Whoever runs a file system on disks does it behind two seams: [`disks::Record`] (operations in, a
//! log out) and [`disks::Examine`] (disks in, facts out). A library that runs on such a device is a
//! [`BlockBacked`], and [`in_process`] puts it behind the seams. Beyond them this crate knows nothing
//! of file systems.

#![forbid(unsafe_code)]

pub mod backed;
pub mod crash;
pub mod disks;
pub mod dm_log_writes;
pub mod geometry;
pub mod image;
pub mod in_process;
pub mod log;
pub mod reads;
pub mod recorder;

pub use backed::{BlockBacked, Guarantee, MountFailure, Mounted};
pub use crash::{Bounds, CrashPoint, Distinct, Enumerator, Level, Window};
pub use disks::{DiskFileSystem, Examine, Record};
pub use geometry::{Geometry, GeometryError};
pub use image::{Erased, Image};
pub use in_process::InProcess;
pub use log::{Event, WriteLog};
pub use recorder::{DeviceError, Recorder};
