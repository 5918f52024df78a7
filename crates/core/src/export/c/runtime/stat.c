/* What may differ between equal files is left out: inode and device numbers, times, allocated
 * blocks, the size of a directory. */
static int attributes(int dir, const char *path, int flags)
{
    struct statx s;
    if (statx(dir, path, flags, STATX_BASIC_STATS, &s) != 0)
        return -1;
    int is_dir = S_ISDIR(s.stx_mode), is_device = S_ISCHR(s.stx_mode) || S_ISBLK(s.stx_mode);
    fprintf(payload, " mode 0%03o nlink %u uid %u gid %u size %llu rdev %u:%u",
            (unsigned)s.stx_mode, (unsigned)s.stx_nlink, (unsigned)s.stx_uid, (unsigned)s.stx_gid,
            is_dir ? 0ULL : (unsigned long long)s.stx_size,
            is_device ? (unsigned)s.stx_rdev_major : 0, is_device ? (unsigned)s.stx_rdev_minor : 0);
    return 0;
}
