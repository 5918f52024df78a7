/* Every try has a directory of its own. */
static void own_directory(unsigned number)
{
    char name[32];
    snprintf(name, sizeof name, "try-%u", number);
    if (mkdir(name, 0755) != 0 || chdir(name) != 0)
        harness_failed(name);
    directory = realpath(".", NULL);
    if (!directory)
        harness_failed(name);
}
