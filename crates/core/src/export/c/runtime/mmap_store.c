static long long mmap_store(int fd, const void *from, uint64_t bytes, int64_t offset, int sync_flags)
{
    struct window w = { 0 };
    if (map_window(&w, fd, offset, bytes, PROT_READ | PROT_WRITE, MADV_POPULATE_WRITE) != 0)
        return -1;
    memcpy(w.start + w.lead_bytes, from, w.page_bytes);
    int result = msync(w.start, w.mapped_bytes, sync_flags);
    unmap_window(&w);
    return result != 0 ? -1 : (long long)w.bytes;
}
