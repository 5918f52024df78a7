static int time_of(const char *path, char which, struct timespec *time)
{
    struct stat s;
    if (lstat(path, &s) != 0)
        return -1;
    *time = which == 'm' ? s.st_mtim : s.st_ctim;
    return 0;
}
