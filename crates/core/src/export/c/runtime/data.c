/* Adds the checksum of the bytes that a call has put into the buffer. */
static long long data(long long bytes)
{
    if (bytes >= 0)
        fprintf(payload, " data %016" PRIx64, xxh64(buffer_start, (size_t)bytes));
    return bytes;
}
