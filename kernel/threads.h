// A team of kernel threads, shared by all models of a process: runs one job at a time, with barriers inside it.
// It knows nothing of what a job computes; it keeps the job's scratch memory, so that models share one budget.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace gearshift {

// Zero-initialised pages; huge ones where the system has them. Throws std::bad_alloc.
class Pages {
public:
    Pages() = default;
    explicit Pages(size_t bytes);
    ~Pages();
    Pages(Pages&& other) noexcept;
    Pages& operator=(Pages&& other) noexcept;
    uint8_t* data() const { return data_; }
    size_t bytes() const { return bytes_; }

private:
    uint8_t* data_ = nullptr;
    size_t bytes_ = 0;
};

class Threads {
public:
    explicit Threads(int count);
    ~Threads();
    Threads(const Threads&) = delete;

    int count() const { return count_; }

    // Call job(context, member) on every member, the calling thread being member 0; returns when all are done.
    // Jobs of several callers run one after the other. A job must not throw.
    void run(void (*job)(void* context, int member), void* context);

    // Within a job: wait for all members. Resets the ticket counter before anyone goes on.
    void barrier();
    // Within a job: numbers 0, 1, 2, ... given out once each between two barriers.
    int ticket() { return tickets_.value.fetch_add(1, std::memory_order_relaxed); }

    // Held by a caller from before it lays out scratch memory until its job is done.
    std::mutex& busy() { return busy_; }
    // At least `bytes`, 64-byte aligned, contents undefined; grows to the largest request. Hold busy().
    uint8_t* scratch(size_t bytes);

private:
    struct alignas(64) Counter {
        std::atomic<int> value{0};
    };
    void work(int member);
    void wait_for_job(uint32_t seen);

    int count_;
    std::mutex busy_;
    Pages scratch_;
    Counter arrived_, generation_, tickets_, epoch_, parked_, done_;
    void (*job_)(void*, int) = nullptr;
    void* context_ = nullptr;
    bool stop_ = false;
    std::mutex sleep_;
    std::condition_variable wake_;
    std::vector<std::thread> workers_;
};

}  // namespace gearshift
