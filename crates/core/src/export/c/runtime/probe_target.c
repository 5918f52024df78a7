static void show_target(const char *path)
{
    static char target[1 << 16];
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    if (bytes < 0) {
        show_errno();
        return;
    }
    target[bytes] = 0;
    add_name(target);
}
