//! What a subject needs of the machine and of the build, and whether it is there.

use std::path::{Path, PathBuf};

/// What a subject needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The rights of root.
    Root,
    /// A guest (`--guest KERNEL`).
    Guest,
    /// FUSE in the kernel, and its device.
    Fuse,
    /// A file system of the kernel.
    KernelType(String),
    /// A kernel of at least this version, and what for.
    Kernel((u32, u32), &'static str),
    /// The same, but not in a guest, where there is another way.
    KernelOfHost((u32, u32), &'static str),
    /// A program and its Debian package.
    Program {
        /// What is run.
        program: String,
        /// Where it comes from.
        package: String,
    },
    /// A cargo feature of this program.
    Feature {
        /// Its name.
        name: &'static str,
        /// Whether it is built in.
        built_in: bool,
        /// What building it needs beyond cargo; empty for nothing.
        needs: &'static str,
    },
}

impl Need {
    /// In a few words.
    pub fn text(&self) -> String {
        match self {
            Need::Root => "root".to_owned(),
            Need::Guest => "a guest with NFS".to_owned(),
            Need::Fuse => "/dev/fuse".to_owned(),
            Need::KernelType(fs_type) => format!("{fs_type} in the kernel"),
            Need::Kernel((major, minor), what) => format!("Linux {major}.{minor} ({what})"),
            Need::KernelOfHost((major, minor), what) => {
                format!("Linux {major}.{minor} ({what}) or a guest")
            }
            Need::Program { package, .. } => package.clone(),
            Need::Feature { name, needs: "", .. } => format!("feature {name}"),
            Need::Feature { name, needs, .. } => format!("feature {name}, {needs}"),
        }
    }

    /// What is missing on this machine, if it is.
    pub fn missing(&self) -> Option<String> {
        let (there, what) = match self {
            Need::Root => (rustix::process::geteuid().is_root(), "not root".to_owned()),
            Need::Guest => (crate::sys::in_guest(), "add --guest KERNEL".to_owned()),
            Need::Fuse => (Path::new("/dev/fuse").exists(), "no /dev/fuse".to_owned()),
            Need::KernelType(fs_type) => {
                (kernel_has(fs_type), format!("no {fs_type} in the kernel"))
            }
            Need::KernelOfHost(..) if crate::sys::in_guest() => return None,
            Need::Kernel(min, _) | Need::KernelOfHost(min, _) => {
                let uname = rustix::system::uname();
                let release = uname.release().to_string_lossy();
                let have = crate::kernel::version(&release);
                (have.is_none_or(|have| have >= *min), format!("this is {release}"))
            }
            Need::Program { program, package } => {
                (in_path(program), format!("no {program} (package {package})"))
            }
            Need::Feature { name, built_in, .. } => {
                (*built_in, format!("build with --features {name}"))
            }
        };
        (!there).then_some(what)
    }
}

/// /proc/filesystems lists what is built in or loaded (proc(5)).
fn kernel_has(fs_type: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some(fs_type))
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where formatting programs are, even if the user's PATH leaves it out.
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).any(|dir| dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(Need::Kernel((2, 6), "anything").missing(), None);
        let future = Need::Kernel((99, 0), "wishes");
        assert!(future.missing().is_some_and(|missing| missing.starts_with("this is ")));
        assert_eq!(future.text(), "Linux 99.0 (wishes)");
        let program = Need::Program { program: "no-such-mkfs".into(), package: "none".into() };
        assert_eq!(program.missing().unwrap(), "no no-such-mkfs (package none)");
        let fs_type = Need::KernelType("no-such-fs".into());
        assert_eq!(fs_type.missing().unwrap(), "no no-such-fs in the kernel");
        let feature = Need::Feature { name: "x", built_in: false, needs: "libclang" };
        assert_eq!(feature.missing().unwrap(), "build with --features x");
        assert_eq!(feature.text(), "feature x, libclang");
    }
}
