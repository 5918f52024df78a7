
/* ---- The entry of a descriptor in /proc; a closed slot is -1, which has none. */

static const char *fd_path(int fd)
{
    static char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return path;
}
