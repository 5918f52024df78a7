static int close_slot(int n)
{
    int fd = slot[n];
    slot[n] = -1;
    return close(fd);
}
