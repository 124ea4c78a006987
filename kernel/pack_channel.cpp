// Each channel's scale is the best of a few candidates by least squared error. Plain scalar or fixed-width vector
// arithmetic in a fixed order, so that a packed file is the same on every machine.
#include "pack_channel.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace gearshift {
namespace {

constexpr int CANDIDATES = 24;
constexpr double CANDIDATE_SPAN = 0.115;       // the last candidate is this much above the smallest scale
constexpr double MAX_INT_4 = 1900;             // keeps 16 * plane1 + plane2 within bytes almost always
constexpr int MAX_CODE_8 = 127;
constexpr int MAX_K = 255;
constexpr int MAX_GRID = 16;   // levels on each side of zero of a source block with its own grid, as Q5_0 has
constexpr double EXACT_SUM = 2147483647.0;

// An affine block: w = d * q + m with d >= 0, and the moments of its codes.
struct AffineBlock {
    double d, m, sum_q, sum_qq;
    int min_q, max_q;
};

// Largest sum over a segment of `magnitude(block)`.
template <class Magnitude>
double largest_segment(int blocks, Magnitude magnitude) {
    constexpr int per_segment = SEGMENT_K / BLOCK_K;
    double largest = 0;
    for (int first = 0; first < blocks; first += per_segment) {
        double sum = 0;
        for (int b = first; b < std::min(blocks, first + per_segment); b++) sum += magnitude(b);
        largest = std::max(largest, sum);
    }
    return largest;
}

// Runs `attempt(scale)` over the candidate scales from `smallest` up; an attempt returns the squared error, or infinity
// when the integers would break a bound. Returns the best scale. Doubling always ends at weights that all round to
// zero, which break no bound.
template <class Attempt>
double best_scale(double smallest, Attempt attempt) {
    double best = 0, least = std::numeric_limits<double>::infinity();
    for (double base = smallest; best == 0; base *= 1 + CANDIDATE_SPAN) {
        for (int i = 0; i < CANDIDATES; i++) {
            // Through float, as it will be stored.
            const double scale = double(float(base * (1 + CANDIDATE_SPAN * i / (CANDIDATES - 1))));
            const double error = attempt(scale);
            if (error < least) {
                least = error;
                best = scale;
            }
        }
    }
    return best;
}

class Packer4 {
public:
    Packer4(int n_in, int limit) : blocks_((n_in + BLOCK_K - 1) / BLOCK_K), limit_(limit), affine_(size_t(blocks_)) {}

    // codes [blocks * 32], d and m [blocks]; zero-padded.
    void run(const uint8_t* codes, const float* d, const float* m, Channel& out) {
        double largest = 0, largest_d = 0;
        std::vector<double> magnitude(static_cast<size_t>(blocks_));
        for (int b = 0; b < blocks_; b++) {
            AffineBlock& block = affine_[size_t(b)];
            // A negative step counts the same codes from the other end.
            const bool flip = d[b] < 0;
            block = {std::fabs(double(d[b])), double(m[b]) + (flip ? 15.0 * double(d[b]) : 0.0), 0, 0, 15, 0};
            for (int i = 0; i < BLOCK_K; i++) {
                const int q = flip ? 15 - codes[b * BLOCK_K + i] : codes[b * BLOCK_K + i];
                out.codes[size_t(b * BLOCK_K + i)] = uint8_t(q);
                block.sum_q += q;
                block.sum_qq += q * q;
                block.min_q = std::min(block.min_q, q);
                block.max_q = std::max(block.max_q, q);
                const double w = std::fabs(block.d * q + block.m);
                magnitude[size_t(b)] += w;
                largest = std::max(largest, w);
            }
            largest_d = std::max(largest_d, block.d);
        }
        const double sum = largest_segment(blocks_, [&](int b) { return magnitude[size_t(b)]; });
        const double smallest =
            std::max({largest / MAX_INT_4, largest_d / (MAX_K + 0.4), sum / (0.995 * EXACT_SUM / limit_)});
        if (largest == 0 || float(smallest) < std::numeric_limits<float>::min()) {
            out.clear(4);   // nothing, or too small to be told from nothing
            return;
        }
        double least = std::numeric_limits<double>::infinity();
        const double scale = best_scale(smallest, [&](double s) {
            const double error = squared_error(s);
            if (error >= least || !within_bounds(s, out.codes.data())) return std::numeric_limits<double>::infinity();
            return least = error;
        });
        write(scale, out);
    }

private:
    struct Integers {
        int k, n;
    };

    Integers integers(const AffineBlock& block, double inverse, double s) const {
        const double k = std::min(double(MAX_K), std::floor(block.d * inverse + 0.5));
        // The offset absorbs the mean of what rounding the step leaves.
        const double n = std::floor((block.m + (block.d - k * s) * (block.sum_q / BLOCK_K)) * inverse + 0.5);
        return {int(k), int(n)};
    }

    double squared_error(double s) const {
        const double inverse = 1 / s;
        double error = 0;
        for (const AffineBlock& block : affine_) {
            const auto [k, n] = integers(block, inverse, s);
            const double a = block.d - s * k, b = block.m - s * n;
            error += a * a * block.sum_qq + 2 * a * b * block.sum_q + BLOCK_K * b * b;
        }
        return error;
    }

    bool within_bounds(double s, const uint8_t* codes) const {
        const double inverse = 1 / s;
        bool bytes = true;
        const double sum = largest_segment(blocks_, [&](int b) {
            const AffineBlock& block = affine_[size_t(b)];
            const auto [k, n] = integers(block, inverse, s);
            // The byte planes of the AMX path: w_int = 16 * plane1 + plane2.
            const int high = k >> 4, offset = (n + 8 * (k & 15)) >> 4;
            bytes &= high * block.min_q + offset >= -128 && high * block.max_q + offset <= 127;
            int sum_of_block = 0;
            for (int i = 0; i < BLOCK_K; i++) sum_of_block += std::abs(k * codes[b * BLOCK_K + i] + n);
            return double(sum_of_block);
        });
        return bytes && sum * limit_ <= EXACT_SUM;
    }

    void write(double s, Channel& out) const {
        const double inverse = 1 / s;
        double weight_times_int = 0, int_squared = 0;
        for (int b = 0; b < blocks_; b++) {
            const AffineBlock& block = affine_[size_t(b)];
            const auto [k, n] = integers(block, inverse, s);
            out.k[size_t(b)] = uint8_t(k);
            out.n[size_t(b)] = int16_t(n);
            weight_times_int += block.d * k * block.sum_qq + (block.d * n + block.m * k) * block.sum_q + BLOCK_K * block.m * n;
            int_squared += double(k) * k * block.sum_qq + 2.0 * k * n * block.sum_q + double(BLOCK_K) * n * n;
        }
        // Given the integers, this is the scale of least error; the bounds hold for the integers alone.
        out.scale = int_squared > 0 ? float(weight_times_int / int_squared) : 0.0f;
    }

    int blocks_, limit_;
    std::vector<AffineBlock> affine_;
};

typedef float f32x4 __attribute__((vector_size(16)));

// Nearest integers (ties to even) for |v| < 2^22.
inline f32x4 round_to_int(f32x4 v) {
    const float magic = 12582912.0f;   // 1.5 * 2^23
    return (v + magic) - magic;
}

inline f32x4 load4(const float* p) {
    f32x4 v;
    std::memcpy(&v, p, 16);
    return v;
}

inline f32x4 quantize4(f32x4 w, float inverse) {
    const f32x4 top = f32x4{} + float(MAX_CODE_8);
    f32x4 q = round_to_int(w * inverse);
    q = q > top ? top : q;
    return q < -top ? -top : q;
}

class Packer8 {
public:
    Packer8(int n_in, int limit)
        : blocks_((n_in + BLOCK_K - 1) / BLOCK_K), limit_(limit), largest_(size_t(blocks_)), grid_(size_t(blocks_)),
          k_(size_t(blocks_)) {}

    // w [blocks * 32], zero-padded.
    void run(const float* w, Channel& out) {
        double largest = 0;
        std::vector<double> magnitude(static_cast<size_t>(blocks_));
        for (int b = 0; b < blocks_; b++) {
            float top = 0;
            for (int i = 0; i < BLOCK_K; i++) {
                const float v = std::fabs(w[b * BLOCK_K + i]);
                top = std::max(top, v);
                magnitude[size_t(b)] += double(v);
            }
            largest_[size_t(b)] = top;
            grid_[size_t(b)] = grid_step(w + b * BLOCK_K, top);
            largest = std::max(largest, double(top));
        }
        const double sum = largest_segment(blocks_, [&](int b) { return magnitude[size_t(b)]; });
        const double smallest =
            std::max(largest / (MAX_CODE_8 * (MAX_K + 0.4)), sum / (0.995 * EXACT_SUM / limit_));
        if (largest == 0 || float(smallest) < std::numeric_limits<float>::min()) {
            out.clear(8);
            return;
        }
        double least = std::numeric_limits<double>::infinity();
        const double scale = best_scale(smallest, [&](double s) {
            const double error = choose_steps(w, s, least);
            if (error >= least || !within_bounds(w, s)) return std::numeric_limits<double>::infinity();
            return least = error;
        });
        choose_steps(w, scale, std::numeric_limits<double>::infinity());
        write(w, scale, out);
    }

private:
    // The step of a block whose weights are a few whole multiples of one, else 0.
    static float grid_step(const float* w, float top) {
        for (int levels = 1; levels <= MAX_GRID && top > 0; levels++) {
            const float inverse = float(levels) / top;
            bool on_grid = true;
            for (int i = 0; i < BLOCK_K && on_grid; i++) {
                const float multiple = std::fabs(w[i]) * inverse;
                on_grid = std::fabs(multiple - std::floor(multiple + 0.5f)) < 1e-4f;
            }
            if (on_grid) return top / float(levels);
        }
        return 0;
    }

    // CLAMP: whether the step is too small for the largest weight.
    template <bool CLAMP>
    static double block_error(const float* w, float step) {
        const float inverse = 1 / step;
        f32x4 error{};
        for (int i = 0; i < BLOCK_K; i += 4) {
            const f32x4 v = load4(w + i);
            const f32x4 e = v - (CLAMP ? quantize4(v, inverse) : round_to_int(v * inverse)) * step;
            error += e * e;
        }
        return double(error[0] + error[1]) + double(error[2] + error[3]);
    }

    // The best of the two steps around the finest that reaches a block's largest weight, and of the one nearest to the
    // block's own grid, which leaves no error but its own rounding. Fills k_ and returns the squared error, or something
    // from `give_up` up.
    double choose_steps(const float* w, double s, double give_up) {
        double total = 0;
        for (int b = 0; b < blocks_; b++) {
            const double exact = double(largest_[size_t(b)]) / (MAX_CODE_8 * s);
            const int below = std::clamp(int(exact), 1, MAX_K), above = std::min(below + 1, MAX_K);
            const int candidates[] = {below, above, int(std::min(double(grid_[size_t(b)]) / s + 0.5, double(MAX_K)))};
            double least = std::numeric_limits<double>::infinity();
            for (const int k : candidates) {
                if (k < below) continue;   // no grid
                const float* block = w + b * BLOCK_K;
                const float step = float(s) * float(k);
                const double error = k < exact ? block_error<true>(block, step) : block_error<false>(block, step);
                if (error < least) {
                    least = error;
                    k_[size_t(b)] = uint8_t(k);
                }
            }
            total += least;
            if (total >= give_up) break;   // no better than the best so far
        }
        return total;
    }

    bool within_bounds(const float* w, double s) const {
        const double sum = largest_segment(blocks_, [&](int b) {
            const float inverse = 1 / (float(s) * float(k_[size_t(b)]));
            float codes = 0;   // at most 32 * 127: exact
            for (int i = 0; i < BLOCK_K; i += 4) {
                f32x4 q = quantize4(load4(w + b * BLOCK_K + i), inverse);
                q = q < 0 ? -q : q;
                codes += q[0] + q[1] + q[2] + q[3];
            }
            return double(codes) * k_[size_t(b)];
        });
        return sum * limit_ <= EXACT_SUM;
    }

    void write(const float* w, double s, Channel& out) const {
        double weight_times_int = 0, int_squared = 0;
        for (int b = 0; b < blocks_; b++) {
            const int k = k_[size_t(b)];
            const float inverse = 1 / (float(s) * float(k));
            for (int i = 0; i < BLOCK_K; i += 4) {
                const f32x4 q = quantize4(load4(w + b * BLOCK_K + i), inverse);
                for (int j = 0; j < 4; j++) {
                    const int code = int(q[j]);
                    out.codes[size_t(b * BLOCK_K + i + j)] = uint8_t(code + 128);
                    weight_times_int += double(w[b * BLOCK_K + i + j]) * (k * code);
                    int_squared += double(k * code) * (k * code);
                }
            }
            out.k[size_t(b)] = uint8_t(k);
        }
        out.scale = int_squared > 0 ? float(weight_times_int / int_squared) : 0.0f;
    }

    int blocks_, limit_;
    std::vector<float> largest_, grid_;
    std::vector<uint8_t> k_;
};

}  // namespace

void pack_channel4(const uint8_t* codes, const float* d, const float* m, int n_in, Channel& out) {
    Packer4(n_in, activation_limit(n_in)).run(codes, d, m, out);
}

void pack_channel8(const float* weights, int n_in, Channel& out) {
    Packer8(n_in, activation_limit(n_in)).run(weights, out);
}

}  // namespace gearshift
