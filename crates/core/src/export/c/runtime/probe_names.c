static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void show_names(const char *path)
{
    static char *name[1 << 16];
    size_t count = 0;
    DIR *dir = opendir(path);
    struct dirent *found;
    if (!dir) {
        show_errno();
        return;
    }
    while ((found = readdir(dir)) && count < sizeof name / sizeof *name)
        if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0 &&
            strcmp(found->d_name, "lost+found") != 0)
            name[count++] = strdup(found->d_name);
    closedir(dir);
    qsort(name, count, sizeof *name, compare_names);
    if (count == 0)
        fputs("nothing", payload);
    for (size_t i = 0; i < count; i++) {
        fputs(i ? " " : "", payload);
        add_name(name[i]);
    }
}
