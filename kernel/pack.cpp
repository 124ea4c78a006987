// Packing: from the rows of a GGUF matrix to the records of linear.h and back. The integers of a channel are chosen in
// pack_channel.cpp.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dequantize.h"
#include "linear.h"
#include "pack_channel.h"

namespace gearshift {
namespace {

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
          channel_(tiles_ * TILE_K, bits),
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
            pack_channel4(codes_.data(), d_.data(), m_.data(), n_in_, channel_);
        else
            pack_channel8(weights_.data(), n_in_, channel_);
    }

    const uint8_t* source_;
    int type_, n_out_, n_in_, bits_, tiles_;
    size_t row_bytes_;
    int blocks_;
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
