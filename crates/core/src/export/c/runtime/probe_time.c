static void show_time(const char *path, char which)
{
    struct timespec time;
    if (time_of(path, which, &time) != 0)
        show_errno();
    else
        fprintf(payload, "%lld.%09ld", (long long)time.tv_sec, time.tv_nsec);
}
