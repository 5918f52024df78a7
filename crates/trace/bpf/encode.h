/* What is kept of a call: the same codes as in src/sample.rs and src/amount.rs. */
#pragma once

#define SLOTS_MAX 10

/* SlotKind of src/layout.rs. */
enum kind {
	SKIP, BITS, AMOUNT, SIGNED_AMOUNT, AMOUNT32, SIGNED_AMOUNT32, FD, DIRFD, PATH, TEXT,
	XATTR_NAME, ID, POINTER, OFFSET, MAPPING, FD_NUMBER, WIDE_BITS, PATH_OR_TEXT,
};

/* Touch of src/sample.rs, as bits. */
enum touch { INSIDE = 1, OUTSIDE = 2, NOTHING = 8, UNRESOLVED = 16, STREAMED = 32 };

#define FD_VALID 0
#define FD_BAD 1
#define FD_HERE 2
#define TEXT_NULL 0
#define TEXT_EMPTY 1
#define TEXT_RELATIVE 2
#define TEXT_ABSOLUTE 3
#define TEXT_UNREADABLE 4
#define NAME_OTHER 5
#define NAME_NAMESPACE 8
#define OFFSET_PRESENT 0x10000
#define OFFSET_UNREADABLE 0x20000
#define BIT_WITHOUT_NAME 0x20000000
#define NEGATIVE 0x8000
#define UNKNOWN 0xfffffffe

struct sample {
	u16 call; /* aligned: counting looks at words of 64 bits */
	u16 err;
	u16 amount;
	u8 touch;
	u8 unused;
	u32 slots[SLOTS_MAX];
} __attribute__((aligned(8)));

static __always_inline u32 log2_of(u64 value)
{
	u32 power = 0;

	if (value >> 32) { power += 32; value >>= 32; }
	if (value >> 16) { power += 16; value >>= 16; }
	if (value >> 8) { power += 8; value >>= 8; }
	if (value >> 4) { power += 4; value >>= 4; }
	if (value >> 2) { power += 2; value >>= 2; }
	return power + (value >> 1);
}

static __always_inline u32 encode_amount(u64 value)
{
	u32 power, near = 0;
	u64 offset;

	if (!value)
		return 0;
	power = log2_of(value);
	offset = value - (1ULL << power);
	if (power && offset == (1ULL << power) - 1)
		near = 3;
	else if (power > 1 && offset == 0)
		near = 1;
	else if (power > 1 && offset == 1)
		near = 2;
	return near << 8 | (power + 1);
}

static __always_inline u32 encode_signed(s64 value)
{
	return value < 0 ? NEGATIVE : encode_amount(value);
}

/* `length` is what bpf_probe_read_*_str returned: with the NUL. */
static __always_inline u32 encode_text(char first, long length)
{
	if (length <= 1)
		return TEXT_EMPTY;
	return (first == '/' ? TEXT_ABSOLUTE : TEXT_RELATIVE) | encode_amount(length - 1) << 16;
}

/* Namespaces of xattr(7) by their first bytes. */
static __always_inline u32 encode_name(const char *name, long length)
{
	u64 word = *(const u64 *)name;
	u32 class = NAME_OTHER;

	if ((word & 0xffffffffffULL) == 0x2e72657375ULL) /* user. */
		class = NAME_NAMESPACE;
	else if (word == 0x2e64657473757274ULL) /* trusted. */
		class = NAME_NAMESPACE + 1;
	else if (word == 0x7974697275636573ULL && name[8] == '.') /* security. */
		class = NAME_NAMESPACE + 2;
	else if ((word & 0xffffffffffffffULL) == 0x2e6d6574737973ULL) /* system. */
		class = NAME_NAMESPACE + 3;
	return class | encode_amount(length > 0 ? length - 1 : 0) << 16;
}
