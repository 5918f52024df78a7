/* ---- Open files: slots; a slot without a file is descriptor -1, to which the kernel says EBADF. */

static int slot[SLOTS];

static void no_open_files(void)
{
    for (int n = 0; n < SLOTS; n++)
        slot[n] = -1;
}
