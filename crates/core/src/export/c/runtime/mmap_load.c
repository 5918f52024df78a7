static long long mmap_load(int fd, uint64_t bytes, int64_t offset)
{
    struct window w = { 0 };
    if (map_window(&w, fd, offset, bytes, PROT_READ, MADV_POPULATE_READ) != 0)
        return -1;
    memcpy(buffer(w.bytes), w.start + w.lead_bytes, w.bytes);
    unmap_window(&w);
    return (long long)w.bytes;
}
