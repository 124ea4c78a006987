// Compares the emulated AVX-512 and AMX paths with the portable one, bit for bit, over random shapes, row counts and
// weights that reach the bounds of linear.h; and the products of attention. Built with NATIVE=1 it runs the processor's
// own instructions instead, on a machine that has them.
// Usage: check SEED CASES [PATH...]. Prints the case that fails and exits with 1.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#ifndef GEARSHIFT_EMULATE
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "../attention.h"
#include "../linear.h"
#include "../linear_avx512.h"

namespace gearshift::wide {
template <class T>
void check_product(const int16_t* a, size_t a_stride, int rows, const T* const* blocks, int count, int a_step,
                   int quads, size_t quad_step, int columns, int32_t* out, size_t out_stride);
}
namespace gearshift::plain {
template <class T>
void check_product(const int16_t* a, size_t a_stride, int rows, const T* const* blocks, int count, int a_step,
                   int quads, size_t quad_step, int columns, int32_t* out, size_t out_stride);
}

using namespace gearshift;

namespace {

std::mt19937_64 random_bits;

int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_bits); }
bool one_in(int n) { return between(1, n) == 1; }

// Memory that ends where it must not be passed: the check runs under the address sanitizer.
struct Buffer {
    explicit Buffer(size_t bytes)
        : size(bytes), data(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64))) {
        for (size_t i = 0; i < bytes; i++) data[i] = uint8_t(random_bits());
    }
    ~Buffer() { std::free(data); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    size_t size;
    uint8_t* data;
};

// One block of one channel: codes, k and n such that both AMX planes fit; `wild` reaches for the bounds.
struct Block {
    int q[BLOCK_K], k, n;
    bool planes_fit(int code) const {
        return (k >> 4) * code + ((n + 8 * (k & 15)) >> 4) >= -128 &&
               (k >> 4) * code + ((n + 8 * (k & 15)) >> 4) <= 127;
    }
    int weight(int i, int bits) const { return bits == 4 ? k * q[i] + n : k * (q[i] - 128); }
};

Block random_block(int bits, bool wild, int64_t budget) {
    Block b;
    for (int attempt = 0;; attempt++) {
        const bool calm = attempt > 4;
        const int most = bits == 4 ? 15 : 255, least = bits == 4 ? 0 : 1;
        const int style = between(0, 3);
        for (int& q : b.q)
            q = style == 0 ? most : style == 1 ? least : style == 2 ? (one_in(2) ? least : most) : between(least, most);
        b.k = bits == 8       ? (wild && !calm ? 255 : between(1, calm ? 15 : 255))
              : wild && !calm ? between(200, 255)
                              : between(0, calm ? 20 : 255);
        b.n = bits == 8 ? 0 : wild && !calm ? between(-2050, 2050) : between(-b.k * 15, 15);
        if (attempt > 8) {
            b.k = bits == 8 ? 1 : 0;
            b.n = 0;
            std::fill(b.q, b.q + BLOCK_K, bits == 8 ? 128 : 0);
        }
        int64_t sum = 0;
        for (int i = 0; i < BLOCK_K; i++) sum += std::abs(b.weight(i, bits));
        bool fits = sum <= budget;
        if (bits == 4)
            for (int q : b.q) fits &= b.planes_fit(q);
        if (fits) return b;
    }
}

struct Packed {
    Linear linear;
    std::unique_ptr<Buffer> scale, records;

    Packed(int n_out, int n_in, int bits) {
        linear.n_out = n_out;
        linear.n_in = n_in;
        linear.bits = bits;
        const int groups = linear.groups(), tiles = linear.tiles(), record_bytes = int(linear.record_bytes());
        scale = std::make_unique<Buffer>(size_t(groups) * GROUP * 4);
        records = std::make_unique<Buffer>(size_t(groups) * size_t(tiles) * size_t(record_bytes));
        const bool wild = one_in(2);
        for (int c = 0; c < groups * GROUP; c++) {
            const float s = std::uniform_real_distribution<float>(1e-6f, 1e-3f)(random_bits);
            std::memcpy(scale->data + 4 * c, &s, 4);
            int64_t budget = 0;
            for (int block = 0; block < 2 * tiles; block++) {
                if (block % (SEGMENT_K / BLOCK_K) == 0) budget = int64_t(2147483647) / activation_limit(n_in);
                // Beyond n_in and n_out weights are zero; here a block across the end is zero as a whole.
                const bool inside = c < n_out && (block + 1) * BLOCK_K <= n_in;
                const Block b = random_block(bits, wild, inside ? budget : 0);
                for (int i = 0; i < BLOCK_K; i++) budget -= std::abs(b.weight(i, bits));
                put(b, c, block,
                    records->data + (size_t(c / GROUP) * size_t(tiles) + size_t(block / 2)) * size_t(record_bytes));
            }
        }
        linear.scale = reinterpret_cast<const float*>(scale->data);
        linear.records = records->data;
    }

    void put(const Block& b, int channel, int block, uint8_t* record) const {
        const int c = channel % GROUP, half = block % 2;
        for (int i = 0; i < BLOCK_K; i++) {
            const int input = BLOCK_K * half + i;
            if (linear.bits == 8) {
                record[64 * (input / 4) + 4 * c + input % 4] = uint8_t(b.q[i]);
                continue;
            }
            uint8_t& code = record[64 * (input / 8) + 4 * c + input % 4];
            code = uint8_t(input % 8 < 4 ? (code & 0xf0) | b.q[i] : (code & 0x0f) | b.q[i] << 4);
        }
        record[(linear.bits == 4 ? 512 : 1024) + 16 * half + c] = uint8_t(b.k);
        const int16_t n = int16_t(b.n);
        if (linear.bits == 4) std::memcpy(record + 544 + 4 * c + 2 * half, &n, 2);
    }
};

void fill_rows(float* in, int rows, int n_in, size_t stride) {
    std::normal_distribution<float> normal;
    for (int r = 0; r < rows; r++) {
        float* row = in + size_t(r) * stride;
        const int style = between(0, 9);
        for (int i = 0; i < n_in; i++) row[i] = normal(random_bits);
        if (style == 0) std::fill(row, row + n_in, 0.0f);
        if (style == 1) std::fill(row, row + n_in, -3.5f);   // every x_int at the limit
        if (style == 2)
            for (int i = 0; i < n_in; i++) row[i] = one_in(2) ? 1.0f : -1.0f;
        if (style == 3) row[between(0, n_in - 1)] = 1e5f;   // one outlier, the rest near zero
        if (style == 4)
            for (int i = 0; i < n_in; i++) row[i] *= 1e-31f;
        if (style == 5) row[between(0, n_in - 1)] = std::numeric_limits<float>::quiet_NaN();
        if (style == 6)
            for (int i = 0; i < n_in; i++) row[i] = float(between(-8000, 8000)) + 0.5f;   // ties of rounding
    }
}

struct Case {
    int rows, n_in, n_out, bits, group_begin, group_end;
};

Case random_case() {
    static const int widths[] = {32, 64, 96, 128, 320, 576, 640, 960, 1024, 1536, 2048, 2112, 4096, 4128, 6144};
    Case c;
    c.rows = one_in(2) ? between(1, 9) : between(1, 70);
    if (one_in(25)) c.rows = between(71, 300);
    c.n_in = one_in(4) ? between(1, 700) : widths[between(0, 14)];
    if (c.rows > 70) c.n_in = std::min(c.n_in, 2112);
    c.n_out = between(1, c.n_in > 1500 || c.rows > 70 ? 40 : 100);
    c.bits = one_in(2) ? 4 : 8;
    const int groups = (c.n_out + GROUP - 1) / GROUP;
    c.group_begin = one_in(2) ? 0 : between(0, groups - 1);
    c.group_end = one_in(2) ? groups : between(c.group_begin, groups);
    return c;
}

bool same(const void* a, const void* b, size_t bytes, const char* path, const char* what, const Case& c) {
    if (std::memcmp(a, b, bytes) == 0) return true;
    std::printf("%s differs from portable: %s; rows %d n_in %d n_out %d bits %d groups %d to %d\n", path, what, c.rows,
                c.n_in, c.n_out, c.bits, c.group_begin, c.group_end);
    return false;
}

bool check(const Case& c, const LinearPath& path) {
    const size_t in_stride = size_t(c.n_in + between(0, 3)), out_stride = size_t(c.n_out + between(0, 5));
    std::vector<float> in(size_t(c.rows - 1) * in_stride + size_t(c.n_in));
    fill_rows(in.data(), c.rows, c.n_in, in_stride);
    const Packed packed(c.n_out, c.n_in, c.bits);

    const size_t bytes = activation_bytes(c.rows, c.n_in);
    Buffer expected_arena(bytes), arena(bytes);
    Activations expected = lay_out_activations(expected_arena.data, c.rows, c.n_in);
    Activations own = lay_out_activations(arena.data, c.rows, c.n_in);
    const int middle = between(0, c.rows);
    linear_portable.quantize(in.data(), in_stride, expected, 0, c.rows);
    path.quantize(in.data(), in_stride, own, middle, c.rows);
    path.quantize(in.data(), in_stride, own, 0, middle);
    const size_t count = size_t(c.rows) * size_t(own.padded);
    if (!same(expected.x, own.x, count * 2, path.name, "x", c) ||
        !same(expected.hi, own.hi, count, path.name, "hi", c) ||
        !same(expected.lo, own.lo, count, path.name, "lo", c) ||
        !same(expected.block_sums, own.block_sums, count / BLOCK_K * 4, path.name, "block sums", c) ||
        !same(expected.scale, own.scale, size_t(c.rows) * 4, path.name, "scale", c))
        return false;

    // Places that are not to be written keep their value.
    std::vector<float> right(size_t(c.rows) * out_stride, 7.0f), out = right;
    Buffer expected_scratch(linear_portable.scratch_bytes(c.rows, c.n_in));
    Buffer scratch(path.scratch_bytes(c.rows + between(0, 9), c.n_in + between(0, 999)));
    linear_portable.multiply(packed.linear, expected, c.group_begin, c.group_end, right.data(), out_stride,
                             expected_scratch.data);
    path.multiply(packed.linear, own, c.group_begin, c.group_end, out.data(), out_stride, scratch.data);
    return same(right.data(), out.data(), out.size() * 4, path.name, "results", c);
}

// The integer products of attention, with rows and operands of up to these magnitudes.
template <class T>
bool check_attention_product(int most, int operand_most) {
    const int rows = between(1, 20), count = between(1, 4), columns = 16 * between(1, 8);
    const int quads = one_in(4) ? MAX_HEAD_DIM / 4 / count : between(1, MAX_HEAD_DIM / 4 / count);
    const bool extreme = one_in(8);   // the largest sum there may be
    const size_t quad_step = size_t(columns) * 4, a_stride = size_t(count * quads * 4 + between(0, 9));
    std::vector<int16_t> a(size_t(rows) * a_stride);
    for (int16_t& x : a) x = int16_t(extreme ? most : one_in(4) ? (one_in(2) ? most : -most) : between(-most, most));
    std::vector<std::vector<T>> operands(size_t(count), std::vector<T>(size_t(quads) * quad_step));
    const T* blocks[4] = {};
    for (int i = 0; i < count; i++) {
        for (T& x : operands[size_t(i)])
            x = T(extreme     ? operand_most
                  : one_in(4) ? (one_in(2) ? operand_most : -operand_most)
                              : between(-operand_most, operand_most));
        blocks[i] = operands[size_t(i)].data();
    }
    const size_t out_stride = size_t(columns + between(0, 5));
    std::vector<int32_t> right(size_t(rows) * out_stride, 7), out = right;
    plain::check_product(a.data(), a_stride, rows, blocks, count, quads * 4, quads, quad_step, columns, right.data(),
                         out_stride);
    wide::check_product(a.data(), a_stride, rows, blocks, count, quads * 4, quads, quad_step, columns, out.data(),
                        out_stride);
    if (right == out) return true;
    std::printf("the products of attention with %zu-byte operands differ: rows %d blocks %d quads %d columns %d\n",
                sizeof(T), rows, count, quads, columns);
    return false;
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 3) {
        std::fprintf(stderr, "usage: check SEED CASES [PATH...]\n");
        return 2;
    }
    random_bits.seed(std::strtoull(arguments[1], nullptr, 10));
    const int cases = std::atoi(arguments[2]);
    std::vector<const LinearPath*> paths;
    std::string names;
    for (const LinearPath* path : {&linear_avx512, &linear_amx}) {
        bool wanted = count == 3;
        for (int i = 3; i < count; i++) wanted |= arguments[i] == std::string(path->name);
        if (!wanted) continue;
        paths.push_back(path);
        names += std::string(" ") + path->name;
    }
#ifndef GEARSHIFT_EMULATE
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    if (names.ends_with("amx") && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) != 0) {
        std::fprintf(stderr, "the system does not grant AMX\n");
        return 2;
    }
#endif
    for (int i = 0; i < cases; i++) {
        const Case c = random_case();
        for (const LinearPath* path : paths)
            if (!check(c, *path)) return 1;
        if (!check_attention_product<int8_t>(WEIGHT_LIMIT, 127)) return 1;
        if (!check_attention_product<int8_t>(query_limit(false), key_limit(false))) return 1;
        if (!check_attention_product<int16_t>(query_limit(true), key_limit(true))) return 1;
    }
    std::printf("%d cases equal portable:%s\n", cases, names.c_str());
    return 0;
}
