static void show_attribute(const char *path, const char *field)
{
    struct stat s;
    if (lstat(path, &s) != 0) {
        show_errno();
        return;
    }
    unsigned type = s.st_mode & S_IFMT;
    int is_device = type == S_IFCHR || type == S_IFBLK;
    switch (field[0]) { /* the first letters are different */
    case 'k': /* kind, as ls -l shows it */
        fputc(type == S_IFREG ? '-' : type == S_IFDIR ? 'd' : type == S_IFLNK ? 'l' :
              type == S_IFIFO ? 'p' : type == S_IFSOCK ? 's' : type == S_IFCHR ? 'c' : 'b', payload);
        break;
    case 'm': fprintf(payload, "0%03o", (unsigned)s.st_mode & 07777); break;
    case 'u': fprintf(payload, "%u", (unsigned)s.st_uid); break;
    case 'g': fprintf(payload, "%u", (unsigned)s.st_gid); break;
    case 'n': fprintf(payload, "%lu", (unsigned long)s.st_nlink); break;
    case 's': fprintf(payload, "%lld", type == S_IFDIR ? 0 : (long long)s.st_size); break;
    case 'r': /* rdev */
        fprintf(payload, "%u:%u", is_device ? major(s.st_rdev) : 0, is_device ? minor(s.st_rdev) : 0);
        break;
    }
}
