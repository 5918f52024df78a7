static void show_order(const char *earlier, char a, const char *later, char b)
{
    struct timespec first, second;
    if (time_of(earlier, a, &first) != 0 || time_of(later, b, &second) != 0)
        show_errno();
    else
        fputs(second.tv_sec > first.tv_sec ||
              (second.tv_sec == first.tv_sec && second.tv_nsec >= first.tv_nsec) ? "yes" : "no",
              payload);
}
