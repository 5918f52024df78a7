/* ---- Directory entries, sorted by name. */

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

static struct entry *with_room(struct entry *all, size_t count)
{
    if (count & (count - 1)) /* room is made at every power of two */
        return all;
    all = realloc(all, (count ? 2 * count : 1) * sizeof *all);
    if (!all)
        harness_failed("realloc");
    return all;
}

static void add_entries(struct entry *all, size_t count)
{
    qsort(all, count, sizeof *all, entry_order);
    fputs(" entries", payload);
    for (size_t i = 0; i < count; i++) {
        fprintf(payload, " %c:", all[i].letter);
        add_name(all[i].name);
    }
}

/* Entries that were read. */
struct listed {
    struct entry *all;
    size_t count;
    long next; /* where the last one ends */
};

static void take_entries(struct listed *to, char *raw, long bytes)
{
    for (long at = 0; at < bytes;) {
        struct dirent64 *found = (struct dirent64 *)(raw + at);
        at += found->d_reclen;
        to->next = found->d_off;
        if (strcmp(found->d_name, "lost+found") == 0)
            continue; /* made by mkfs, not by a step */
        to->all = with_room(to->all, to->count);
        to->all[to->count].name = strdup(found->d_name);
        to->all[to->count++].letter = type_letter(found->d_type);
    }
}

/* Adds them to the answer unless the last call failed. */
static long entries_answer(struct listed *from, long bytes)
{
    int number = errno;
    if (bytes >= 0)
        add_entries(from->all, from->count);
    for (size_t i = 0; i < from->count; i++)
        free(from->all[i].name);
    free(from->all);
    errno = number;
    return bytes < 0 ? -1 : (long)from->count;
}

static int is_directory(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISDIR(s.st_mode);
}
