/* ---- Directory entries: all of them from the start, sorted by name. */

struct entry {
    char *name;
    char letter;
};

static char type_letter(unsigned char type)
{
    switch (type) {
    case DT_REG: return '-';
    case DT_DIR: return 'd';
    case DT_LNK: return 'l';
    case DT_FIFO: return 'p';
    case DT_SOCK: return 's';
    case DT_CHR: return 'c';
    case DT_BLK: return 'b';
    default: return '?';
    }
}

static int entry_order(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    int names = strcmp(left->name, right->name);
    return names != 0 ? names : left->letter - right->letter;
}

static long entries(int fd)
{
    static char raw[1 << 16] __attribute__((aligned(8)));
    struct entry *all = NULL;
    size_t count = 0, capacity = 0;
    long bytes;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return -1;
    while ((bytes = syscall(SYS_getdents64, fd, raw, sizeof raw)) > 0) {
        for (long at = 0; at < bytes;) {
            struct dirent64 *found = (struct dirent64 *)(raw + at);
            if (count == capacity) {
                capacity = capacity ? 2 * capacity : 64;
                all = realloc(all, capacity * sizeof *all);
            }
            all[count].name = strdup(found->d_name);
            all[count++].letter = type_letter(found->d_type);
            at += found->d_reclen;
        }
    }
    if (bytes == 0) {
        qsort(all, count, sizeof *all, entry_order);
        fputs(" entries", payload);
    }
    for (size_t i = 0; i < count; i++) {
        if (bytes == 0) {
            fprintf(payload, " %c:", all[i].letter);
            add_name(all[i].name);
        }
        free(all[i].name);
    }
    free(all);
    return bytes < 0 ? -1 : (long)count;
}
