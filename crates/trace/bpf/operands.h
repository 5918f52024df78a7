/* What the arguments of a call say: their codes, and which file systems they concern. */
#pragma once

/* Where a relative path starts: dentry and mount of the descriptor or the working directory. */
static __always_inline void find_base(struct work *w, u32 base)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fs_struct *fs = task->fs;
	struct file *file;

	w->base_dentry[base & 1] = w->base_mount[base & 1] = 0;
	if (w->dirfd == AT_FDCWD) {
		if (fs) {
			w->base_dentry[base & 1] = (u64)fs->pwd.dentry;
			w->base_mount[base & 1] = (u64)fs->pwd.mnt;
		}
		return;
	}
	file = file_of(w->dirfd);
	if (file) {
		w->base_dentry[base & 1] = (u64)READ(file, f_path.dentry);
		w->base_mount[base & 1] = (u64)READ(file, f_path.mnt);
	}
}

static __always_inline u32 touch_base(struct work *w, u32 base)
{
	struct vfsmount *mount = (void *)w->base_mount[base & 1];

	return touch_of((u64)READ(mount, mnt_sb));
}

/* /proc/self/fd/N and /dev/fd/N as a whole: the number, or -1. */
static __always_inline int fd_link(struct work *w)
{
	u64 word = *(u64 *)w->path;
	u32 pos, fd = 0, digits = 0;

	if (word == 0x2f64662f7665642fULL) /* /dev/fd/ */
		pos = 8;
	else if (word == 0x65732f636f72702fULL && *(u64 *)(w->path + 6) == 0x2f64662f666c6573ULL)
		pos = 14; /* /proc/self/fd/ */
	else
		return -1;
	for (u32 k = 0; k < 9; k++) {
		char c = path_at(w, pos + k);

		if (c < '0' || c > '9')
			break;
		fd = 10 * fd + (c - '0');
		digits++;
	}
	return digits && !path_at(w, pos + digits) ? fd : -1;
}

/* Leaves a path to user space, unless it is only a name of a descriptor. */
static __always_inline u32 leave(struct work *w, u32 base)
{
	struct file *file = 0;
	int fd;

	if (w->follow && base < w->parent_from) {
		fd = fd_link(w);
		if (fd >= 0)
			file = file_of(fd);
		if (file)
			return touch_file(file);
	}
	w->pending |= 1 << base;
	return 0;
}

/* The text of `path` is there: where does it lead? */
static __always_inline u32 resolve(struct work *w, u32 base)
{
	u64 sb;

	if (!w)
		return NOTHING;
	base &= 1;
	if (w->path[0] != '/' && !w->base_dentry[base])
		return NOTHING;
	if (w->resolve & RESOLVE_CONFINED)
		return w->base_mount[base] ? touch_base(w, base) : NOTHING;
	if (w->stream)
		return leave(w, base);
	w->parent = base >= w->parent_from;
	w->follow_last = w->follow;
	sb = walk(w, base);
	/* A link whose text is not in memory: user space can read it. */
	if (w->unknown)
		return leave(w, base);
	if (w->missed)
		w->again |= 1 << base;
	return touch_of(sb);
}

/* A path at the start of a call. Returns its code. */
__noinline u32 path_operand(struct work *w, u64 address, u32 only_absolute)
{
	u32 base, code;
	long length;
	s32 dirfd;

	if (!w)
		return UNKNOWN;
	base = w->paths++ & 1;
	dirfd = w->dirfd;
	find_base(w, base);
	w->dirfd = AT_FDCWD;
	if (!address) {
		/* A null path means the descriptor where it is allowed (utimensat(2), statx(2)). */
		if (dirfd == AT_FDCWD || !w->base_mount[base])
			w->touch |= NOTHING;
		else
			w->touch |= touch_base(w, base);
		return TEXT_NULL;
	}
	length = bpf_probe_read_user_str(w->path, PATH_BYTES, (void *)address);
	if (length < 0) {
		w->again |= 1 << base;
		return UNKNOWN;
	}
	/* Without a NUL in so many bytes it is too long: one more than fits. */
	if (length == PATH_BYTES && w->path[PATH_BYTES - 1] == 0)
		length = PATH_BYTES + (w->path[PATH_BYTES - 2] != 0);
	code = encode_text(w->path[0], length);
	if (only_absolute && w->path[0] != '/')
		return code;
	if (length <= 1)
		w->touch |= w->base_mount[base] ? touch_base(w, base) : NOTHING;
	else
		w->touch |= resolve(w, base);
	return code;
}

static long mapped_file(struct task_struct *task, struct vm_area_struct *area, u64 *sb)
{
	struct file *file = READ(area, vm_file);
	struct config *c = the_config();
	struct path *path;

	if (!file || !c)
		return 0;
	*sb = (u64)READ(READ(file, f_inode), i_sb);
	/* Mapped is the file of the layer below; the path that was opened is behind it: struct backing_file
	 * of fs/file_table.c. */
	if (READ(file, f_mode) & c->flag_backing) {
		path = (void *)((u64)file + bpf_core_type_size(struct file));
		*sb = (u64)READ(READ(path, mnt), mnt_sb);
	}
	return 0;
}

__noinline u32 touch_mapping(u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 sb = 0;

	bpf_find_vma(task, address, mapped_file, &sb, 0);
	return touch_of(sb);
}

struct range {
	u64 fds;
	u32 first, len, touch;
};

static long next_fd(u32 index, struct range *range)
{
	struct file *file;

	if (index >= range->len)
		return 1;
	file = (void *)peek(range->fds + 8ULL * (range->first + index));
	if (file)
		range->touch |= touch_file(file);
	return range->touch & INSIDE;
}

/* close_range(2): any file of the range. */
__noinline u32 touch_range(u32 first, u32 last)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *table = READ(READ(task, files), fdt);
	u32 max = READ(table, max_fds);
	struct range range = { .first = first, .touch = OUTSIDE };

	if (last >= max)
		last = max - 1;
	if (first > last)
		return OUTSIDE;
	range.fds = (u64)READ(table, fd);
	range.len = last - first + 1;
	bpf_loop(1 << 20, next_fd, &range, 0);
	return range.touch & INSIDE ? INSIDE : OUTSIDE;
}

/* The rarer or longer half of `number_code`. */
__noinline u32 amount_code(u32 kind, u64 value)
{
	switch (kind) {
	case AMOUNT:
		return encode_amount(value);
	case SIGNED_AMOUNT:
		return encode_signed(value);
	case AMOUNT32:
		return encode_amount((u32)value);
	case SIGNED_AMOUNT32:
		return encode_signed((s32)value);
	case WIDE_BITS:
		return (u32)value | (value >> 32 ? BIT_WITHOUT_NAME : 0);
	case ID:
		return (u32)value == 0xffffffff ? 0 : (u32)value ? 2 : 1;
	}
	return 0;
}

/* The code of an argument that is a number. */
static __always_inline u32 number_code(u32 kind, u64 value)
{
	if (kind == POINTER)
		return value != 0;
	if (kind == BITS)
		return value;
	return amount_code(kind, value);
}

/* The code of an argument that names no file. UNKNOWN if memory could not be read. */
__noinline u32 plain_operand(struct work *w, u32 kind, u64 value)
{
	long length;
	u64 number;

	if (!w)
		return UNKNOWN;
	switch (kind) {
	case FD_NUMBER:
		return file_of(value) ? FD_VALID : FD_BAD;
	case OFFSET:
		if (!value)
			return 0;
		if (bpf_probe_read_user(&number, 8, (void *)value))
			return UNKNOWN;
		return OFFSET_PRESENT | encode_signed(number);
	case TEXT:
	case XATTR_NAME:
		if (!value)
			return TEXT_NULL;
		*(u64 *)w->spare = 0;
		length = bpf_probe_read_user_str(w->spare, PATH_BYTES, (void *)value);
		if (length < 0)
			return UNKNOWN;
		return kind == TEXT ? encode_text(w->spare[0], length) :
				      encode_name(w->spare, length);
	}
	return number_code(kind, value);
}

/* One argument: its code, and what it says about files. */
static __always_inline u32 operand(struct work *w, u32 kind, u64 value)
{
	struct file *file;

	if (!w)
		return UNKNOWN;
	if (kind == FD) {
		file = file_of(value);
		w->touch |= file ? touch_file(file) : NOTHING;
		return file ? FD_VALID : FD_BAD;
	}
	/* The most frequent kinds, without a call. */
	if (kind == POINTER)
		return value != 0;
	if (kind == AMOUNT)
		return encode_amount(value);
	if (kind == BITS)
		return value;
	if (kind == DIRFD) {
		w->dirfd = value;
		return (s32)value == AT_FDCWD ? FD_HERE : file_of(value) ? FD_VALID : FD_BAD;
	}
	if (kind == PATH || kind == PATH_OR_TEXT)
		return path_operand(w, value, kind == PATH_OR_TEXT);
	if (kind == MAPPING) {
		w->touch |= touch_mapping(value);
		return value != 0;
	}
	return plain_operand(w, kind, value);
}

/* The contents of a register, or of a field behind it. */
static __always_inline int argument(struct work *w, struct call *call, u32 i, u64 *value)
{
	u32 reg = call->reg[i];
	u64 from;

	if (reg > 5)
		return -1;
	*value = w->args[reg];
	if (!call->bytes[i])
		return 0;
	from = *value + call->offset[i];
	*value = 0;
	if (call->bytes[i] == 8)
		return bpf_probe_read_user(value, 8, (void *)from);
	return bpf_probe_read_user(value, 4, (void *)from);
}

/* Whether a last symbolic link is followed. */
static __always_inline void how_paths_end(struct work *w, struct call *call)
{
	u32 reg = call->toggle_reg;
	u64 how[3] = {};
	u64 flags = 0;

	w->follow = call->follow;
	w->parent_from = call->parent_from;
	w->resolve = 0;
	if (reg < 6 && w->args[reg] & call->toggle_mask)
		w->follow = !call->follow;
	if (call->flags & CALL_OPEN_FLAGS) {
		reg = call->flags_reg;
		if (reg < 6)
			flags = w->args[reg];
	}
	if (call->flags & CALL_HOW && !bpf_probe_read_user(how, 24, (void *)w->args[2])) {
		flags = how[0];
		w->resolve = how[2];
	}
	/* O_NOFOLLOW; O_CREAT with O_EXCL */
	if (flags & 0400000 || (flags & 0300) == 0300)
		w->follow = 0;
}

/* Everything that the start of a call says: codes, and which file system. */
__noinline int read_operands(struct work *w)
{
	struct call *call;
	u32 nr;

	if (!w)
		return 0;
	nr = w->nr;
	call = bpf_map_lookup_elem(&calls, &nr);
	if (!call)
		return 0;
	w->touch = w->again = w->unread = w->paths = w->pending = 0;
	w->dirfd = AT_FDCWD;
	if (call->flags & CALL_PATHS)
		how_paths_end(w, call);
	__builtin_memset(w->slots, 0, sizeof(w->slots));
	for (u32 i = 0; i < SLOTS_MAX; i++) {
		u32 code;
		u64 value;

		if (i >= call->slots)
			break;
		if (call->kind[i] == SKIP)
			continue;
		code = argument(w, call, i, &value) ? UNKNOWN : operand(w, call->kind[i], value);
		if (code == UNKNOWN)
			w->unread |= 1 << i;
		w->slots[i] = code;
	}
	if (call->flags & CALL_RANGE)
		w->touch |= touch_range(w->args[0], w->args[1]);
	if (call->flags & CALL_GLOBAL)
		w->touch |= INSIDE;
	if (call->flags & CALL_HERE) {
		w->dirfd = AT_FDCWD;
		find_base(w, 0);
		w->touch |= w->base_mount[0] ? touch_base(w, 0) : NOTHING;
	}
	return 0;
}

/* At the end: what could not be read or walked at the start can be now. */
__noinline int read_again(struct work *w)
{
	struct call *call;
	u32 again, unread, nr, before;

	if (!w)
		return 0;
	nr = w->nr;
	call = bpf_map_lookup_elem(&calls, &nr);
	if (!call)
		return 0;
	again = w->again;
	unread = w->unread;
	before = w->touch;
	w->touch = w->paths = w->again = 0;
	for (u32 i = 0; i < SLOTS_MAX; i++) {
		u32 kind = call->kind[i], code;
		u64 value;

		if (i >= call->slots)
			break;
		if (kind == PATH || kind == PATH_OR_TEXT) {
			u32 base = w->paths++ & 1;
			long length;

			if (!(again & 1 << base) || argument(w, call, i, &value))
				continue;
			length = bpf_probe_read_user_str(w->path, PATH_BYTES, (void *)value);
			if (length < 0) {
				w->slots[i] = TEXT_UNREADABLE;
				w->touch |= NOTHING;
				continue;
			}
			w->slots[i] = encode_text(w->path[0], length);
			if (length > 1)
				w->touch |= resolve(w, base);
			else
				w->touch |= w->base_mount[base] ? touch_base(w, base) : NOTHING;
			continue;
		}
		if (!(unread & 1 << i))
			continue;
		code = argument(w, call, i, &value) ? UNKNOWN : plain_operand(w, kind, value);
		if (code == UNKNOWN && kind == OFFSET)
			code = OFFSET_UNREADABLE;
		else if (code == UNKNOWN && (kind == TEXT || kind == XATTR_NAME))
			code = TEXT_UNREADABLE;
		w->slots[i] = code;
	}
	/* The first look at a path that has been walked again does not count. */
	if (w->paths > 1)
		w->touch |= before;
	if (!w->touch && !w->pending)
		w->touch = before;
	return 0;
}
