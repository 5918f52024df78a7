import ctypes, errno, os, stat, sys

libc = ctypes.CDLL(None, use_errno=True)
directory = os.getcwdb()
slot = {}  # descriptors of the open files
pieces = {}  # where the pieces of a listing began, and where the next one does
names = {"ENOTSUP": "EOPNOTSUPP", "EWOULDBLOCK": "EAGAIN", "EDEADLOCK": "EDEADLK"}


def fd(n):
    return slot.get(n, -1)  # of a slot without a file: the kernel says EBADF


def failed(number):
    name = errno.errorcode.get(number, "E#%d" % number)
    return names.get(name, name)


def escaped(name):
    return "".join(chr(b) if 32 <= b < 127 and b != 92 else "\\\\" if b == 92 else "\\x%02x" % b for b in name)


# ==== A call of the C library: integers have 64 bits, an answer of -1 is an error.
def call(function, *args, answer=ctypes.c_int):
    function = getattr(libc, function)
    function.restype = answer
    result = function(*(ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


# ==== Open files.
def open_slot(n, path, flags, mode):
    pieces.pop(n, None)
    if n in slot:
        os.close(slot.pop(n))
    slot[n] = os.open(path, flags, mode)
    return 0


# ==== 
def close_slot(n):
    os.close(slot.pop(n, -1))
    return 0


# ==== Where data goes: page-aligned, so that O_DIRECT judges offset and length only.
def buffer(size):
    import mmap
    return (ctypes.c_char * size).from_buffer(mmap.mmap(-1, size + 1))


# ==== Bytes made from a seed: splitmix64, little endian, no byte zero.
def pattern(seed, size):
    mask, out = (1 << 64) - 1, bytearray()
    for i in range((size + 7) // 8):
        z = (seed + i * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        out += ((z ^ (z >> 31)) | 0x0101010101010101).to_bytes(8, "little")
    to = buffer(size)
    ctypes.memmove(to, bytes(out), size)
    return to


# ==== XXH64 with seed 0, after the xxHash specification.
def xxh64(data):
    p1, p2, p3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    p4, p5, mask = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5, (1 << 64) - 1
    rotate = lambda v, n: ((v << n) | (v >> (64 - n))) & mask
    lane_round = lambda lane, v: rotate((lane + v * p2) & mask, 31) * p1 & mask
    word = lambda at, size: int.from_bytes(data[at:at + size], "little")
    at, size, h = 0, len(data), p5
    if size >= 32:
        lane = [(p1 + p2) & mask, p2, 0, -p1 & mask]
        for at in range(0, size - 31, 32):
            lane = [lane_round(lane[i], word(at + 8 * i, 8)) for i in range(4)]
        at += 32
        h = sum(rotate(lane[i], n) for i, n in enumerate((1, 7, 12, 18))) & mask
        for v in lane:
            h = ((h ^ lane_round(0, v)) * p1 + p4) & mask
    h = (h + size) & mask
    while at + 8 <= size:
        h, at = (rotate(h ^ lane_round(0, word(at, 8)), 27) * p1 + p4) & mask, at + 8
    if at + 4 <= size:
        h, at = (rotate(h ^ (word(at, 4) * p1 & mask), 23) * p2 + p3) & mask, at + 4
    while at < size:
        h, at = rotate(h ^ (data[at] * p5 & mask), 11) * p1 & mask, at + 1
    h = (h ^ (h >> 33)) * p2 & mask
    h = (h ^ (h >> 29)) * p3 & mask
    return h ^ (h >> 32)


# ==== An answer with data.
def data(to, size):
    return "%d data %016x" % (size, xxh64(ctypes.string_at(to, size)))


# ==== 
def read(n, size):
    to = buffer(size)
    return data(to, call("read", fd(n), to, size, answer=ctypes.c_ssize_t))


# ==== 
def pread(n, size, offset):
    to = buffer(size)
    return data(to, call("pread", fd(n), to, size, offset, answer=ctypes.c_ssize_t))


# ==== 
def write(n, source):
    return call("write", fd(n), source, len(source), answer=ctypes.c_ssize_t)


# ==== 
def pwrite(n, source, offset):
    return call("pwrite", fd(n), source, len(source), offset, answer=ctypes.c_ssize_t)


# ==== 
def lseek(n, offset, whence):
    pieces.pop(n, None)
    return os.lseek(fd(n), offset, whence)


# ==== 
def readlink(path, size):
    to = ctypes.create_string_buffer(size + 1)
    return data(to, call("readlink", path, to, size, answer=ctypes.c_ssize_t))


# ==== 
def getxattr(function, at, name, size):
    to = ctypes.create_string_buffer(size + 1)
    have = call(function, at, name, to if size else None, size, answer=ctypes.c_ssize_t)
    return data(to, have) if size else have


# ==== Names of extended attributes, sorted, without those that the system itself sets.
def listxattr(function, at, size):
    def ask(size):
        to = ctypes.create_string_buffer(size + 1)
        have = call(function, at, to if size else None, size, answer=ctypes.c_ssize_t)
        return have, to.raw[:have] if size else b""
    try:
        result, number = ask(size)[0], 0
    except OSError as error:
        result, number = -1, error.errno
    try:
        everything = ask(65536)[1].split(b"\0")[:-1]
    except OSError as error:
        raise OSError(number or error.errno, "")
    shown = sorted(name for name in everything if not name.startswith(b"security."))
    if len(shown) != len(everything):
        all_bytes = sum(len(name) + 1 for name in shown)
        result, number = (-1, errno.ERANGE) if size and size < all_bytes else (all_bytes, 0)
    if result < 0:
        raise OSError(number, "")
    return "%d names%s" % (result, "".join(" " + escaped(n) for n in shown)) if size else result


# ==== What may differ between equal files is left out.
def attributes(s):
    is_dir, is_device = stat.S_ISDIR(s.st_mode), stat.S_ISCHR(s.st_mode) or stat.S_ISBLK(s.st_mode)
    device = (os.major(s.st_rdev), os.minor(s.st_rdev)) if is_device else (0, 0)
    return "0 mode 0%03o nlink %d uid %d gid %d size %d rdev %d:%d" % (
        s.st_mode, s.st_nlink, s.st_uid, s.st_gid, 0 if is_dir else s.st_size, *device)


# ==== Some directory entries: name, type, and where the next one is; sorted, as an answer.
def some_entries(n, size):
    letters, found, at = {8: "-", 4: "d", 10: "l", 1: "p", 12: "s", 2: "c", 6: "b"}, [], 0
    raw = ctypes.create_string_buffer(max(size, 1))
    size = call("getdents64", fd(n), raw, size, answer=ctypes.c_ssize_t)
    raw = raw.raw[:size]
    while at < size:
        after = int.from_bytes(raw[at + 8:at + 16], "little", signed=True)
        length, kind = int.from_bytes(raw[at + 16:at + 18], "little"), raw[at + 18]
        found.append((raw[at + 19:at + length].split(b"\0")[0], letters.get(kind, "?"), after))
        at += length
    return found


def entries_answer(found):
    found = sorted((name, kind) for name, kind, after in found if name != b"lost+found")
    return "%d entries%s" % (len(found), "".join(" %s:%s" % (k, escaped(n)) for n, k in found))


def is_directory(n):
    return n in slot and stat.S_ISDIR(os.fstat(fd(n)).st_mode)


# ==== Directory entries: all of them from the start, sorted by name.
def entries(n):
    pieces.pop(n, None)
    if is_directory(n):
        os.lseek(fd(n), 0, os.SEEK_SET)
    found, some = [], some_entries(n, 1 << 15)
    while some:
        found += some
        some = some_entries(n, 1 << 15)
    return entries_answer(found)


# ==== A piece of a directory: one call, where the last piece ended or after seeking to where the piece so
# many pieces back began; from the first entry on if there are not so many.
def list_piece(n, back, size):
    starts, after = pieces.get(n, ([], 0))
    if is_directory(n):
        if not starts or back >= len(starts):
            starts, after = [], os.lseek(fd(n), 0, os.SEEK_SET)
        elif back:
            starts, after = starts[:-back], os.lseek(fd(n), starts[-back], os.SEEK_SET)
    pieces[n] = (starts, after)
    some = some_entries(n, size)
    while some and all(name == b"lost+found" for name, kind, next in some):
        after, some = some[-1][2], some_entries(n, size)
    pieces[n] = (starts + [pieces[n][1]], some[-1][2] if some else after)
    return entries_answer(some)


# ==== Memory-mapped access, only to bytes inside the file: beyond it there is SIGBUS.
def mapped(n, offset, size, protection, advice, work):
    page = os.sysconf("SC_PAGESIZE")
    lead = offset % page
    if lead + size >= 1 << 64:
        raise OSError(errno.ENOMEM, "")
    void = ctypes.c_void_p
    length = ctypes.c_size_t(lead + size)
    libc.mmap.restype, libc.mmap.argtypes = void, None
    start = libc.mmap(None, length, protection, 1, fd(n), ctypes.c_long(offset - lead))
    if start in (None, void(-1).value):
        raise OSError(ctypes.get_errno(), "")
    try:
        end = os.fstat(fd(n)).st_size
        inside = min(size, max(0, end - offset))
        # Stores go on behind the end, as far as the last page reaches.
        touched = min(size, max(0, -(-end // page) * page - offset)) if protection & 2 else inside
        if touched and libc.madvise(void(start), ctypes.c_size_t(lead + touched), advice) != 0:
            if ctypes.get_errno() != errno.EINVAL:
                raise OSError(ctypes.get_errno(), "")
        return work(start + lead, inside, touched, start, length)
    finally:
        libc.munmap(void(start), length)


# ==== 
def mmap_store(n, source, offset, flags):
    def store(to, inside, touched, start, length):
        ctypes.memmove(to, source, touched)
        if libc.msync(ctypes.c_void_p(start), length, flags) != 0:
            raise OSError(ctypes.get_errno(), "")
        return inside
    return mapped(n, offset, len(source), 3, 23, store)  # MADV_POPULATE_WRITE


# ==== 
def mmap_load(n, size, offset):
    load = lambda at, inside, touched, start, length: data(ctypes.string_at(at, inside), inside)
    return mapped(n, offset, size, 1, 22, load)  # MADV_POPULATE_READ


# ==== 
def copy_file_range(source, source_offset, to, to_offset, size, flags):
    place = lambda at: None if at is None else ctypes.byref(ctypes.c_int64(at))
    return call("copy_file_range", fd(source), place(source_offset), fd(to), place(to_offset),
                ctypes.c_size_t(size), flags, answer=ctypes.c_ssize_t)


# ==== 
def utimens(function, at, atime, mtime, *flags):
    times = (ctypes.c_int64 * 4)(*atime, *mtime)
    return call(function, *at, times, *flags)


# ==== Real and effective ids; the saved user id stays 0 and allows the way back.
def identity(uid, gid, groups):
    os.setresuid(0, 0, 0)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, 0)
    return 0


# ==== Lets go of the file system while it is mounted again.
def leave():
    for n in list(slot):
        os.close(slot.pop(n))
    os.chdir("/")
    return 0


# ==== 
def come_back():
    os.chdir(directory)
    return 0


# ==== How often a directory lists a name, and whether it is there.
def entry(path):
    try:
        os.lstat(path)
        there = "there"
    except (FileNotFoundError, NotADirectoryError):
        there = "missing"
    parent, name = os.path.split(path)
    try:
        listed = sum(found.name == name for found in os.scandir(parent or b"."))
    except OSError:
        listed = 0
    return "%s, listed %d times" % (there, listed)


# ==== 
def names_in(path):
    found = sorted(found.name for found in os.scandir(path) if found.name != b"lost+found")
    return " ".join(escaped(name) for name in found) or "nothing"


# ==== 
def target(path):
    return escaped(os.readlink(path))


# ==== 
def hexadecimal(data):
    return " ".join("%02x" % byte for byte in data) or "nothing"


# ==== 
def content(path, offset, size):
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return hexadecimal(os.pread(file, size, offset))
    finally:
        os.close(file)


# ==== 
def xattr(path, name, offset, size):
    value = os.getxattr(path, name, follow_symlinks=False)
    return "%d in all: %s" % (len(value), hexadecimal(value[offset:offset + size]))


# ==== 
def time_of(path, which):
    s = os.lstat(path)
    return s.st_mtime_ns if which == "m" else s.st_ctime_ns


# ==== 
def time_text(path, which):
    return "%d.%09d" % divmod(time_of(path, which), 10**9)


# ==== 
def in_order(earlier, a, later, b):
    return "yes" if time_of(later, b) >= time_of(earlier, a) else "no"


# ==== The counts of statfs(2), as their change since the start.
def remember_space():
    global at_start
    at_start = os.statvfs(".")
    return 0


def space(field, expected, slack):
    then, now = at_start, os.statvfs(".")
    if field == "name_bytes_max":
        return now.f_namemax
    if field == "consistent":
        return "yes" if now.f_bsize == then.f_bsize and now.f_bavail <= now.f_bfree <= now.f_blocks \
            and now.f_ffree <= now.f_files else "no"
    fall = (then.f_bfree - now.f_bfree) * then.f_bsize if field == "bytes_free" else then.f_ffree - now.f_ffree
    return expected if abs(fall - expected) <= slack else fall


# ==== The log of the kernel since the start: its first warning or error (printk levels 0 to 4).
def remember_log():
    global log
    log = os.open(os.environ.get("KMSG", "/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    return 0


def kernel_log():
    while True:
        try:
            text = os.read(log, 65536)
        except BrokenPipeError:
            continue
        except BlockingIOError:
            return "nothing"
        if not text:
            return "nothing"
        for line in text.decode(errors="replace").split("\n"):
            head, found, message = line.partition(";")
            level = head.split(",")[0]
            if found and level.isdigit() and int(level) <= 4:
                return message


# ==== END
for line in sys.stdin:
    try:
        answer = eval(line)
    except OSError as error:
        answer = failed(error.errno)
    print(answer, flush=True)
