#include "threads.h"

#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <sys/mman.h>

namespace gearshift {
namespace {

constexpr size_t HUGE_PAGE = size_t(2) << 20;
// The cores are shared with a server and its clients. Members of a step that all run meet within microseconds, so whoever
// waits longer waits for a member without a core, and may be the one who sits on it: with one busy neighbour on two cores
// a step of one row took 19 ms after 2000 spins, 9 ms after 300 and 8 ms after 50, alone 4 ms with each.
constexpr int SPINS_BEFORE_YIELD = 100;
// Between steps a worker stays awake for as long as a busy loop takes to prepare the next one.
constexpr auto AWAKE_BETWEEN_JOBS = std::chrono::microseconds(300);

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

}  // namespace

Pages::Pages(size_t bytes) {
    if (bytes == 0) return;
    // Whole huge pages, aligned by hand: the start of a mapping is only aligned to a small page.
    bytes_ = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (bytes_ < bytes) throw std::bad_alloc();
    const size_t mapped = bytes_ + HUGE_PAGE;
    void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc();
    const auto start = reinterpret_cast<uintptr_t>(raw);
    const uintptr_t aligned = (start + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (aligned > start) munmap(raw, aligned - start);
    if (const size_t rest = start + mapped - (aligned + bytes_)) munmap(reinterpret_cast<void*>(aligned + bytes_), rest);
    data_ = reinterpret_cast<uint8_t*>(aligned);
#ifdef MADV_HUGEPAGE
    madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
}

Pages::~Pages() {
    if (data_) munmap(data_, bytes_);
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

Threads::Threads(int count) : count_(count) {
    if (count < 1 || count > 256)
        throw std::invalid_argument("a team has 1 to 256 threads, not " + std::to_string(count));
    for (int member = 1; member < count; ++member) workers_.emplace_back([this, member] { work(member); });
}

Threads::~Threads() {
    std::lock_guard hold(busy_);
    {
        std::lock_guard lock(sleep_);
        stop_ = true;
        epoch_.value.fetch_add(1);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

uint8_t* Threads::scratch(size_t bytes) {
    if (bytes > scratch_.bytes()) {
        scratch_ = Pages();
        scratch_ = Pages(bytes);
    }
    return scratch_.data();
}

void Threads::run(void (*job)(void*, int), void* context) {
    job_ = job;
    context_ = context;
    tickets_.value.store(0, std::memory_order_relaxed);
    done_.value.store(0, std::memory_order_relaxed);
    epoch_.value.fetch_add(1);
    if (parked_.value.load() > 0) {
        { std::lock_guard lock(sleep_); }
        wake_.notify_all();
    }
    job(context, 0);
    for (int spins = 0; done_.value.load(std::memory_order_acquire) != count_ - 1; ++spins) {
        if (spins < SPINS_BEFORE_YIELD) pause();
        else std::this_thread::yield();
    }
}

void Threads::barrier() {
    if (count_ == 1) {
        tickets_.value.store(0, std::memory_order_relaxed);
        return;
    }
    const int generation = generation_.value.load(std::memory_order_relaxed);
    if (arrived_.value.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
        arrived_.value.store(0, std::memory_order_relaxed);
        tickets_.value.store(0, std::memory_order_relaxed);
        generation_.value.store(generation + 1, std::memory_order_release);
        return;
    }
    for (int spins = 0; generation_.value.load(std::memory_order_acquire) == generation; ++spins) {
        if (spins < SPINS_BEFORE_YIELD) pause();
        else std::this_thread::yield();
    }
}

void Threads::wait_for_job(uint32_t seen) {
    const auto pending = [&] { return uint32_t(epoch_.value.load()) != seen; };
    const auto start = std::chrono::steady_clock::now();
    do {
        for (int spins = 0; spins < 50; ++spins) {
            if (pending()) return;
            pause();
        }
        std::this_thread::yield();
    } while (std::chrono::steady_clock::now() - start < AWAKE_BETWEEN_JOBS);
    std::unique_lock lock(sleep_);
    parked_.value.fetch_add(1);
    wake_.wait(lock, pending);
    parked_.value.fetch_sub(1);
}

void Threads::work(int member) {
    for (uint32_t seen = 0;; ++seen) {
        wait_for_job(seen);
        if (stop_) return;
        job_(context_, member);
        done_.value.fetch_add(1, std::memory_order_release);
    }
}

}  // namespace gearshift
