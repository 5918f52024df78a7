/* Bytes made from a seed. None is zero, so that data is never mistaken for a hole. */
static void *pattern(uint64_t seed, size_t bytes)
{
    unsigned char *to = buffer(bytes);
    uint64_t word = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (i % 8 == 0) { /* splitmix64 */
            word = seed + i / 8 * UINT64_C(0x9e3779b97f4a7c15);
            word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
            word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
            word = (word ^ (word >> 31)) | UINT64_C(0x0101010101010101);
        }
        to[i] = (unsigned char)(word >> (i % 8 * 8));
    }
    return to;
}
