/* ---- Where data goes: page-aligned, so that O_DIRECT judges offset and length only. */

static unsigned char *buffer_start;

static void *buffer(size_t bytes)
{
    static size_t capacity;
    if (bytes >= capacity) {
        if (capacity)
            munmap(buffer_start, capacity);
        capacity = bytes + 1; /* never empty: a mapping of no bytes is an error */
        void *start = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED)
            harness_failed("mmap of a buffer");
        buffer_start = start;
    }
    return buffer_start;
}
