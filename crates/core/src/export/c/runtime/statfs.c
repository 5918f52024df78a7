/* The counts depend on the device and on its other users: shown, not compared. */
static struct statfs counts;

static int space(int result)
{
    if (result == 0)
        printf("(block %llu blocks %llu free %llu available %llu files %llu free %llu name %llu) ",
               (unsigned long long)counts.f_bsize, (unsigned long long)counts.f_blocks,
               (unsigned long long)counts.f_bfree, (unsigned long long)counts.f_bavail,
               (unsigned long long)counts.f_files, (unsigned long long)counts.f_ffree,
               (unsigned long long)counts.f_namelen);
    return result;
}
