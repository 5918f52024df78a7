//! The case of xfstests that comes with a finding, run in a guest (FATHOM_GUEST_KERNEL): it passes where the
//! bug is not, and fails where it is. xfstests itself is not needed: the few functions that a case uses are
//! below, over the kernel's dm-flakey.

mod common;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{json, scratch};
use fathom_guest::{Boot, Guest, GuestEnd};

/// What xfstests defines of what a case uses.
const COMMON: &str = r#"
here=$(pwd)
seqres=$here/NNN
tmp=$here/tmp.$$
status=1
SCRATCH_DEV=/dev/ram0
SCRATCH_MNT=/mnt
XFS_IO_PROG=$here/xfs_io
FLAKEY_ALLOW_WRITES=0
FLAKEY_DROP_WRITES=1
_begin_fstest() { echo "QA output created by NNN"; trap "_cleanup; exit \$status" 0 1 2 3 15; }
_require_scratch() { :; }
_require_dm_target() { :; }
_require_metadata_journaling() { :; }
_require_xfs_io_command() { :; }
_require_attrs() { :; }
_require_odirect() { :; }
_require_renameat2() { :; }
_scratch_mkfs() { mkfs.ext4 -q -F -b 4096 $SCRATCH_DEV; }
_init_flakey()
{
	local size=$(blockdev --getsz $SCRATCH_DEV)
	tables=("0 $size flakey $SCRATCH_DEV 0 180 0" "0 $size flakey $SCRATCH_DEV 0 0 180 1 drop_writes")
	echo "${tables[0]}" | dmsetup create --noudevsync flakey-test
	FLAKEY_DEV=/dev/dm-0
}
_load_flakey_table()
{
	dmsetup suspend --nolockfs --noudevsync flakey-test
	dmsetup load flakey-test --table "${tables[$1]}"
	dmsetup resume --noudevsync flakey-test
}
_mount_flakey() { mount -t ext4 $MOUNT_OPTIONS $FLAKEY_DEV $SCRATCH_MNT; }
_unmount_flakey() { umount $SCRATCH_MNT; }
_flakey_drop_and_remount()
{
	_load_flakey_table $FLAKEY_DROP_WRITES
	_unmount_flakey
	_load_flakey_table $FLAKEY_ALLOW_WRITES
	_mount_flakey
}
_check_scratch_fs() { e2fsck -fn $1 > /dev/null 2>&1 || echo "e2fsck is not content"; }
_cleanup_flakey() { umount $SCRATCH_MNT; dmsetup remove --noudevsync flakey-test; } 2> /dev/null
"#;

/// xfs_io, and one whose fsync does nothing.
const SOUND: &str = "#! /bin/bash\nexec xfs_io \"$@\"\n";
const CARELESS: &str = "#! /bin/bash\nexec xfs_io \"${@/#fsync/quit}\"\n";

/// Runs a case in a guest; what it printed, errors too.
fn run_case(kernel: &str, finding: &Path, xfs_io: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let dir = scratch();
    let common = dir.path().join("common");
    fs::create_dir(&common).expect("a directory");
    for name in ["filter", "attr", "renameat2", "dmflakey"] {
        fs::write(common.join(name), "").expect("a file");
    }
    fs::write(common.join("preamble"), COMMON).expect("a file");
    fs::copy(finding.join("xfstests.sh"), dir.path().join("case")).expect("a case");
    let program = dir.path().join("xfs_io");
    fs::write(&program, xfs_io).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    // xfstests compares what goes to either output, and so does this.
    let command = ["/bin/bash", "-c", "exec bash ./case 2>&1"].map(OsString::from).to_vec();
    let kernel = fathom_guest::resolve(kernel).expect("FATHOM_GUEST_KERNEL is a kernel");
    let mut boot = Boot::new(&kernel, 1, command).expect("a guest");
    boot.program = env!("CARGO_BIN_EXE_fathom").into();
    boot.directory = dir.path().to_owned();
    boot.writable.push(dir.path().to_owned());
    let mut guest = Guest::start(&boot).expect("a guest");
    let end = guest.wait(Duration::from_secs(120)).expect("an end");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    guest.pass_on(&mut out, &mut err).expect("its output");
    let (out, err) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    let full = fs::read_to_string(dir.path().join("NNN.full")).unwrap_or_default();
    assert_eq!(end, Some(GuestEnd::Code(0)), "{out}{err}{full}{}", guest.console());
    assert_eq!(err, "", "{full}");
    out.into_owned()
}

#[test]
fn the_case_of_a_finding_decides() {
    let Ok(kernel) = std::env::var("FATHOM_GUEST_KERNEL") else {
        return println!("SKIP the_case_of_a_finding_decides: set FATHOM_GUEST_KERNEL to a kernel");
    };
    let dir = scratch();
    let find =
        ["crash", "ext4", "--guest", &kernel, "--mutant", "ignore-fsync", "--level", "linear"];
    let few = ["--ace-ops", "creat", "--first", "--no-checker", "--no-probe", "--json"];
    let (code, report) = json(&[&find[..], &few].concat(), dir.path());
    assert_eq!(code, 1, "{report}");
    let id = report["findings"][0]["id"].as_str().expect("an id");
    let finding = dir.path().join("fathom-out").join(id);
    let case = fs::read_to_string(finding.join("xfstests.sh")).expect("a case");
    let expected =
        fs::read_to_string(finding.join("xfstests.out")).unwrap_or_else(|_| panic!("{case}"));
    assert!(expected.lines().count() > 2, "it asks about something: {expected}");
    assert_eq!(run_case(&kernel, &finding, SOUND), expected, "{case}");
    let lost = run_case(&kernel, &finding, CARELESS);
    assert!(lost.contains("No such file or directory"), "{lost}{case}");
}
