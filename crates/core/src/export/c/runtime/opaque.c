/* A length longer than any object: hidden from the compiler, which would refuse to pass it. */
static size_t opaque(uint64_t bytes)
{
    volatile uint64_t hidden = bytes;
    return (size_t)hidden;
}
