// Checks and times the linear paths by themselves, without Python. `linear_check` compares every path that this machine
// runs with the portable one, bit for bit, over random and extreme matrices; `linear_check time [threads [repeats [rows]]]` measures each
// on the matrices of a 135M model and prints the bounds of the machine beside it. Not part of the package.
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../linear.h"

using namespace gearshift;

namespace {

struct Buffer {
    uint8_t* data;
    size_t bytes;
    explicit Buffer(size_t n) : data(static_cast<uint8_t*>(std::aligned_alloc(1 << 21, (n + (2 << 20)) >> 21 << 21))), bytes(n) {
        madvise(data, (n + (2 << 20)) >> 21 << 21, MADV_HUGEPAGE);
        std::memset(data, 0, n);
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { std::free(data); }
};

std::vector<const LinearPath*> paths() {
    std::vector<const LinearPath*> found{&linear_portable};
#ifdef GEARSHIFT_X86
    if (__builtin_cpu_supports("avx2")) found.push_back(&linear_avx2);
#ifdef GEARSHIFT_WIDE
    if (__builtin_cpu_supports("avx512vnni")) found.push_back(&linear_avx512);
#endif
#endif
    return found;
}

enum Fill { RANDOM, EXTREME, ALIGNED };

// k of a block of 8-bit weights: mostly small, so that sums stay within 32 bits.
unsigned any_step8(Fill how, std::mt19937& random) {
    if (how == ALIGNED) return 15;
    if (how == EXTREME) return random() % 512 == 0 ? 255 : random() % 2 ? 15 : 1;
    return 1 + unsigned(random()) % (random() % 16 == 0 ? 255 : 15);
}

// Random packed bytes within the format's ranges. EXTREME takes the ends of the ranges; ALIGNED makes every product
// positive, so that sums come near 2^31 (n_in of 128).
void fill(Buffer& packed, int n_out, int n_in, int bits, Fill how, std::mt19937& random) {
    Linear shape = view_packed(packed.data, packed.bytes, n_out, n_in, bits);
    float* scales = reinterpret_cast<float*>(packed.data);
    for (int c = 0; c < shape.groups() * GROUP; c++) scales[c] = c < n_out ? 1e-4f * float(1 + random() % 1000) : 0.0f;
    uint8_t* record = packed.data + (shape.records - packed.data);
    for (int i = 0; i < shape.groups() * shape.tiles(); i++, record += shape.record_bytes()) {
        const int codes = bits == 4 ? 512 : 1024;
        for (int j = 0; j < codes; j++) {
            const bool top = how == ALIGNED || random() % 2;
            if (bits == 4)
                record[j] = how == RANDOM ? uint8_t(random()) : uint8_t(top ? 0xff : random() % 2 ? 0xf0 : 0x0f);
            else
                record[j] = how == RANDOM ? uint8_t(1 + random() % 255) : uint8_t(top ? 255 : 1);
        }
        for (int j = 0; j < 32; j++) {
            record[codes + j] = bits == 4 ? uint8_t(how == RANDOM ? random() % 256 : 255)
                                          : uint8_t(any_step8(how, random));
            const int16_t n = how == RANDOM ? int16_t(int(random() % 3000) - 2400) : int16_t(-1912);
            if (bits == 4) std::memcpy(record + 544 + 2 * j, &n, 2);
        }
    }
}

bool same(const char* what, const LinearPath* path, const void* a, const void* b, size_t bytes, const std::string& shape) {
    if (std::memcmp(a, b, bytes) == 0) return true;
    std::printf("FAILED: %s of %s differs from portable at %s\n", what, path->name, shape.c_str());
    return false;
}

bool check_one(int n_out, int n_in, int rows, int bits, Fill how, std::mt19937& random) {
    const std::string shape = std::to_string(rows) + " rows, " + std::to_string(n_out) + " x " + std::to_string(n_in) + ", " +
                              std::to_string(bits) + " bits, fill " + std::to_string(how);
    Buffer packed(packed_bytes(n_out, n_in, bits));
    fill(packed, n_out, n_in, bits, how, random);
    const Linear linear = view_packed(packed.data, packed.bytes, n_out, n_in, bits);

    std::normal_distribution<float> normal;
    const size_t in_stride = size_t(n_in) + 3, out_stride = size_t(n_out) + 5;
    std::vector<float> in(in_stride * size_t(rows));
    for (float& v : in) v = how == ALIGNED ? 1.0f : how == EXTREME ? (random() % 2 ? 1.0f : -1.0f) : normal(random);
    if (how == RANDOM && rows > 2) std::fill_n(in.begin() + long(in_stride), in_stride, 0.0f);
    if (how == RANDOM && rows > 3) in[2 * in_stride + size_t(n_in) - 1] = -1e4f;

    Buffer reference_arena(activation_bytes(rows, n_in)), arena(activation_bytes(rows, n_in));
    Activations reference = lay_out_activations(reference_arena.data, rows, n_in);
    linear_portable.quantize(in.data(), in_stride, reference, 0, rows);
    Buffer portable_scratch(linear_portable.scratch_bytes(rows, n_in));
    std::vector<float> expected(out_stride * size_t(rows), -7.0f);
    linear_portable.multiply(linear, reference, 0, linear.groups(), expected.data(), out_stride, portable_scratch.data);

    bool good = true;
    for (const LinearPath* path : paths()) {
        std::memset(arena.data, 0x55, arena.bytes);
        Activations x = lay_out_activations(arena.data, rows, n_in);
        const int cut = int(random() % unsigned(rows + 1));
        path->quantize(in.data(), in_stride, x, 0, cut);
        path->quantize(in.data(), in_stride, x, cut, rows);
        const size_t count = size_t(rows) * size_t(x.padded);
        good &= same("x", path, x.x, reference.x, count * 2, shape) && same("hi", path, x.hi, reference.hi, count, shape) &&
                same("lo", path, x.lo, reference.lo, count, shape) &&
                same("block_sums", path, x.block_sums, reference.block_sums, count / BLOCK_K * 4, shape) &&
                same("scale", path, x.scale, reference.scale, size_t(rows) * 4, shape);
        Buffer scratch(path->scratch_bytes(rows, n_in));
        std::vector<float> out(out_stride * size_t(rows), -7.0f);   // what lies between the rows must stay
        const int split = int(random() % unsigned(linear.groups() + 1));
        path->multiply(linear, x, 0, split, out.data(), out_stride, scratch.data);
        path->multiply(linear, x, split, linear.groups(), out.data(), out_stride, scratch.data);
        good &= same("output", path, out.data(), expected.data(), out.size() * 4, shape);
    }
    return good;
}

int check(int cases) {
    std::mt19937 random(2);
    bool good = true;
    for (int bits : {4, 8}) {
        for (int rows = 1; rows <= 70 && good; rows++) good &= check_one(40, 160, rows, bits, RANDOM, random);
        for (int rows : {1, 2, 3, 4, 5, 6, 7, 13, 64})
            for (int n_in : {64, 96, 576, 640, 704, 1536, 2048, 2080, 4096, 4928}) {
                good &= check_one(33, n_in, rows, bits, RANDOM, random);
                good &= check_one(16, n_in, rows, bits, EXTREME, random);
            }
        for (int rows : {1, 2, 3, 4, 7}) good &= check_one(17, 128, rows, bits, ALIGNED, random);
        good &= check_one(24, 1536, 512, bits, RANDOM, random);
    }
    for (int i = 0; i < cases && good; i++) {
        const int n_in = 32 * int(1 + random() % 160), n_out = int(1 + random() % 100), rows = int(1 + random() % 70);
        good &= check_one(n_out, n_in, rows, random() % 2 ? 4 : 8, random() % 3 ? RANDOM : EXTREME, random);
    }
    std::printf(good ? "all paths agree:" : "paths disagree:");
    for (const LinearPath* path : paths()) std::printf(" %s", path->name);
    std::printf("\n");
    return good ? 0 : 1;
}

// ---- timing

using Clock = std::chrono::steady_clock;

struct Shape {
    int n_out, n_in, bits, times;
};
constexpr Shape LAYER[] = {{960, 576, 4, 30}, {576, 576, 4, 30}, {3072, 576, 4, 30}, {576, 1536, 4, 30}};
constexpr Shape HEAD = {49152, 576, 8, 1};

// Runs `work(item, thread)` for every item, all threads at once, `repeats` times over, and returns each item's least time in
// ms. Small items and the least make it robust against other processes, not against slow memory.
template <class Work>
std::vector<double> least_ms(int items, int threads, int repeats, Work work) {
    std::vector<double> least(size_t(items), 1e9);
    std::atomic<int> arrived{0};
    std::vector<std::thread> team;
    for (int t = 0; t < threads; t++)
        team.emplace_back([&, t] {
            int until = 0;
            const auto wait = [&] {
                until += threads;
                arrived++;
                for (int spins = 0; arrived < until; spins++) {
                    _mm_pause();
                    if (spins > 20000) std::this_thread::yield();
                }
            };
            for (int i = 0; i < repeats; i++)
                for (int item = 0; item < items; item++) {
                    wait();
                    const Clock::time_point start = Clock::now();
                    work(item, t);
                    wait();
                    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
                    if (t == 0) least[size_t(item)] = std::min(least[size_t(item)], ms);
                }
        });
    for (std::thread& thread : team) thread.join();
    return least;
}

double total(const std::vector<double>& ms, size_t first, size_t last) {
    double sum = 0;
    for (size_t i = first; i < last; i++) sum += ms[i];
    return sum;
}

__attribute__((target("avx2"))) double peak_gmacs() {
    __m256i a{}, b{}, c{}, d{}, w = _mm256_set1_epi16(3);
    double best = 0;
    for (int repeat = 0; repeat < 200; repeat++) {
        const Clock::time_point start = Clock::now();
        for (int i = 0; i < 2000; i++) {
            asm volatile(
                "vpmaddwd %4, %4, %%ymm12\n vpaddd %%ymm12, %0, %0\n vpmaddwd %4, %4, %%ymm13\n vpaddd %%ymm13, %1, %1\n"
                "vpmaddwd %4, %4, %%ymm14\n vpaddd %%ymm14, %2, %2\n vpmaddwd %4, %4, %%ymm15\n vpaddd %%ymm15, %3, %3\n"
                : "+x"(a), "+x"(b), "+x"(c), "+x"(d) : "x"(w) : "xmm12", "xmm13", "xmm14", "xmm15");
        }
        const double s = std::chrono::duration<double>(Clock::now() - start).count();
        best = std::max(best, 2000.0 * 4 * 16 / s / 1e9);
    }
    return best;
}

__attribute__((target("avx2"))) void read_all(const uint8_t* p, size_t bytes) {
    __m256i sum[4] = {};
    for (size_t i = 0; i + 128 <= bytes; i += 128) {
        for (int j = 0; j < 4; j++)
            sum[j] = _mm256_add_epi32(sum[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i + 32 * size_t(j))));
    }
    for (__m256i& s : sum) asm volatile("" : "+x"(s));
}

int measure(int threads, int repeats, int only) {
    std::mt19937 random(3);
    size_t bytes = 0;
    double weights = 0;
    std::vector<Shape> shapes;
    for (int layer = 0; layer < 30; layer++)
        for (const Shape& s : LAYER) shapes.push_back(s);
    shapes.push_back(HEAD);
    for (const Shape& s : shapes) bytes += (packed_bytes(s.n_out, s.n_in, s.bits) + 63) / 64 * 64;
    Buffer arena(bytes + (1 << 16));   // in large pages; with small ones reading is about a quarter slower
    std::vector<Linear> model;
    uint8_t* at = arena.data;
    for (const Shape& s : shapes) {
        const size_t size = packed_bytes(s.n_out, s.n_in, s.bits);
        for (size_t i = 0; i < size; i += 4) {
            const uint32_t v = uint32_t(random()) & 0x0f0f0f0f;
            std::memcpy(at + i, &v, 4);
        }
        model.push_back(view_packed(at, size, s.n_out, s.n_in, s.bits));
        at += (size + 63) / 64 * 64;
        weights += double(s.n_out) * s.n_in;
    }
    std::printf("%d threads, %.1f MB, %.1f M weights; one thread's vpmaddwd + vpaddd peak %.0f GMAC/s\n", threads,
                double(bytes) / 1e6, weights / 1e6, peak_gmacs());
    const std::vector<double> reads = least_ms(32, threads, repeats, [&](int item, int t) {
        const size_t part = bytes / 32 / size_t(threads);
        read_all(arena.data + part * size_t(item * threads + t), part);
    });
    const double read_ms = total(reads, 0, reads.size());
    std::printf("reading alone: %.2f ms, %.1f GB/s\n", read_ms, double(bytes) / read_ms / 1e6);

    for (const LinearPath* path : paths()) {
        if (path == &linear_portable) continue;
        for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64, 128}) {
            if (only != 0 && only != rows) continue;
            Buffer a576(activation_bytes(rows, 576)), a1536(activation_bytes(rows, 1536));
            std::vector<float> in(size_t(rows) * 1536, 0.25f);
            Activations x576 = lay_out_activations(a576.data, rows, 576), x1536 = lay_out_activations(a1536.data, rows, 1536);
            path->quantize(in.data(), 1536, x576, 0, rows);
            path->quantize(in.data(), 1536, x1536, 0, rows);
            Buffer out(size_t(rows) * 49152 * 4), scratch(path->scratch_bytes(rows, 1536) * size_t(threads));
            // The head in 16 parts, so that one part may find the machine quiet.
            const int head = int(model.size()) - 1, parts = rows > 64 ? 0 : 16;
            const std::vector<double> ms =
                least_ms(head + parts, threads, rows >= 128 ? std::max(2, repeats / 4) : repeats, [&](int item, int t) {
                    const Linear& l = model[size_t(std::min(item, head))];
                    const int split = threads * (item < head ? 1 : parts);
                    const int part = item < head ? t : (item - head) * threads + t;
                    path->multiply(l, l.n_in == 576 ? x576 : x1536, l.groups() * part / split,
                                   l.groups() * (part + 1) / split, reinterpret_cast<float*>(out.data), size_t(l.n_out),
                                   scratch.data + path->scratch_bytes(rows, 1536) * size_t(t));
                });
            const double layers = total(ms, 0, size_t(head)), head_ms = total(ms, size_t(head), ms.size());
            const double head_weights = double(HEAD.n_out) * HEAD.n_in;
            const double head_bytes = double(packed_bytes(HEAD.n_out, HEAD.n_in, HEAD.bits));
            std::printf("%-8s %3d rows: layers %7.2f ms %5.1f GB/s %6.1f GMAC/s", path->name, rows, layers,
                        (double(bytes) - head_bytes) / layers / 1e6, (weights - head_weights) * rows / layers / 1e6);
            if (parts > 0)
                std::printf("   head %6.2f ms %5.1f GB/s %6.1f GMAC/s", head_ms, head_bytes / head_ms / 1e6,
                            head_weights * rows / head_ms / 1e6);
            std::printf("\n");
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && std::string(argv[1]) == "time")
        return measure(argc > 2 ? std::atoi(argv[2]) : 1, argc > 3 ? std::atoi(argv[3]) : 30, argc > 4 ? std::atoi(argv[4]) : 0);
    return check(argc > 1 ? std::atoi(argv[1]) : 300);
}
