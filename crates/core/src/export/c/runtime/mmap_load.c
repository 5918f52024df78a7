static long long mmap_load(int fd, uint64_t bytes, int64_t offset)
{
    struct window w;
    if (map_window(&w, fd, offset, bytes, PROT_READ) != 0)
        return -1;
    memcpy(buffer(w.bytes), w.start + w.skip, w.bytes);
    munmap(w.start, w.mapped_bytes);
    return (long long)w.bytes;
}
