/* Closes every slot and leaves the directory while the command in FATHOM_REMOUNT unmounts and
 * mounts the file system again. */
static int remount(void)
{
    const char *command = getenv("FATHOM_REMOUNT");
    if (!command) {
        errno = ENOTSUP;
        harness_failed("this step remounts the file system: set FATHOM_REMOUNT to a command that "
                       "does it");
    }
    for (int n = 0; n < SLOTS; n++) {
        if (slot[n] >= 0)
            close(slot[n]);
        slot[n] = -1;
    }
    if (chdir("/") != 0)
        harness_failed("leaving the directory");
    if (system(command) != 0)
        harness_failed("the command in FATHOM_REMOUNT");
    if (chdir(directory) != 0)
        harness_failed("returning to the directory");
    return 0;
}
