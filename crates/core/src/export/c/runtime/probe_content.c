static void show_content(const char *path, int64_t offset, size_t bytes)
{
    unsigned char found[4096];
    size_t have = 0;
    ssize_t more = 1;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    while (fd >= 0 && have < bytes && more > 0) {
        more = pread(fd, found + have, bytes - have, offset + (int64_t)have);
        have += more > 0 ? (size_t)more : 0;
    }
    if (fd < 0 || more < 0)
        show_errno();
    else
        show_hex(found, have);
    if (fd >= 0)
        close(fd);
}
