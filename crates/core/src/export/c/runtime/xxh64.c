/* ---- XXH64 with seed 0, after the xxHash specification. */

#define PRIME_1 UINT64_C(0x9e3779b185ebca87)
#define PRIME_2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define PRIME_3 UINT64_C(0x165667b19e3779f9)
#define PRIME_4 UINT64_C(0x85ebca77c2b2ae63)
#define PRIME_5 UINT64_C(0x27d4eb2f165667c5)

static uint64_t rotate(uint64_t value, int bits)
{
    return (value << bits) | (value >> (64 - bits));
}

static uint64_t little_endian(const unsigned char *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

static uint64_t lane_round(uint64_t lane, uint64_t input)
{
    return rotate(lane + input * PRIME_2, 31) * PRIME_1;
}

static uint64_t xxh64(const unsigned char *from, size_t bytes)
{
    uint64_t lane[4] = { PRIME_1 + PRIME_2, PRIME_2, 0, 0 - PRIME_1 };
    uint64_t hash = PRIME_5;
    size_t left = bytes;
    if (left >= 32) {
        for (; left >= 32; left -= 32)
            for (int i = 0; i < 4; i++, from += 8)
                lane[i] = lane_round(lane[i], little_endian(from, 8));
        hash = rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
        for (int i = 0; i < 4; i++)
            hash = (hash ^ lane_round(0, lane[i])) * PRIME_1 + PRIME_4;
    }
    hash += bytes;
    for (; left >= 8; left -= 8, from += 8)
        hash = rotate(hash ^ lane_round(0, little_endian(from, 8)), 27) * PRIME_1 + PRIME_4;
    for (; left >= 4; left -= 4, from += 4)
        hash = rotate(hash ^ (little_endian(from, 4) * PRIME_1), 23) * PRIME_2 + PRIME_3;
    for (; left > 0; left--, from++)
        hash = rotate(hash ^ (*from * PRIME_5), 11) * PRIME_1;
    hash = (hash ^ (hash >> 33)) * PRIME_2;
    hash = (hash ^ (hash >> 29)) * PRIME_3;
    return hash ^ (hash >> 32);
}
