// A queue for one producer and one consumer, without locks. Capacity is a power of two.
#include <atomic>
#include <cassert>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <utility>

template <typename T>
class Ring {
public:
    explicit Ring(std::size_t capacity) : mask_(capacity - 1), slots_(std::make_unique<Slot[]>(capacity)) {
        assert(capacity >= 2 && (capacity & mask_) == 0);
    }

    ~Ring() {
        while (pop()) {
        }
    }

    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    // False when the ring is full: the value is left untouched.
    bool push(T&& value) {
        const std::size_t tail = tail_.load(std::memory_order_relaxed);
        if (tail - head_seen_ > mask_) {
            head_seen_ = head_.load(std::memory_order_acquire);
            if (tail - head_seen_ > mask_) return false;
        }
        new (&slots_[tail & mask_].bytes) T(std::move(value));
        tail_.store(tail + 1, std::memory_order_release);
        return true;
    }

    std::optional<T> pop() {
        const std::size_t head = head_.load(std::memory_order_relaxed);
        if (head == tail_seen_) {
            tail_seen_ = tail_.load(std::memory_order_acquire);
            if (head == tail_seen_) return std::nullopt;
        }
        T* item = std::launder(reinterpret_cast<T*>(&slots_[head & mask_].bytes));
        std::optional<T> result(std::move(*item));
        item->~T();
        head_.store(head + 1, std::memory_order_release);
        return result;
    }

private:
    struct Slot {
        alignas(T) unsigned char bytes[sizeof(T)];
    };
    const std::size_t mask_;
    std::unique_ptr<Slot[]> slots_;
    alignas(64) std::atomic<std::size_t> head_{0};
    alignas(64) std::size_t tail_seen_ = 0;
    alignas(64) std::atomic<std::size_t> tail_{0};
    alignas(64) std::size_t head_seen_ = 0;
};

