/* ---- Names of extended attributes, sorted, without those that the system itself sets. */

static int name_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static long names(long bytes)
{
    char *list = (char *)buffer_start, *name[1 << 12];
    size_t count = 0, limit = sizeof name / sizeof *name;
    long bytes_shown = 0;
    if (bytes < 0)
        return -1;
    for (char *at = list; at < list + bytes && count < limit; at += strlen(at) + 1) {
        if (strncmp(at, "security.", 9) != 0) {
            name[count++] = at;
            bytes_shown += (long)strlen(at) + 1;
        }
    }
    qsort(name, count, sizeof *name, name_order);
    fputs(" names", payload);
    for (size_t i = 0; i < count; i++) {
        fputc(' ', payload);
        add_name(name[i]);
    }
    return bytes_shown;
}
