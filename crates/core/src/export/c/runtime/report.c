/* ---- Reporting ---------------------------------------------------------------------------- */

static unsigned long steps_different;
static FILE *payload; /* what a call returned beside its return value, as text */
static char *payload_text;
static size_t payload_bytes;

static void harness_failed(const char *what)
{
    int number = errno;
    fflush(stdout);
    fprintf(stderr, "\nthis program cannot continue: %s: %s\n", what, strerror(number));
    exit(2);
}

/* Errors are compared by name: their numbers differ between architectures. */
static const char *errno_name(int number)
{
    static char unknown[16];
    switch (number) {
/*ERRNO_CASES*/
    }
    snprintf(unknown, sizeof unknown, "E#%d", number);
    return unknown;
}

static void begin(unsigned long step, const char *call)
{
    printf("%lu %s = ", step, call);
    fflush(stdout); /* so that the call is known if it never returns */
    payload = open_memstream(&payload_text, &payload_bytes);
    if (!payload)
        harness_failed("open_memstream");
}

/* Without an expected answer it is only shown. */
static void end(long long result, const char *expected)
{
    char value[24];
    size_t value_bytes;
    if (result == -1)
        snprintf(value, sizeof value, "%s", errno_name(errno));
    else
        snprintf(value, sizeof value, "%lld", result);
    value_bytes = strlen(value);
    if (fclose(payload) != 0)
        harness_failed("fclose");
    printf("%s%s\n", value, payload_text);
    if (expected && (strncmp(expected, value, value_bytes) != 0 ||
                     strcmp(expected + value_bytes, payload_text) != 0)) {
        printf("  DIFFERENT: expected %s\n", expected);
        steps_different++;
    }
    free(payload_text);
}
