/* Closes every slot and leaves the directory while the command in CHECK unmounts the file system,
 * checks it and mounts it again. */
static void show_checker(void)
{
    int status;
    for (int n = 0; n < SLOTS; n++) {
        if (slot[n] >= 0)
            close(slot[n]);
        slot[n] = -1;
    }
    if (chdir("/") != 0)
        harness_failed("leaving the directory");
    fflush(stdout);
    status = system(getenv("CHECK"));
    if (chdir(directory) != 0)
        harness_failed("returning to the directory");
    if (status == -1 || !WIFEXITED(status))
        harness_failed("the command in CHECK");
    if (WEXITSTATUS(status) == 0)
        fputs("clean", payload);
    else
        fprintf(payload, "exit code %d", WEXITSTATUS(status));
}
