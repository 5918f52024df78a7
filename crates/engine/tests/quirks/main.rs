//! Every quirk is as narrow as its reason: a table with, for each of them, an answer that it excuses, which is a
//! difference without it, and an answer just outside of it, which stays a difference.
//!
//! A field of [`Quirks`] without a row does not compile. Where an answer alone does not show it (times, trees,
//! caches, space, who asks), the row names the test that does.

mod ops;

use fathom_core::flags::{
    AccessMode, FallocateMode, OpenFlags as O, RenameFlags, Whence, XattrFlags,
};
use fathom_core::{Errno as E, Mode, Op, Outcome, Payload, Stat, TimeArg, Verdict};
use fathom_engine::check::oracle::Oracle;
use fathom_model::{Config, Feature, Model, Quirks, XattrOrder};
use ops::*;

/// An answer that a file system gives to an operation, after others.
struct Answer {
    before: Vec<Op>,
    op: Op,
    found: Found,
}

/// What it answers.
enum Found {
    Ok(u64),
    Err(E),
    /// What the reference answers, but for an attribute.
    Nlink(u32),
    Gid(u32),
    Mode(u32),
    /// The reference has no answer of its own: nobody asks.
    Whatever,
}

/// How a quirk is shown to be narrow.
enum Row {
    /// With the quirk the first answer is excused and the second is not; without it neither is.
    Here(fn(&mut Quirks), Answer, Answer),
    /// A test says it: the file and the name.
    There(&'static str, &'static str),
}

use Row::{Here, There};

/// A table with a row for every field: one that is missing does not compile.
macro_rules! rows {
    ($($quirk:ident: $row:expr,)*) => {
        fn rows() -> Vec<(&'static str, Row)> {
            let Quirks { $($quirk: _),* } = Quirks::default();
            vec![$((stringify!($quirk), $row)),*]
        }
    };
}

/// What became of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    /// It is as expected, or nobody asks.
    Excused,
    Difference,
}

fn judged(quirks: &Quirks, answer: &Answer) -> Judged {
    let config = Config {
        quirks: quirks.clone(),
        root_mode: Mode(0o777),
        umask: Mode(0),
        ..Config::default()
    };
    let mut model = Model::new(config.clone()).expect("the configuration is good");
    for op in &answer.before {
        model.execute(op);
    }
    if model.unspecified(&answer.op).is_some() {
        return Judged::Excused;
    }
    let expected = model.execute(&answer.op);
    let edited = |edit: &dyn Fn(&mut Stat)| {
        let mut found = expected.clone();
        if let Payload::Stat(stat) = &mut found.payload {
            edit(stat);
        }
        found
    };
    let found = match answer.found {
        Found::Ok(value) => Outcome::ok(value),
        Found::Err(errno) => Outcome::err(errno),
        Found::Nlink(nlink) => edited(&|stat| stat.nlink = nlink),
        Found::Gid(gid) => edited(&|stat| stat.gid = gid),
        Found::Mode(mode) => edited(&|stat| stat.mode = Mode(mode)),
        // Answers that nobody gives.
        Found::Whatever => Outcome::err(E::ELIBBAD),
    };
    match Oracle::new(&config, false).outcome(&answer.op, &expected, &found) {
        Verdict::Ok => Judged::Excused,
        _ => Judged::Difference,
    }
}

fn answer(before: &[Op], op: Op, found: Found) -> Answer {
    Answer { before: before.to_vec(), op, found }
}

fn ok(before: &[Op], op: Op, value: u64) -> Answer {
    answer(before, op, Found::Ok(value))
}

fn err(before: &[Op], op: Op, errno: E) -> Answer {
    answer(before, op, Found::Err(errno))
}

fn whatever(before: &[Op], op: Op) -> Answer {
    answer(before, op, Found::Whatever)
}

const NETWORK: &str = "crates/model/src/syscall/network.rs";
const EXCUSES: &str = "crates/engine/tests/excuses.rs";
const ACCUSATIONS: &str = "crates/engine/tests/accusations.rs";
const ORACLE: &str = "crates/engine/src/check/oracle/mod.rs";
const SPACE: &str = "crates/engine/src/check/oracle/space.rs";
const OPENING: &str = "crates/model/src/syscall/open.rs";
const SMALL: &str = "crates/model/src/syscall/small.rs";
const TIMES: &str = "crates/model/src/syscall/utimens.rs";

rows! {
    // Limits of the format.
    dir_nlink_one: Here(
        |quirks| quirks.dir_nlink_one = true,
        answer(&[mkdir("d", 0o755)], stat("d"), Found::Nlink(1)),
        answer(&[mkdir("d", 0o755)], stat("d"), Found::Nlink(2)),
    ),
    root_nlink_one: There(
        ACCUSATIONS, "what_differs_on_the_empty_file_system_is_said_once_and_left_out"
    ),
    link_max: Here(
        |quirks| quirks.link_max = 2,
        err(&[file("f"), link("f", "a")], link("f", "b"), E::EMLINK),
        err(&[file("f")], link("f", "b"), E::EMLINK),
    ),
    symlink_bytes_max: Here(
        |quirks| quirks.symlink_bytes_max = 1000,
        err(&[], symlink(1001), E::ENAMETOOLONG),
        err(&[], symlink(1000), E::ENAMETOOLONG),
    ),
    file_bytes_max: Here(
        |quirks| quirks.file_bytes_max = 1 << 40,
        err(&[new(0)], truncate(0, (1 << 40) + 1), E::EFBIG),
        err(&[new(0)], truncate(0, 1 << 40), E::EFBIG),
    ),
    vfs_file_bytes_max: There(
        "crates/model/src/syscall/lseek.rs",
        "positions_in_directories_are_cookies_or_limited_like_those_in_files"
    ),
    xattr_bytes_max: Here(
        |quirks| quirks.xattr_bytes_max = 106,
        err(&[file("f")], setxattr("user.a", 101, NOTHING), E::ENOSPC),
        err(&[file("f")], setxattr("user.a", 100, NOTHING), E::ENOSPC),
    ),
    xattr_value_bytes_max: Here(
        |quirks| quirks.xattr_value_bytes_max = 100,
        err(&[file("f")], setxattr("user.a", 101, NOTHING), E::ERANGE),
        err(&[file("f")], setxattr("user.a", 100, NOTHING), E::ERANGE),
    ),
    xattr_total_bytes_sure: Here(
        |quirks| quirks.xattr_total_bytes_sure = 120,
        err(&[file("f")], setxattr("user.a", 101, NOTHING), E::ENOSPC),
        err(&[file("f")], setxattr("user.a", 100, NOTHING), E::ENOSPC),
    ),
    xattr_total_bytes_max: Here(
        |quirks| (quirks.xattr_total_bytes_sure, quirks.xattr_total_bytes_max) = (120, 120),
        err(&[file("f")], setxattr("user.a", 101, NOTHING), E::ENOSPC),
        ok(&[file("f")], setxattr("user.a", 101, NOTHING), 0),
    ),
    time_sec_min: There(TIMES, "times_keep_to_the_first_second_and_the_grain"),
    time_sec_max: There(TIMES, "values_are_kept_and_clamped"),
    time_grain_nsec: There(TIMES, "times_keep_to_the_first_second_and_the_grain"),
    time_used_min: Here(
        |quirks| quirks.time_used_min = 10,
        whatever(&[file("f")], touch("f", second(9), TimeArg::Omit)),
        whatever(&[file("f")], touch("f", second(10), TimeArg::Omit)),
    ),
    time_used_max: Here(
        |quirks| quirks.time_used_max = 10,
        whatever(&[file("f")], touch("f", TimeArg::Omit, second(11))),
        whatever(&[file("f")], touch("f", TimeArg::Omit, second(10))),
    ),
    root_times_kept: There(TIMES, "a_root_without_an_entry_keeps_no_times"),
    writers_touch_one_time: Here(
        |quirks| quirks.writers_touch_one_time = true,
        ok(&[file("f"), alice()], touch("f", TimeArg::Now, TimeArg::Omit), 0),
        ok(&[file("f"), alice()], touch("f", second(1), TimeArg::Omit), 0),
    ),
    link_times_kept: There(TIMES, "links_that_keep_no_times_are_links"),
    offset_bytes_max: There(
        "crates/model/src/syscall/lacking.rs", "limits_leave_out_what_is_beyond_them"
    ),

    // What is supported.
    lacks: Here(
        |quirks| quirks.lacks = vec![Feature::HardLinks],
        whatever(&[file("f")], link("f", "a")),
        whatever(&[file("f")], rename("f", "a", PLAIN)),
    ),
    fallocate_allocate: Here(
        |quirks| quirks.fallocate_allocate = false,
        err(&[new(0)], fallocate(FallocateMode::empty(), 1), E::EOPNOTSUPP),
        err(&[new(0)], fallocate(FallocateMode::FALLOC_FL_ZERO_RANGE, 1), E::EOPNOTSUPP),
    ),
    fallocate_keep_size: Here(
        |quirks| quirks.fallocate_keep_size = false,
        err(&[new(0)], fallocate(KEEP, 1), E::EOPNOTSUPP),
        err(&[new(0)], fallocate(FallocateMode::empty(), 1), E::EOPNOTSUPP),
    ),
    fallocate_modes: Here(
        |quirks| quirks.fallocate_modes = FallocateMode::FALLOC_FL_PUNCH_HOLE,
        err(&[new(0)], fallocate(FallocateMode::FALLOC_FL_ZERO_RANGE, 1), E::EOPNOTSUPP),
        err(&[new(0)], fallocate(FallocateMode::FALLOC_FL_PUNCH_HOLE | KEEP, 1), E::EOPNOTSUPP),
    ),
    rename_flags: Here(
        |quirks| quirks.rename_flags = RenameFlags::RENAME_NOREPLACE,
        err(
            &[file("f"), file("g")], rename("f", "g", RenameFlags::RENAME_EXCHANGE), E::EINVAL
        ),
        err(&[file("f")], rename("f", "g", RenameFlags::RENAME_NOREPLACE), E::EINVAL),
    ),
    hard_links: Here(
        |quirks| quirks.hard_links = false,
        err(&[file("f")], link("f", "a"), E::EPERM),
        err(&[], link("f", "a"), E::EPERM),
    ),
    symlinks: Here(
        |quirks| quirks.symlinks = false,
        err(&[], symlink(1), E::EPERM),
        err(&[file("l")], symlink(1), E::EPERM),
    ),
    special_files: Here(
        |quirks| quirks.special_files = false,
        err(&[], fifo("p"), E::EPERM),
        err(&[], file("p"), E::EPERM),
    ),
    device_numbers_small: Here(
        |quirks| quirks.device_numbers_small = true,
        err(&[], device("c", (240, 256)), E::EINVAL),
        err(&[], device("c", (240, 255)), E::EINVAL),
    ),
    user_xattrs: Here(
        |quirks| quirks.user_xattrs = false,
        err(&[file("f")], setxattr("user.a", 1, NOTHING), E::EOPNOTSUPP),
        err(&[file("f")], setxattr("trusted.a", 1, NOTHING), E::EOPNOTSUPP),
    ),
    trusted_xattrs: Here(
        |quirks| quirks.trusted_xattrs = false,
        err(&[file("f")], setxattr("trusted.a", 1, NOTHING), E::EOPNOTSUPP),
        err(&[file("f")], setxattr("user.a", 1, NOTHING), E::EOPNOTSUPP),
    ),
    copy_range: Here(
        |quirks| quirks.copy_range = false,
        err(&[new(0), pwrite(0, 0, 9), open(1, "g", O::O_CREAT | O::O_RDWR)], copy(9), E::EINVAL),
        err(&[new(0), pwrite(0, 0, 9)], copy(9), E::EINVAL),
    ),
    move_align_bytes: There(
        "crates/model/src/syscall/fallocate.rs", "clusters_are_moved_as_a_whole"
    ),
    whiteouts: Here(
        |quirks| quirks.whiteouts = false,
        err(&[], device("c", (0, 0)), E::EPERM),
        err(&[], device("c", (0, 1)), E::EPERM),
    ),
    tmpfile: Here(
        |quirks| quirks.tmpfile = false,
        err(&[], open(0, ".", O::O_TMPFILE | O::O_RDWR), E::EOPNOTSUPP),
        err(&[file("f")], open(0, "f", O::O_RDWR), E::EOPNOTSUPP),
    ),
    direct: Here(
        |quirks| quirks.direct = false,
        err(&[file("f")], open(0, "f", O::O_RDWR | O::O_DIRECT), E::EINVAL),
        err(&[file("f")], open(0, "f", O::O_RDWR), E::EINVAL),
    ),
    direct_directories: Here(
        |quirks| quirks.direct_directories = true,
        ok(&[], open(0, ".", O::O_DIRECT), 0),
        err(&[], open(0, ".", O::O_DIRECT | O::O_RDWR), E::EINVAL),
    ),
    direct_align_bytes: Here(
        |quirks| quirks.direct_align_bytes = 4096,
        err(&[open(0, "f", O::O_CREAT | O::O_RDWR | O::O_DIRECT)], pwrite(0, 0, 512), E::EINVAL),
        err(&[open(0, "f", O::O_CREAT | O::O_RDWR | O::O_DIRECT)], pwrite(0, 0, 4096), E::EINVAL),
    ),

    // Behaviour.
    seek_negative_is_zero: Here(
        |quirks| quirks.seek_negative_is_zero = true,
        ok(&[new(0), pwrite(0, 0, 9)], lseek(0, -1, Whence::Hole), 9),
        err(&[new(0), pwrite(0, 0, 9)], lseek(0, 0, Whence::Data), E::ENXIO),
    ),
    directory_seek_limited: There(
        "crates/model/src/syscall/lseek.rs",
        "positions_in_directories_are_cookies_or_limited_like_those_in_files"
    ),
    directory_read_invalid: Here(
        |quirks| quirks.directory_read_invalid = true,
        err(&[open(0, ".", O::empty())], Op::Pread { slot: 0, offset: 0, len: 9 }, E::EINVAL),
        err(&[new(0)], Op::Pread { slot: 0, offset: 0, len: 9 }, E::EINVAL),
    ),
    entry_types: There(
        "crates/model/src/syscall/getdents.rs", "types_that_are_not_told"
    ),
    entry_types_may_be_unknown: There(EXCUSES, "types_may_be_unknown_but_not_wrong"),
    listing_may_restart: There(
        "crates/model/src/syscall/list_piece.rs",
        "where_a_listing_may_begin_again_or_end_something_went_before_it_was_listed"
    ),
    chown_nothing_ignored: There(
        "crates/model/src/syscall/chown.rs", "changing_nothing_may_do_nothing"
    ),
    fallocate_privileges_vary: Here(
        |quirks| quirks.fallocate_privileges_vary = true,
        whatever(&[new(0), chmod("f", 0o6777), alice()], fallocate(KEEP, 1)),
        whatever(&[new(0), chmod("f", 0o777), alice()], fallocate(KEEP, 1)),
    ),
    rename_not_empty_exists: Here(
        |quirks| quirks.rename_not_empty_exists = true,
        err(&[mkdir("d", 0o755), mkdir("e", 0o755), file("e/f")], rename("d", "e", PLAIN), E::EEXIST),
        err(&[mkdir("d", 0o755), mkdir("e", 0o755)], rename("d", "e", PLAIN), E::EEXIST),
    ),
    whiteout_group_of_target: Here(
        |quirks| quirks.whiteout_group_of_target = true,
        answer(&whited_out(), stat("a/f"), Found::Gid(7)),
        answer(&whited_out(), stat("a/f"), Found::Gid(0)),
    ),
    xattr_create_wins: Here(
        |quirks| quirks.xattr_create_wins = true,
        ok(&[file("f")], setxattr("user.a", 1, BOTH), 0),
        ok(&[file("f"), setxattr("user.a", 1, NOTHING)], setxattr("user.a", 1, BOTH), 0),
    ),
    xattr_both_flags_invalid: Here(
        |quirks| quirks.xattr_both_flags_invalid = true,
        err(&[file("f")], setxattr("user.a", 1, BOTH), E::EINVAL),
        err(&[file("f")], setxattr("user.a", 1, XattrFlags::XATTR_CREATE), E::EINVAL),
    ),
    xattr_any_name: There(
        "crates/model/src/syscall/xattr.rs", "any_name_is_one_where_the_handler_takes_all"
    ),
    trusted_listed_to_all: Here(
        |quirks| quirks.trusted_listed_to_all = true,
        ok(&with_trusted(), Op::Listxattr { target: at("f"), len: 0 }, 10),
        ok(&with_trusted(), Op::Listxattr { target: at("f"), len: 0 }, 0),
    ),
    listxattr_counts_hidden: There(EXCUSES, "hidden_names_make_lists_longer_and_never_shorter"),
    listxattr_of_strangers_varies: There(
        NETWORK, "who_may_not_read_a_file_need_not_see_the_names_of_its_attributes"
    ),
    last_page_not_found: Here(
        |quirks| quirks.last_page_not_found = true,
        whatever(&[new(0)], pwrite(0, i64::MAX - 4096, 9)),
        whatever(&[new(0)], pwrite(0, LARGEST, 9)),
    ),
    mapped_tail_shows: Here(
        |quirks| quirks.mapped_tail_shows = true,
        whatever(&[new(0), truncate(0, 10)], store(0, 11)),
        whatever(&[new(0), truncate(0, 10)], store(0, 10)),
    ),
    mapped_tail_allocates: Here(
        |quirks| quirks.mapped_tail_allocates = true,
        whatever(&[new(0), truncate(0, 10)], store(0, 11)),
        whatever(&[new(0), truncate(0, 10)], store(0, 10)),
    ),
    mapped_reads_may_be_old: Here(
        |quirks| quirks.mapped_reads_may_be_old = true,
        whatever(&[file("f"), open(0, "f", O::empty())], load()),
        whatever(&[file("f"), open(0, "f", O::O_RDWR)], load()),
    ),
    copy_may_be_short: There(ORACLE, "a_copy_may_stop_early_but_not_tell_more_than_it_did"),
    cache_seconds: There(ACCUSATIONS, "what_is_old_is_told_from_what_is_wrong"),
    stale_allowed: There(ACCUSATIONS, "what_is_old_is_told_from_what_is_wrong"),
    close_to_open: There(ACCUSATIONS, "contents_of_what_was_closed_are_never_only_old"),
    refusals_vary: There(EXCUSES, "varying_refusals_are_refusals_of_who_may_not"),
    truncation_of_readers_varies: Here(
        |quirks| quirks.truncation_of_readers_varies = true,
        whatever(&[file("f")], open(0, "f", O::O_TRUNC)),
        whatever(&[file("f")], open(0, "f", O::O_TRUNC | O::O_RDWR)),
    ),
    direct_append_varies: Here(
        |quirks| quirks.direct_append_varies = true,
        whatever(&[file("f")], open(0, "f", O::O_RDWR | O::O_APPEND | O::O_DIRECT)),
        whatever(&[file("f")], open(0, "f", O::O_RDWR | O::O_APPEND)),
    ),
    special_files_never_executable: Here(
        |quirks| quirks.special_files_never_executable = true,
        err(&[fifo("p")], access("p", AccessMode::X_OK), E::EACCES),
        err(&[fifo("p")], access("p", AccessMode::R_OK), E::EACCES),
    ),
    ranges_as_caller: Here(
        |quirks| quirks.ranges_as_caller = true,
        whatever(&[new(0), chmod("f", 0o600), alice()], fallocate(KEEP, 1)),
        whatever(&[new(0), chmod("f", 0o666), alice()], fallocate(KEEP, 1)),
    ),
    writes_as_opener: Here(
        |quirks| quirks.writes_as_opener = true,
        whatever(&[new(0), chmod("f", 0o4777), alice()], pwrite(0, 0, 1)),
        whatever(&[new(0), chmod("f", 0o777), alice()], pwrite(0, 0, 1)),
    ),
    rename_target_unseen: Here(
        |quirks| quirks.rename_target_unseen = true,
        whatever(&[file("f"), file("g")], rename("f", "g", RenameFlags::RENAME_NOREPLACE)),
        whatever(&[file("f")], rename("f", "g", RenameFlags::RENAME_NOREPLACE)),
    ),
    truncation_keeps_privileges: Here(
        |quirks| quirks.truncation_keeps_privileges = true,
        answer(&[privileged(), alice(), truncate(0, 5)], stat("f"), Found::Mode(0o104777)),
        answer(&[privileged(), alice(), pwrite(0, 0, 5)], stat("f"), Found::Mode(0o104777)),
    ),
    idle_truncation_varies: Here(
        |quirks| quirks.idle_truncation_varies = true,
        whatever(&[privileged(), alice()], truncate(0, 0)),
        whatever(&[privileged(), alice()], truncate(0, 1)),
    ),
    other_groups_unknown: Here(
        |quirks| quirks.other_groups_unknown = true,
        whatever(&[new(0), chmod("f", 0o2767), alice()], pwrite(0, 0, 1)),
        whatever(&[new(0), chmod("f", 0o2777), alice()], pwrite(0, 0, 1)),
    ),
    writing_directories_needs_search: Here(
        |quirks| quirks.writing_directories_needs_search = true,
        whatever(&[mkdir("d", 0o666), alice()], access("d", AccessMode::W_OK)),
        whatever(&[mkdir("d", 0o777), alice()], access("d", AccessMode::W_OK)),
    ),
    sticky_directories_refer: Here(
        |quirks| quirks.sticky_directories_refer = true,
        whatever(&[], mkdir("d", 0o1666)),
        whatever(&[], mkdir("d", 0o1667)),
    ),
    moved_directories_may_be_stale: Here(
        |quirks| quirks.moved_directories_may_be_stale = true,
        whatever(&moved(), rename("e/d", "d", PLAIN)),
        whatever(&moved(), rename("e/d", "e/x", PLAIN)),
    ),
    silly_renames: There(NETWORK, "hidden_names_last_as_long_as_the_file_is_open"),

    // What can be compared.
    statfs_comparable: Here(
        |quirks| quirks.statfs_comparable = true,
        whatever(
            &[file("f"), open(0, "f", O::O_PATH), Op::Unlink { path: path("f") }],
            Op::Statfs { target: at(".") },
        ),
        whatever(&[file("f"), open(0, "f", O::O_PATH)], Op::Statfs { target: at(".") }),
    ),
    statfs_slack_bytes: There(SPACE, "counts_follow_within_the_slack"),
    statfs_slack_by_entry: There(SPACE, "entries_that_take_no_blocks"),
    statfs_counts_files: There(SPACE, "counts_follow_within_the_slack"),
    statfs_name_bytes: There(EXCUSES, "the_longest_name_is_the_one_that_is_told"),
    device_sizes: There(EXCUSES, "sizes_of_devices_excuse_neither_files_nor_other_attributes"),
    device_numbers_lost: There(ACCUSATIONS, "numbers_of_devices_that_are_lost_hide_nothing_else"),
    not_compared: There(EXCUSES, "what_is_not_compared_is_one_attribute_of_one_path"),
    segments_comparable: There(
        "crates/model/src/syscall/lseek.rs", "allocation_is_free_but_data_is_not_skipped"
    ),

    // Libraries.
    modes_not_kept: Here(
        |quirks| quirks.modes_not_kept = true,
        whatever(&[file("f")], chmod("f", 0o600)),
        whatever(&[file("f")], rename("f", "g", PLAIN)),
    ),
    without_vfs: Here(
        |quirks| quirks.without_vfs = true,
        whatever(&[mkdir("d", 0o755)], open(0, "d", O::empty())),
        whatever(&[file("f")], open(0, "f", O::empty())),
    ),
    open_files_alone: Here(
        |quirks| (quirks.without_vfs, quirks.open_files_alone) = (true, true),
        whatever(&[new(0)], Op::Unlink { path: path("f") }),
        whatever(&[new(0), file("g")], Op::Unlink { path: path("g") }),
    ),
    rename_never_replaces: Here(
        |quirks| (quirks.without_vfs, quirks.rename_never_replaces) = (true, true),
        whatever(&[file("f"), file("g")], rename("f", "g", PLAIN)),
        whatever(&[file("f"), file("g")], rename("f", "h", PLAIN)),
    ),
    hole_bytes_max: There(SMALL, "short_names_and_large_holes"),
    readable_bytes_max: There(NETWORK, "nobody_makes_a_file_whose_end_the_server_does_not_read"),
    name_bytes_max: Here(
        |quirks| quirks.name_bytes_max = 60,
        whatever(&[], mkdir(&"n".repeat(61), 0o755)),
        whatever(&[], mkdir(&"n".repeat(60), 0o755)),
    ),
    names_portable: There(SMALL, "names_and_rights_of_fat"),
    append_behind_end_stays: Here(
        |quirks| (quirks.without_vfs, quirks.append_behind_end_stays) = (true, true),
        whatever(&[open(0, "f", O::O_CREAT | O::O_RDWR | O::O_APPEND)], pwrite(0, 1, 1)),
        whatever(&[open(0, "f", O::O_CREAT | O::O_RDWR | O::O_APPEND)], pwrite(0, 0, 1)),
    ),
    empty_write_extends: Here(
        |quirks| (quirks.without_vfs, quirks.empty_write_extends) = (true, true),
        whatever(&[new(0)], pwrite(0, 1, 0)),
        whatever(&[new(0)], pwrite(0, 1, 1)),
    ),

    // The machine.
    protected_hardlinks: Here(
        |quirks| quirks.protected_hardlinks = true,
        err(&[file("f"), chmod("f", 0o644), alice()], link("f", "a"), E::EPERM),
        err(&[file("f"), alice()], link("f", "a"), E::EPERM),
    ),
    protected_symlinks: There(
        "crates/model/src/syscall/resolve.rs", "protected_symlinks_guards_the_last_link_only"
    ),
    protected_fifos: There(OPENING, "protected_files_of_others_in_sticky_directories"),
    protected_regular: There(OPENING, "protected_files_of_others_in_sticky_directories"),
    xattr_order: Here(
        |quirks| quirks.xattr_order = XattrOrder::FileFirst,
        err(&[], removexattr(""), E::ENOENT),
        err(&[file("f")], removexattr(""), E::ENODATA),
    ),
    fallocate_conflict_invalid: There(
        "crates/model/src/syscall/fallocate.rs", "older_kernels_call_some_combinations_invalid"
    ),
    fallocate_write_zeroes_known: There(
        "crates/model/src/syscall/fallocate.rs", "older_kernels_do_not_know_write_zeroes"
    ),
    nodev: There(EXCUSES, "devices_and_nothing_else_are_refused_without_devices"),
    noexec: Here(
        |quirks| quirks.noexec = true,
        err(&[file("f"), chmod("f", 0o777)], access("f", AccessMode::X_OK), E::EACCES),
        err(&[mkdir("d", 0o777)], access("d", AccessMode::X_OK), E::EACCES),
    ),
}

#[test]
fn every_quirk_is_as_narrow_as_its_reason() {
    let mut wrong = Vec::new();
    for (name, row) in rows() {
        let Here(change, inside, outside) = row else { continue };
        let mut quirks = Quirks::default();
        change(&mut quirks);
        assert_ne!(quirks, Quirks::default(), "{name} is not changed");
        let mut expect = |quirks: &Quirks, answer: &Answer, judgement: Judged, why: &str| {
            if judged(quirks, answer) != judgement {
                wrong.push(format!("{name}: {}: {why}", answer.op));
            }
        };
        expect(&quirks, &inside, Judged::Excused, "is what it excuses");
        expect(&Quirks::default(), &inside, Judged::Difference, "is a difference without it");
        expect(&quirks, &outside, Judged::Difference, "is just outside");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_tests_that_rows_name_exist() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for (name, row) in rows() {
        let There(file, test) = row else { continue };
        let text = std::fs::read_to_string(format!("{root}/{file}")).expect(file);
        assert!(
            text.contains(&format!("#[test]\n    fn {test}()"))
                || text.contains(&format!("#[test]\nfn {test}()")),
            "{name}: no {test} in {file}"
        );
    }
}

#[test]
fn most_rows_are_here() {
    let here = rows().iter().filter(|(_, row)| matches!(row, Here(..))).count();
    assert_eq!((rows().len(), here), (103, 63));
}
