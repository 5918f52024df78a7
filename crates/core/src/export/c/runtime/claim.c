static void claim(const char *what)
{
    printf("%s: ", what);
    fflush(stdout);
    payload = open_memstream(&payload_text, &payload_bytes);
    if (!payload)
        harness_failed("open_memstream");
}

/* A call of a probe failed: its error is what was found. */
static void __attribute__((unused)) show_errno(void)
{
    fputs(errno_name(errno), payload);
}

static void must_be(const char *expected)
{
    if (fclose(payload) != 0)
        harness_failed("fclose");
    claims++;
    if (strcmp(expected, payload_text) == 0) {
        printf("%s, as it must be\n", expected);
    } else {
        printf("expected %s, found %s: WRONG\n", expected, payload_text);
        claims_wrong++;
    }
    free(payload_text);
}
