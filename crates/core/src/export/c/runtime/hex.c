static void show_hex(const unsigned char *from, size_t bytes)
{
    if (bytes == 0)
        fputs("nothing", payload);
    for (size_t i = 0; i < bytes; i++)
        fprintf(payload, i ? " %02x" : "%02x", from[i]);
}
