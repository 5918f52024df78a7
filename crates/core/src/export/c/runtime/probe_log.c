static int kernel_log = -1; /* at the place where it ended before the first step */

static void remember_log(void)
{
    const char *path = getenv("KMSG");
    kernel_log = open(path ? path : "/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (kernel_log < 0 || lseek(kernel_log, 0, SEEK_END) < 0)
        harness_failed("the log of the kernel");
}

/* The first line of the kernel itself that is a warning or worse (printk levels 0 to 4). */
static void show_log(void)
{
    static char text[65536];
    for (;;) {
        ssize_t count = read(kernel_log, text, sizeof text - 1);
        if (count < 0 && errno == EPIPE)
            continue; /* some of it was overwritten */
        if (count <= 0)
            break;
        text[count] = 0;
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
            char *message = strchr(line, ';');
            unsigned long level = strtoul(line, NULL, 10);
            if (message && line[0] >= '0' && line[0] <= '9' && level <= 4) {
                fputs(message + 1, payload);
                return;
            }
        }
    }
    fputs("nothing", payload);
}
