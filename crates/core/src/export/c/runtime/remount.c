/* Closes every slot and leaves the directory while the command in REMOUNT unmounts and mounts the
 * file system again. */
static int remount(void)
{
    for (int n = 0; n < SLOTS; n++) {
        if (slot[n] >= 0)
            close(slot[n]);
        slot[n] = -1;
    }
    if (chdir("/") != 0)
        harness_failed("leaving the directory");
    fflush(stdout);
    if (system(getenv("REMOUNT")) != 0)
        harness_failed("the command in REMOUNT");
    if (chdir(directory) != 0)
        harness_failed("returning to the directory");
    return 0;
}
