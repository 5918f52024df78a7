static long long mmap_store(int fd, const void *from, uint64_t bytes, int64_t offset, int sync_flags)
{
    struct window w;
    if (map_window(&w, fd, offset, bytes, PROT_READ | PROT_WRITE) != 0)
        return -1;
    memcpy(w.start + w.skip, from, w.bytes);
    int result = msync(w.start, w.mapped_bytes, sync_flags), number = errno;
    munmap(w.start, w.mapped_bytes);
    errno = number;
    return result != 0 ? -1 : (long long)w.bytes;
}
