/* A piece of a directory: one call, where the last piece ended or after seeking to where the piece so
 * many pieces back began; from the first entry on if there are not so many. */
static struct piece_starts {
    size_t count;
    long *at;
    long next;
} piece_starts[SLOTS];

static long list_piece(int n, size_t back, size_t size)
{
    static char raw[1 << 20] __attribute__((aligned(8)));
    struct piece_starts *starts = &piece_starts[n];
    struct listed found = {0};
    long bytes;
    if (is_directory(slot[n]) && (starts->count == 0 || back >= starts->count)) {
        starts->count = 0;
        starts->next = lseek(slot[n], 0, SEEK_SET);
    } else if (back > 0 && starts->count > 0) {
        starts->count -= back;
        starts->next = lseek(slot[n], starts->at[starts->count], SEEK_SET);
    }
    found.next = starts->next;
    do { /* what is not shown is no piece */
        bytes = syscall(SYS_getdents64, slot[n], raw, size);
        take_entries(&found, raw, bytes);
    } while (bytes > 0 && found.count == 0);
    if (bytes >= 0) {
        starts->at = realloc(starts->at, (starts->count + 1) * sizeof *starts->at);
        if (!starts->at)
            harness_failed("realloc");
        starts->at[starts->count++] = starts->next;
        starts->next = found.next;
    }
    return entries_answer(&found, bytes);
}
