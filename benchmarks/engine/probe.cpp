// Fixed loops that tell how fast the machine is just now, and the streaming read bandwidth of several threads.
// Called through ctypes; every function fills seconds measured by the threads themselves, start of threads excluded.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs `work(thread)` on all threads at once; returns the seconds from the last one's start to the last one's end.
template <class Work>
double together(int threads, Work work) {
    std::atomic<int> ready{0};
    std::vector<double> begin(threads), end(threads);
    auto body = [&](int t) {
        ready.fetch_add(1);
        while (ready.load(std::memory_order_acquire) < threads) std::this_thread::yield();
        begin[t] = now();
        work(t);
        end[t] = now();
    };
    std::vector<std::thread> team;
    for (int t = 1; t < threads; ++t) team.emplace_back(body, t);
    body(0);
    for (auto& thread : team) thread.join();
    double first = begin[0], last = end[0];
    for (int t = 1; t < threads; ++t) {
        first = begin[t] > first ? begin[t] : first;
        last = end[t] > last ? end[t] : last;
    }
    return last - first;
}

struct Buffer {
    uint64_t* data = nullptr;
    size_t words = 0;
    explicit Buffer(size_t bytes) : words(bytes / 64 * 8) {
        size_t size = (words * 8 + (2u << 20) - 1) >> 21 << 21;
        data = static_cast<uint64_t*>(std::aligned_alloc(2u << 20, size));
        if (!data) return;
        madvise(data, size, MADV_HUGEPAGE);  // as the kernel does for its weights
        for (size_t i = 0; i < words; ++i) data[i] = i * 0x9E3779B97F4A7C15ull;
    }
    ~Buffer() { std::free(data); }
};

uint64_t read_all(const uint64_t* data, size_t words) {
    uint64_t sum[16] = {};
    for (size_t i = 0; i + 16 <= words; i += 16)
        for (int j = 0; j < 16; ++j) sum[j] += data[i + j];  // vectorised: one add per load
    uint64_t all = 0;
    for (uint64_t each : sum) all ^= each;
    return all;
}

std::atomic<uint64_t> sink;

}  // namespace

extern "C" {

// Best and median are left to the caller: seconds[i] is pass i of `passes` over a buffer of `bytes`, split among
// threads in contiguous halves, after one pass that is not counted. Returns 0, or 1 without memory.
int read_passes(long long bytes, int threads, int passes, double* seconds) {
    Buffer buffer(static_cast<size_t>(bytes));
    if (!buffer.data) return 1;
    size_t part = buffer.words / threads;
    for (int pass = -1; pass < passes; ++pass) {
        double took = together(threads, [&](int t) { sink ^= read_all(buffer.data + t * part, part); });
        if (pass >= 0) seconds[pass] = took;
    }
    return 0;
}

// The probe: every thread runs integer and floating-point chains of fixed length, then reads its part of a buffer that
// no cache of a core holds. Returns the seconds of the slowest.
double probe(int threads, int loops, long long bytes) {
    static Buffer buffer(static_cast<size_t>(bytes));
    size_t part = buffer.words / threads;
    return together(threads, [&](int t) {
        uint64_t integer = t + 3;
        double chain[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        for (int i = 0; i < loops; ++i) {
            integer = integer * 6364136223846793005ull + 1442695040888963407ull;
            for (double& each : chain) each = each * 0.999999 + 1e-6;
        }
        double total = 0;
        for (double each : chain) total += each;
        sink ^= integer ^ static_cast<uint64_t>(total * 1e6);
        sink ^= read_all(buffer.data + t * part, part);
    });
}
}
