static void show_same(const char *path, const char *other)
{
    struct stat a, b;
    if (lstat(path, &a) != 0 || lstat(other, &b) != 0)
        show_errno();
    else
        fputs(a.st_dev == b.st_dev && a.st_ino == b.st_ino ? "yes" : "no", payload);
}
