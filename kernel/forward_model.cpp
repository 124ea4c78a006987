// Finding and checking the tensors of a model in its mapping.
#include <cmath>
#include <stdexcept>

#include "attention.h"
#include "forward.h"

namespace gearshift {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

void require(bool holds, const std::string& what) {
    if (!holds) refuse(what);
}

void check_shape(const Shape& s) {
    const auto within = [](const char* name, int value, int low, int high) {
        require(value >= low && value <= high, std::string("model shape: ") + name + " is " + std::to_string(value) +
                                                   ", expected " + std::to_string(low) + " to " + std::to_string(high));
    };
    within("layers", s.layers, 1, 1024);
    within("d_model", s.d_model, 16, 65536);
    within("d_ff", s.d_ff, 16, 1 << 20);
    within("heads", s.heads, 1, 1024);
    within("kv_heads", s.kv_heads, 1, s.heads);
    within("head_dim", s.head_dim, 16, MAX_HEAD_DIM);
    within("vocab", s.vocab, 1, 1 << 24);
    within("context", s.context, 1, 1 << 24);
    within("sliding_window", s.sliding_window, 0, 1 << 24);
    within("global_every", s.global_every, 1, 1 << 16);
    const auto sixteen = [](const char* name, int value) {
        require(value % 16 == 0, std::string("model shape: ") + name + " is " + std::to_string(value) +
                                     ", expected a multiple of 16");
    };
    sixteen("d_model", s.d_model);
    sixteen("d_ff", s.d_ff);
    sixteen("head_dim", s.head_dim);
    require(s.heads % s.kv_heads == 0, "model shape: heads (" + std::to_string(s.heads) +
                                           ") is not a multiple of kv_heads (" + std::to_string(s.kv_heads) + ")");
    within("heads / kv_heads", s.heads / s.kv_heads, 1, MAX_TILE_QUERIES);
    const auto positive = [](const char* name, float value) {
        require(std::isfinite(value) && value > 0, std::string("model shape: ") + name + " is " + std::to_string(value) +
                                                       ", expected a positive number");
    };
    positive("rope_base", s.rope_base);
    positive("rope_scale", s.rope_scale);
    positive("rope_base_local", s.rope_base_local);
    positive("attention_scale", s.attention_scale);
    positive("embedding_scale", s.embedding_scale);
    require(std::isfinite(s.rms_eps) && s.rms_eps >= 0, "model shape: rms_eps is not a number of at least 0");
}

// Hands out tensors of an expected shape.
class Tensors {
public:
    Tensors(const uint8_t* mapping, size_t bytes, const std::map<std::string, Place>& places)
        : mapping_(mapping), bytes_(bytes), places_(places) {}

    Linear matrix(const std::string& name, int n_out, int n_in) const {
        const Place& place = find(name, n_out, n_in);
        require(place.bits == 4 || place.bits == 8,
                "tensor " + name + ": bits is " + std::to_string(place.bits) + ", expected 4 or 8 for a matrix");
        const uint8_t* data = mapping_ + place.offset;
        require(reinterpret_cast<uintptr_t>(data) % 64 == 0, "tensor " + name + " is not aligned to 64 bytes in memory");
        try {
            return view_packed(data, place.bytes, n_out, n_in, place.bits);
        } catch (const std::invalid_argument& error) {
            refuse("tensor " + name + ": " + error.what());
        }
    }

    const float* vector(const std::string& name, int length) const {
        // A vector may be described as one row or as one column.
        const auto found = places_.find(name);
        const bool column = found != places_.end() && found->second.n_in == 1;
        const Place& place = column ? find(name, length, 1) : find(name, 1, length);
        require(place.bits == 32, "tensor " + name + ": bits is " + std::to_string(place.bits) + ", expected 32");
        const uint8_t* data = mapping_ + place.offset;
        require(reinterpret_cast<uintptr_t>(data) % alignof(float) == 0, "tensor " + name + " is not aligned to 4 bytes");
        require(place.bytes == size_t(length) * sizeof(float),
                "tensor " + name + " has " + std::to_string(place.bytes) + " bytes, expected " +
                    std::to_string(size_t(length) * sizeof(float)));
        return reinterpret_cast<const float*>(data);
    }

private:
    const Place& find(const std::string& name, int n_out, int n_in) const {
        const auto found = places_.find(name);
        require(found != places_.end(), "tensor " + name + " is missing");
        const Place& place = found->second;
        require(place.n_out == n_out && place.n_in == n_in,
                "tensor " + name + " is " + std::to_string(place.n_out) + " x " + std::to_string(place.n_in) +
                    ", expected " + std::to_string(n_out) + " x " + std::to_string(n_in));
        require(place.offset <= bytes_ && place.bytes <= bytes_ - place.offset,
                "tensor " + name + " lies outside the mapping of " + std::to_string(bytes_) + " bytes");
        return place;
    }

    const uint8_t* mapping_;
    size_t bytes_;
    const std::map<std::string, Place>& places_;
};

}  // namespace

Rotary::Rotary(int head_dim, int context, double base, double position_scale, const float* factors)
    : half_(head_dim / 2) {
    const auto fill = [&](std::vector<double>& table, int entries, int step) {
        table.resize(size_t(entries) * half_ * 2);
        for (int entry = 0; entry < entries; ++entry)
            for (int i = 0; i < half_; ++i) {
                double frequency = std::pow(base, -2.0 * i / head_dim) * position_scale;
                if (factors) frequency /= factors[i];
                const double angle = double(entry) * step * frequency;
                double* at = &table[(size_t(entry) * half_ + i) * 2];
                at[0] = std::cos(angle);
                at[1] = std::sin(angle);
            }
    };
    fill(fine_, FINE, 1);
    fill(coarse_, (context - 1) / FINE + 1, FINE);
}

void Rotary::angles(int position, float* cosine, float* sine) const {
    const double* a = &coarse_[size_t(position / FINE) * half_ * 2];
    const double* b = &fine_[size_t(position % FINE) * half_ * 2];
    for (int i = 0; i < half_; ++i) {
        cosine[i] = float(a[2 * i] * b[2 * i] - a[2 * i + 1] * b[2 * i + 1]);
        sine[i] = float(a[2 * i] * b[2 * i + 1] + a[2 * i + 1] * b[2 * i]);
    }
}

Model::Model(const uint8_t* mapping, size_t bytes, const Shape& shape, const std::map<std::string, Place>& places,
             const Path& path)
    : shape_(shape), path_(path) {
    const Shape& s = shape_;
    check_shape(s);
    const Tensors tensors(mapping, bytes, places);
    const int q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
    embedding_ = tensors.matrix("token_embd.weight", s.vocab, s.d_model);
    head_ = s.tied_head ? embedding_ : tensors.matrix("output.weight", s.vocab, s.d_model);
    output_norm_ = tensors.vector("output_norm.weight", s.d_model);
    const float* factors = s.rope_factors ? tensors.vector("rope_freqs.weight", s.head_dim / 2) : nullptr;
    for (int i = 0; factors && i < s.head_dim / 2; ++i)
        require(std::isfinite(factors[i]) && factors[i] > 0, "tensor rope_freqs.weight holds a factor that is not positive");
    rotary_ = Rotary(s.head_dim, s.context, s.rope_base, s.rope_scale, factors);
    bool local_layers = false;
    for (int i = 0; i < s.layers; ++i) {
        const std::string prefix = "blk." + std::to_string(i) + ".";
        const auto matrix = [&](const char* name, int n_out, int n_in) {
            return tensors.matrix(prefix + name + ".weight", n_out, n_in);
        };
        const auto vector = [&](const char* name, int length) { return tensors.vector(prefix + name, length); };
        LayerWeights layer;
        layer.global = s.sliding_window == 0 || (i + 1) % s.global_every == 0;
        local_layers |= !layer.global;
        layer.attention_norm = vector("attn_norm.weight", s.d_model);
        layer.q = matrix("attn_q", q_width, s.d_model);
        layer.k = matrix("attn_k", kv_width, s.d_model);
        layer.v = matrix("attn_v", kv_width, s.d_model);
        layer.o = matrix("attn_output", s.d_model, q_width);
        layer.feed_norm = vector("ffn_norm.weight", s.d_model);
        layer.gate = matrix("ffn_gate", s.d_ff, s.d_model);
        layer.up = matrix("ffn_up", s.d_ff, s.d_model);
        layer.down = matrix("ffn_down", s.d_model, s.d_ff);
        if (s.qkv_bias) {
            layer.q_bias = vector("attn_q.bias", q_width);
            layer.k_bias = vector("attn_k.bias", kv_width);
            layer.v_bias = vector("attn_v.bias", kv_width);
        }
        if (s.qk_norm) {
            layer.q_norm = vector("attn_q_norm.weight", s.head_dim);
            layer.k_norm = vector("attn_k_norm.weight", s.head_dim);
        }
        if (s.post_norms) {
            layer.post_attention_norm = vector("post_attention_norm.weight", s.d_model);
            layer.post_feed_norm = vector("post_ffw_norm.weight", s.d_model);
        }
        layers_.push_back(layer);
    }
    if (local_layers) rotary_local_ = Rotary(s.head_dim, s.context, s.rope_base_local, 1.0, nullptr);
}

}  // namespace gearshift
