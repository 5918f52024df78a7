/* A slot in use is closed first. A new descriptor counts as 0. */
static int open_slot(int n, const char *path, int flags, mode_t mode)
{
    if (slot[n] >= 0)
        close(slot[n]);
    slot[n] = open(path, flags, mode);
    return slot[n] < 0 ? -1 : 0;
}
