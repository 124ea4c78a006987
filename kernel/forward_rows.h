// What happens to single rows between the linear layers: norms, rotations, activation, and attention over the cache.
// One function table per ISA path; all tables give the same bits. Splitting the work among threads is forward_step.h's.
#pragma once
#include <cstddef>
#include <cstdint>

#include "attention.h"

namespace gearshift {

// How one head of a query, key or value is finished after its linear layer; null where a step does not apply.
struct HeadForm {
    int head_dim;
    bool fine_keys;        // see cache.h; also for queries
    const float* bias;     // added first
    const float* norm;     // weights of an RMS norm over the head
    float eps;
    const float* cosine;   // [head_dim / 2] of the row's position; null: not rotated by position
    const float* sine;
    bool interleaved;      // rotate pairs (2i, 2i + 1), otherwise (i, i + head_dim / 2)
};

// Widths are multiples of 16.
struct RowPath {
    const char* name;
    // out = in / rms(in) * weight
    void (*norm)(const float* in, const float* weight, float eps, int n, float* out);
    // residual += in
    void (*add)(const float* in, int n, float* residual);
    // out = scale * in
    void (*scale)(const float* in, float scale, int n, float* out);
    // gate = silu(gate) * up, or gelu (tanh approximation)
    void (*activate)(float* gate, const float* up, int n, bool gelu);
    // Finish a head and rotate it by the Hadamard matrix. All become integers with a scale; keys and values go to
    // `offset` of their plane of a cache block.
    void (*query)(const float* in, const HeadForm& form, int16_t* out, float* scale);
    void (*key)(const float* in, const HeadForm& form, uint8_t* plane, int offset, float* scales);
    void (*value)(const float* in, const HeadForm& form, int8_t* plane, int offset, float* scales);
    const AttentionPath* attention;
};

extern const RowPath rows_portable;
#ifdef GEARSHIFT_X86
extern const RowPath rows_avx2;
extern const RowPath rows_avx512;
#endif

}  // namespace gearshift
