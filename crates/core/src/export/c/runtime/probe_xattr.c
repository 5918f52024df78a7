static void show_xattr(const char *path, const char *name, size_t offset, size_t bytes)
{
    static unsigned char value[1 << 16];
    ssize_t have = lgetxattr(path, name, value, sizeof value);
    if (have < 0) {
        show_errno();
        return;
    }
    size_t all = (size_t)have, end = offset + bytes < all ? offset + bytes : all;
    fprintf(payload, "%zu in all: ", all);
    show_hex(value + offset, end > offset ? end - offset : 0);
}
