/* Adds a name; a byte that is not printable ASCII is \xNN. */
static void add_name(const char *name)
{
    for (; *name; name++) {
        unsigned char byte = (unsigned char)*name;
        if (byte == '\\')
            fputs("\\\\", payload);
        else if (byte >= ' ' && byte <= '~')
            fputc(byte, payload);
        else
            fprintf(payload, "\\x%02x", byte);
    }
}
