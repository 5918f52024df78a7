/* ---- Names of extended attributes, sorted; those that the system itself sets (security.*) are
 * left out, as if the list had been made without them. */

static int name_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Of a path, or of a descriptor if there is no path. */
static long list(const char *path, int fd, int follow, size_t bytes)
{
    void *to = buffer(bytes);
    if (!path)
        return flistxattr(fd, to, bytes);
    return follow ? listxattr(path, to, bytes) : llistxattr(path, to, bytes);
}

static long names(const char *path, int fd, int follow, size_t bytes)
{
    static char *name[XATTR_LIST_MAX / 2];
    size_t count = 0, bytes_shown = 0;
    long result = list(path, fd, follow, bytes);
    int number = errno;
    long bytes_all = list(path, fd, follow, XATTR_LIST_MAX);
    for (long at = 0; at < bytes_all; at += (long)strlen((char *)buffer_start + at) + 1) {
        char *found = (char *)buffer_start + at;
        if (strncmp(found, "security.", 9) == 0)
            continue;
        name[count++] = found;
        bytes_shown += strlen(found) + 1;
    }
    if (bytes_all >= 0 && bytes_shown != (size_t)bytes_all) {
        result = bytes && bytes < bytes_shown ? -1 : (long)bytes_shown;
        number = ERANGE;
    }
    errno = number;
    if (result < 0 || bytes == 0)
        return result;
    qsort(name, count, sizeof *name, name_order);
    fputs(" names", payload);
    for (size_t i = 0; i < count; i++) {
        fputc(' ', payload);
        add_name(name[i]);
    }
    return result;
}
