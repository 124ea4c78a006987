// Packing: from GGUF blocks to the integer weights of linear.h. Chooses each channel's scale out of a few candidates
// by least squared error under the exactness bounds, then writes the records. Plain scalar or fixed-width vector
// arithmetic in a fixed order, so that a packed file is the same on every machine.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dequantize.h"
#include "linear.h"

namespace gearshift {
namespace {

constexpr int CANDIDATES = 24;
constexpr double CANDIDATE_SPAN = 0.115;       // the last candidate is this much above the smallest scale
constexpr double MAX_INT_4 = 1900;             // keeps 16 * plane1 + plane2 within bytes almost always
constexpr int MAX_CODE_8 = 127;
constexpr int MAX_K_4 = 255, MAX_K_8 = 15;
constexpr double EXACT_SUM = 2147483647.0;

// What one channel becomes. Blocks beyond n_in stay zero weights.
struct Channel {
    float scale = 0;
    std::vector<uint8_t> codes;   // [padded]
    std::vector<uint8_t> k;       // [padded / 32]
    std::vector<int16_t> n;       // [padded / 32], 4 bits only

    Channel(int padded, int bits)
        : codes(size_t(padded), bits == 8 ? 128 : 0), k(size_t(padded / BLOCK_K), bits == 8 ? 1 : 0),
          n(size_t(padded / BLOCK_K), 0) {}
    void clear(int bits) {
        scale = 0;
        std::fill(codes.begin(), codes.end(), bits == 8 ? 128 : 0);
        std::fill(k.begin(), k.end(), bits == 8 ? 1 : 0);
        std::fill(n.begin(), n.end(), 0);
    }
};

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
            std::max({largest / MAX_INT_4, largest_d / (MAX_K_4 + 0.4), sum / (0.995 * EXACT_SUM / limit_)});
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
        const double k = std::min(double(MAX_K_4), std::floor(block.d * inverse + 0.5));
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
        : blocks_((n_in + BLOCK_K - 1) / BLOCK_K), limit_(limit), largest_(size_t(blocks_)), k_(size_t(blocks_)) {}

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
            largest = std::max(largest, double(top));
        }
        const double sum = largest_segment(blocks_, [&](int b) { return magnitude[size_t(b)]; });
        const double smallest =
            std::max(largest / (MAX_CODE_8 * (MAX_K_8 + 0.4)), sum / (0.995 * EXACT_SUM / limit_));
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

    // The better of the two steps around each block's own; fills k_ and returns the squared error,
    // or something from `give_up` up.
    double choose_steps(const float* w, double s, double give_up) {
        double total = 0;
        for (int b = 0; b < blocks_; b++) {
            const double exact = double(largest_[size_t(b)]) / (MAX_CODE_8 * s);
            const int below = std::clamp(int(exact), 1, MAX_K_8);
            double least = std::numeric_limits<double>::infinity();
            for (int k = below; k <= std::min(below + 1, MAX_K_8); k++) {
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
    std::vector<float> largest_;
    std::vector<uint8_t> k_;
};

// A least-range affine 4-bit form of weights that are not in one.
void fit_affine4(const float* w, int blocks, uint8_t* codes, float* d, float* m) {
    for (int b = 0; b < blocks; b++) {
        const auto [low, high] = std::minmax_element(w + b * BLOCK_K, w + (b + 1) * BLOCK_K);
        m[b] = *low;
        d[b] = *high / 15 - *low / 15;
        for (int i = 0; i < BLOCK_K; i++) {
            const float q = d[b] > 0 ? (w[b * BLOCK_K + i] - *low) / d[b] : 0.0f;
            codes[b * BLOCK_K + i] = uint8_t(std::clamp(int(q + 0.5f), 0, 15));
        }
    }
}

void write_channel4(const Channel& channel, int tiles, int c, uint8_t* records) {
    for (int t = 0; t < tiles; t++, records += RECORD_4) {
        const uint8_t* q = channel.codes.data() + t * TILE_K;
        for (int v = 0; v < 8; v++)
            for (int j = 0; j < 4; j++) records[64 * v + 4 * c + j] = uint8_t(q[8 * v + j] | q[8 * v + 4 + j] << 4);
        for (int block = 0; block < 2; block++) {
            const size_t b = size_t(2 * t + block);
            records[512 + 16 * block + c] = channel.k[b];
            std::memcpy(records + 544 + 4 * c + 2 * block, &channel.n[b], 2);
        }
    }
}

void write_channel8(const Channel& channel, int tiles, int c, uint8_t* records) {
    for (int t = 0; t < tiles; t++, records += RECORD_8) {
        const uint8_t* q = channel.codes.data() + t * TILE_K;
        for (int v = 0; v < 16; v++) std::memcpy(records + 64 * v + 4 * c, q + 4 * v, 4);
        for (int block = 0; block < 2; block++) records[1024 + 16 * block + c] = channel.k[size_t(2 * t + block)];
    }
}

// Not finite, or so large that squares of errors would overflow: no model has such weights.
void require_sane(const float* values, size_t count, int channel) {
    for (size_t i = 0; i < count; i++)
        if (!(std::fabs(values[i]) < 1e15f))
            throw std::invalid_argument("weight matrix row " + std::to_string(channel) + " holds the value " +
                                        std::to_string(values[i]) +
                                        "; expected finite weights below 1e15: the file is damaged");
}

// One thread's work on groups of channels.
class GroupPacker {
public:
    GroupPacker(const uint8_t* source, int type, int n_out, int n_in, int bits)
        : source_(source), type_(type), n_out_(n_out), n_in_(n_in), bits_(bits), tiles_((n_in + TILE_K - 1) / TILE_K),
          row_bytes_(source_bytes(type, size_t(n_in))), blocks_((n_in + BLOCK_K - 1) / BLOCK_K),
          four_(n_in, activation_limit(n_in)), eight_(n_in, activation_limit(n_in)), channel_(tiles_ * TILE_K, bits),
          weights_(size_t(blocks_ * BLOCK_K)), codes_(size_t(blocks_ * BLOCK_K)), d_(size_t(blocks_)),
          m_(size_t(blocks_)) {}

    void run(int group, float* scales, uint8_t* records) {
        for (int c = 0; c < GROUP; c++) {
            const int index = group * GROUP + c;
            channel_.clear(bits_);
            if (index < n_out_) convert(index);
            scales[index] = channel_.scale;
            if (bits_ == 4)
                write_channel4(channel_, tiles_, c, records);
            else
                write_channel8(channel_, tiles_, c, records);
        }
    }

private:
    void convert(int index) {
        const uint8_t* row = source_ + size_t(index) * row_bytes_;
        if (bits_ == 4 && is_affine4(type_)) {
            affine4_blocks(row, type_, size_t(n_in_), codes_.data(), d_.data(), m_.data());
            require_sane(d_.data(), d_.size(), index);
            require_sane(m_.data(), m_.size(), index);
        } else {
            dequantize(row, type_, size_t(n_in_), weights_.data());
            require_sane(weights_.data(), size_t(n_in_), index);
            if (bits_ == 4) fit_affine4(weights_.data(), blocks_, codes_.data(), d_.data(), m_.data());
        }
        if (bits_ == 4)
            four_.run(codes_.data(), d_.data(), m_.data(), channel_);
        else
            eight_.run(weights_.data(), channel_);
    }

    const uint8_t* source_;
    int type_, n_out_, n_in_, bits_, tiles_;
    size_t row_bytes_;
    int blocks_;
    Packer4 four_;
    Packer8 eight_;
    Channel channel_;
    std::vector<float> weights_;
    std::vector<uint8_t> codes_;
    std::vector<float> d_, m_;
};

void require_shape(int n_out, int n_in, int bits) {
    // The upper bounds keep every size below in range; real models are far smaller.
    if (n_out < 1 || n_in < 1 || n_out > (1 << 24) || n_in > (1 << 20))
        throw std::invalid_argument("a weight matrix of " + std::to_string(n_out) + " x " + std::to_string(n_in) +
                                    " is out of range; expected 1..2^24 x 1..2^20");
    if (bits != 4 && bits != 8)
        throw std::invalid_argument("packed weights of " + std::to_string(bits) + " bits do not exist; expected 4 or 8");
}

size_t scale_bytes(int n_out) { return size_t((n_out + GROUP - 1) / GROUP) * GROUP * sizeof(float); }

}  // namespace

int default_bits(int ggml_type) {
    block_shape(ggml_type);   // refuses unknown types
    return is_affine4(ggml_type) ? 4 : 8;
}

size_t packed_bytes(int n_out, int n_in, int bits) {
    require_shape(n_out, n_in, bits);
    Linear shape{n_out, n_in, bits};
    return scale_bytes(n_out) + size_t(shape.groups()) * size_t(shape.tiles()) * shape.record_bytes();
}

Linear view_packed(const uint8_t* data, size_t bytes, int n_out, int n_in, int bits) {
    const size_t expected = packed_bytes(n_out, n_in, bits);
    if (bytes != expected)
        throw std::invalid_argument("packed matrix of " + std::to_string(bytes) + " bytes; expected " +
                                    std::to_string(expected) + " for " + std::to_string(n_out) + " x " +
                                    std::to_string(n_in) + " at " + std::to_string(bits) + " bits");
    if (reinterpret_cast<uintptr_t>(data) % alignof(float) != 0)
        throw std::invalid_argument("packed matrix is not aligned to 4 bytes; map it at a multiple of 64");
    return {n_out, n_in, bits, reinterpret_cast<const float*>(data), data + scale_bytes(n_out)};
}

void pack(const uint8_t* source, size_t bytes, int ggml_type, int n_out, int n_in, int bits, int threads, uint8_t* out) {
    if (bits == 0) bits = default_bits(ggml_type);
    require_shape(n_out, n_in, bits);
    const size_t expected = source_bytes(ggml_type, size_t(n_in)) * size_t(n_out);
    if (bytes != expected)
        throw std::invalid_argument("weight matrix of " + std::to_string(bytes) + " bytes; expected " +
                                    std::to_string(expected) + " for " + std::to_string(n_out) + " x " +
                                    std::to_string(n_in) + " of tensor type " + std::to_string(ggml_type));
    const Linear shape{n_out, n_in, bits};
    const int groups = shape.groups();
    const size_t group_bytes = size_t(shape.tiles()) * shape.record_bytes();
    std::vector<float> scales(size_t(groups) * GROUP);
    uint8_t* records = out + scale_bytes(n_out);

    std::atomic<int> next{0};
    std::exception_ptr failure;
    std::mutex failure_lock;
    const auto work = [&] {
        try {
            GroupPacker packer(source, ggml_type, n_out, n_in, bits);
            for (int g = next++; g < groups; g = next++)
                packer.run(g, scales.data(), records + size_t(g) * group_bytes);
        } catch (...) {
            next = groups;
            const std::lock_guard<std::mutex> hold(failure_lock);
            if (!failure) failure = std::current_exception();
        }
    };
    std::vector<std::thread> team;
    for (int i = 1; i < std::min(threads, groups); i++) team.emplace_back(work);
    work();
    for (std::thread& thread : team) thread.join();
    if (failure) std::rethrow_exception(failure);
    std::memcpy(out, scales.data(), scales.size() * sizeof(float));
}

void unpack_channel(const Linear& linear, int channel, float* out) {
    if (channel < 0 || channel >= linear.n_out)
        throw std::invalid_argument("channel " + std::to_string(channel) + " is outside the matrix of " +
                                    std::to_string(linear.n_out) + " channels");
    const int c = channel % GROUP;
    const uint8_t* record =
        linear.records + size_t(channel / GROUP) * size_t(linear.tiles()) * linear.record_bytes();
    const float scale = linear.scale[channel];
    for (int i = 0; i < linear.n_in; i++) {
        const uint8_t* tile = record + size_t(i / TILE_K) * linear.record_bytes();
        const int k = i % TILE_K, block = k / BLOCK_K;
        int weight;
        if (linear.bits == 4) {
            const int byte = tile[64 * (k / 8) + 4 * c + k % 4];
            int16_t n;
            std::memcpy(&n, tile + 544 + 4 * c + 2 * block, 2);
            weight = tile[512 + 16 * block + c] * (k % 8 < 4 ? byte & 15 : byte >> 4) + n;
        } else {
            weight = tile[1024 + 16 * block + c] * (tile[64 * (k / 4) + 4 * c + k % 4] - 128);
        }
        out[i] = scale * float(weight);
    }
}

}  // namespace gearshift
