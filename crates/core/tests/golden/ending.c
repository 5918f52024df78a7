static void check_the_end(void)
{
    // The subject had: something else.
    claim("entry \"d/f\"");
    show_entry("d/f");
    must_be("there, listed 1 times");
    // The subject had: something else.
    claim("entry \"d/x\"");
    show_entry("d/x");
    must_be("missing, listed 0 times");
    // The subject had: something else.
    claim("kind of \"d/f\"");
    show_attribute("d/f", "kind");
    must_be("-");
    // The subject had: something else.
    claim("mode of \"d\"");
    show_attribute("d", "mode");
    must_be("0755");
    // The subject had: something else.
    claim("nlink of \"g\"");
    show_attribute("g", "nlink");
    must_be("2");
    // The subject had: something else.
    claim("size of \"g\"");
    show_attribute("g", "size");
    must_be("5");
    // The subject had: something else.
    claim("rdev of \"g\"");
    show_attribute("g", "rdev");
    must_be("0:0");
    // The subject had: something else.
    claim("target of \"l\"");
    show_target("l");
    must_be("d/f");
    // The subject had: something else.
    claim("names in \"d\"");
    show_names("d");
    must_be("f");
    // The subject had: something else.
    claim("16 bytes at offset 2 of \"d/f\"");
    show_content("d/f", 2, 16);
    must_be("00 e5 05");
    // The subject had: something else.
    claim("16 bytes at offset 5 of \"d/f\"");
    show_content("d/f", 5, 16);
    must_be("nothing");
    // The subject had: something else.
    claim("16 bytes at offset 0 of xattr \"user.a\" of \"d/f\"");
    show_xattr("d/f", "user.a", 0, 16);
    must_be("ENODATA");
    // The subject had: something else.
    claim("whether \"d/f\" and \"g\" are one file");
    show_same("d/f", "g");
    must_be("yes");
    // The subject had: something else.
    claim("mtime of \"g\"");
    show_time("g", 'm');
    must_be("5.000000007");
    // The subject had: something else.
    claim("whether mtime of \"l\" is not before mtime of \"d/f\"");
    show_order("d/f", 'm', "l", 'm');
    must_be("yes");
    // The subject had: something else.
    claim("statfs f_namelen");
    show_space("name_bytes_max", 255, 0);
    must_be("255");
    // The subject had: something else.
    claim("whether f_bsize stayed and f_bavail <= f_bfree <= f_blocks, f_ffree <= f_files");
    show_space("consistent", 0, 0);
    must_be("yes");
}

int main(int argc, char **argv)
{
    char fresh[PATH_MAX];
    if (argc > 2) {
        fprintf(stderr, "usage: %s [DIRECTORY]\n", argv[0]);
        return 2;
    }
    if (argc < 2) {
        const char *parent = getenv("TMPDIR");
        snprintf(fresh, sizeof fresh, "%s/fathom-XXXXXX", parent ? parent : "/tmp");
        if (!mkdtemp(fresh) || chmod(fresh, 0755) != 0)
            harness_failed(fresh);
        printf("in %s\n", fresh);
    }
    directory = realpath(argc < 2 ? fresh : argv[1], NULL);
    if (!directory || chdir(directory) != 0)
        harness_failed(argc < 2 ? fresh : argv[1]);
    signal(SIGPIPE, SIG_IGN); // a FIFO without readers shall answer EPIPE
    umask(0022);
    no_open_files();
    remember_space();
    steps_0();
    check_the_end();
    printf("%lu of %u steps are DIFFERENT\n", steps_different, 6u);
    if (steps_different) {
        puts("The way to the end was another one: nothing is proved.");
        return 2;
    }
    printf("%lu of %lu claims are WRONG: %s\n", claims_wrong, claims,
           claims_wrong ? "the bug is there" : "the bug is not there");
    return claims_wrong ? 1 : 0;
}
