/* ---- Memory-mapped access, only to bytes inside the file: beyond it there is SIGBUS. */

struct window {
    unsigned char *start;
    size_t mapped_bytes; /* from the page that holds the offset */
    size_t skip;         /* from there to the offset */
    size_t bytes;        /* that lie inside the file */
};

static int map_window(struct window *w, int fd, int64_t offset, uint64_t bytes, int prot)
{
    struct stat s;
    int64_t page = sysconf(_SC_PAGESIZE);
    if (offset < 0) {
        errno = EINVAL;
        return -1;
    }
    if (fstat(fd, &s) != 0)
        return -1;
    uint64_t inside = s.st_size > offset ? (uint64_t)(s.st_size - offset) : 0;
    w->bytes = bytes < inside ? bytes : inside;
    w->skip = (size_t)(offset % page);
    w->mapped_bytes = w->skip + (w->bytes ? w->bytes : 1);
    void *start = mmap(NULL, w->mapped_bytes, prot, MAP_SHARED, fd, offset - (int64_t)w->skip);
    w->start = start;
    return start == MAP_FAILED ? -1 : 0;
}
