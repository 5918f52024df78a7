/* ---- Memory-mapped access, only inside the last page of the file: beyond it there is SIGBUS. */

struct window {
    unsigned char *start;
    size_t mapped_bytes; /* from the page that holds the offset */
    size_t lead_bytes;   /* from there to the offset */
    size_t bytes;        /* of those asked for, how many lie inside the file */
    size_t page_bytes;   /* and how many inside its last page */
};

static int unmap_window(struct window *w)
{
    int number = errno;
    munmap(w->start, w->mapped_bytes);
    errno = number;
    return -1;
}

/* The advice makes the kernel touch the pages first: it reports where we would get a signal. */
static int map_window(struct window *w, int fd, int64_t offset, uint64_t bytes, int prot, int advice)
{
    int64_t page = sysconf(_SC_PAGESIZE);
    struct statx s;
    w->lead_bytes = (size_t)((offset % page + page) % page);
    w->mapped_bytes = w->lead_bytes + bytes;
    if (w->mapped_bytes < bytes) { /* more than there are addresses */
        errno = ENOMEM;
        return -1;
    }
    void *start = mmap(NULL, w->mapped_bytes, prot, MAP_SHARED, fd, offset - (int64_t)w->lead_bytes);
    if (start == MAP_FAILED)
        return -1;
    w->start = start;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &s) != 0)
        return unmap_window(w);
    uint64_t inside = s.stx_size > (uint64_t)offset ? s.stx_size - (uint64_t)offset : 0;
    w->bytes = bytes < inside ? bytes : inside;
    uint64_t end = (s.stx_size + (uint64_t)page - 1) / (uint64_t)page * (uint64_t)page;
    uint64_t mapped = end > (uint64_t)offset ? end - (uint64_t)offset : 0;
    w->page_bytes = bytes < mapped ? bytes : mapped;
    size_t touched = prot & PROT_WRITE ? w->page_bytes : w->bytes;
    if (touched && madvise(start, w->lead_bytes + touched, advice) != 0 && errno != EINVAL)
        return unmap_window(w);
    return 0;
}
