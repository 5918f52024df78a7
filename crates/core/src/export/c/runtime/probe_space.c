static struct statfs at_start; /* before the first step */

static void remember_space(void)
{
    if (statfs(".", &at_start) != 0)
        harness_failed("statfs");
}

/* A fall that is wrong by no more than the slack is the expected one. */
static void show_fall(long long fall, long long expected, unsigned long long slack)
{
    unsigned long long apart =
        fall > expected ? (unsigned long long)(fall - expected) : (unsigned long long)(expected - fall);
    fprintf(payload, "%lld", apart <= slack ? expected : fall);
}

static void show_space(const char *field, long long expected, unsigned long long slack)
{
    struct statfs now;
    if (statfs(".", &now) != 0)
        show_errno();
    else if (strcmp(field, "bytes_free") == 0)
        show_fall(((long long)at_start.f_bfree - (long long)now.f_bfree) * (long long)at_start.f_bsize,
                  expected, slack);
    else if (strcmp(field, "files_free") == 0)
        show_fall((long long)at_start.f_ffree - (long long)now.f_ffree, expected, slack);
    else if (strcmp(field, "name_bytes_max") == 0)
        fprintf(payload, "%lld", (long long)now.f_namelen);
    else
        fputs(now.f_bsize == at_start.f_bsize && now.f_bavail <= now.f_bfree &&
              now.f_bfree <= now.f_blocks && now.f_ffree <= now.f_files ? "yes" : "no", payload);
}
