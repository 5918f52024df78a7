/* Real and effective ids; the saved user id stays 0 and allows the way back. */
static int become(uid_t uid, gid_t gid, size_t groups, const gid_t *group)
{
    if (setresuid(0, 0, 0) != 0 || setgroups(groups, group) != 0 ||
        setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, 0) != 0)
        harness_failed("becoming another user (run as root)");
    return 0;
}
