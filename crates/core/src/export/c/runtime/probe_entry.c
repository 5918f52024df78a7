static void show_entry(const char *path)
{
    struct stat s;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *parent = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    int there = lstat(path, &s) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR) {
        show_errno();
        free(parent);
        return;
    }
    unsigned long listed = 0;
    DIR *dir = opendir(parent);
    struct dirent *found;
    while (dir && (found = readdir(dir)))
        listed += strcmp(found->d_name, name) == 0;
    if (dir)
        closedir(dir);
    free(parent);
    fprintf(payload, "%s, listed %lu times", there ? "there" : "missing", listed);
}
